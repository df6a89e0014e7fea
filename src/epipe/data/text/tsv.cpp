#include "epipe/data/text/tsv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace epipe::data {
namespace {

std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view head = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return head;
}

std::string_view take_line(std::string_view& text) {
  std::string_view line = take_until(text, '\n');
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t tabs = static_cast<std::size_t>(std::count(line.begin(), line.end(), '\t')) + 1; tabs > 0; --tabs) {
    fields.push_back(take_until(line, '\t'));
  }
  return fields;
}

Result<std::vector<std::size_t>> find_columns(std::string_view header, const std::vector<std::string>& names) {
  const auto fields = split(header);
  std::vector<std::size_t> numbers;
  for (const std::string& name : names) {
    const auto found = std::find(fields.begin(), fields.end(), name);
    if (found == fields.end()) return bad_file(fmt::format("line 1: expected a column \"{}\", got {}", name, fmt::join(fields, ", ")));
    numbers.push_back(static_cast<std::size_t>(found - fields.begin()));
  }
  return numbers;
}

}  // namespace

Result<TsvRows> parse_tsv(std::string_view text, const TsvColumns& columns) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::size_t line = 0;
  std::vector<std::size_t> numbers = columns.numbers;
  if (!columns.names.empty()) {
    auto found = find_columns(take_line(text), columns.names);
    if (!found) return found.error();
    numbers = std::move(found).value();
    ++line;
  }
  const std::size_t needed = numbers.empty() ? 0 : *std::max_element(numbers.begin(), numbers.end()) + 1;
  TsvRows rows;
  while (!text.empty()) {
    const std::string_view content = take_line(text);
    ++line;
    if (content.empty()) continue;
    const auto fields = split(content);
    if (fields.size() < needed && columns.skip_short) continue;
    if (fields.size() < needed) return bad_file(fmt::format("line {}: expected at least {} fields, got {}", line, needed, fields.size()));
    auto& row = rows.emplace_back();
    for (const std::size_t number : numbers) row.push_back(fields[number]);
  }
  return rows;
}

}  // namespace epipe::data
