# LLVM 19, linked statically: the package must carry its own code generator and share no symbol with
# another LLVM in the process (PyTorch, Triton and Numba each bring one).
# LLVM's version file accepts major.minor only, hence 19.1.
find_package(LLVM 19.1 CONFIG HINTS /usr/lib/llvm-19)
if(NOT LLVM_FOUND)
  message(FATAL_ERROR "syno needs LLVM 19.1 to compile kernels. "
                      "Debian: apt-get install llvm-19-dev libzstd-dev zlib1g-dev")
endif()
separate_arguments(SYNO_LLVM_DEFINITIONS NATIVE_COMMAND "${LLVM_DEFINITIONS}")
# The component map gives static archives even where the distribution prefers libLLVM.so.
llvm_map_components_to_libnames(syno_llvm_libs orcjit X86 AArch64 passes orcdebugging)
add_library(syno_llvm INTERFACE)
target_link_options(syno_llvm INTERFACE -Wl,--as-needed)
target_link_libraries(syno_llvm INTERFACE ${syno_llvm_libs})
