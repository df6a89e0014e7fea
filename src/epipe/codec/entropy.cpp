// ec, dct, auto: a uniform step with a dead zone, tokens in contexts, rANS. They differ in the forms an encoder may choose from; the
// payload says which one it took, so one decoder serves all.
//
//   tensor > planes > tokens, levels, counts > tables > words          step: by a search on a sample, then checked on the real counts
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "epipe/codec/entropy_payload.h"
#include "epipe/codec/factories.h"
#include "epipe/codec/kernels/key.h"
#include "epipe/codec/kernels/order.h"
#include "epipe/codec/span.h"
#include "epipe/codec/step_search.h"
#include "epipe/codec/token_stream.h"
#include "epipe/wire/frame.h"

namespace epipe::codec {
namespace {

constexpr const char* kStateName = "rate";
constexpr double kStepFloor = 2e-3;     // of the RMS of the values that are not zero
constexpr double kAim = 0.994;          // of the target, which is an upper bound
constexpr int kMaxPasses = 3;           // over the whole tensor, to meet the target
constexpr int kMaxErrorPasses = 12;     // an error bound is kept
constexpr std::uint64_t kRecheck = 64;  // calls after which the form is chosen again
constexpr int kPlainExponents = 60;     // tensors with larger or smaller extremes are scaled by a power of two

// What the encoder remembers.
struct Memory {
  Form form;
  float step = 0;
  double correction = 1;  // what the whole tensor took over what the sample promised
  std::uint64_t calls = 0;
};

struct Scale {
  float largest;  // magnitude
  double energy;  // sum of squares
  double rms;     // of the values that are not zero
};

// Sums in a fixed order, whatever the number of threads.
Scale scale_of(std::span<const float> x, float largest, ThreadPool* pool) {
  constexpr std::size_t kBlock = 1U << 14U;
  constexpr std::size_t kSums = 16;
  struct Sums {
    double energy = 0;
    std::uint64_t nonzero = 0;
  };
  std::vector<Sums> blocks((x.size() + kBlock - 1) / kBlock);
  for_parts(pool, x.size(), kBlock, [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end; at += kBlock) {
      std::array<double, kSums> sums{};
      std::uint32_t nonzero = 0;
      const auto block = x.subspan(at, std::min(kBlock, end - at));
      std::size_t i = 0;
      for (; i + kSums <= block.size(); i += kSums) {
        for (std::size_t j = 0; j < kSums; ++j) sums[j] += static_cast<double>(block[i + j]) * block[i + j];
      }
      for (; i < block.size(); ++i) sums[0] += static_cast<double>(block[i]) * block[i];
      for (const float v : block) nonzero += v != 0 ? 1U : 0U;
      Sums& own = blocks[at / kBlock];
      for (const double sum : sums) own.energy += sum;
      own.nonzero = nonzero;
    }
  });
  Sums all;
  for (const Sums& block : blocks) {
    all.energy += block.energy;
    all.nonzero += block.nonzero;
  }
  return {largest, all.energy, std::sqrt(all.energy / static_cast<double>(std::max<std::uint64_t>(1, all.nonzero)))};
}

class Entropy final : public Codec {
 public:
  Entropy(EntropyKind kind, EntropyTarget target, const CodecOptions& options) : kind_(kind), target_(target), options_(options) {}

  std::string spec() const override {
    const char* const names[] = {"ec", "dct", "auto"};  // NOLINT(*-avoid-c-arrays)
    return fmt::format("{}{}{}", names[static_cast<int>(kind_)], target_.is_error ? '@' : ':', target_.value);
  }

  PayloadBounds payload_bounds(const TensorSpec& tensor) const override {
    const std::size_t n = tensor.values();
    return n == 0 ? PayloadBounds{0, 0} : PayloadBounds{1, 1 + sizeof(float) * n};
  }

