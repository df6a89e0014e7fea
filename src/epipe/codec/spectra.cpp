#include "epipe/codec/spectra.h"

#include <algorithm>
#include <array>

#include "epipe/codec/channel_basis.h"
#include "epipe/codec/entropy_payload.h"
#include "epipe/codec/parallel.h"
#include "epipe/codec/planes.h"
#include "epipe/codec/reflections.h"

namespace epipe::codec {
namespace {

constexpr std::size_t kMostEdge = 8;
constexpr std::size_t kMostPlaces = 63;         // maps of 64 values or more have channel means, in front of which nothing else is needed
constexpr std::size_t kUnitsAtOnce = 1U << 11;  // maps

// Calls each(part, scratch) for parts of the maps.
template <typename Each>
void for_parts_of(const Planes& planes, ThreadPool* pool, Each&& each) {
  const std::size_t count = (planes.units() + kUnitsAtOnce - 1) / kUnitsAtOnce;
  share_items(pool, planes.symbols(), count, [&](std::size_t, const auto& next) {
    Planes::Scratch scratch;
    for (std::size_t p = next(); p < count; p = next()) {
      const std::size_t first = p * kUnitsAtOnce;
      each(planes.part(first, std::min(kUnitsAtOnce, planes.units() - first)), scratch);
    }
  });
}

}  // namespace

bool has_spectra(const wire::TensorSpec& tensor) {
  if (tensor.dims.size() != 4 || tensor.values() == 0) return false;
  const auto& dims = tensor.dims;
  const bool small = dims[2] <= kMostEdge && dims[3] <= kMostEdge && dims[2] * dims[3] >= 2 && dims[2] * dims[3] <= kMostPlaces;
  return small && dims[1] > ChannelBasis::kMostChannels && Reflections::fits(spectra_of(tensor));
}

wire::TensorSpec spectra_of(const wire::TensorSpec& tensor) { return {{tensor.dims[2] * tensor.dims[3], tensor.dims[0], tensor.dims[1]}}; }

Planes spectra_planes(const wire::TensorSpec& tensor) { return {tensor, {kMostEdge, Context::kParents, true}, 16}; }

void to_spectra(const wire::TensorSpec& tensor, std::span<const float> x, const kernels::Kernels& kernels, ThreadPool* pool,
                std::span<float> spectra) {
  const Planes planes = spectra_planes(tensor);
  for_parts_of(planes, pool, [&](const Chunk& part, Planes::Scratch& scratch) {
    const auto y = planes.load(part, x, kernels, scratch);
    for (std::size_t k = 0; k < planes.unit_symbols(); ++k) {
      std::copy_n(y.data() + k * part.units, part.units, spectra.data() + k * planes.units() + part.first);
    }
  });
}

void from_spectra(const wire::TensorSpec& tensor, std::span<const float> spectra, const kernels::Kernels& kernels, ThreadPool* pool,
                  std::span<float> x) {
  const Planes planes = spectra_planes(tensor);
  for_parts_of(planes, pool, [&](const Chunk& part, Planes::Scratch& scratch) {
    auto& y = scratch.room;
    y.resize(part.symbols + kernels::kBatch);
    for (std::size_t k = 0; k < planes.unit_symbols(); ++k) {
      std::copy_n(spectra.data() + k * planes.units() + part.first, part.units, y.data() + k * part.units);
    }
    planes.store(part, y, kernels, scratch, x);
  });
}

void write_spectra_head(Bytes& out) {
  append(out, PayloadKind::kSpectra);
  append(out, std::array<std::uint8_t, kSpectraHead - 1>{});
}

Result<void> check_spectra_head(const wire::TensorSpec& tensor, ByteView first) {
  const auto bad = [](std::string message) { return Error{ErrorCode::kBadPayload, std::move(message)}; };
  if (!has_spectra(tensor)) return bad("spectra of maps, but this shape can have none");
  if (first.size() < kSpectraHead) return bad("the payload ends within the head of its spectra");
  if (!all_zeros(first.subspan(1, kSpectraHead - 1))) return bad("bytes beside the kind of spectra must be 0");
  return {};
}

}  // namespace epipe::codec
