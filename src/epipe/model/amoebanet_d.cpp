// amoebanet_d (Real et al. 2018, as GPipe trained it): a stem, cells that take the outputs of the two cells before them, a pooled
// classifier. Two tensors pass between cells. amoebanet_d:CELLSxFILTERS sets its size: 3x64 by default; GPipe's experiments used 18x208.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <stdexcept>

#include "epipe/layer/initialization.h"
#include "epipe/model/amoebanet_operations.h"
#include "epipe/model/conv_norm.h"
#include "epipe/model/zoo.h"

namespace epipe::model {
namespace {

using enum AmoebaOperation;
using layer::ForwardContext;
using layer::Tensors;

constexpr layer::Initialization kAmoebaInitialization{.convolution = layer::Initialization::Rule::kFanOut};

// An operation on state `from`. Two of them are added to give the next state; states 0 and 1 are the inputs, the newer first.
struct Edge {
  std::size_t from;
  AmoebaOperation operation;
};
struct Genotype {
  std::array<Edge, 10> edges;
  std::vector<std::size_t> concat;  // the states that are concatenated to the output
};
const Genotype kNormal = {{{{1, kConv1x1},
                            {1, kMaxPool3x3},
                            {1, kNone},
                            {0, kConv1x7And7x1},
                            {0, kConv1x1},
                            {0, kConv1x7And7x1},
                            {2, kMaxPool3x3},
                            {2, kNone},
                            {1, kAvgPool3x3},
                            {5, kConv1x1}}},
                          {0, 3, 4, 6}};
const Genotype kReduction = {{{{0, kMaxPool2x2},
                               {0, kMaxPool3x3},
                               {2, kNone},
                               {1, kConv3x3},
                               {2, kConv1x7And7x1},
                               {2, kMaxPool3x3},
                               {3, kNone},
                               {1, kMaxPool2x2},
                               {2, kAvgPool3x3},
                               {3, kConv1x1}}},
                             {4, 5, 6}};

// [B, C, H, W] -> [B, out, H / 2, W / 2]
class AmoebaStem final : public layer::Layer {
 public:
  AmoebaStem(std::int64_t in, std::int64_t out)
      : Layer("stem"),
        conv_(register_module("conv", std::make_shared<ConvNorm>(layer::ConvShape{.in = in, .out = out, .stride = 2, .padding = 1}))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override { return {conv_->forward(in[0], at)}; }
  double flops(const Tensors&, const Tensors& out) const override { return conv_->flops(out[0]); }
  void initialize(std::uint64_t seed) override { layer::initialize(*this, seed, kAmoebaInitialization); }

 private:
  std::shared_ptr<ConvNorm> conv_;  // shared with the module tree, which owns it
};

struct CellShape {
  std::int64_t before = 1;    // channels of the older input
  std::int64_t previous = 1;  // channels of the newer input
  std::int64_t channels = 1;
  bool reduction = false;
  bool after_reduction = false;  // the older input is twice as large
  bool last = false;             // no later cell takes its input

  const Genotype& genotype() const { return reduction ? kReduction : kNormal; }
  std::int64_t out() const { return channels * static_cast<std::int64_t>(genotype().concat.size()); }
};

// {previous, before} -> {output, previous}; a single tensor is both.
class Cell final : public layer::Layer {
 public:
  Cell(const std::string& name, const CellShape& s)
      : Layer(name),
        genotype_(s.genotype()),
        last_(s.last),
        reduce_previous_(register_module("reduce1", make_projection(s.previous, s.channels))) {
    if (s.after_reduction) {
      reduce_before_ = register_module("reduce2", make_factorized_reduce(s.before, s.channels));
    } else if (s.before != s.channels) {
      reduce_before_ = register_module("reduce2", make_projection(s.before, s.channels));
    }
    for (const Edge& edge : genotype_.edges) {
      const std::int64_t stride = s.reduction && edge.from < 2 ? 2 : 1;
      operations_.push_back(register_module(fmt::format("op{}", operations_.size()), make_operation(edge.operation, s.channels, stride)));
    }
  }

