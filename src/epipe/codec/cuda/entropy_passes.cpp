#include "epipe/codec/cuda/entropy_passes.h"

#include <algorithm>
#include <cstring>

#include "epipe/codec/kernels/cuda/means.h"
#include "epipe/codec/kernels/cuda/plain.h"
#include "epipe/codec/kernels/cuda/rans.h"
#include "epipe/codec/kernels/cuda/tokens.h"
#include "epipe/codec/kernels/cuda/transform.h"
#include "epipe/codec/kernels/rans.h"
#include "epipe/codec/kernels/transform.h"
#include "epipe/codec/span.h"

namespace epipe::codec {
namespace {

namespace cuda = kernels::cuda;

static_assert(sizeof(BlockSums) == sizeof(cuda::BlockSums) && kSumBlock == cuda::kSumBlock);
static_assert(sizeof(TokenCounts) == kernels::kTokenRoom * sizeof(std::uint32_t));

std::vector<cuda::EncodeEntry> encode_entries(const TokenTables& tables) {
  const kernels::EncodeTables plain(tables.tables);
  std::vector<cuda::EncodeEntry> entries(tables.tables.size() * kernels::kTokenRoom);
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i] = cuda::encode_entry(plain.data()[i]);
  return entries;
}

}  // namespace

std::vector<std::int8_t> flat_shifts(const TokenTables& tables) {
  std::vector<std::int8_t> flat;
  for (const auto& [one, more] : tables.shifts) flat.insert(flat.end(), {one, more});
  return flat;
}

cuda::Layout layout_of(const Planes& planes) {
  const Form& form = planes.form();
  const auto narrow = [](std::size_t n) { return static_cast<std::uint32_t>(n); };
  return {planes.units(),
          planes.chunk_units(),
          planes.chunks(),
          planes.row(),
          narrow(planes.unit_symbols()),
          narrow(planes.levels()),
          static_cast<cuda::Context>(form.context),
          form.edge != 0,
          form.transform,
          form.mean_gain(),
          narrow(planes.height()),
          narrow(planes.width()),
          narrow(planes.map_height()),
          narrow(planes.map_width()),
          narrow(planes.grid_height()),
          narrow(planes.grid_width()),
          planes.mean_units()};
}

DeviceArray<std::uint16_t> slots_of_planes(const torch::Tensor& x, const Planes& planes) {
  std::vector<std::uint16_t> slots = {0};
  if (planes.form().edge != 0) {
    slots.clear();
    for (std::size_t p = 0; p < planes.unit_symbols(); ++p)
      slots.push_back(static_cast<std::uint16_t>(planes.plane(planes.chunk(0), p).slot));
  }
  return sent_array<std::uint16_t>(x, slots);
}

namespace {

// An array of T at the front of what is left of some bytes, whose length is a multiple of its size.
template <typename T>
std::vector<T> take_array(ByteView& bytes, std::size_t count) {
  std::vector<T> array(count);
  std::memcpy(array.data(), bytes.data(), count * sizeof(T));
  bytes = bytes.subspan(count * sizeof(T));
  return array;
}

Shift shift_of(const cuda::Excess& excess) {
  Shift shift;
  for (std::size_t i = 0; i < 2; ++i) {
    shift.sum[i] = static_cast<double>(excess.sum[i]) * 0x1p-24;
    shift.count[i] = excess.count[i];
  }
  return shift;
}

}  // namespace

// One pass for all that rate control starts from, and one over maps for their sums.
DevicePasses::DevicePasses(torch::Tensor x, Maps maps) : x_(std::move(x)) {
  const auto n = static_cast<std::size_t>(x_.numel());
  const std::size_t blocks = (n + kSumBlock - 1) / kSumBlock;
  const auto size = [&](std::int64_t dim) { return static_cast<std::uint64_t>(x_.size(dim)); };
  const cuda::Maps all = maps == Maps::kSum ? cuda::Maps{size(0), size(1), size(2) * size(3)} : cuda::Maps{};
  const std::size_t count = maps == Maps::kSum ? all.count() : 0;
  const DeviceArray<std::byte> room(x_, (blocks + 1) * sizeof(BlockSums) + count * sizeof(double));
  auto* const sums = reinterpret_cast<cuda::BlockSums*>(room.data());
  auto* const of_maps = reinterpret_cast<double*>(sums + blocks + 1);
  cuda::sum_blocks(x_.data_ptr<float>(), n, sums, reinterpret_cast<kernels::Key*>(sums + blocks), stream_of(x_));
  if (count > 0) cuda::sum_maps(x_.data_ptr<float>(), all, of_maps, stream_of(x_));
  const auto fetched = fetch_array(room.data(), room.size(), stream_of(x_));
  ByteView left(fetched);
  sums_ = take_array<BlockSums>(left, blocks + 1);
  map_sums_ = take_array<double>(left, count);
  std::memcpy(&largest_, &sums_.back(), sizeof(largest_));
  sums_.pop_back();
}

TensorSpec DevicePasses::spec() const { return spec_of(x_); }

