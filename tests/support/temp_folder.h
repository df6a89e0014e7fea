#pragma once

#include <ftw.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace epipe::testing {

// A new empty folder that is removed, with all it holds, when this goes out of scope. Not std::filesystem::remove_all: LibTorch's
// wheels export a copy of it from another compiler, which crashes.
class TempFolder {
 public:
  TempFolder() {
    const char* const base = std::getenv("TMPDIR");
    path_ = std::string(base != nullptr ? base : "/tmp") + "/epipe_test_XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make a folder like " + path_);
  }
  ~TempFolder() {
    const auto remove_one = [](const char* path, const struct stat*, int, struct FTW*) { return std::remove(path); };
    ::nftw(path_.c_str(), remove_one, 16, FTW_DEPTH | FTW_PHYS);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace epipe::testing
