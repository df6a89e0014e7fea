// The grammar of codec specs:
//   chain   := codec ('>' codec)*          every codec but the last is a transform
//   codec   := none | fp16 | bf16 | uniform:B | sort:Q+S | fast:Q+S | kmeans:B      quantizers
//            | ec:N | dct:N | auto:N | ec@E | dct@E | auto@E                       entropy coded
//            | auto                           the same at a rate that comes with every tensor; not within a chain
//            | topk:R | lowrank:K | power:K                                         transforms
//   B, Q+S from 1 to 16; Q at least 1; R above 0 and at most 1; K from 1 to 65535; N from 0.01 to 16; E from 0.000001 to 0.5
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "epipe/codec/cuda/device_codec.h"
#include "epipe/codec/factories.h"

namespace epipe::codec {
namespace {

constexpr unsigned kMaxBits = 16;
constexpr unsigned kMaxRank = 65535;
constexpr std::size_t kMaxChain = 4;
constexpr std::string_view kKnown =
    "none fp16 bf16 uniform:B sort:Q+S fast:Q+S kmeans:B ec:N dct:N auto:N ec@E dct@E auto@E topk:R lowrank:K power:K";

// Where and why the text is wrong.
struct Complaint {
  std::size_t at;
  std::string message;
};

class Parser {
 public:
  Parser(std::string_view text, const CodecOptions& options) : text_(text), options_(options) {}

  Result<std::unique_ptr<Codec>> parse() {
    auto factory = chain(1);
    if (complaint_) return Error{ErrorCode::kBadSpec, describe()};
    return on_any_device(factory());
  }