  Result<void> encode(const torch::Tensor& x, const EncodeContext& at, Bytes& out) override {
    auto dense = contiguous_float(x);
    if (dense.numel() == 0) return {};
    const TensorSpec tensor = spec_of(dense);
    const auto range = kernels::order_statistics(values_of(dense), kernels::KeyOf::kMagnitude, {}, *options_.kernels, options_.pool).range;
    if (range.max >= kernels::kInfinityKey) return unencodable(values_of(dense), spec(), std::numeric_limits<float>::max());
    const float largest = kernels::key_value(range.max);
    if (largest == 0) {
      append(out, PayloadKind::kZeros);
      return {};
    }
    const int exponent = std::abs(std::ilogb(largest)) > kPlainExponents ? std::ilogb(largest) : 0;
    if (exponent != 0) dense = scaled(dense, -exponent);
    Memory memory = memory_.value_or(Memory{});
    const std::size_t start = out.size();
    encode_scaled(tensor, values_of(dense), std::ldexp(largest, -exponent), exponent, memory, out);
    if (out.size() - start > payload_bounds(tensor).max) {
      out.resize(start);
      append(out, PayloadKind::kPlain);
      options_.kernels->store_fp32(values_of(contiguous_float(x)), grow(out, sizeof(float) * static_cast<std::size_t>(x.numel())));
    }
    if (!at.frozen) memory_ = memory;
    return {};
  }

  Result<void> decode_into(torch::Tensor& x, ByteView in) const override {
    const TensorSpec tensor = spec_of(x);
    const auto bounds = payload_bounds(tensor);
    if (in.size() < bounds.min || in.size() > bounds.max) return wrong_length(spec(), bounds, in.size());
    if (x.numel() == 0) return {};
    return decode_coded(tensor, in, *options_.kernels, options_.pool, mutable_values_of(x));
  }

  State state() const override {
    if (!memory_) return {};
    const std::vector<double> numbers = {static_cast<double>(memory_->form.edge),
                                         static_cast<double>(memory_->form.context),
                                         memory_->form.transform ? 1.0 : 0.0,
                                         memory_->step,
                                         memory_->correction,
                                         static_cast<double>(memory_->calls)};
    return {{kStateName, torch::tensor(numbers, torch::kFloat64)}};
  }

  void set_state(const State& state) override {
    memory_.reset();
    const auto found = state.find(kStateName);
    if (found == state.end() || found->second.numel() != 6) return;
    const auto numbers = found->second.to(torch::kFloat64).contiguous();
    const double* const n = numbers.data_ptr<double>();
    const Form form{static_cast<std::uint8_t>(n[0]), static_cast<Context>(static_cast<std::uint8_t>(n[1])), n[2] != 0};
    memory_ = Memory{form, static_cast<float>(n[3]), n[4], static_cast<std::uint64_t>(n[5])};
  }

 private:
  static torch::Tensor scaled(const torch::Tensor& x, int exponent) {
    auto y = torch::empty_like(x);
    const auto from = values_of(x);
    std::transform(from.begin(), from.end(), mutable_values_of(y).begin(), [exponent](float v) { return std::ldexp(v, exponent); });
    return y;
  }

  // The forms this codec may take for a shape, the preferred one first.
  std::vector<Form> forms(const TensorSpec& tensor) const {
    std::vector<Form> all;
    const auto add = [&](Form form) {
      if (Planes::fits(tensor, form)) all.push_back(form);
    };
    if (kind_ != EntropyKind::kEc && tensor.dims.size() >= 3) {
      add({8, Context::kParents, true});
      if (std::max(tensor.dims.back(), tensor.dims[tensor.dims.size() - 2]) > 8) add({16, Context::kParents, true});
    }
    if (kind_ != EntropyKind::kDct || all.empty()) {
      add({0, Context::kRunning});
      add({0, Context::kNeighbours});
      if (tensor.dims.size() == 4) add({16, Context::kParents, false});
      if (all.empty() || tensor.values() < 4096) add({0, Context::kNone});
    }
    return all;
  }

  unsigned chunk_log2() const {
    constexpr double kStateShare = 0.005;  // of the bits may go into states
    const double rate = target_.is_error ? 1 : target_.value;
    return static_cast<unsigned>(std::clamp(std::ceil(std::log2(16.0 * kernels::kMaxStates / kStateShare / rate)), 14.0, 20.0));
  }