// For rows these are copies, scaled already where they are means.
torch::Tensor DevicePasses::load_on_device(const Planes& planes, std::span<const Chunk> parts) {
  std::vector<std::uint64_t> first;
  for (const Chunk& part : parts) first.push_back(part.first);
  const auto device_first = sent_array<std::uint64_t>(x_, first);
  auto y = torch::empty({static_cast<std::int64_t>(parts.size() * parts.front().symbols)}, x_.options());
  const cuda::Parts all{device_first.data(), parts.front().units, parts.size()};
  const bool scaled = planes.mean_units() > 0;
  const torch::Tensor& from = scaled ? symbols_for(planes).all.y : x_;
  cuda::load_planes(from.data_ptr<float>(), layout_of(planes), all, kernels::forward_dct(planes.height()),
                    kernels::forward_dct(planes.width()), y.data_ptr<float>(), stream_of(x_));
  return y;
}

std::vector<float> DevicePasses::load(const Planes& planes, std::span<const Chunk> parts) {
  std::size_t symbols = 0;
  for (const Chunk& part : parts) symbols += part.symbols;
  return fetch_array(load_on_device(planes, parts).data_ptr<float>(), symbols, stream_of(x_));
}

DevicePasses::Results::Results(const torch::Tensor& x, std::size_t own_slots, std::size_t own_chunks)
    : slots(own_slots), chunks(own_chunks), room(x, slots * (sizeof(TokenCounts) + sizeof(cuda::Excess)) + 4 * chunks) {}

DevicePasses::Symbols& DevicePasses::symbols_for(const Planes& planes) {
  if (symbols_ && symbols_->form == planes.form()) return *symbols_;
  const cuda::Layout layout = layout_of(planes);
  torch::Tensor y = x_;
  if (layout.blocks) {
    y = torch::empty({static_cast<std::int64_t>(planes.symbols())}, x_.options());
    cuda::load_planes(x_.data_ptr<float>(), layout, {nullptr, layout.chunk_units, layout.chunks}, kernels::forward_dct(planes.height()),
                      kernels::forward_dct(planes.width()), y.data_ptr<float>(), stream_of(x_));
  } else if (planes.mean_units() > 0) {
    y = x_.clone();
    cuda::scale_by_exponent(x_.data_ptr<float>(), planes.mean_units(), planes.form().mean_shift, y.data_ptr<float>(), stream_of(x_));
  }
  symbols_.emplace(Symbols{planes.form(),
                           slots_of_planes(x_, planes),
                           {layout, y, {x_, planes.symbols()}, {x_, planes.symbols()}},
                           {x_, planes.slots(), planes.chunks()},
                           std::nullopt,
                           {x_, 0}});
  return *symbols_;
}

void DevicePasses::start_tokens(const Planes& planes, const kernels::DeadZone& zone, std::span<const Chunk> sample) {
  const Symbols& own = symbols_for(planes);
  const Stream stream = stream_of(x_);
  clear(own.results.room.data(), own.results.room.size(), stream);
  cuda::quantize(own.all.y.data_ptr<float>(), own.all.layout, zone, own.all.tokens.data(), own.results.raw_bits(), stream);
  cuda::find_levels(own.all.tokens.data(), own.all.layout, own.slot_of_plane.data(), own.all.levels.data(), own.results.counts()->data(),
                    stream);
  add_sample(planes, zone, sample);
}

// The parts of a sample are chunks of a small tensor.
void DevicePasses::add_sample(const Planes& planes, const kernels::DeadZone& zone, std::span<const Chunk> sample) {
  Symbols& own = symbols_for(planes);
  const Stream stream = stream_of(x_);
  if (!own.sample) {
    cuda::Layout layout = own.all.layout;
    layout.units = 0;
    for (const Chunk& part : sample) layout.units += part.units;
    layout.chunk_units = sample.front().units;
    layout.chunks = sample.size();
    const std::size_t symbols = layout.units * layout.symbols;
    own.sample.emplace(Tokens{layout, load_on_device(planes, sample), {x_, symbols}, {x_, symbols}});
    own.unused = {x_, planes.slots() * sizeof(TokenCounts) + 4 * layout.chunks};
    clear(own.unused.data(), own.unused.size(), stream);
  }
  const auto& [layout, y, tokens, levels] = *own.sample;
  auto* const counts = reinterpret_cast<TokenCounts*>(own.unused.data());
  cuda::quantize(y.data_ptr<float>(), layout, zone, tokens.data(), reinterpret_cast<std::uint32_t*>(counts + planes.slots()), stream);
  cuda::find_levels(tokens.data(), layout, own.slot_of_plane.data(), levels.data(), counts->data(), stream);
  cuda::add_excess(y.data_ptr<float>(), tokens.data(), levels.data(), layout, own.slot_of_plane.data(), zone, planes.slots(),
                   own.results.excess(), stream);
}

