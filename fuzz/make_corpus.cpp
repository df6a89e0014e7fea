// Writes one small valid frame per codec, the seeds of fuzz/corpus/frame.
#include <fmt/format.h>
#include <torch/types.h>

#include <string>

#include "epipe/base/file.h"
#include "epipe/codec/frame_codec.h"
#include "support/codecs.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  torch::manual_seed(1);
  int index = 0;
  for (const std::string& spec : epipe::testing::every_spec()) {
    if (spec == "sort:1+15" || spec == "kmeans:9") continue;  // long side data, the same code
    for (const auto& x : {torch::randn({2, 6, 7}), torch::relu(torch::randn({1, 3, 5, 6})), torch::zeros({0})}) {
      epipe::Bytes frame;
      const auto codec = epipe::testing::codec_of(spec);
      if (!epipe::codec::encode_frame(*codec, x, {}, {}, nullptr, frame)) return 1;
      if (!epipe::write_file(fmt::format("{}/seed{:03}", argv[1], index++), {frame})) return 1;
    }
  }
  return 0;
}
