// models_bench MODEL [--keep]: CPU seconds of one training step (224 px, batch 8, one thread), forward and backward. --keep: freed memory
// stays with the process, as the program epipe has it.
#include <ATen/Parallel.h>
#include <malloc.h>

#include <cstdio>
#include <ctime>
#include <limits>
#include <string_view>

#include "epipe/model/registry.h"

namespace {

constexpr std::int64_t kBatch = 8;
constexpr int kSteps = 6;

double seconds_between(std::clock_t begin, std::clock_t end) { return static_cast<double>(end - begin) / CLOCKS_PER_SEC; }

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (argc > 2 && std::string_view(argv[2]) == "--keep") {
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
    mallopt(M_ARENA_MAX, 1);
  }
  at::set_num_threads(1);
  const auto model = epipe::model::builtin_models().make_model(argv[1], {epipe::data::DataSpec::Kind::kImages, {3, 224, 224}, 1000}, 1);
  const auto images = torch::randn({kBatch, 3, 224, 224});
  const auto labels = torch::zeros({kBatch}, torch::kInt64);
  epipe::layer::ForwardContext at;
  for (std::int64_t i = 0; i < kBatch; ++i) at.samples.push_back(i);
  for (int step = 0; step < kSteps; ++step) {
    const auto begin = std::clock();
    epipe::layer::Tensors x = {images};
    for (const auto& layer : model.layers) x = layer->forward(x, at);
    const auto middle = std::clock();
    torch::nll_loss(torch::log_softmax(x[0], -1), labels).backward();
    std::printf("forward %.3f backward %.3f\n", seconds_between(begin, middle), seconds_between(middle, std::clock()));
  }
}
