#include "epipe/codec/entropy_payload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "epipe/codec/channel_means.h"
#include "epipe/codec/kernels/transform.h"
#include "epipe/codec/klt.h"
#include "epipe/codec/spectra.h"
#include "epipe/codec/token_stream.h"

namespace epipe::codec {
namespace {

constexpr unsigned kMinChunkLog2 = 10;
constexpr unsigned kMaxChunkLog2 = 20;
constexpr int kMaxExponent = 300;
constexpr float kMaxStep = 0x1p70F;
constexpr std::size_t kWordsAlign = 4;
constexpr unsigned kEdge = 0x1f;  // of the byte about blocks
constexpr unsigned kMeanShift = 5;
constexpr unsigned kTransformed = 0x80;

void append_varint(Bytes& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) append(out, static_cast<std::uint8_t>(value | 0x80));
  append(out, static_cast<std::uint8_t>(value));
}

std::optional<std::uint64_t> take_varint(ByteReader& in) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 35; shift += 7) {
    const auto byte = in.take<std::uint8_t>();
    if (!byte) return std::nullopt;
    value |= static_cast<std::uint64_t>(*byte & 0x7f) << shift;
    if (*byte < 0x80) return value;
  }
  return std::nullopt;
}

Error bad(std::string message) { return {ErrorCode::kBadPayload, std::move(message)}; }

std::uint8_t blocks_of(const Form& form) {
  return static_cast<std::uint8_t>(form.edge | static_cast<unsigned>(form.mean_shift) << kMeanShift | (form.transform ? kTransformed : 0U));
}

Result<CodedHead> read_head(const wire::TensorSpec& tensor, ByteReader& in) {
  const auto bytes = in.take_bytes(9);
  if (!bytes) return bad("the head of a coded tensor has 10 bytes, the payload ends before");
  CodedHead head;
  const auto blocks = load<std::uint8_t>(*bytes, 0);
  head.form = {static_cast<std::uint8_t>(blocks & kEdge), static_cast<Context>(load<std::uint8_t>(*bytes, 1)), (blocks & kTransformed) != 0,
               static_cast<std::uint8_t>(blocks >> kMeanShift & 3U)};
  const auto sizes = load<std::uint8_t>(*bytes, 2);
  head.chunk_log2 = sizes & 31U;
  head.lanes = 1U << (sizes >> 5U);
  head.step = load<float>(*bytes, 3);
  head.exponent = load<std::int16_t>(*bytes, 7);
  if (static_cast<std::uint8_t>(head.form.context) > 3 || !Planes::fits(tensor, head.form)) {
    return bad(fmt::format("blocks of {} with contexts {} do not fit this shape", head.form.edge, static_cast<int>(head.form.context)));
  }
  if (head.chunk_log2 < kMinChunkLog2 || head.chunk_log2 > kMaxChunkLog2 || head.lanes > kernels::kMaxStates) {
    return bad(fmt::format("expected chunks of 2^{} to 2^{} and at most {} lanes, got 2^{} and {}", kMinChunkLog2, kMaxChunkLog2,
                           kernels::kMaxStates, head.chunk_log2, head.lanes));
  }
  if (!(head.step > 0 && head.step <= kMaxStep) || std::abs(head.exponent) > kMaxExponent) {
    return bad(fmt::format("step {} times 2^{} does not give finite values", head.step, head.exponent));
  }
  return head;
}

Result<std::vector<ChunkPlace>> read_places(std::size_t count, std::size_t front, std::size_t size, ByteReader& in) {
  if (count > in.rest().size()) return bad(fmt::format("{} chunks do not fit the payload", count));
  std::vector<ChunkPlace> chunks(count);
  for (std::size_t c = 0; c < count; ++c) {
    const auto words = take_varint(in);
    const auto raw = words ? take_varint(in) : std::nullopt;
    if (!raw) return bad(fmt::format("the payload ends within the sizes of chunk {}", c));
    chunks[c].sizes = {2 * *words, *raw};
  }
  const std::size_t read = front - in.rest().size();
  std::size_t at = (read + kWordsAlign - 1) / kWordsAlign * kWordsAlign;
  if (at > size || at - read > in.rest().size()) return bad("the payload ends within the padding");
  if (!all_zeros(in.rest().first(at - read))) return bad("the padding before the chunks must be 0");
  for (const bool raw : {false, true}) {
    for (std::size_t c = 0; c < count; ++c) {
      (raw ? chunks[c].raw : chunks[c].words) = at;
      const std::size_t bytes = raw ? chunks[c].sizes.raw : chunks[c].sizes.words;
      if (bytes > size - at) return bad(fmt::format("chunk {} of {} does not fit the payload", c, count));
      at += bytes;
    }
  }
  if (at != size) return bad(fmt::format("{} bytes follow the last chunk", size - at));
  return chunks;
}