std::span<const TokenCounts> DevicePasses::count_tokens() {
  const Results& results = symbols_->results;
  const auto fetched = fetch_array(results.room.data(), results.room.size(), stream_of(x_));
  ByteView left(fetched);
  counts_ = take_array<TokenCounts>(left, results.slots);
  shifts_.clear();
  for (const cuda::Excess& excess : take_array<cuda::Excess>(left, results.slots)) shifts_.push_back(shift_of(excess));
  raw_bits_ = take_array<std::uint32_t>(left, results.chunks);
  return counts_;
}

double DevicePasses::squared_error(const Planes& planes, const kernels::DeadZone& zone, const TokenTables& tables, float step) {
  const Symbols& own = symbols_for(planes);
  const auto table_of = sent_array<std::uint8_t>(x_, tables.table_of);
  const auto shifts = sent_array<std::int8_t>(x_, flat_shifts(tables));
  const DeviceArray<double> errors(x_, planes.chunks());
  cuda::sum_errors(own.all.y.data_ptr<float>(), own.all.levels.data(), own.all.layout, own.slot_of_plane.data(), zone,
                   {table_of.data(), shifts.data(), step}, errors.data(), stream_of(x_));
  double sum = 0;
  for (const double error : fetch_array(errors.data(), errors.size(), stream_of(x_))) sum += error;
  return sum;
}

DevicePasses::Raw DevicePasses::write_raw(const kernels::DeadZone& zone) {
  const Symbols& own = *symbols_;
  const Stream stream = stream_of(x_);
  std::vector<std::uint32_t> bytes;
  std::vector<std::uint64_t> first_word;
  std::uint64_t words = 0;
  for (const std::uint32_t bits : raw_bits_) {
    bytes.push_back((bits + 7) / 8);
    first_word.push_back(words);
    words += (bits + 31) / 32;
  }
  Raw raw{std::move(bytes), std::move(first_word), {x_, words}};
  if (words == 0) return raw;
  clear(raw.words.data(), 4 * words, stream);
  const auto first = sent_array<std::uint64_t>(x_, raw.first_word);
  cuda::write_raw_bits(own.all.y.data_ptr<float>(), own.all.tokens.data(), own.all.layout, zone, own.results.raw_bits(), first.data(),
                       raw.words.data(), stream);
  return raw;
}

DevicePayload DevicePasses::write(const Decision& decision) {
  const Symbols& own = *symbols_;
  const Stream stream = stream_of(x_);
  const CodedHead& head = decision.head;
  const cuda::Layout& layout = own.all.layout;
  const std::size_t chunks = layout.chunks;
  SentArrays sent(x_);
  const auto entries = sent.add<cuda::EncodeEntry>(encode_entries(decision.tables));
  const auto table_of = sent.add<std::uint8_t>(decision.tables.table_of);
  sent.send();
  const cuda::EncodeIndex index{sent[entries], sent[table_of], static_cast<unsigned>(decision.tables.tables.size()),
                                static_cast<unsigned>(decision.tables.table_of.size())};
  const DeviceArray<std::byte> room(x_, chunks * cuda::words_room(layout.chunk_units * layout.symbols));
  const DeviceArray<std::uint32_t> states(x_, chunks * kernels::kMaxStates);
  const DeviceArray<std::uint32_t> word_counts(x_, chunks);
  cuda::encode_chunks(own.all.tokens.data(), own.all.levels.data(), layout, own.slot_of_plane.data(), head.lanes, index, room.data(),
                      states.data(), word_counts.data(), stream);
  const Raw raw = write_raw(decision.zone);

  std::vector<ChunkSizes> sizes;
  const auto counts = fetch_array(word_counts.data(), chunks, stream);
  for (std::size_t c = 0; c < chunks; ++c) sizes.push_back({4 * head.lanes + 2 * std::size_t{counts[c]}, raw.bytes[c]});
  Bytes front;
  write_front(head, decision.tables, decision.planes.levels(), sizes, front);
  std::vector<std::uint64_t> offsets;
  std::size_t at = front.size();
  for (const ChunkSizes& chunk : sizes) offsets.push_back(std::exchange(at, at + chunk.words));
  for (const ChunkSizes& chunk : sizes) offsets.push_back(std::exchange(at, at + chunk.raw));

  DevicePayload payload = new_payload(x_, at);
  auto* const out = reinterpret_cast<std::byte*>(payload.bytes.data_ptr<std::uint8_t>());
  SentArrays places(x_);
  const auto device_offsets = places.add<std::uint64_t>(offsets);
  const auto device_first = places.add<std::uint64_t>(raw.first_word);
  const auto device_bytes = places.add<std::uint32_t>(raw.bytes);
  places.send();
  send(out, front.data(), front.size(), stream);
  cuda::gather_words(room.data(), states.data(), word_counts.data(), layout, head.lanes, places[device_offsets], out, stream);
  if (raw.words.size() > 0) {
    cuda::gather_raw(raw.words.data(), places[device_first], places[device_bytes], places[device_offsets] + chunks, chunks, out, stream);
  }
  payload.front = std::move(front);
  return payload;
}

}  // namespace epipe::codec
