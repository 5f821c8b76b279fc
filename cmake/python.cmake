find_package(Python COMPONENTS Interpreter Development.Module REQUIRED)
find_package(pybind11 CONFIG REQUIRED)

file(GLOB bindings CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cpp/bindings/*.cpp)
# A call of a kernel goes through these, so they get the last optimisations, too.
set(calls ${bindings})
list(FILTER calls INCLUDE REGEX "/(arrays|bind_jit|bind_torch)\\.cpp$")
list(REMOVE_ITEM bindings ${calls})
pybind11_add_module(_core MODULE NO_EXTRAS ${bindings})
add_library(_core_calls OBJECT ${calls})
target_link_libraries(_core_calls PRIVATE pybind11::module)
target_compile_options(_core_calls PRIVATE -Wall -Wextra -Wno-shadow)
target_link_libraries(_core PRIVATE _core_calls)
# Which sources the engine was built from: a checkout whose files have changed since says so when it is imported.
set(digest ${CMAKE_CURRENT_BINARY_DIR}/generated/source_digest.hpp)
file(GLOB_RECURSE engine_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cpp/*.cpp ${PROJECT_SOURCE_DIR}/cpp/*.hpp)
add_custom_command(
  OUTPUT ${digest}
  COMMAND ${CMAKE_COMMAND} -D ROOT=${PROJECT_SOURCE_DIR} -D OUTPUT=${digest}
          -P ${PROJECT_SOURCE_DIR}/cmake/source_digest.cmake
  DEPENDS ${engine_sources} ${PROJECT_SOURCE_DIR}/cmake/source_digest.cmake
  VERBATIM)
target_sources(_core PRIVATE ${digest})
target_include_directories(_core PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated)
target_compile_options(_core PRIVATE -Wall -Wextra -Wno-shadow ${SYNO_LIGHT})
foreach(target _core _core_calls)
  target_link_libraries(${target} PRIVATE syno_synth syno_emit syno_tune syno_graph)
endforeach()
# Exported: PyInit__core, and the two names by which gdb finds functions compiled at run time. A version script
# and not only --exclude-libs, because templates instantiated here would leak otherwise.
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/exports.map
     "{ global: PyInit__core; __jit_debug_register_code; __jit_debug_descriptor; local: *; };\n")
# libstdc++ is inside, so that an older one than this compiler's will do (Ubuntu 22.04, RHEL 9); libgcc is the system's: all that
# throw exceptions in a process share it. With bindings/arc4random.cpp that makes it run on glibc 2.34 (tests/python/test_wheel.py).
target_link_options(_core PRIVATE -static-libstdc++ -Wl,--gc-sections -Wl,-Bsymbolic
                    -Wl,--version-script=${CMAKE_CURRENT_BINARY_DIR}/exports.map)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_link_options(_core PRIVATE -Wl,--strip-all)
endif()
# Slow to compile, and the last of the build: smaller groups keep both cores busy.
set_target_properties(_core PROPERTIES UNITY_BUILD_BATCH_SIZE 6 LINK_DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/exports.map)
install(TARGETS _core LIBRARY DESTINATION syno)
