// ec, dct, auto: a uniform step with a dead zone, tokens in contexts, rANS. They differ in the forms an encoder may choose from; the
// payload says which one it took, so one decoder serves all.
//
//   tensor > (KLT of channels or features) > planes > tokens, levels, counts > tables > words          form and step: rate_control.h
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "epipe/codec/channel_means.h"
#include "epipe/codec/cuda/device_codecs.h"
#include "epipe/codec/entropy_payload.h"
#include "epipe/codec/factories.h"
#include "epipe/codec/kernels/key.h"
#include "epipe/codec/klt.h"
#include "epipe/codec/klt_control.h"
#include "epipe/codec/parallel.h"
#include "epipe/codec/rate_control.h"
#include "epipe/codec/reflection_control.h"
#include "epipe/codec/span.h"
#include "epipe/codec/spectra.h"
#include "epipe/codec/token_stream.h"

namespace epipe::codec {
namespace {

std::uint8_t* tokens_at(Bytes& bytes, std::size_t at) { return reinterpret_cast<std::uint8_t*>(bytes.data()) + at; }

// Warm buffers.
struct SymbolBuffers {
  Bytes tokens;  // a byte per symbol
  Bytes levels;
  std::vector<CountedTokens> counted;  // by thread
  std::vector<TokenCounts> counts;     // of all
};

// A tensor that is not empty, and what one reading of it tells.
struct Scanned {
  torch::Tensor values;
  kernels::Key largest_key{};  // of its magnitudes
  std::vector<BlockSums> sums{};

  float largest() const { return kernels::key_value(largest_key); }
};

// Block by block: the second look at one finds it in the cache.
Scanned scan(torch::Tensor values, const CodecOptions& options) {
  Scanned scanned{std::move(values)};
  const auto x = values_of(scanned.values);
  scanned.sums.resize((x.size() + kSumBlock - 1) / kSumBlock);
  std::vector<kernels::Key> largest(threads_of(options.pool));
  for_parts(options.pool, x.size(), kSumBlock, [&](std::size_t part, std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end; at += kSumBlock) {
      const auto block = x.subspan(at, std::min(kSumBlock, end - at));
      largest[part] = std::max(largest[part], options.kernels->key_range(block, kernels::KeyOf::kMagnitude).max);
      scanned.sums[at / kSumBlock] = options.kernels->energy(block);
    }
  });
  scanned.largest_key = *std::max_element(largest.begin(), largest.end());
  return scanned;
}

// A tensor in host memory.
class HostPasses final : public Passes {
 public:
  HostPasses(const Scanned& x, const CodecOptions& options, SymbolBuffers& buffers)
      : x_(values_of(x.values)), sums_(x.sums), options_(options), buffers_(buffers) {}

  std::vector<BlockSums> sum_blocks() override { return sums_; }

