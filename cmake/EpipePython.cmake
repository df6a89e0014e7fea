# import epipe: the package for one Python, Debian's unless Python3_EXECUTABLE names another, and for the very LibTorch that its
# `import torch` loads. Where something is missing or does not fit, EPIPE_PYTHON_MISSING says what, and the rest is built without it.

option(EPIPE_WHEEL "Building a wheel: for the Python that builds it, and without it there is nothing to build" OFF)
set(EPIPE_PYTHON_MISSING "")
if(EPIPE_WHEEL AND PYTHON_EXECUTABLE)
  set(Python3_EXECUTABLE ${PYTHON_EXECUTABLE})
endif()
if(NOT Python3_EXECUTABLE AND EXISTS /usr/bin/python3)
  set(Python3_EXECUTABLE /usr/bin/python3)
endif()
find_package(Python3 COMPONENTS Interpreter Development.Module QUIET)

if(NOT Python3_Interpreter_FOUND)
  set(EPIPE_PYTHON_MISSING "no Python 3 was found (Debian: apt-get install python3-dev)")
elseif(NOT Python3_Development.Module_FOUND)
  set(EPIPE_PYTHON_MISSING "${Python3_EXECUTABLE} has no headers (Debian: apt-get install python3-dev)")
else()
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c
      "import torch; print('.'.join(torch.__version__.split('.')[:2])); print(bool(torch._C._GLIBCXX_USE_CXX11_ABI)); print(torch.__path__[0])"
    OUTPUT_VARIABLE python_torch ERROR_QUIET RESULT_VARIABLE failed)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" epipe_torch_version "${Torch_VERSION}")
  if(failed)
    set(EPIPE_PYTHON_MISSING "${Python3_EXECUTABLE} cannot import torch (Debian: apt-get install python3-torch; others: pip install torch)")
  else()
    string(REPLACE "\n" ";" python_torch "${python_torch}")
    list(GET python_torch 0 python_torch_version)
    list(GET python_torch 1 python_torch_abi)
    list(GET python_torch 2 python_torch_folder)
    find_library(EPIPE_TORCH_PYTHON_LIBRARY torch_python HINTS ${TORCH_INSTALL_PREFIX}/lib ${python_torch_folder}/lib)
    find_path(EPIPE_TORCH_PYTHON_INCLUDE torch/csrc/utils/pybind.h HINTS ${TORCH_INCLUDE_DIRS})
    find_path(EPIPE_PYBIND11_INCLUDE pybind11/pybind11.h HINTS ${TORCH_INCLUDE_DIRS})  # wheels bring their own
    if(NOT python_torch_version STREQUAL epipe_torch_version)
      set(EPIPE_PYTHON_MISSING "${Python3_EXECUTABLE} imports PyTorch ${python_torch_version}, but LibTorch here is ${Torch_VERSION}; \
point CMAKE_PREFIX_PATH at torch.utils.cmake_prefix_path of that Python, or Python3_EXECUTABLE at another one")
    elseif(NOT EPIPE_TORCH_PYTHON_LIBRARY OR NOT EPIPE_TORCH_PYTHON_INCLUDE)
      set(EPIPE_PYTHON_MISSING "LibTorch here has no libtorch_python; point CMAKE_PREFIX_PATH at a PyTorch for Python")
    elseif(NOT EPIPE_PYBIND11_INCLUDE)
      set(EPIPE_PYTHON_MISSING "pybind11 was not found (Debian: apt-get install pybind11-dev)")
    endif()
  endif()
endif()

if(EPIPE_PYTHON_MISSING AND EPIPE_WHEEL)
  message(FATAL_ERROR "epipe: ${EPIPE_PYTHON_MISSING}")
elseif(EPIPE_PYTHON_MISSING)
  message(STATUS "epipe: no Python module: ${EPIPE_PYTHON_MISSING}")
else()
  message(STATUS "epipe: Python module for ${Python3_EXECUTABLE} ${Python3_VERSION}, PyTorch ${python_torch_version}")
endif()