// What the chunks of a payload are decoded with.
struct Decoding {
  const Coding& coding;
  std::span<const ChunkPlace> places;
  const kernels::DecodeTables& tables;
  std::span<const float> values;
  ByteView payload;
};

// Rows lie in the tensor as they are coded; blocks are put there afterwards.
ChunkDecoder decoder_of(const Decoding& how, std::size_t index, ChunkScratch& scratch, std::span<float> x) {
  const Chunk chunk = how.coding.planes.chunk(index);
  const ChunkPlace& place = how.places[index];
  const bool in_place = how.coding.planes.form().edge == 0;
  if (!in_place) scratch.y.resize(chunk.symbols + kernels::kBatch);
  const std::span<float> y = in_place ? x.subspan(chunk.first, chunk.units) : std::span(scratch.y).first(chunk.symbols);
  return {how.coding,
          {chunk, how.payload.subspan(place.words, place.sizes.words), how.payload.subspan(place.raw, place.sizes.raw)},
          scratch.tokens,
          y};
}

// A chunk, or two of them. False where they do not hold the symbols of a tensor.
bool decode_chunks(const Decoding& how, std::size_t first, std::size_t count, std::array<ChunkScratch, 2>& scratch, std::span<float> x) {
  ChunkDecoder one = decoder_of(how, first, scratch[0], x);
  if (count == 1) {
    if (!decode_chunk(one, how.tables, how.values)) return false;
  } else {
    ChunkDecoder other = decoder_of(how, first + 1, scratch[1], x);
    if (!decode_two_chunks(one, other, how.tables, how.values)) return false;
  }
  const Planes& planes = how.coding.planes;
  for (std::size_t i = 0; i < count; ++i) {
    const Chunk chunk = planes.chunk(first + i);
    const std::span<float> y = planes.form().edge == 0 ? x.subspan(chunk.first, chunk.units) : std::span(scratch[i].y);
    planes.store(chunk, y, how.coding.kernels, scratch[i].planes, x);
  }
  return true;
}

// Times 2^exponent, at most the largest float.
void scale_values(std::span<float> x, int exponent) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (float& v : x) v = std::clamp(std::ldexp(v, exponent), -kLargest, kLargest);
}

}  // namespace

std::string form_name(ByteView payload) {
  if (payload.empty()) return {};
  const auto kind = load<PayloadKind>(payload, 0);
  if (kind == PayloadKind::kWithMeans && payload.size() > 3) {
    const std::size_t means = means_bytes(load<std::uint16_t>(payload, 2));
    return means < payload.size() ? form_name(payload.subspan(means)) : "";
  }
  if (kind == PayloadKind::kKlt && payload.size() > 1) {
    const std::size_t basis = basis_bytes(load<std::uint8_t>(payload, 1));
    return basis < payload.size() ? "klt " + form_name(payload.subspan(basis)) : "klt";
  }
  if (kind == PayloadKind::kReflections && payload.size() > 7) {
    const std::size_t front = reflections_bytes(load<std::uint16_t>(payload, 2), load<std::uint32_t>(payload, 4));
    return front < payload.size() ? "klt " + form_name(payload.subspan(front)) : "klt";
  }
  if (kind == PayloadKind::kSpectra && payload.size() > kSpectraHead) return "dct, " + form_name(payload.subspan(kSpectraHead));
  if (kind != PayloadKind::kCoded || payload.size() < 3) return kind == PayloadKind::kZeros ? "zeros" : "plain";
  const unsigned blocks = load<std::uint8_t>(payload, 1);
  if ((blocks & kEdge) != 0) return fmt::format("{} {}", (blocks & kTransformed) != 0 ? "dct" : "blocks", blocks & kEdge);
  const auto context = load<Context>(payload, 2);
  return context == Context::kRunning ? "rows running" : context == Context::kNeighbours ? "rows neighbours" : "rows";
}

