#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "epipe/base/result.h"

namespace epipe {

// What a text may be made of. A number costs 16 bytes of memory, up to twice that while its list grows; strings, lists, objects and their
// members cost about a hundred bytes each beside their text, however short they are, so fewer are allowed.
struct JsonLimits {
  std::size_t depth = 8;            // of lists and objects in one another
  std::size_t values = 1 << 21;     // of all kinds
  std::size_t allocated = 1 << 18;  // strings, lists, objects, and members of objects
};

// The JSON of a peer or of a stranger's file, in time and memory proportional to the text. No key of an object may be given twice, and
// nothing may follow the value. Errors are kBadMessage and do not quote the text.
Result<nlohmann::json> parse_bounded_json(std::string_view text, const JsonLimits& limits = {});

}  // namespace epipe
