#include "epipe/codec/cuda/device_transforms.h"

#include "epipe/codec/channel_basis.h"
#include "epipe/codec/cuda/entropy_passes.h"
#include "epipe/codec/cuda/memory.h"
#include "epipe/codec/kernels/cuda/klt.h"
#include "epipe/codec/kernels/cuda/means.h"
#include "epipe/codec/kernels/cuda/reflect.h"
#include "epipe/codec/kernels/cuda/transform.h"
#include "epipe/codec/span.h"
#include "epipe/codec/spectra.h"

namespace epipe::codec {
namespace {

namespace cuda = kernels::cuda;

static_assert(ChannelBasis::kMostChannels == cuda::kMostChannels && Reflections::kMostFeatures == cuda::kMostReflected);

cuda::Maps maps_of(const torch::Tensor& x) {
  return {static_cast<std::uint64_t>(x.size(0)), static_cast<std::uint64_t>(x.size(1)), static_cast<std::uint64_t>(x.size(2) * x.size(3))};
}

// Each map is a block, and all of them are one chunk, so that its planes are the rows of the spectra.
cuda::Layout spectra_layout(const Planes& planes) {
  cuda::Layout layout = layout_of(planes);
  layout.chunk_units = layout.units;
  layout.chunks = 1;
  return layout;
}

}  // namespace

void multiply_channels_on_device(const torch::Tensor& x, std::span<const float> matrix, torch::Tensor& y) {
  const auto there = sent_array<float>(x, matrix);
  const cuda::Maps maps = maps_of(x);
  cuda::multiply_channels(x.data_ptr<float>(), maps.samples, static_cast<unsigned>(maps.channels), maps.values, there.data(),
                          y.data_ptr<float>(), stream_of(x));
}

void set_channel_means_on_device(torch::Tensor& x, std::span<const float> means) {
  const cuda::Maps maps = maps_of(x);
  const auto shifts = sent_array<float>(x, means);
  const DeviceArray<double> sums(x, maps.count());
  cuda::sum_maps(x.data_ptr<float>(), maps, sums.data(), stream_of(x));
  cuda::means_to_shifts(sums.data(), maps, shifts.data(), stream_of(x));
  cuda::add_to_channels(x.data_ptr<float>(), maps, shifts.data(), stream_of(x));
}

// The owner's pointer keeps another object from having the address that tells them apart.
struct DeviceReflections::There {
  There(const torch::Tensor& x, std::shared_ptr<const Reflections> own)
      : reflections(std::move(own)), device(x.device()), stream(stream_of(x)), sent(x), rows(add_rows()), scales(add_scales()) {
    sent.send();
  }
  kernels::ReflectionRows pointers() const {
    const kernels::ReflectionRows host = reflections->rows();
    return {host.count, host.length, sent[rows], sent[scales]};
  }

  bool serves(const torch::Tensor& x, const std::shared_ptr<const Reflections>& wanted) const {
    return reflections == wanted && device == x.device() && stream == stream_of(x);
  }

  std::shared_ptr<const Reflections> reflections;
  torch::Device device;  // every device has a stream 0
  Stream stream;
  SentArrays sent;
  SentArrays::Place<float> rows, scales;

 private:
  SentArrays::Place<float> add_rows() {
    const kernels::ReflectionRows host = reflections->rows();
    return sent.add<float>({host.rows, host.count * host.length});
  }
  SentArrays::Place<float> add_scales() { return sent.add<float>({reflections->rows().scales, reflections->count()}); }
};

DeviceReflections::DeviceReflections() = default;
DeviceReflections::~DeviceReflections() = default;

// What lies there was sent on a stream, and only what is queued there may rely on it.
void DeviceReflections::apply(const torch::Tensor& x, const std::shared_ptr<const Reflections>& reflections, bool backwards,
                              torch::Tensor& y) {
  const std::lock_guard lock(mutex_);
  if (there_ == nullptr || !there_->serves(x, reflections)) there_ = std::make_unique<There>(x, reflections);
  const std::size_t features = reflections->features();
  cuda::reflect_rows(x.data_ptr<float>(), static_cast<std::uint64_t>(x.numel()) / features, static_cast<unsigned>(features),
                     there_->pointers(), backwards, y.data_ptr<float>(), stream_of(x));
}

torch::Tensor sampled_rows_of(const torch::Tensor& x) {
  const auto rows = x.view({-1, x.size(-1)});
  std::vector<std::int64_t> places;
  for (const std::size_t row : sampled_rows(static_cast<std::size_t>(rows.size(0)))) places.push_back(static_cast<std::int64_t>(row));
  return rows.index_select(0, torch::tensor(places).to(x.device())).cpu();
}

torch::Tensor to_spectra_on_device(const torch::Tensor& x) {
  const TensorSpec to = spectra_of(spec_of(x));
  const Planes planes = spectra_planes(spec_of(x));
  const cuda::Layout layout = spectra_layout(planes);
  auto y = torch::empty(std::vector<std::int64_t>(to.dims.begin(), to.dims.end()), x.options());
  cuda::load_planes(x.data_ptr<float>(), layout, {nullptr, layout.units, 1}, kernels::forward_dct(planes.height()),
                    kernels::forward_dct(planes.width()), y.data_ptr<float>(), stream_of(x));
  return y;
}

void from_spectra_on_device(const torch::Tensor& spectra, torch::Tensor& x) {
  const Planes planes = spectra_planes(spec_of(x));
  cuda::store_planes(spectra.data_ptr<float>(), spectra_layout(planes), kernels::inverse_dct(planes.height()),
                     kernels::inverse_dct(planes.width()), x.data_ptr<float>(), stream_of(x));
}

}  // namespace epipe::codec
