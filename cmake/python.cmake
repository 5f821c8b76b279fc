find_package(Python COMPONENTS Interpreter Development.Module REQUIRED)
find_package(pybind11 CONFIG REQUIRED)

file(GLOB bindings CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cpp/bindings/*.cpp)
pybind11_add_module(_core MODULE NO_EXTRAS ${bindings})
target_compile_options(_core PRIVATE -Wall -Wextra -Wno-shadow)
target_link_libraries(_core PRIVATE syno_synth syno_emit syno_tune)
# Exported: PyInit__core, and the two names by which gdb finds functions compiled at run time. A version script
# and not only --exclude-libs, because templates instantiated here would leak otherwise.
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/exports.map
     "{ global: PyInit__core; __jit_debug_register_code; __jit_debug_descriptor; local: *; };\n")
target_link_options(_core PRIVATE -Wl,--gc-sections -Wl,-Bsymbolic
                    -Wl,--version-script=${CMAKE_CURRENT_BINARY_DIR}/exports.map)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_link_options(_core PRIVATE -Wl,--strip-all)
endif()
set_target_properties(_core PROPERTIES LINK_DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/exports.map)
install(TARGETS _core LIBRARY DESTINATION syno)
