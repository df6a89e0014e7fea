# Warnings, sanitizers and the compiler cache, as the interface target epipe_flags.

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Precompiled headers are cached only with these.
  set(ccache_sloppiness CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${ccache_sloppiness} ${CCACHE_PROGRAM})
endif()

add_library(epipe_flags INTERFACE)
target_include_directories(epipe_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(epipe_flags INTERFACE -pthread)  # some dependencies ask for it, and all users of one precompiled header must agree
target_compile_options(epipe_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>)
# Arithmetic is pinned by docs/wire_format.md: the compiler must not fuse a multiply and an add on its own.
target_compile_options(epipe_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC's precompiled headers and ccache need this pair to agree.
  target_compile_options(epipe_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
endif()
if(EPIPE_WERROR)
  target_compile_options(epipe_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(EPIPE_SANITIZE)
  target_compile_options(epipe_flags INTERFACE -fsanitize=${EPIPE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(epipe_flags INTERFACE -fsanitize=${EPIPE_SANITIZE})
endif()
if(EPIPE_FUZZ)
  # The second pair counts lines for tools/fuzz_coverage.py.
  target_compile_options(epipe_flags INTERFACE -fsanitize=fuzzer-no-link -fprofile-instr-generate -fcoverage-mapping)
  target_link_options(epipe_flags INTERFACE -fprofile-instr-generate)
endif()