 private:
  // Everything from here to the end. The returned factory is valid only if there is no complaint.
  InnerFactory chain(std::size_t depth) {
    const std::size_t start = at_;
    if (depth > kMaxChain) return complain(start, fmt::format("a chain has at most {} codecs", kMaxChain));
    while (at_ < text_.size() && std::isalnum(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    const std::string_view name = text_.substr(start, at_ - start);
    if (name == "none") return last(make_none);
    if (name == "fp16") return last(make_fp16);
    if (name == "bf16") return last(make_bf16);
    if (name == "uniform") return last(make_uniform, bits());
    if (name == "kmeans") return last(make_kmeans, bits());
    if (name == "sort" || name == "fast") {
      const auto [level_bits, split_bits] = split();
      return last(name == "sort" ? make_sort : make_fast, level_bits, split_bits);
    }
    if (name == "ec") return last(make_entropy, EntropyKind::kEc, target());
    if (name == "dct") return last(make_entropy, EntropyKind::kDct, target());
    if (name == "auto") return last(make_entropy, EntropyKind::kAuto, text_ == name ? EntropyTarget{0, false} : target());
    if (name == "topk") return transform(depth, make_topk, ratio());
    if (name == "lowrank") return transform(depth, make_lowrank, rank());
    if (name == "power") return transform(depth, make_power, rank());
    if (name.empty()) return complain(start, fmt::format("expected a codec here; known are {}", kKnown));
    return complain(start, fmt::format("unknown codec \"{}\"; known are {}", name, kKnown));
  }

  // A quantizer: nothing may follow.
  template <typename Make, typename... Args>
  InnerFactory last(Make make, Args... args) {
    if (at_ < text_.size()) {
      complain(at_, text_[at_] == '>' ? "a quantizer ends the chain; only topk, lowrank and power may be followed by '>'"
                                      : "expected the end of the spec here");
    }
    return [make, args..., options = options_] { return make(args..., options); };
  }

  // A transform: what follows '>' codes its parts, as they are (none) by default.
  template <typename Make, typename Argument>
  InnerFactory transform(std::size_t depth, Make make, Argument argument) {
    InnerFactory inner = [options = options_] { return make_none(options); };
    if (at_ < text_.size()) {
      if (!accept('>')) return complain(at_, "expected '>' or the end of the spec here");
      inner = chain(depth + 1);
    }
    return [make, argument, inner, options = options_] { return make(argument, inner, options); };
  }

  unsigned bits() {
    colon("a bit width from 1 to 16, as in uniform:8");
    return integer(1, kMaxBits, "a bit width");
  }

  std::pair<unsigned, unsigned> split() {
    colon("level bits and split bits, as in sort:6+2");
    const std::size_t start = at_;
    const unsigned level_bits = integer(1, kMaxBits, "the number of level bits");
    if (!accept('+')) complain(at_, "expected '+' and the number of split bits, as in sort:6+2");
    const unsigned split_bits = integer(0, kMaxBits - 1, "the number of split bits");
    if (level_bits + split_bits > kMaxBits) complain(start, fmt::format("level and split bits together may be at most {}", kMaxBits));
    return {level_bits, split_bits};
  }

  unsigned rank() {
    colon("a rank from 1 to 65535, as in power:4");
    return integer(1, kMaxRank, "a rank");
  }

  double ratio() {
    colon("the kept fraction, as in topk:0.1");
    return number([](double value) { return value > 0 && value <= 1; }, "expected a fraction above 0 and at most 1");
  }

  EntropyTarget target() {
    if (accept('@')) {
      constexpr double kLeast = 1e-6;
      return {number([](double value) { return value >= kLeast && value <= 0.5; }, "expected a relative error from 0.000001 to 0.5"), true};
    }
    if (!accept(':')) complain(at_, "expected ':' and bits per value, as in dct:1, or '@' and a relative error, as in dct@0.01");
    return {number([](double value) { return value >= 0.01 && value <= kMaxBits; }, "expected bits per value from 0.01 to 16"), false};
  }

  // A decimal number that `fits`, else the complaint.
  template <typename Fits>
  double number(const Fits& fits, std::string_view complaint) {
    double value = 0;
    const char* const begin = text_.data() + at_;
    const auto [stop, status] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (status != std::errc() || !fits(value)) complain(at_, std::string(complaint));
    at_ += static_cast<std::size_t>(stop - begin);
    return value;
  }

  unsigned integer(unsigned low, unsigned high, std::string_view what) {
    unsigned value = 0;
    const char* const begin = text_.data() + at_;
    const auto [stop, status] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (status != std::errc() || value < low || value > high) complain(at_, fmt::format("expected {} from {} to {}", what, low, high));
    at_ += static_cast<std::size_t>(stop - begin);
    return value;
  }

  void colon(std::string_view what) {
    if (!accept(':')) complain(at_, fmt::format("expected ':' and {}", what));
  }

  bool accept(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // Keeps the first complaint and stops reading.
  InnerFactory complain(std::size_t at, std::string message) {
    if (!complaint_) complaint_ = Complaint{at, std::move(message)};
    return nullptr;
  }

  std::string describe() const {
    std::string shown(text_);
    std::replace_if(
        shown.begin(), shown.end(), [](unsigned char c) { return std::isprint(c) == 0; }, '?');
    return fmt::format("{}\n  {}\n  {}^", complaint_->message, shown, std::string(complaint_->at, ' '));
  }

  std::string_view text_;
  CodecOptions options_;
  std::size_t at_ = 0;
  std::optional<Complaint> complaint_;
};

}  // namespace

std::string_view known_codecs() { return kKnown; }

std::optional<double> target_rate(std::string_view spec) {
  if (spec == "auto") return 0;
  for (const std::string_view name : {"ec:", "dct:", "auto:"}) {
    double rate = 0;
    if (!spec.starts_with(name)) continue;
    const auto [stop, status] = std::from_chars(spec.data() + name.size(), spec.data() + spec.size(), rate);
    if (status == std::errc() && stop == spec.data() + spec.size()) return rate;
  }
  return std::nullopt;
}

Result<std::unique_ptr<Codec>> make_codec(std::string_view spec, const CodecOptions& options) { return Parser(spec, options).parse(); }

}  // namespace epipe::codec