  // Bits that the payload may take, or the squared error it may have.
  double goal(const TensorSpec& tensor, const Scale& scale) const {
    if (target_.is_error) return target_.value * scale.energy;
    const std::size_t header = (wire::kFixedBytes + 8 * tensor.dims.size() + spec().size() + 7) / 8 * 8;
    const double all = target_.value * static_cast<double>(tensor.values());
    return std::max(all - 8 * static_cast<double>(header), 0.5 * all);
  }

  StepRange range_for(const Form& form, const Scale& scale, float guess) const {
    const float gain = form.transform ? form.edge : 1;  // how much larger than a value a coefficient can be
    const float finest = scale.largest * gain / kernels::kMaxLevel;
    const float floor = target_.is_error ? finest : std::max(finest, static_cast<float>(kStepFloor * scale.rms));
    const float ceiling = 2 * gain * scale.largest;
    return {floor, ceiling, guess > 0 ? guess : static_cast<float>(0.2 * scale.rms)};
  }

  float find_step(const Sample& sample, double wanted, const StepRange& range) const {
    return solve_step([&](float step) { return target_.is_error ? sample.squared_error(step) : sample.bits(step); }, wanted, range);
  }

  // The form with the least error at the wanted rate, or the least bits at the wanted error, on the sample.
  Form choose_form(const TensorSpec& tensor, std::span<const float> x, const Scale& scale) const {
    const std::vector<Form> all = forms(tensor);
    Form best = all.front();
    double least = std::numeric_limits<double>::infinity();
    for (const Form& form : all) {
      if (all.size() == 1) break;
      const Sample sample(Planes(tensor, form, chunk_log2()), x, *options_.kernels, kChoiceSymbols);
      const float step = find_step(sample, goal(tensor, scale), range_for(form, scale, 0));
      // At the floor of the step the rate decides.
      const double cost =
          target_.is_error ? sample.bits(step) : sample.squared_error(step) * std::exp2(2 * sample.bits(step) / goal(tensor, scale));
      if (cost < least) {
        least = cost;
        best = form;
      }
    }
    return best;
  }

  struct Tokens {
    std::vector<TokenCounts> counts;
    std::vector<EncodedChunk> chunks;  // their raw bits so far
  };

  // All tokens of the tensor with this step.
  Tokens tokenize_all(const Planes& planes, std::span<const float> x, const kernels::DeadZone& zone) {
    tokens_.resize(planes.symbols());
    levels_.resize(planes.symbols());
    Tokens result;
    result.chunks.resize(planes.chunks());
    std::vector<CountedTokens> counts(options_.pool == nullptr ? 1 : static_cast<std::size_t>(options_.pool->threads()),
                                      CountedTokens(planes.slots()));
    for_chunks(planes, options_.pool, [&](std::size_t part, std::size_t c, const Chunk& chunk, ChunkScratch& scratch) {
      const auto y = planes.load(chunk, x, *options_.kernels, scratch.planes);
      const std::size_t at = chunk.first * planes.unit_symbols();
      tokenize(planes, chunk, y, zone, *options_.kernels, tokens_at(tokens_, at), tokens_at(levels_, at), scratch.tokens, counts[part],
               &result.chunks[c].raw);
    });
    for (std::size_t part = 1; part < counts.size(); ++part) counts[0].add(counts[part]);
    result.counts = counts[0].total();
    return result;
  }

  double squared_error_of(const Planes& planes, std::span<const float> x, const kernels::DeadZone& zone, float step,
                          const TokenTables& tables) {
    std::vector<double> errors(planes.chunks());
    for_chunks(planes, options_.pool, [&](std::size_t, std::size_t c, const Chunk& chunk, ChunkScratch& scratch) {
      const auto y = planes.load(chunk, x, *options_.kernels, scratch.planes);
      errors[c] = squared_error(planes, chunk, y, zone, tokens_at(levels_, chunk.first * planes.unit_symbols()), tables, step);
    });
    double sum = 0;
    for (const double error : errors) sum += error;
    return sum;
  }

