#pragma once

#include <functional>
#include <memory>

#include "epipe/codec/codec.h"

// One factory per codec; parse.cpp is the only caller. Arguments are in range, the parser checked them.
namespace epipe::codec {

// Makes a fresh codec for one part of what a transform produces, each with a state of its own.
using InnerFactory = std::function<std::unique_ptr<Codec>()>;

// What the entropy codecs may do before they quantize: nothing, a block DCT, or whichever is better.
enum class EntropyKind : std::uint8_t { kEc, kDct, kAuto };

// Bits per value on the wire, or the relative error; no more than that, but for a rate that tables alone exceed.
struct EntropyTarget {
  double value;  // 0: a rate that comes with every tensor (EncodeContext)
  bool is_error;
};

std::unique_ptr<Codec> make_none(const CodecOptions& options);
std::unique_ptr<Codec> make_fp16(const CodecOptions& options);
std::unique_ptr<Codec> make_bf16(const CodecOptions& options);
std::unique_ptr<Codec> make_uniform(unsigned bits, const CodecOptions& options);
std::unique_ptr<Codec> make_sort(unsigned level_bits, unsigned split_bits, const CodecOptions& options);
std::unique_ptr<Codec> make_fast(unsigned level_bits, unsigned split_bits, const CodecOptions& options);
std::unique_ptr<Codec> make_kmeans(unsigned bits, const CodecOptions& options);
std::unique_ptr<Codec> make_topk(double ratio, const InnerFactory& inner, const CodecOptions& options);
std::unique_ptr<Codec> make_lowrank(unsigned rank, const InnerFactory& inner, const CodecOptions& options);
std::unique_ptr<Codec> make_power(unsigned rank, const InnerFactory& inner, const CodecOptions& options);
std::unique_ptr<Codec> make_entropy(EntropyKind kind, EntropyTarget target, const CodecOptions& options);

}  // namespace epipe::codec
