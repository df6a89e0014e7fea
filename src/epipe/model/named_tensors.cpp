#include "epipe/model/named_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "epipe/base/printable.h"

namespace epipe::model {
namespace {

constexpr std::size_t kMaxListedProblems = 20;
constexpr std::size_t kMaxShown = 100;

// The differences, one line each, sorted by name.
std::vector<std::string> differences(const NamedTensors& from, const NamedTensors& to) {
  std::map<std::string, std::string> found;
  for (const auto& [name, x] : from) {
    const auto target = to.find(name);
    if (target == to.end()) {
      found[name] = "extra";
    } else if (target->second.sizes() != x.sizes()) {
      found[name] = fmt::format("expected shape [{}], got [{}]", fmt::join(target->second.sizes(), ", "), fmt::join(x.sizes(), ", "));
    }
  }
  for (const auto& [name, x] : to) {
    if (!from.contains(name)) found[name] = "missing";
  }
  std::vector<std::string> lines;
  lines.reserve(found.size());
  for (const auto& [name, what] : found) lines.push_back(fmt::format("{}: {}", in_quotes(name), what));
  return lines;
}

}  // namespace

Result<void> check_fits(const NamedTensors& from, const NamedTensors& to) {
  const auto lines = differences(from, to);
  if (lines.empty()) return {};
  const auto listed = std::min(lines.size(), kMaxListedProblems);
  std::string message = fmt::format("the weights do not fit the model: {}", fmt::join(lines.begin(), lines.begin() + listed, "; "));
  if (lines.size() > listed) message += fmt::format("; and {} more", lines.size() - listed);
  return Error{ErrorCode::kBadFile, std::move(message)};
}

Result<void> load_into(const NamedTensors& from, const NamedTensors& to) {
  EPIPE_TRY(check_fits(from, to));
  const torch::NoGradGuard no_grad;
  for (const auto& [name, x] : from) to.at(name).copy_(x);
  return {};
}

std::string in_quotes(std::string_view name) { return fmt::format("\"{}\"", printable(name, kMaxShown)); }

}  // namespace epipe::model
