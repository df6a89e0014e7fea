#pragma once

#include <torch/types.h>

#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>

#include "epipe/data/npy.h"

namespace epipe::testing {

// An .npy file of int64 labels.
inline void write_labels(const std::string& path, const torch::Tensor& labels) {
  std::string header = "{'descr': '<i8', 'fortran_order': False, 'shape': (" + std::to_string(labels.numel()) + ",), }";
  header.resize(117, ' ');
  std::ofstream file(path, std::ios::binary);
  file << "\x93NUMPY" << '\1' << '\0' << '\x76' << '\0' << header << '\n';
  file.write(static_cast<const char*>(labels.data_ptr()), static_cast<std::streamsize>(labels.nbytes()));
}

// npy:FOLDER with `count` training images, of which one holds an infinite pixel.
inline void write_data_with_a_bad_sample(const std::string& folder, std::int64_t count, std::int64_t bad) {
  torch::manual_seed(5);
  const auto write = [&](const std::string& name, const torch::Tensor& x) {
    const auto written = data::write_npy(folder + "/" + name, x);
    if (!written) throw std::runtime_error(written.error().message);
  };
  auto x = torch::randn({count, 3, 12, 12});
  x[bad][0][0][0] = std::numeric_limits<float>::infinity();
  write("train_x.npy", x);
  write_labels(folder + "/train_y.npy", torch::randint(4, {count}, torch::kInt64));
  write("val_x.npy", torch::randn({8, 3, 12, 12}));
  write_labels(folder + "/val_y.npy", torch::arange(8, torch::kInt64) % 4);
}

}  // namespace epipe::testing
