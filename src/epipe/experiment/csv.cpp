#include "epipe/experiment/csv.h"

#include <fmt/format.h>

namespace epipe::experiment {
namespace {

// One line's fields; none if a quote is not closed.
std::vector<std::string> split(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return quoted ? std::vector<std::string>{} : fields;
}

Error bad_line(std::string_view file, std::size_t line, std::string_view what) {
  return {ErrorCode::kBadFile, fmt::format("{}, line {}: {}", file, line, what)};
}

}  // namespace

Result<std::vector<Record>> parse_csv(std::string_view text, std::string_view file) {
  std::vector<std::string> names;
  std::vector<Record> records;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const auto fields = split(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (fields.empty()) return bad_line(file, number, "a quote is not closed");
    if (names.empty()) {
      names = fields;
      continue;
    }
    if (fields.size() != names.size()) {
      return bad_line(file, number, fmt::format("expected {} fields, got {}", names.size(), fields.size()));
    }
    Record& record = records.emplace_back();
    for (std::size_t i = 0; i < names.size(); ++i) record[names[i]] = fields[i];
  }
  return records;
}

}  // namespace epipe::experiment
