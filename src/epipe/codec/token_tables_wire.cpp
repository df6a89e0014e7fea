// Frequency tables in the frame: differences between codes, in Exp-Golomb codes.
#include <fmt/format.h>

#include <bit>
#include <optional>

#include "epipe/codec/kernels/bits.h"
#include "epipe/codec/token_tables.h"

namespace epipe::codec {
namespace {

using kernels::BitReader;
using kernels::BitWriter;
using kernels::kTokens;

constexpr unsigned kCountBits = 7;
constexpr unsigned kCodeOrder = 1;
constexpr unsigned kMapOrder = 0;
constexpr int kFirstCode = 40;  // the most frequent token is usually the first
constexpr unsigned kMaxPrefix = 8;

// n in order k: the width w of (n >> k) + 1 as w - 1 zeros and a one, its lower w - 1 bits, then the lower k bits of n.
void put_signed(BitWriter& out, int value, unsigned order) {
  const auto n = static_cast<unsigned>(value >= 0 ? 2 * value : -2 * value - 1);
  const unsigned m = (n >> order) + 1;
  const auto low = static_cast<unsigned>(std::bit_width(m)) - 1;
  if (low > 0) out.put(0, low);
  out.put(1, 1);
  if (low > 0) out.put(m - (1U << low), low);
  if (order > 0) out.put(n & ((1U << order) - 1), order);
}

std::optional<int> take_signed(BitReader& in, unsigned order) {
  unsigned low = 0;
  bool ended = false;
  while (!ended && low <= kMaxPrefix && in.available() > 0) {
    ended = in.take(1) == 1;
    if (!ended) ++low;
  }
  if (!ended || in.available() < low + order) return std::nullopt;
  const unsigned m = (1U << low) + (low > 0 ? static_cast<unsigned>(in.take(low)) : 0U);
  const unsigned n = (m - 1) << order | (order > 0 ? static_cast<unsigned>(in.take(order)) : 0U);
  return n % 2 == 0 ? static_cast<int>(n / 2) : -static_cast<int>((n + 1) / 2);
}

unsigned signed_bits(int value, unsigned order) {
  const auto n = static_cast<unsigned>(value >= 0 ? 2 * value : -2 * value - 1);
  return 2 * static_cast<unsigned>(std::bit_width((n >> order) + 1)) - 1 + order;
}

// A mirrored table gives -q about the code of q; others follow the same sign.
int expected_code(const FrequencyCodes& codes, std::size_t token, bool mirrored) {
  if (token == 0) return kFirstCode;
  if (mirrored && token % 2 == 0) return codes[token - 1];
  return token >= 3 ? codes[token - 2] : codes[0];
}

std::size_t coded_tokens(const FrequencyCodes& codes) {
  std::size_t count = kTokens;
  while (codes[count - 1] == 0) --count;
  return count;
}

unsigned table_bits(const FrequencyCodes& codes, bool mirrored) {
  unsigned bits = 0;
  for (std::size_t t = 0; t < coded_tokens(codes); ++t) bits += signed_bits(codes[t] - expected_code(codes, t, mirrored), kCodeOrder);
  return bits;
}

void write_table(BitWriter& out, const FrequencyCodes& codes, const std::array<std::int8_t, 2>& shifts) {
  const bool mirrored = table_bits(codes, true) < table_bits(codes, false);
  out.put(coded_tokens(codes), kCountBits);
  out.put(mirrored ? 1 : 0, 1);
  for (const std::int8_t shift : shifts) out.put(static_cast<std::uint8_t>(shift), 8);
  for (std::size_t t = 0; t < coded_tokens(codes); ++t) put_signed(out, codes[t] - expected_code(codes, t, mirrored), kCodeOrder);
}

bool read_table(BitReader& in, FrequencyCodes& codes, std::array<std::int8_t, 2>& shifts) {
  if (in.available() < kCountBits + 1 + 16) return false;
  const std::size_t count = in.take(kCountBits);
  const bool mirrored = in.take(1) != 0;
  for (std::int8_t& shift : shifts) shift = static_cast<std::int8_t>(in.take(8));
  if (count == 0 || count > kTokens) return false;
  codes.fill(0);
  for (std::size_t t = 0; t < count; ++t) {
    const auto difference = take_signed(in, kCodeOrder);
    if (!difference) return false;
    const int code = expected_code(codes, t, mirrored) + *difference;
    if (code < 0 || code > kMaxCode) return false;
    codes[t] = static_cast<std::uint8_t>(code);
  }
  return codes[count - 1] != 0;
}

int expected_table(const std::vector<std::uint8_t>& table_of, std::size_t slot, std::size_t levels) {
  if (slot >= levels) return table_of[slot - levels];
  return slot > 0 ? table_of[slot - 1] : 0;
}

Error bad_tables() { return {ErrorCode::kBadPayload, "the frequency tables are not those of any tensor"}; }

}  // namespace

void write_tables(const TokenTables& tables, std::size_t levels, Bytes& out) {
  constexpr std::size_t kMostPerEntry = 2;  // bytes
  Scratch room(1 + tables.codes.size() * (3 + kMostPerEntry * kTokens) + kMostPerEntry * tables.table_of.size());
  BitWriter writer(room);
  writer.put(tables.codes.size() - 1, 8);
  for (std::size_t t = 0; t < tables.codes.size(); ++t) write_table(writer, tables.codes[t], tables.shifts[t]);
  if (tables.codes.size() > 1) {
    for (std::size_t s = 0; s < tables.table_of.size(); ++s) {
      put_signed(writer, tables.table_of[s] - expected_table(tables.table_of, s, levels), kMapOrder);
    }
  }
  writer.finish();
  out.insert(out.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(writer.bytes()));
}

Result<TokenTables> read_tables(ByteReader& in, std::size_t slots, std::size_t levels) {
  BitReader reader(in.rest());
  const std::size_t count = reader.available() < 8 ? 0 : reader.take(8) + 1;
  if (count == 0 || count > kernels::kMaxTables) return bad_tables();
  TokenTables result;
  result.codes.resize(count);
  result.shifts.resize(count);
  for (std::size_t t = 0; t < count; ++t) {
    if (!read_table(reader, result.codes[t], result.shifts[t])) return bad_tables();
    result.tables.push_back(frequencies_of(result.codes[t]));
  }
  result.table_of.assign(slots, 0);
  for (std::size_t s = 0; s < slots && count > 1; ++s) {
    const auto difference = take_signed(reader, kMapOrder);
    if (!difference) return bad_tables();
    const int table = expected_table(result.table_of, s, levels) + *difference;
    if (table < 0 || table >= static_cast<int>(count)) return bad_tables();
    result.table_of[s] = static_cast<std::uint8_t>(table);
  }
  static_cast<void>(in.take_bytes(reader.bytes()));
  return result;
}

}  // namespace epipe::codec
