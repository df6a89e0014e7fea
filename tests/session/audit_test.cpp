// What an audit sums of the gradients of a model whose head shares the embedding's matrix.
#include "epipe/session/audit.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <map>

#include "epipe/model/registry.h"
#include "epipe/train/next_token_loss.h"

namespace epipe::session {
namespace {

using layer::Tensors;

constexpr const char* kTiedGpt2 =
    R"(hf:{"model_type":"gpt2","vocab_size":40,"n_embd":16,"n_layer":1,"n_head":2,"n_positions":32,"embd_pdrop":0,"resid_pdrop":0,)"
    R"("attn_pdrop":0})";
constexpr const char* kMatrix = "transformer.wte.weight";

class TiedHead : public ::testing::Test {
 protected:
  TiedHead() {
    data::DataSpec spec;
    spec.kind = data::DataSpec::Kind::kText;
    spec.shape = {12};
    spec.next_token = true;
    model_ = model::builtin_models().make_model(kTiedGpt2, spec, 3);
    stages_[0] = {model_.layers[0], model_.layers[1]};
    stages_[1] = {model_.layers[2], model_.layers[3]};
    torch::manual_seed(4);
    for (auto& tokens : tokens_) tokens = torch::randint(40, {3, 12}, torch::kInt64);
  }

  Tensors hidden(const torch::Tensor& tokens) {  // what the head takes, and the matrix
    layer::ForwardContext at;
    at.samples = {0, 1, 2};
    Tensors x = {tokens};
    for (const auto& layer : model_.layers) x = layer->forward(x, at);
    return x;
  }
  // Leaves gradients where an audit finds them.
  void backward(std::size_t micro_batch) { train::next_token_loss(hidden(tokens_[micro_batch]), tokens_[micro_batch]).sum.backward(); }
  // By name; that of the matrix is the head's part alone.
  std::map<std::string, torch::Tensor> gradients_of_head_stage(std::size_t micro_batch) {
    std::map<std::string, torch::Tensor> gradients;
    const auto x = hidden(tokens_[micro_batch]);
    const auto matrix = x[1].detach().requires_grad_(true);
    gradients[kMatrix] = torch::autograd::grad({train::next_token_loss({x[0].detach(), matrix}, tokens_[micro_batch]).sum}, {matrix})[0];
    const auto loss = train::next_token_loss(x, tokens_[micro_batch]).sum;
    for (const auto& item : model_.layers[2]->named_parameters()) {
      gradients[model_.layers[2]->full_name(item.key())] = torch::autograd::grad({loss}, {item.value()}, {}, /*retain_graph=*/true)[0];
    }
    return gradients;
  }

  model::Model model_;
  std::array<GradientComparisons::Layers, 2> stages_;
  std::array<torch::Tensor, 2> tokens_;
};

TEST_F(TiedHead, CountsItsPartOfTheMatrixGradientInItsOwnStage) {
  std::map<int, std::vector<std::string>> scaled;
  GradientComparisons comparisons(2, [&](int stage, const std::string& name, const torch::Tensor& gradient) {
    scaled[stage].push_back(name);
    return torch::full_like(gradient, 3, torch::kFloat64);
  });
  for (std::uint32_t i = 0; i < 2; ++i) {
    backward(i);
    for (const int stage : {1, 0}) comparisons.take(i, stage, stages_[static_cast<std::size_t>(stage)]);
    for (const auto& layer : model_.layers) {
      layer->finish_gradients();
      for (const auto& item : layer->named_parameters()) EXPECT_FALSE(item.value().grad().defined()) << item.key() << " is left";
    }
  }
  EXPECT_EQ(scaled[1], (std::vector<std::string>{"transformer.ln_f.weight", "transformer.ln_f.bias", kMatrix}));
  EXPECT_EQ(std::count(scaled[0].begin(), scaled[0].end(), kMatrix), 1);

  const auto a = gradients_of_head_stage(0);
  const auto b = gradients_of_head_stage(1);
  AuditSums expected;
  double of_matrix = 0;
  for (const auto& [name, g_a] : a) {
    const double cross = 9 * (g_a.to(torch::kFloat64) * b.at(name)).sum().item<double>();
    const double square = 4.5 * (g_a.to(torch::kFloat64).square().sum() + b.at(name).to(torch::kFloat64).square().sum()).item<double>();
    expected += {cross, square, cross};
    if (name == kMatrix) of_matrix = square;
  }
  const AuditSums sums = read_sums(comparisons.sums(1), {true, true}).at(0).at(1);
  EXPECT_NEAR(sums.cross, expected.cross, 1e-4 * expected.square);
  EXPECT_NEAR(sums.square, expected.square, 1e-4 * expected.square);
  EXPECT_NEAR(sums.along, expected.along, 1e-4 * expected.square);
  EXPECT_GT(of_matrix, 0.5 * expected.square) << "it is most of the stage";
}

// A gradient of 1 that coding made of 11: without the change of -10 it is 11 times that change's length along it.
TEST(AuditSums, OfAChangeLargerThanTheGradientAreTaken) {
  EXPECT_NO_THROW(read_sums({{1, 1, 1}, {100, 100, -110}}, {true}));
  EXPECT_NO_THROW(read_sums({{1, 1, 1}, {100, 100, -110}, {121, 121, 0}}, {true}));
  EXPECT_THROW(read_sums({{1, 1, 1}, {100, 100, -1000}}, {true}), std::invalid_argument);
  EXPECT_THROW(read_sums({{1, 1, 1}, {101, 100, 0}}, {true}), std::invalid_argument) << "Cauchy's inequality";
  EXPECT_THROW(read_sums({{1, 1, 1}, {0, -1, 0}}, {true}), std::invalid_argument);
  EXPECT_NO_THROW(read_sums({{1, 1, 1}, {5, -1, 0}}, {false})) << "of a stage that is not the sender's";
}

// All in one stage, as in a run without cuts, the parts stay apart, too: the sums over stages are the same.
TEST_F(TiedHead, HasTheSameSumsForEveryCut) {
  std::vector<double> squares;
  for (const bool cut : {true, false}) {
    GradientComparisons comparisons(2, [](int, const std::string&, const torch::Tensor&) { return torch::Tensor(); });
    for (std::uint32_t i = 0; i < 2; ++i) {
      backward(i);
      if (cut) {
        comparisons.take(i, 1, stages_[1]);
        comparisons.take(i, 0, stages_[0]);
      } else {
        comparisons.take(i, 0, model_.layers);
      }
    }
    double square = 0;
    const auto by_stage = read_sums(comparisons.sums(1), {true, true}).at(0);
    for (const AuditSums& sums : by_stage) square += sums.square;
    squares.push_back(square);
  }
  EXPECT_NEAR(squares[0], squares[1], 1e-6 * squares[0]);
}

}  // namespace
}  // namespace epipe::session
