#include "epipe/monitor/http_request.h"

#include <algorithm>
#include <cctype>

namespace epipe::monitor {
namespace {

constexpr std::string_view kEndOfLine = "\r\n";

Error wrong(std::string message) { return {ErrorCode::kBadMessage, std::move(message)}; }

bool is_visible(char c) { return c > ' ' && c < 0x7f; }

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find(kEndOfLine));
  text.remove_prefix(std::min(text.size(), line.size() + kEndOfLine.size()));
  return line;
}

std::string_view take_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(line.size(), word.size() + 1));
  return word;
}

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool is_named(std::string_view header, std::string_view lower_case) {
  return std::equal(header.begin(), header.end(), lower_case.begin(), lower_case.end(),
                    [](unsigned char a, unsigned char b) { return std::tolower(a) == b; });
}

}  // namespace

Result<HttpRequest> parse_http_request(std::string_view head) {
  if (!head.ends_with("\r\n\r\n")) return wrong("expected a request that ends in an empty line");
  std::string_view line = take_line(head);
  const std::string_view method = take_word(line);
  std::string_view path = take_word(line);
  if (method.empty() || path.empty() || path[0] != '/' || !line.starts_with("HTTP/1.")) {
    return wrong("expected METHOD /PATH HTTP/1.1");
  }
  if (!std::all_of(method.begin(), method.end(), is_visible) || !std::all_of(path.begin(), path.end(), is_visible)) {
    return wrong("expected printable characters in method and path");
  }
  HttpRequest request{std::string(method), std::string(path.substr(0, path.find('?'))), ""};
  int hosts = 0;
  for (line = take_line(head); !line.empty(); line = take_line(head)) {
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0) return wrong("expected lines NAME: VALUE");
    if (!is_named(line.substr(0, colon), "host")) continue;
    request.host = trimmed(line.substr(colon + 1));
    if (++hosts > 1) return wrong("expected one Host");
  }
  return request;
}

}  // namespace epipe::monitor
