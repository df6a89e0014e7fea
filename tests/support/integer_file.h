#pragma once

#include <torch/types.h>

#include <fstream>
#include <string>

namespace epipe::testing {

// An .npy file of int64 or int32, as NumPy writes it.
template <typename T>
void write_integers(const std::string& path, const torch::Tensor& x) {
  std::string header = "{'descr': '<i" + std::to_string(sizeof(T)) + "', 'fortran_order': False, 'shape': (" + std::to_string(x.size(0)) +
                       ", " + std::to_string(x.size(1)) + "), }";
  header.append(117 - header.size(), ' ').push_back('\n');
  std::ofstream out(path, std::ios::binary);
  out << "\x93NUMPY\x01" << '\0' << static_cast<char>(header.size()) << '\0' << header;
  const torch::Tensor values = x.to(c10::CppTypeToScalarType<T>::value).contiguous();
  out.write(reinterpret_cast<const char*>(values.data_ptr<T>()), static_cast<std::streamsize>(values.nbytes()));
}

}  // namespace epipe::testing
