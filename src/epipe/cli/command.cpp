#include "epipe/cli/command.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>

namespace epipe::cli {
namespace {

// Empty for a valid number.
std::string complaint(const std::string& text, bool zero_too) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool number = end != text.c_str() && *end == '\0' && std::isfinite(value);
  if (number && (value > 0 || (zero_too && value == 0))) return {};
  return fmt::format("expected a number {}, got {}", zero_too ? "of at least 0" : "above 0", text);
}

}  // namespace

void keep_files_private() { ::umask(077); }

CLI::Validator positive_number() {
  return {[](std::string& text) { return complaint(text, false); }, "ABOVE 0", "positive"};
}
CLI::Validator number_from_zero() {
  return {[](std::string& text) { return complaint(text, true); }, "FROM 0", "from zero"};
}

}  // namespace epipe::cli
