// A codec by itself on your own tensors: codec [FILE]; the last frame goes to FILE, which `epipe codec decode` reads.
#include <epipe/epipe.h>
#include <torch/torch.h>

#include <cstdio>
#include <fstream>

int main(int argc, char** argv) {
  torch::manual_seed(1);
  // A typical feature map: smooth, mostly small.
  const auto x = torch::relu(torch::avg_pool2d(torch::randn({8, 32, 34, 34}), 3, 1));
  std::vector<std::byte> frame;
  for (const char* const spec : {"none", "fp16", "uniform:4", "ec:2", "dct:0.5", "topk:0.1>fp16"}) {
    frame = epipe::Codec(spec).encode(x);
    const auto y = epipe::decode(frame);
    const double error = ((x - y).square().sum() / x.square().sum()).item<double>();
    std::printf("%-14s %8zu bytes  %6.3f bits per value  relative error %.2e\n", spec, frame.size(),
                8.0 * static_cast<double>(frame.size()) / static_cast<double>(x.numel()), error);
  }
  if (argc > 1)
    std::ofstream(argv[1], std::ios::binary).write(reinterpret_cast<const char*>(frame.data()), static_cast<std::streamsize>(frame.size()));
}
