# What epipe is made with. Required parts stop the configuration; optional ones are replaced by sources that say what is missing.

if(EPIPE_CUDA AND NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)  # machine code for both, PTX of the newer for what comes later
endif()
if(EPIPE_WHEEL)
  include(EpipeWheelTorch)  # for the PyTorch of the Python that builds it
endif()
find_package(Torch REQUIRED)
find_package(fmt REQUIRED)  # used header-only: LibTorch 2.x brings an fmt of its own, and whichever is found first must do
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Threads REQUIRED)
message(STATUS "epipe: LibTorch ${Torch_VERSION}")

add_library(epipe_torch INTERFACE)
target_include_directories(epipe_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_link_libraries(epipe_torch INTERFACE ${TORCH_LIBRARIES})
separate_arguments(epipe_torch_flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
target_compile_options(epipe_torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${epipe_torch_flags}>)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # clang in C++20 mode needs IValue complete before LibTorch 1.13's List.h names a vector of it.
  target_compile_options(epipe_torch INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include ATen/core/ivalue.h>")
endif()

find_package(Protobuf CONFIG QUIET)
find_package(gRPC CONFIG QUIET)
set(EPIPE_HAS_GRPC ${gRPC_FOUND})

find_path(GLOO_INCLUDE_DIR gloo/config.h)
find_library(GLOO_LIBRARY gloo)
if(GLOO_INCLUDE_DIR AND GLOO_LIBRARY)
  set(EPIPE_HAS_GLOO TRUE)
else()
  set(EPIPE_HAS_GLOO FALSE)
endif()

find_path(PROMETHEUS_INCLUDE_DIR prometheus/text_serializer.h)  # metrics
find_library(PROMETHEUS_LIBRARY prometheus-cpp-core)
if(PROMETHEUS_INCLUDE_DIR AND PROMETHEUS_LIBRARY)
  set(EPIPE_HAS_PROMETHEUS TRUE)
else()
  set(EPIPE_HAS_PROMETHEUS FALSE)
endif()

find_package(JPEG QUIET)  # image files
find_package(PNG QUIET)
find_package(ZLIB QUIET)  # archives

# tokenizer.json: patterns and normal forms. Debian's packages bring no configuration for CMake.
foreach(library PCRE2:pcre2.h:pcre2-8 UTF8PROC:utf8proc.h:utf8proc)
  string(REPLACE ":" ";" library ${library})
  list(GET library 0 name)
  list(GET library 1 header)
  list(GET library 2 file)
  find_path(${name}_INCLUDE_DIR ${header})
  find_library(${name}_LIBRARY ${file})
  if(${name}_INCLUDE_DIR AND ${name}_LIBRARY)
    set(EPIPE_HAS_${name} TRUE)
  else()
    set(EPIPE_HAS_${name} FALSE)
  endif()
endforeach()

if(EPIPE_CUDA)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()

message(STATUS "epipe: gRPC ${EPIPE_HAS_GRPC}, gloo ${EPIPE_HAS_GLOO}, prometheus-cpp ${EPIPE_HAS_PROMETHEUS}, CUDA ${EPIPE_CUDA}, JPEG ${JPEG_FOUND}, PNG ${PNG_FOUND}, zlib ${ZLIB_FOUND}, PCRE2 ${EPIPE_HAS_PCRE2}, utf8proc ${EPIPE_HAS_UTF8PROC}")

# Who adds epipe as a folder links what was found here.
if(NOT PROJECT_IS_TOP_LEVEL)
  get_property(found_targets DIRECTORY PROPERTY IMPORTED_TARGETS)
  set_target_properties(${found_targets} PROPERTIES IMPORTED_GLOBAL TRUE)
endif()
