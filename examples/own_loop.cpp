// A Sequential, cut in your own training loop: own_loop [CODEC [FILE]]; the weights go to FILE.
#include <epipe/epipe.h>

#include <iostream>

#include "net.h"

int main(int argc, char** argv) {
  const std::string codec = argc > 1 ? argv[1] : "dct:1";
  torch::manual_seed(1);
  torch::nn::Sequential net = make_net(3, 10);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));

  // Layers 0 to 2 and 6 to 8 on worker 0, which has the data; layers 3 to 5 on worker 1.
  epipe::Pipeline pipeline(epipe::layers(net), {.cuts = {3, 6}, .place = {0, 1, 0}, .chunks = 4, .codec = codec});

  for (int i = 0; i < 10; ++i) {
    const auto labels = torch::randint(10, {32}, torch::kInt64);
    const auto images = torch::randn({32, 3, 16, 16}) + 0.3 * labels.view({32, 1, 1, 1});
    const auto step = pipeline.train_step(images, labels);  // the gradients are in net's own parameters
    optimizer.step();
    std::cout << "step " << i << "  loss " << step.loss << "  bits per value " << step.forward[0].bits_per_value() << " forward, "
              << step.backward[0].bits_per_value() << " backward\n";
  }
  if (argc > 2) torch::save(net->parameters(), argv[2]);
}
