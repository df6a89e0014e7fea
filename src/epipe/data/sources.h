#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "epipe/base/result.h"
#include "epipe/data/dataset.h"
#include "epipe/data/open.h"

// One function per kind of data; open.cpp chooses. All throw like open_data().
namespace epipe::data {

Splits open_cifar10(const std::string& folder, const DataConfig& config);
Splits open_cifar100(const std::string& folder, const DataConfig& config);
Splits open_food101(const std::string& folder, const DataConfig& config);
Splits open_image_folders(const std::string& folder, const DataConfig& config);
Splits open_npy(const std::string& folder, const DataConfig& config);
// A text file or a folder of text files.
Splits open_text(const std::string& path, const DataConfig& config);
// `task` in upper or lower case, with or without hyphens: cola sst2 mrpc stsb qqp mnli mnli-mm qnli rte wnli.
Splits open_glue(const std::string& task, const std::string& folder, const DataConfig& config);

bool exists(const std::string& path);
// "folder/name"
std::string path_in(std::string_view folder, std::string_view name);
// The value; throws std::runtime_error with the message if there is an error.
template <typename T>
T value_or_throw(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

}  // namespace epipe::data