  std::vector<float> load(const Planes& planes, std::span<const Chunk> parts) override {
    std::vector<float> all;
    Planes::Scratch scratch;
    for (const Chunk& part : parts) {
      const auto y = planes.load(part, x_, *options_.kernels, scratch);
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  }

  void start_tokens(const Planes& planes, const kernels::DeadZone& zone, std::span<const Chunk>) override {
    buffers_.tokens.resize(planes.symbols());
    buffers_.levels.resize(planes.symbols());
    chunks_.assign(planes.chunks(), {});
    auto& counted = buffers_.counted;
    counted.resize(threads_of(options_.pool));
    for (CountedTokens& own : counted) own.reset(planes.slots(), planes.symbols());
    for_chunks(planes, options_.pool, [&](std::size_t thread, std::size_t c, const Chunk& chunk, ChunkScratch& scratch) {
      const auto y = planes.load(chunk, x_, *options_.kernels, scratch.planes);
      const std::size_t at = chunk.first * planes.unit_symbols();
      codec::tokenize(planes, chunk, y, zone, *options_.kernels, tokens_at(buffers_.tokens, at), tokens_at(buffers_.levels, at),
                      scratch.tokens, &counted[thread], &chunks_[c].raw);
    });
    for (std::size_t thread = 1; thread < counted.size(); ++thread) counted[0].add(counted[thread]);
    counted[0].total(buffers_.counts);
  }

  std::span<const TokenCounts> count_tokens() override { return buffers_.counts; }

  double squared_error(const Planes& planes, const kernels::DeadZone& zone, const TokenTables& tables, float step) override {
    std::vector<double> errors(planes.chunks());
    for_chunks(planes, options_.pool, [&](std::size_t, std::size_t c, const Chunk& chunk, ChunkScratch& scratch) {
      const auto y = planes.load(chunk, x_, *options_.kernels, scratch.planes);
      const std::uint8_t* const levels = tokens_at(buffers_.levels, chunk.first * planes.unit_symbols());
      errors[c] = codec::squared_error(planes, chunk, y, zone, levels, tables, step);
    });
    double sum = 0;
    for (const double error : errors) sum += error;
    return sum;
  }

  // The last tokens as words.
  void write(const Decision& decision, Bytes& out) {
    const auto& [planes, head, tables, unused, bound] = decision;
    const Coding coding{planes, tables, head.lanes, head.step, *options_.kernels};
    const kernels::EncodeTables encode_tables(tables.tables);
    for_chunks(planes, options_.pool, [&](std::size_t, std::size_t c, const Chunk& chunk, ChunkScratch& scratch) {
      const std::size_t at = chunk.first * coding.planes.unit_symbols();
      encode_chunk(coding, chunk, tokens_at(buffers_.tokens, at), tokens_at(buffers_.levels, at), encode_tables, scratch.tokens,
                   chunks_[c].words);
    });
    write_coded(head, tables, planes.levels(), chunks_, out);
  }

 private:
  std::span<const float> x_;
  const std::vector<BlockSums>& sums_;
  const CodecOptions& options_;
  SymbolBuffers& buffers_;
  std::vector<EncodedChunk> chunks_;
};

class Entropy final : public Codec {
 public:
  Entropy(EntropyKind kind, EntropyTarget target, const CodecOptions& options)
      : kind_(kind), target_(target), options_(options), control_(kind, target, options), klt_(kind), reflection_(kind, options) {}

  std::string spec() const override { return control_.spec(); }

  PayloadBounds payload_bounds(const TensorSpec& tensor) const override { return entropy_bounds(tensor); }

  Result<void> encode(const torch::Tensor& x, const EncodeContext& at, Bytes& out) override {
    auto dense = contiguous_float(x);
    if (dense.numel() == 0) return {};
    EPIPE_TRY(control_.set_rate(at.rate));
    const TensorSpec tensor = spec_of(dense);
    const Scanned whole = scan(dense, options_);
    if (whole.largest_key >= kernels::kInfinityKey) return unencodable(values_of(dense), spec(), std::numeric_limits<float>::max());
    if (whole.largest_key == 0) {
      append(out, PayloadKind::kZeros);
      return {};
    }
    const std::size_t start = out.size();
    const int exponent = RateControl::scaling_exponent(whole.largest());
    bool keeps_bound = false;
    if (exponent != 0) {
      keeps_bound = write(scan(scaled(dense, -exponent), options_), exponent, {}, at, out);
    } else {
      const std::size_t means = control_.means_bytes(tensor);
      if (means != 0) write_means(means_of(tensor, map_sums(tensor, values_of(dense), options_.pool)), out);
      const Features features = features_of(dense);
      if (const auto by_axes = choose_reflections(whole, features, at.frozen)) {
        if (features.are_spectra) write_spectra_head(out);
        append_bytes(out, by_axes->front);
        keeps_bound = write(scan(reflected(*by_axes, features.rows), options_), 0, features.aside_for(*by_axes), at, out);
      } else if (const auto plan = choose_plan(whole, at.frozen)) {
        write_basis(plan->basis, out);
        keeps_bound = write(scan(transformed(*plan, dense), options_), 0, {plan->aside.bytes + means, plan->aside.skew}, at, out);
      } else {
        keeps_bound = write(whole, 0, {means}, at, out);
      }
    }
    if (!keeps_bound || out.size() - start > payload_bounds(tensor).max) {
      out.resize(start);
      append(out, PayloadKind::kPlain);
      Unwritten room(out, sizeof(float) * static_cast<std::size_t>(x.numel()));
      options_.kernels->store_fp32(values_of(contiguous_float(x)), room.span());
      room.written();
    }
    return {};
  }

  Result<void> decode_into(torch::Tensor& x, ByteView in) const override {
    const TensorSpec tensor = spec_of(x);
    const auto bounds = payload_bounds(tensor);
    if (in.size() < bounds.min || in.size() > bounds.max) return wrong_length(spec(), bounds, in.size());
    if (x.numel() == 0) return {};
    return decode_coded(tensor, in, *options_.kernels, options_.pool, reflection_reader_, mutable_values_of(x));
  }

