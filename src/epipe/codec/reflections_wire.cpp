// Reflections in a frame: their levels are a small tensor [count, features], coded like any other.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "epipe/codec/entropy_payload.h"
#include "epipe/codec/reflections.h"
#include "epipe/codec/step_search.h"

namespace epipe::codec {
namespace {

constexpr std::size_t kReflectionsHead = 8;
constexpr std::size_t kReflectionsAlign = 16;  // of the payload behind them

std::size_t aligned(std::size_t bytes) { return (bytes + kReflectionsAlign - 1) / kReflectionsAlign * kReflectionsAlign; }

Error bad_reflections(std::string message) { return {ErrorCode::kBadPayload, std::move(message)}; }

// Whole numbers, as they are: a step of 1, and nothing is taken off.
void write_levels(const Reflections& reflections, const kernels::Kernels& kernels, Bytes& out) {
  const wire::TensorSpec tensor{{reflections.count(), reflections.features()}};
  const std::vector<float> y(reflections.levels().begin(), reflections.levels().end());
  const Form form{0, Context::kRunning};
  const auto chunk_log2 = static_cast<unsigned>(std::max(10, static_cast<int>(std::bit_width(y.size() - 1))));
  const Planes planes(tensor, form, chunk_log2);
  const Chunk chunk = planes.chunk(0);
  std::vector<std::uint8_t> tokens(y.size());
  std::vector<std::uint8_t> levels(y.size());
  TokenScratch scratch;
  CountedTokens counted;
  counted.reset(planes.slots(), planes.symbols());
  EncodedChunk encoded;
  tokenize(planes, chunk, y, dead_zone(1, {0.5F, 0.5F}), kernels, tokens.data(), levels.data(), scratch, &counted, &encoded.raw);
  std::vector<TokenCounts> counts;
  counted.total(counts);
  const TokenTables tables = fit_tables(counts, std::vector<Shift>(planes.slots()), planes.levels());
  const CodedHead head{form, chunk_log2, lanes_for(y.size()), 1, 0};
  encode_chunk({planes, tables, head.lanes, head.step, kernels}, chunk, tokens.data(), levels.data(), kernels::EncodeTables(tables.tables),
               scratch, encoded.words);
  write_coded(head, tables, planes.levels(), {&encoded, 1}, out);
}

// What makes every reflection one: whole numbers, none before or at its own place, none beyond what an encoder writes.
bool are_levels(std::span<const float> levels, std::span<const std::uint8_t> shifts, std::size_t features) {
  for (std::size_t k = 0; k < shifts.size(); ++k) {
    const float most = std::ldexp(1.0F, shifts[k]);
    for (std::size_t c = 0; c < features; ++c) {
      const float level = levels[k * features + c];
      if (level != std::trunc(level) || std::abs(level) > most || (c <= k && level != 0)) return false;
    }
  }
  return true;
}

}  // namespace

std::size_t reflections_bytes(std::size_t count, std::size_t coded_bytes) {
  return aligned(aligned(kReflectionsHead + count) + coded_bytes);
}

void write_reflections(const Reflections& reflections, const kernels::Kernels& kernels, Bytes& out) {
  const std::size_t start = out.size();
  Bytes levels;
  write_levels(reflections, kernels, levels);
  append(out, PayloadKind::kReflections);
  append(out, std::uint8_t{0});
  append(out, static_cast<std::uint16_t>(reflections.count()));
  append(out, static_cast<std::uint32_t>(levels.size()));
  for (const std::uint8_t shift : reflections.shifts()) append(out, shift);
  while ((out.size() - start) % kReflectionsAlign != 0) append(out, std::uint8_t{0});
  append_bytes(out, levels);
  while ((out.size() - start) % kReflectionsAlign != 0) append(out, std::uint8_t{0});
}

Result<ReadReflections> read_reflections(const wire::TensorSpec& tensor, ByteView first, const kernels::Kernels& kernels) {
  if (!Reflections::fits(tensor)) return bad_reflections("reflections of features, but this shape can have none");
  if (first.size() < kReflectionsHead) return bad_reflections("the payload ends within the head of its reflections");
  const std::size_t count = load<std::uint16_t>(first, 2);
  const std::size_t size = load<std::uint32_t>(first, 4);
  const std::size_t features = tensor.dims[2];
  if (count == 0 || count > Reflections::most(tensor)) {
    return bad_reflections(fmt::format("expected 1 to {} reflections, got {}", Reflections::most(tensor), count));
  }
  const std::size_t begin = aligned(kReflectionsHead + count);
  if (first.size() < begin || size == 0 || size > first.size() - begin || first.size() < aligned(begin + size)) {
    return bad_reflections("the payload ends within its reflections");
  }
  const std::size_t end = kReflectionsHead + count;
  if (first[1] != std::byte{0} || !all_zeros(first.subspan(end, begin - end)) ||
      !all_zeros(first.subspan(begin + size, aligned(begin + size) - begin - size))) {
    return bad_reflections("bytes beside the reflections must be 0");
  }
  std::vector<std::uint8_t> shifts(count);
  for (std::size_t k = 0; k < count; ++k) shifts[k] = load<std::uint8_t>(first, kReflectionsHead + k);
  if (*std::max_element(shifts.begin(), shifts.end()) > Reflections::kMostShift) {
    return bad_reflections(fmt::format("a reflection's shift is above {}", Reflections::kMostShift));
  }
  std::vector<float> levels(count * features);
  EPIPE_TRY(decode_kind2({{count, features}}, first.subspan(begin, size), kernels, nullptr, levels));
  if (!are_levels(levels, shifts, features)) return bad_reflections("a reflection's entry is not one that an encoder writes");
  return ReadReflections{Reflections({levels.begin(), levels.end()}, std::move(shifts), features), aligned(begin + size)};
}

Result<ReflectionReader::Read> ReflectionReader::read(const wire::TensorSpec& tensor, ByteView first, const kernels::Kernels& kernels) {
  const std::lock_guard lock(mutex_);
  const bool same = last_ != nullptr && tensor_ == tensor && first.size() >= bytes_.size() &&
                    std::equal(bytes_.begin(), bytes_.end(), first.begin());
  if (same) return Read{last_, bytes_.size()};
  auto read = read_reflections(tensor, first, kernels);
  if (!read) return read.error();
  tensor_ = tensor;
  bytes_.assign(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(read.value().bytes));
  last_ = std::make_shared<const Reflections>(std::move(read).value().reflections);
  return Read{last_, bytes_.size()};
}

}  // namespace epipe::codec
