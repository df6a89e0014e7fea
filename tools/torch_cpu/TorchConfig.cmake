# find_package(Torch) for a PyTorch wheel that was built with CUDA, on a machine without a CUDA toolkit: the wheel's own configuration stops
# there. The CPU part is all that epipe needs without EPIPE_CUDA. EPIPE_TORCH_WHEEL names the folder of the Python package torch.
file(READ ${EPIPE_TORCH_WHEEL}/version.py epipe_wheel_version)
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" Torch_VERSION "${epipe_wheel_version}")
set(TORCH_INSTALL_PREFIX ${EPIPE_TORCH_WHEEL})
set(TORCH_INCLUDE_DIRS ${EPIPE_TORCH_WHEEL}/include ${EPIPE_TORCH_WHEEL}/include/torch/csrc/api/include)
set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=1")
find_package(Threads REQUIRED)
set(TORCH_LIBRARIES ${EPIPE_TORCH_WHEEL}/lib/libtorch_cpu.so ${EPIPE_TORCH_WHEEL}/lib/libc10.so Threads::Threads)
set(Torch_FOUND TRUE)
set(TORCH_FOUND TRUE)
