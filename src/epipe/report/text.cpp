#include "epipe/report/text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <span>

namespace epipe::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
constexpr std::array<Unit, 5> kBytesUnits = {{{1, "B"}, {1e3, "kB"}, {1e6, "MB"}, {1e9, "GB"}, {1e12, "TB"}}};
constexpr std::array<Unit, 3> kSecondsUnits = {{{1e-6, "\u00b5s"}, {1e-3, "ms"}, {1, "s"}}};

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// The bytes of the well-formed character at the front, or 0. https://www.unicode.org/versions/Unicode15.0.0/ch03.pdf, table 3-7.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!continues(text[i])) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool outside = (first == 0xED && byte(1) > 0x9F) || (first == 0xF4 && byte(1) > 0x8F);
  const bool noncharacter = first == 0xEF && byte(1) == 0xBF && byte(2) >= 0xBE;  // U+FFFE and U+FFFF: not in XML
  return overlong || outside || noncharacter ? 0 : length;
}

std::string_view escaped(std::string_view character) {
  switch (character[0]) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    case '\n':
    case '\t': return character;
    case '\r': return "";
    default: break;
  }
  const auto c = static_cast<unsigned char>(character[0]);
  return c < 0x20 || c == 0x7F ? kReplacement : character;
}

Unit unit_for(double most, std::span<const Unit> units) {
  Unit best = units[0];
  for (const Unit& unit : units) {
    if (most >= unit.size) best = unit;
  }
  return best;
}

std::string with_unit(double value, const Unit& unit) { return fmt::format("{:.3g} {}", value / unit.size, unit.name); }

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    out += length == 0 ? kReplacement : escaped(text.substr(0, length));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

std::size_t characters(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += continues(c) ? 0U : 1U;
  return count;
}

std::string shorten(const std::string& text, std::size_t length) {
  if (characters(text) <= length) return text;
  std::size_t end = 0;
  for (std::size_t shown = 0; end < text.size(); ++end) {
    if (!continues(text[end]) && ++shown == length) break;
  }
  return text.substr(0, end) + "\u2026";
}

std::string number_text(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  if (size >= 1000 && size < 1e6) return fmt::format("{:.0f}", value);
  return size != 0 && size < 1e-3 ? fmt::format("{:.2e}", value) : fmt::format("{:.4g}", value);
}

std::string percent_text(double share) { return std::isfinite(share) ? fmt::format("{:.2f} %", 100 * share) : "-"; }

Unit bytes_unit(double most) { return unit_for(most, kBytesUnits); }

Unit seconds_unit(double most) { return unit_for(most, kSecondsUnits); }

std::string bytes_text(double bytes) {
  if (!std::isfinite(bytes)) return "-";
  return bytes < 1000 ? fmt::format("{:.0f} B", bytes) : with_unit(bytes, bytes_unit(bytes));
}

std::string seconds_text(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds < 100) return with_unit(seconds, seconds_unit(seconds));
  const double minutes = std::floor(seconds / 60);
  if (minutes < 60) return fmt::format("{:.0f} min {:02.0f} s", minutes, std::floor(seconds - 60 * minutes));
  return fmt::format("{:.0f} h {:02.0f} min", std::floor(minutes / 60), std::fmod(minutes, 60));
}

}  // namespace epipe::report
