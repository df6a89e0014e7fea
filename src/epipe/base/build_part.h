#pragma once

#include <string>

namespace epipe {

// An optional part of the build. A missing one is linked as a source file that says how to get it.
struct Part {
  std::string name;
  bool available = false;
  std::string detail;  // its version, or what to install and how to rebuild
};

}  // namespace epipe