  Tensors forward(const Tensors& in, const ForwardContext& at) override {
    const torch::Tensor& older = in.size() > 1 ? in[1] : in[0];
    Tensors states = {reduce_previous_->forward(in[0], at), reduce_before_ ? reduce_before_->forward(older, at) : older};
    for (std::size_t i = 0; i < operations_.size(); i += 2) {
      const auto a = operations_[i]->forward(states[genotype_.edges[i].from], at);
      states.push_back(a + operations_[i + 1]->forward(states[genotype_.edges[i + 1].from], at));
    }
    Tensors parts;
    for (const std::size_t state : genotype_.concat) parts.push_back(states[state]);
    Tensors out = {torch::cat(parts, 1)};
    if (!last_) out.push_back(in[0]);
    return out;
  }
  double flops(const Tensors& in, const Tensors& out) const override {
    const auto before = positions(in[0]);
    const auto after = positions(out[0]);
    double total = reduce_previous_->flops(before, before) + (reduce_before_ ? reduce_before_->flops(before, before) : 0);
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      total += operations_[i]->flops(genotype_.edges[i].from < 2 ? before : after, after);
    }
    return total;
  }
  void initialize(std::uint64_t seed) override { layer::initialize(*this, seed, kAmoebaInitialization); }

 private:
  const Genotype& genotype_;
  bool last_;
  std::shared_ptr<Operation> reduce_previous_;  // all shared with the module tree, which owns them
  std::shared_ptr<Operation> reduce_before_;    // null: it fits as it is
  std::vector<std::shared_ptr<Operation>> operations_;
};

// [B, C, H, W] -> [B, classes]
class AmoebaClassifier final : public layer::Layer {
 public:
  AmoebaClassifier(std::int64_t channels, std::int64_t classes)
      : Layer("classifier"), linear_(register_module("fc", std::make_shared<layer::Linear>(channels, classes))) {}

  Tensors forward(const Tensors& in, const ForwardContext& at) override { return {linear_->forward(in[0].mean({2, 3}), at)}; }
  double flops(const Tensors& in, const Tensors&) const override {
    return static_cast<double>(in[0].numel()) + linear_->flops(in[0].size(0));
  }

 private:
  std::shared_ptr<layer::Linear> linear_;  // shared with the module tree
};

struct Size {
  std::int64_t cells = 3;
  std::int64_t filters = 64;
};

Size parse_size(const std::string& text) {
  if (text.empty()) return {};
  Size size;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, size.cells);
  const bool times = first.ec == std::errc() && first.ptr != end && *first.ptr == 'x';
  const auto second = times ? std::from_chars(first.ptr + 1, end, size.filters) : std::from_chars_result{end, std::errc::invalid_argument};
  const bool good = second.ec == std::errc() && second.ptr == end && size.cells % 3 == 0 && size.filters % 16 == 0;
  if (!good || size.cells < 3 || size.cells > 300 || size.filters < 16 || size.filters > 4096) {
    throw std::invalid_argument(fmt::format(
        "expected amoebanet_d:CELLSxFILTERS, cells a multiple of 3 up to 300, filters a multiple of 16 up to 4096, got \"{}\"", text));
  }
  return size;
}

// Adds cells and remembers what the next one needs.
class Builder {
 public:
  Builder(std::vector<LayerMaker>& layers, std::int64_t channels) : layers_(layers), shape_{channels, channels, channels} {}

  void reduction(const std::string& name) {
    shape_.channels *= 2;
    add(name, true, false);
  }
  void normal(const std::string& name, std::int64_t cells, bool last) {
    for (std::int64_t i = 0; i < cells; ++i) add(fmt::format("{}.{}", name, i), false, last && i + 1 == cells);
  }
  std::int64_t channels() const { return shape_.previous; }

 private:
  void add(const std::string& name, bool reduction, bool last) {
    shape_.reduction = reduction;
    shape_.last = last;
    layers_.push_back(named_maker<Cell>(name, shape_));
    shape_.before = shape_.previous;
    shape_.previous = shape_.out();
    shape_.after_reduction = reduction;
  }

  std::vector<LayerMaker>& layers_;
  CellShape shape_;
};

}  // namespace

Architecture make_amoebanet_d(const data::DataSpec& data, const std::string& argument) {
  require_images("amoebanet_d", data);
  const Size size = parse_size(argument);
  std::vector<LayerMaker> layers = {maker<AmoebaStem>("stem", data.shape[0], size.filters / 4)};
  Builder builder(layers, size.filters / 4);
  builder.reduction("stem.reduction1");
  builder.reduction("stem.reduction2");
  builder.normal("cell1", size.cells / 3, false);
  builder.reduction("cell2.reduction");
  builder.normal("cell2", size.cells / 3, false);
  builder.reduction("cell3.reduction");
  builder.normal("cell3", size.cells / 3, true);
  layers.push_back(maker<AmoebaClassifier>("classifier", builder.channels(), data.classes));
  return {.layers = std::move(layers)};
}

}  // namespace epipe::model