  State state() const override {
    State all = control_.state();
    klt_.add_state(all);
    reflection_.add_state(all);
    return all;
  }
  void set_state(const State& state) override {
    control_.set_state(state);
    klt_.set_state(state);
    reflection_.set_state(state);
  }
  std::unique_ptr<DeviceCodec> device_codec() const override { return make_entropy_device_codec(kind_, target_); }

 private:
  // False where no coded payload errs as little as was asked for.
  bool write(const Scanned& x, int exponent, const Aside& aside, const EncodeContext& at, Bytes& out) {
    HostPasses passes(x, options_, buffers_);
    const Decision decision = control_.decide(spec_of(x.values), x.largest(), exponent, passes, aside, at.frozen);
    if (decision.keeps_bound) passes.write(decision, out);
    return decision.keeps_bound;
  }

  // What reflections may turn: a tensor's own features, or those of the spectra of its maps.
  struct Features {
    torch::Tensor rows;
    bool are_spectra = false;

    Aside aside_for(const ReflectionPlan& plan) const { return are_spectra ? plan.aside_of_spectra() : plan.aside; }
  };

  Features features_of(const torch::Tensor& x) const {
    const TensorSpec tensor = spec_of(x);
    if (kind_ == EntropyKind::kEc || !has_spectra(tensor)) return {x};
    const TensorSpec rows = spectra_of(tensor);
    auto y = torch::empty(std::vector<std::int64_t>(rows.dims.begin(), rows.dims.end()), torch::kFloat32);
    to_spectra(tensor, values_of(x), *options_.kernels, options_.pool, mutable_values_of(y));
    return {y, true};
  }

  std::shared_ptr<const ReflectionPlan> choose_reflections(const Scanned& x, const Features& features, bool frozen) {
    const TensorSpec tensor = spec_of(features.rows);
    if (!reflection_.considers(tensor)) return nullptr;
    const auto by_axes = [&](const std::shared_ptr<const ReflectionPlan>& plan) {
      return cost(scan(reflected(*plan, features.rows), options_), features.aside_for(*plan));
    };
    const auto rows = [&] { return values_of(features.rows); };
    return reflection_.choose(tensor, control_, {rows, [&] { return cost(x, {}); }, by_axes}, frozen);
  }

  torch::Tensor reflected(const ReflectionPlan& plan, const torch::Tensor& x) const {
    auto y = torch::empty_like(x);
    plan.reflections.forward(values_of(x), *options_.kernels, options_.pool, mutable_values_of(y));
    return y;
  }

  double cost(const Scanned& x, const Aside& aside) {
    HostPasses passes(x, options_, buffers_);
    return control_.cost(spec_of(x.values), x.largest(), passes, aside);
  }

  std::shared_ptr<const ChannelPlan> choose_plan(const Scanned& x, bool frozen) {
    const auto klt_cost = [&](const ChannelPlan& plan) { return cost(scan(transformed(plan, x.values), options_), plan.aside); };
    return klt_.choose(x.values, control_, {[&] { return cost(x, {}); }, klt_cost}, frozen);
  }

  torch::Tensor transformed(const ChannelPlan& plan, const torch::Tensor& x) const {
    auto y = torch::empty_like(x);
    transform_channels(spec_of(x), plan.from_channels, *options_.kernels, options_.pool, values_of(x), mutable_values_of(y));
    return y;
  }

  static torch::Tensor scaled(const torch::Tensor& x, int exponent) {
    auto y = torch::empty_like(x);
    const auto from = values_of(x);
    std::transform(from.begin(), from.end(), mutable_values_of(y).begin(), [exponent](float v) { return std::ldexp(v, exponent); });
    return y;
  }

  EntropyKind kind_;
  EntropyTarget target_;
  CodecOptions options_;
  RateControl control_;
  KltControl klt_;
  ReflectionControl reflection_;
  mutable ReflectionReader reflection_reader_;
  SymbolBuffers buffers_;
};

}  // namespace

std::unique_ptr<Codec> make_entropy(EntropyKind kind, EntropyTarget target, const CodecOptions& options) {
  return std::make_unique<Entropy>(kind, target, options);
}

}  // namespace epipe::codec
