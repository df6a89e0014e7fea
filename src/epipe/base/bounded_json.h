#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "epipe/base/result.h"

namespace epipe {

// Limits on a text. A number costs 16 bytes of memory, up to twice that while its list grows; strings, lists, objects and their members
// each cost about a hundred bytes on top of their text, however short they are, so fewer are allowed.
struct JsonLimits {
  std::size_t depth = 8;            // nesting of lists and objects
  std::size_t values = 1 << 21;     // of all kinds
  std::size_t allocated = 1 << 18;  // strings, lists, objects, and members of objects
};

// Parses untrusted JSON from a peer or a file, in time and memory proportional to the text. Duplicate keys in an object and text after the
// value are errors. Errors are kBadMessage and do not quote the text.
Result<nlohmann::json> parse_bounded_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace epipe
