// The loop of examples/own_loop.cpp as one writes it without epipe, with the same micro-batches. plain_loop FILE compares its weights with
// those that own_loop left there: bit for bit, or exit code 1.
#include <iostream>

#include "net.h"

int main(int, char** argv) {
  torch::manual_seed(1);
  torch::set_num_threads(1);
  torch::nn::Sequential net = make_net(3, 10);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int i = 0; i < 10; ++i) {
    const auto labels = torch::randint(10, {32}, torch::kInt64);
    const auto images = torch::randn({32, 3, 16, 16}) + 0.3 * labels.view({32, 1, 1, 1});
    optimizer.zero_grad();
    for (int chunk = 0; chunk < 4; ++chunk) {
      const auto y = net->forward(images.narrow(0, 8 * chunk, 8));
      const auto sum = torch::nll_loss(torch::log_softmax(y, -1), labels.narrow(0, 8 * chunk, 8), {}, torch::Reduction::Sum);
      (sum / 32.0).backward();
    }
    optimizer.step();
  }
  std::vector<torch::Tensor> others;
  torch::load(others, argv[1]);
  const auto own = net->named_parameters();
  if (own.size() != others.size()) return 1;
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (torch::equal(own[i].value(), others[i])) continue;
    std::cerr << own[i].key() << " differs\n";
    return 1;
  }
  std::cout << others.size() << " parameters are equal\n";
}
