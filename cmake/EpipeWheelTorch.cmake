# Where find_package(Torch) looks when `pip` builds a wheel: in the PyTorch that the building Python imports. A PyTorch with CUDA is used
# without it on machines without a CUDA toolkit, where its own configuration would stop.
if(NOT PYTHON_EXECUTABLE)
  set(PYTHON_EXECUTABLE ${Python3_EXECUTABLE})
endif()
execute_process(COMMAND ${PYTHON_EXECUTABLE} -c "import torch; print(torch.__path__[0], torch.version.cuda or 'none', sep=';')"
  OUTPUT_VARIABLE wheel_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "epipe: ${PYTHON_EXECUTABLE} cannot import torch, and the module is built for one PyTorch; install that one, and let pip use "
    "it: pip install scikit-build-core && pip install --no-build-isolation .")
endif()
list(GET wheel_torch 0 wheel_torch_folder)
list(GET wheel_torch 1 wheel_torch_cuda)
list(PREPEND CMAKE_PREFIX_PATH ${wheel_torch_folder}/share/cmake)
find_program(EPIPE_NVCC nvcc)
if(NOT wheel_torch_cuda STREQUAL "none" AND NOT EPIPE_CUDA AND NOT EPIPE_NVCC)
  set(EPIPE_TORCH_WHEEL ${wheel_torch_folder})
  set(Torch_DIR ${PROJECT_SOURCE_DIR}/tools/torch_cpu)
endif()