unsigned lanes_for(std::size_t symbols) {
  return static_cast<unsigned>(std::clamp<std::size_t>(std::bit_floor(symbols / 256), 1, kernels::kMaxStates));
}

PayloadBounds entropy_bounds(const wire::TensorSpec& tensor) {
  const std::size_t n = tensor.values();
  return n == 0 ? PayloadBounds{0, 0} : PayloadBounds{1, 1 + sizeof(float) * n};
}

void write_front(const CodedHead& head, const TokenTables& tables, std::size_t levels, std::span<const ChunkSizes> chunks, Bytes& out) {
  const std::size_t start = out.size();
  append(out, PayloadKind::kCoded);
  append(out, blocks_of(head.form));
  append(out, head.form.context);
  append(out, static_cast<std::uint8_t>(head.chunk_log2 | static_cast<unsigned>(std::bit_width(head.lanes) - 1) << 5U));
  append(out, head.step);
  append(out, static_cast<std::int16_t>(head.exponent));
  write_tables(tables, levels, out);
  for (const ChunkSizes& chunk : chunks) {
    append_varint(out, chunk.words / 2);
    append_varint(out, chunk.raw);
  }
  while ((out.size() - start) % kWordsAlign != 0) append(out, std::uint8_t{0});
}

void write_coded(const CodedHead& head, const TokenTables& tables, std::size_t levels, std::span<const EncodedChunk> chunks, Bytes& out) {
  std::vector<ChunkSizes> sizes;
  for (const EncodedChunk& chunk : chunks) sizes.push_back({chunk.words.size(), chunk.raw.size()});
  write_front(head, tables, levels, sizes, out);
  for (const EncodedChunk& chunk : chunks) out.insert(out.end(), chunk.words.begin(), chunk.words.end());
  for (const EncodedChunk& chunk : chunks) out.insert(out.end(), chunk.raw.begin(), chunk.raw.end());
}

Result<CodedFront> read_front(const wire::TensorSpec& tensor, ByteView first, std::size_t size) {
  ByteReader reader(first.subspan(1));
  const auto head = read_head(tensor, reader);
  if (!head) return head.error();
  const Planes planes(tensor, head.value().form, head.value().chunk_log2);
  auto tables = read_tables(reader, planes.slots(), planes.levels());
  if (!tables) return tables.error();
  auto chunks = read_places(planes.chunks(), first.size(), size, reader);
  if (!chunks) return chunks.error();
  return CodedFront{head.value(), std::move(tables).value(), std::move(chunks).value()};
}

Result<void> decode_kind2(const wire::TensorSpec& tensor, ByteView in, const kernels::Kernels& kernels, ThreadPool* pool,
                          std::span<float> x) {
  if (in.empty() || load<PayloadKind>(in, 0) != PayloadKind::kCoded) return bad("expected a coded payload");
  const auto front = read_front(tensor, in, in.size());
  if (!front) return front.error();
  const auto& [head, tables, chunks] = front.value();
  const Planes planes(tensor, head.form, head.chunk_log2);
  const Coding coding{planes, tables, head.lanes, head.step, kernels};
  const kernels::DecodeTables decode_tables(tables.tables);
  const std::vector<float> values = token_values(tables, head.step);
  const Decoding how{coding, chunks, decode_tables, values, in};
  const std::size_t threads = threads_of(pool);
  const std::size_t together = threads == 1 || chunks.size() >= 4 * threads ? 2 : 1;
  std::atomic<bool> sound = true;
  const std::size_t groups = (chunks.size() + together - 1) / together;
  share_items(pool, planes.symbols(), groups, [&](std::size_t, const auto& next) {
    std::array<ChunkScratch, 2> scratch;
    for (std::size_t g = next(); g < groups; g = next()) {
      const std::size_t first = g * together;
      if (!decode_chunks(how, first, std::min(together, chunks.size() - first), scratch, x)) sound = false;
    }
  });
  if (!sound) return bad("a chunk does not hold the symbols of a tensor");
  if (head.exponent != 0) scale_values(x, head.exponent);
  return {};
}

std::size_t fronts_room(const wire::TensorSpec& tensor) {
  constexpr std::size_t kHead = 16;  // of the coded payload, at most
  const std::size_t means = has_channel_means(tensor) ? means_bytes(static_cast<std::size_t>(tensor.dims[1])) : 0;
  return means + basis_bytes(ChannelBasis::kMostChannels) + kHead;
}

