// make_corpus FRAME ENTROPY SESSION: writes one small valid frame per codec, the seeds of fuzz/corpus/frame, one payload per shape and
// entropy codec, those of fuzz/corpus/entropy, and conversations with a session, those of fuzz/corpus/session.
#include <fmt/format.h>
#include <torch/types.h>

#include <string>

#include "entropy_shapes.h"
#include "epipe/base/file.h"
#include "epipe/codec/channel_basis.h"
#include "epipe/codec/channel_means.h"
#include "epipe/codec/frame_codec.h"
#include "epipe/codec/reflections.h"
#include "epipe/codec/spectra.h"
#include "session_seeds.h"
#include "support/codecs.h"

namespace {

using namespace epipe;
using epipe::testing::codec_of;

bool write_frames(const std::string& folder) {
  int index = 0;
  for (const std::string& spec : epipe::testing::every_spec()) {
    if (spec == "sort:1+15" || spec == "kmeans:9") continue;  // long side data, the same code
    for (const auto& x : {torch::randn({2, 6, 7}), torch::relu(torch::randn({1, 3, 5, 6})), torch::zeros({0})}) {
      Bytes frame;
      const auto codec = codec_of(spec);
      if (!codec::encode_frame(*codec, x, {}, {}, nullptr, frame)) return false;
      if (!write_file(fmt::format("{}/seed{:03}", folder, index++), {frame})) return false;
    }
  }
  return true;
}

// Means and a basis in front of coded payloads that an encoder would send without, because they are short.
bool write_fronts(const std::string& folder, int index) {
  const auto& shapes = fuzz::entropy_shapes();
  for (std::size_t s = 0; s < shapes.size(); ++s) {
    const wire::TensorSpec tensor{shapes[s]};
    if (!codec::ChannelBasis::fits(tensor)) continue;
    const std::vector<std::int64_t> sizes(shapes[s].begin(), shapes[s].end());
    const auto channels = static_cast<std::size_t>(shapes[s][1]);
    Bytes coded;
    if (!codec_of("dct:4")->encode(torch::randn(sizes), {}, coded)) return false;
    for (const int fronts : {1, 2, 3}) {
      Bytes input(1, static_cast<std::byte>(s));
      if ((fronts & 1) != 0) codec::write_means(std::vector<float>(channels, 0.5F), input);
      if ((fronts & 2) != 0) codec::write_basis(codec::ChannelBasis::of_moments(std::vector<double>(channels * channels), channels), input);
      input.insert(input.end(), coded.begin(), coded.end());
      if (!write_file(fmt::format("{}/seed{:03}", folder, index++), {input})) return false;
    }
  }
  return true;
}

// The same for reflections.
bool write_reflected(const std::string& folder, int index) {
  const auto& shapes = fuzz::entropy_shapes();
  for (std::size_t s = 0; s < shapes.size(); ++s) {
    const wire::TensorSpec tensor{shapes[s]};
    if (!codec::Reflections::fits(tensor)) continue;
    const std::vector<std::int64_t> sizes(tensor.dims.begin(), tensor.dims.end());
    const auto x = torch::randn(sizes);
    const auto axes =
        codec::leading_axes({x.data_ptr<float>(), static_cast<std::size_t>(x.numel())}, tensor.dims[2], 3, kernels::best(), nullptr);
    Bytes input(1, static_cast<std::byte>(s));
    codec::write_reflections(codec::reflections_to(axes, 3, 0.5, tensor.dims[0] * tensor.dims[1]), kernels::best(), input);
    if (!codec_of("ec:4")->encode(x, {}, input)) return false;
    if (!write_file(fmt::format("{}/reflected{:03}", folder, index++), {input})) return false;
  }
  return true;
}

// And for spectra of maps.
bool write_spectra(const std::string& folder) {
  const auto& shapes = fuzz::entropy_shapes();
  for (std::size_t s = 0; s < shapes.size(); ++s) {
    if (!codec::has_spectra({shapes[s]})) continue;
    const wire::TensorSpec rows = codec::spectra_of({shapes[s]});
    const auto x = torch::randn(std::vector<std::int64_t>(rows.dims.begin(), rows.dims.end()));
    const auto axes =
        codec::leading_axes({x.data_ptr<float>(), static_cast<std::size_t>(x.numel())}, rows.dims[2], 3, kernels::best(), nullptr);
    Bytes input(1, static_cast<std::byte>(s));
    codec::write_spectra_head(input);
    codec::write_reflections(codec::reflections_to(axes, 3, 0.5, rows.dims[0] * rows.dims[1]), kernels::best(), input);
    if (!codec_of("ec:4")->encode(x, {}, input)) return false;
    if (!write_file(fmt::format("{}/spectra{:03}", folder, s), {input})) return false;
  }
  return true;
}

bool write_payloads(const std::string& folder) {
  const auto& shapes = fuzz::entropy_shapes();
  int index = 0;
  for (std::size_t s = 0; s < shapes.size(); ++s) {
    const std::vector<std::int64_t> sizes(shapes[s].begin(), shapes[s].end());
    for (const std::string spec : {"ec:2", "ec:8", "dct:0.5", "dct:4", "ec@0.1"}) {
      Bytes input(1, static_cast<std::byte>(s));
      if (!codec_of(spec)->encode(torch::randn(sizes).pow(3), {}, input)) return false;
      if (!write_file(fmt::format("{}/seed{:03}", folder, index++), {input})) return false;
    }
  }
  return write_fronts(folder, index) && write_reflected(folder, 0) && write_spectra(folder);
}

bool write_conversations(const std::string& folder) {
  for (const auto& [name, seed] : fuzz::session_seeds()) {
    if (!write_file(folder + "/" + name, {seed})) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  torch::manual_seed(1);
  return write_frames(argv[1]) && write_payloads(argv[2]) && write_conversations(argv[3]) ? 0 : 1;
}
