#pragma once

#include <cstdint>
#include <vector>

namespace epipe::data {

using TokenIds = std::vector<std::int32_t>;

}  // namespace epipe::data