Result<Fronts> read_fronts(const wire::TensorSpec& tensor, ByteView first, const kernels::Kernels& kernels,
                           ReflectionReader& reflection_reader) {
  Fronts fronts;
  if (first.empty()) return bad("the payload is empty");
  if (load<PayloadKind>(first, 0) == PayloadKind::kWithMeans) {
    auto means = read_means(tensor, first);
    if (!means) return means.error();
    fronts.means = std::move(means).value();
    fronts.bytes = means_bytes(fronts.means.size());
    if (first.size() == fronts.bytes) return bad("nothing follows the means of the channels");
  }
  if (load<PayloadKind>(first, fronts.bytes) == PayloadKind::kKlt) {
    auto basis = read_basis(tensor, first.subspan(fronts.bytes));
    if (!basis) return basis.error();
    fronts.bytes += basis_bytes(basis.value().channels());
    fronts.basis = std::move(basis).value();
  } else if (load<PayloadKind>(first, fronts.bytes) == PayloadKind::kReflections) {
    auto read = reflection_reader.read(tensor, first.subspan(fronts.bytes), kernels);
    if (!read) return read.error();
    fronts.bytes += read.value().bytes;
    fronts.reflections = read.value().reflections;
  }
  const ByteView coded = first.subspan(fronts.bytes);
  if (coded.empty() || load<PayloadKind>(coded, 0) != PayloadKind::kCoded) return bad("expected a coded payload behind means and basis");
  if (fronts.bytes == 0) return fronts;
  ByteReader reader(coded.subspan(1));
  const auto head = read_head(tensor, reader);
  if (!head) return head.error();
  if (head.value().exponent != 0) return bad("a payload behind means or a basis has no exponent");
  return fronts;
}

namespace {

// Maps from the reflected rows of their spectra.
Result<void> decode_spectra(const wire::TensorSpec& tensor, ByteView in, const kernels::Kernels& kernels, ThreadPool* pool,
                            ReflectionReader& reader, std::span<float> x) {
  EPIPE_TRY(check_spectra_head(tensor, in));
  const ByteView rows = in.subspan(kSpectraHead);
  const bool reflected = !rows.empty() && load<PayloadKind>(rows, 0) == PayloadKind::kReflections;
  if (!reflected) return bad("expected reflections behind the head of spectra");
  std::vector<float> spectra(x.size());
  EPIPE_TRY(decode_coded(spectra_of(tensor), rows, kernels, pool, reader, spectra));
  from_spectra(tensor, spectra, kernels, pool, x);
  return {};
}

}  // namespace

Result<void> decode_coded(const wire::TensorSpec& tensor, ByteView in, const kernels::Kernels& kernels, ThreadPool* pool,
                          ReflectionReader& reflection_reader, std::span<float> x) {
  ByteReader reader(in);
  const auto kind = reader.take<std::uint8_t>();
  if (kind == 0 && reader.rest().size() == 4 * x.size()) {
    if (!kernels.load_fp32(reader.rest(), x)) return Error{ErrorCode::kNonFinite, "a value is NaN or Inf"};
    return {};
  }
  if (kind == 1 && reader.rest().empty()) {
    std::fill(x.begin(), x.end(), 0.0F);
    return {};
  }
  if (kind == static_cast<std::uint8_t>(PayloadKind::kSpectra)) return decode_spectra(tensor, in, kernels, pool, reflection_reader, x);
  if (kind < 2 || kind > 5) {
    return bad(fmt::format("expected kind 0 to 6 with its bytes, got {} and {} bytes", kind.value_or(255), in.size()));
  }
  const auto fronts = read_fronts(tensor, in, kernels, reflection_reader);
  if (!fronts) return fronts.error();
  const auto& [means, basis, reflections, bytes] = fronts.value();
  EPIPE_TRY(decode_kind2(tensor, in.subspan(bytes), kernels, pool, x));
  if (reflections) reflections->backward(x, kernels, pool, x);
  if (basis) transform_channels(tensor, basis->to_channels(), kernels, pool, x, x);
  if (!means.empty()) add_to_channels(tensor, shifts_to(tensor, means, map_sums(tensor, x, pool)), pool, x);
  return {};
}

}  // namespace epipe::codec
