#include <cuda_runtime.h>

#include <string>

#include "epipe/codec/kernels/cuda_part.h"

namespace epipe::kernels {

Part cuda_part() {
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    return {"CUDA", false, std::string("built in, but no device answers: ") + cudaGetErrorString(status)};
  }
  std::string detail = "runtime " + std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    detail += ", cuda:" + std::to_string(i) + " " + properties.name;
  }
  return {"CUDA", count > 0, detail};
}

}  // namespace epipe::kernels
