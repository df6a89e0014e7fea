#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "epipe/base/result.h"

namespace epipe::data {

// Which fields of a line to take: by the names in the header line, or by number if there is none.
struct TsvColumns {
  std::vector<std::string> names;
  std::vector<std::size_t> numbers;  // used when `names` is empty
  bool skip_short = false;           // lines with too few fields are left out; otherwise they are an error
};

// The chosen fields of every line, in the order of the columns. Fields are separated by tabs; quotes are ordinary characters. Views into
// `text`.
using TsvRows = std::vector<std::vector<std::string_view>>;
Result<TsvRows> parse_tsv(std::string_view text, const TsvColumns& columns);

}  // namespace epipe::data
