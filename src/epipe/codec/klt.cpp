#include "epipe/codec/klt.h"

#include <algorithm>

#include "epipe/codec/kernels/transform.h"
#include "epipe/codec/parallel.h"

namespace epipe::codec {

void transform_channels(const wire::TensorSpec& tensor, std::span<const float> matrix, const kernels::Kernels& kernels, ThreadPool* pool,
                        std::span<const float> x, std::span<float> out) {
  constexpr std::size_t kPlaces = 128;  // at once: all their channels stay in the first-level cache
  const auto channels = static_cast<std::size_t>(tensor.dims[1]);
  const auto map = static_cast<std::size_t>(tensor.dims[2] * tensor.dims[3]);
  const std::size_t tiles = (map + kPlaces - 1) / kPlaces;
  const kernels::ChannelMatrix product{channels, channels, matrix.data()};
  share_items(pool, x.size(), static_cast<std::size_t>(tensor.dims[0]), [&](std::size_t, const auto& next) {
    std::vector<float> room(channels * kPlaces);
    for (std::size_t n = next(); n < tensor.dims[0]; n = next()) {
      for (std::size_t tile = 0; tile < tiles; ++tile) {
        const std::size_t first = n * channels * map + tile * kPlaces;
        const std::size_t places = std::min(kPlaces, map - tile * kPlaces);
        for (std::size_t c = 0; c < channels; ++c) std::copy_n(x.data() + first + c * map, places, room.data() + c * kPlaces);
        kernels.multiply_channels(product, room.data(), kPlaces, places, out.data() + first, map);
      }
    }
  });
}

}  // namespace epipe::codec
