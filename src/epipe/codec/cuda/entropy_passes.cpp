#include "epipe/codec/cuda/entropy_passes.h"

#include <algorithm>

#include "epipe/codec/kernels/cuda/rans.h"
#include "epipe/codec/kernels/cuda/tokens.h"
#include "epipe/codec/kernels/cuda/transform.h"
#include "epipe/codec/kernels/rans.h"
#include "epipe/codec/kernels/transform.h"

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
          narrow(planes.grid_width())};
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

// One pass for all that rate control starts from.
DevicePasses::DevicePasses(torch::Tensor x) : x_(std::move(x)) {
  const auto n = static_cast<std::size_t>(x_.numel());
  const DeviceArray<cuda::BlockSums> sums(x_, (n + kSumBlock - 1) / kSumBlock + 1);
  auto* const largest = reinterpret_cast<kernels::Key*>(sums.data() + sums.size() - 1);
  cuda::sum_blocks(x_.data_ptr<float>(), n, sums.data(), largest, stream_of(x_));
  sums_ = fetch_array(reinterpret_cast<const BlockSums*>(sums.data()), sums.size(), stream_of(x_));
  std::memcpy(&largest_, &sums_.back(), sizeof(largest_));
  sums_.pop_back();
}

std::vector<float> DevicePasses::load(const Planes& planes, std::span<const Chunk> parts) {
  std::vector<std::uint64_t> first;
  std::size_t symbols = 0;
  for (const Chunk& part : parts) {
    first.push_back(part.first);
    symbols += part.symbols;
  }
  const auto device_first = sent_array<std::uint64_t>(x_, first);
  const DeviceArray<float> y(x_, parts.size() * parts.front().symbols);
  const cuda::Parts all{device_first.data(), parts.front().units, parts.size()};
  cuda::load_planes(x_.data_ptr<float>(), layout_of(planes), all, kernels::forward_dct(planes.height()),
                    kernels::forward_dct(planes.width()), y.data(), stream_of(x_));
  return fetch_array(y.data(), symbols, stream_of(x_));
}

DevicePasses::Symbols& DevicePasses::symbols_for(const Planes& planes) {
  if (symbols_ && symbols_->form == planes.form()) return *symbols_;
  const cuda::Layout layout = layout_of(planes);
  torch::Tensor y = x_;
  if (layout.blocks) {
    y = torch::empty({static_cast<std::int64_t>(planes.symbols())}, x_.options());
    cuda::load_planes(x_.data_ptr<float>(), layout, {nullptr, layout.chunk_units, layout.chunks}, kernels::forward_dct(planes.height()),
                      kernels::forward_dct(planes.width()), y.data_ptr<float>(), stream_of(x_));
  }
  symbols_.emplace(Symbols{planes.form(),
                           layout,
                           slots_of_planes(x_, planes),
                           y,
                           {x_, planes.symbols()},
                           {x_, planes.symbols()},
                           {x_, planes.chunks()},
                           {x_, planes.slots()}});
  return *symbols_;
}

void DevicePasses::start_tokens(const Planes& planes, const kernels::DeadZone& zone) {
  Symbols& own = symbols_for(planes);
  const Stream stream = stream_of(x_);
  clear(own.counts.data(), own.counts.size() * sizeof(TokenCounts), stream);
  cuda::quantize(own.y.data_ptr<float>(), own.layout, zone, own.tokens.data(), own.raw_bits.data(), stream);
  cuda::find_levels(own.tokens.data(), own.layout, own.slot_of_plane.data(), own.levels.data(), own.counts.data()->data(), stream);
}

std::span<const TokenCounts> DevicePasses::count_tokens() {
  counts_ = fetch_array(symbols_->counts.data(), symbols_->counts.size(), stream_of(x_));
  return counts_;
}

double DevicePasses::squared_error(const Planes& planes, const kernels::DeadZone& zone, const TokenTables& tables, float step) {
  const Symbols& own = symbols_for(planes);
  const auto table_of = sent_array<std::uint8_t>(x_, tables.table_of);
  const auto shifts = sent_array<std::int8_t>(x_, flat_shifts(tables));
  const DeviceArray<double> errors(x_, planes.chunks());
  cuda::sum_errors(own.y.data_ptr<float>(), own.levels.data(), own.layout, own.slot_of_plane.data(), zone,
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
  for (const std::uint32_t bits : fetch_array(own.raw_bits.data(), own.layout.chunks, stream)) {
    bytes.push_back((bits + 7) / 8);
    first_word.push_back(words);
    words += (bits + 31) / 32;
  }
  Raw raw{std::move(bytes), std::move(first_word), {x_, words}};
  if (words == 0) return raw;
  clear(raw.words.data(), 4 * words, stream);
  const auto first = sent_array<std::uint64_t>(x_, raw.first_word);
  cuda::write_raw_bits(own.y.data_ptr<float>(), own.tokens.data(), own.layout, zone, own.raw_bits.data(), first.data(), raw.words.data(),
                       stream);
  return raw;
}

DevicePayload DevicePasses::write(const Decision& decision) {
  const Symbols& own = *symbols_;
  const Stream stream = stream_of(x_);
  const CodedHead& head = decision.head;
  const std::size_t chunks = own.layout.chunks;
  const auto entries = sent_array<cuda::EncodeEntry>(x_, encode_entries(decision.tables));
  const auto table_of = sent_array<std::uint8_t>(x_, decision.tables.table_of);
  const cuda::Coding coding{own.slot_of_plane.data(), table_of.data(), head.lanes};
  const DeviceArray<std::byte> room(x_, chunks * cuda::words_room(own.layout.chunk_units * own.layout.symbols));
  const DeviceArray<std::uint32_t> states(x_, chunks * kernels::kMaxStates);
  const DeviceArray<std::uint32_t> word_counts(x_, chunks);
  cuda::encode_chunks(own.tokens.data(), own.levels.data(), own.layout, coding, entries.data(), room.data(), states.data(),
                      word_counts.data(), stream);
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
  send(out, front.data(), front.size(), stream);
  const auto device_offsets = sent_array<std::uint64_t>(x_, offsets);
  cuda::gather_words(room.data(), states.data(), word_counts.data(), own.layout, head.lanes, device_offsets.data(), out, stream);
  if (raw.words.size() > 0) {
    const auto first = sent_array<std::uint64_t>(x_, raw.first_word);
    const auto bytes = sent_array<std::uint32_t>(x_, raw.bytes);
    cuda::gather_raw(raw.words.data(), first.data(), bytes.data(), device_offsets.data() + chunks, chunks, out, stream);
  }
  payload.front = std::move(front);
  return payload;
}

}  // namespace epipe::codec