  void encode_scaled(const TensorSpec& tensor, std::span<const float> x, float largest, int exponent, Memory& memory, Bytes& out) {
    const Scale scale = scale_of(x, largest, options_.pool);
    const bool fits = memory.calls > 0 && Planes::fits(tensor, memory.form);
    if (!fits || memory.calls % kRecheck == 0) {
      const Form form = choose_form(tensor, x, scale);
      if (!fits || !(form == memory.form)) memory = {form, 0, 1, memory.calls};
    }
    ++memory.calls;
    const Planes planes(tensor, memory.form, chunk_log2());
    Sample sample(planes, x, *options_.kernels);
    const StepRange range = range_for(memory.form, scale, std::ldexp(memory.step, -exponent));
    const double wanted = goal(tensor, scale);
    CodedHead head{memory.form, chunk_log2(), lanes_for(planes.chunk(0).symbols), range.guess, exponent};
    const auto search = [&] { return find_step(sample, kAim * wanted / memory.correction, {range.floor, range.ceiling, head.step}); };
    head.step = search();
    sample.adapt(head.step);
    Tokens tokens;
    TokenTables tables;
    double got = 0;
    bool blind = false;  // too many bits, and the sample sees none of them
    for (int pass = 1; pass <= (target_.is_error || blind ? kMaxErrorPasses : kMaxPasses); ++pass) {
      const bool creeping = target_.is_error && pass > kMaxPasses;  // a tensor so small that its error jumps from step to step
      head.step = creeping ? head.step * static_cast<float>(std::min(0.9, std::sqrt(0.95 * wanted / got)))
                  : blind  ? 2 * head.step
                           : search();
      const kernels::DeadZone zone = dead_zone(head.step, sample.rounding());
      tokens = tokenize_all(planes, x, zone);
      tables = fit_tables(tokens.counts, sample.shifts(head.step), planes.levels());
      got = target_.is_error ? squared_error_of(planes, x, zone, head.step, tables) : payload_bits(planes, head, tables, tokens);
      const double promised = target_.is_error ? sample.squared_error(head.step) : sample.bits(head.step);
      if (promised > 0 && got > 0) memory.correction = std::clamp(got / promised, 0.05, 20.0);
      blind = !target_.is_error && promised <= 0 && got > wanted && head.step < range.ceiling;
      const bool at_end = head.step <= range.floor || creeping;
      if (got <= wanted && (at_end || got >= (target_.is_error ? 0.93 : 0.98) * wanted)) break;
    }
    memory.step = std::ldexp(head.step, exponent);
    encode_all(planes, head, tables, tokens);
    write_coded(head, tables, planes.levels(), tokens.chunks, out);
  }

  double payload_bits(const Planes& planes, const CodedHead& head, const TokenTables& tables, const Tokens& tokens) const {
    Bytes side;
    write_tables(tables, planes.levels(), side);
    const double per_chunk = 16.0 * head.lanes + 8 * 4;  // states beyond what they carry, and the index
    return coded_bits(tokens.counts, tables) + 8 * (12 + static_cast<double>(side.size())) +
           per_chunk * static_cast<double>(planes.chunks());
  }

  void encode_all(const Planes& planes, const CodedHead& head, const TokenTables& tables, Tokens& tokens) {
    const Coding coding{planes, tables, head.lanes, head.step, *options_.kernels};
    const kernels::EncodeTables encode_tables(tables.tables);
    for_chunks(planes, options_.pool, [&](std::size_t, std::size_t c, const Chunk& chunk, ChunkScratch& scratch) {
      const std::size_t at = chunk.first * planes.unit_symbols();
      encode_chunk(coding, chunk, tokens_at(tokens_, at), tokens_at(levels_, at), encode_tables, scratch.tokens, tokens.chunks[c].words);
    });
  }

  static std::uint8_t* tokens_at(Bytes& bytes, std::size_t at) { return reinterpret_cast<std::uint8_t*>(bytes.data()) + at; }

  EntropyKind kind_;
  EntropyTarget target_;
  CodecOptions options_;
  std::optional<Memory> memory_;  // none before the first call
  Bytes tokens_;                  // warm buffers, a byte per symbol
  Bytes levels_;
};

}  // namespace

std::unique_ptr<Codec> make_entropy(EntropyKind kind, EntropyTarget target, const CodecOptions& options) {
  return std::make_unique<Entropy>(kind, target, options);
}

}  // namespace epipe::codec
