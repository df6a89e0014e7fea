#pragma once

#include "epipe/codec/kernels/contexts.h"
#include "epipe/codec/kernels/kernels.h"
#include "epipe/codec/kernels/rans.h"
#include "epipe/codec/kernels/tokens.h"
#include "epipe/codec/kernels/transform.h"

// The reference: short loops that can be read at a glance. SIMD versions use them for what is left over at the end.
namespace epipe::kernels::scalar_impl {

KeyRange key_range(std::span<const float> x, KeyOf of);
EnergySum energy(std::span<const float> x);
bool store_fp32(std::span<const float> x, MutableBytes out);
bool load_fp32(ByteView in, std::span<float> out);
bool store_fp16(std::span<const float> x, MutableBytes out);
bool load_fp16(ByteView in, std::span<float> out);
bool store_bf16(std::span<const float> x, MutableBytes out);
bool load_bf16(ByteView in, std::span<float> out);
void encode_runs(std::span<const float> x, const RunTable& runs, MutableBytes out);
void decode_runs(ByteView in, const RunTable& runs, std::span<float> out);
void encode_search(std::span<const float> x, std::span<const float> thresholds, unsigned bits, MutableBytes out);
void decode_table(ByteView in, std::span<const float> table, unsigned bits, std::span<float> out);
BracketScan scan_brackets(std::span<const float> x, KeyOf of, std::span<Bracket> brackets);
void transform_blocks(const BlockTransform& t, const float* in, std::size_t in_stride, float* out, std::size_t out_stride);
void multiply_channels(const ChannelMatrix& by, const float* in, std::size_t in_stride, std::size_t places, float* out,
                       std::size_t out_stride);
void reflect(const ReflectionRows& reflections, bool backwards, float* row);
// Adds the upper half of so many sums, a power of 2, to the lower one until one is left.
float add_up(float* sums, std::size_t count);
void quantize(std::span<const float> y, const DeadZone& zone, std::uint8_t* tokens);
void look_up(std::span<const std::uint8_t> tokens, const std::uint8_t* table_of, const float* values, float* out);
void magnitudes_of(std::span<const std::uint8_t> tokens, std::uint8_t* out);
void parent_levels(const ParentPlanes& parents, std::size_t n, std::uint8_t* out);
void running_levels(const std::uint8_t* before, std::size_t n, std::uint16_t* means, std::uint8_t* out);
void neighbour_levels(const std::uint8_t* before, std::size_t n, std::uint8_t* out);
void map_bytes(std::span<const std::uint8_t> in, const std::array<std::uint8_t, 16>& map, std::uint8_t* out);
void encode_tokens(RansEncoder& encoder, std::span<const std::uint8_t> tokens, const std::uint8_t* table_of, const std::uint32_t* tables);
bool decode_tokens(RansDecoder& decoder, std::span<std::uint8_t> tokens, const std::uint8_t* table_of, const std::uint32_t* tables);
bool decode_two(const TokenRun& a, const TokenRun& b, const std::uint32_t* tables);
void write_raw(std::span<const std::uint8_t> tokens, const float* y, const DeadZone& zone, BitWriter& out);
bool read_raw(std::span<const std::uint8_t> tokens, float step, BitReader& in, float* y);

// The same for symbols of which the first belongs to this lane.
void encode_tokens_from(std::size_t lane, RansEncoder& encoder, std::span<const std::uint8_t> tokens, const std::uint8_t* table_of,
                        const std::uint32_t* tables);
bool decode_tokens_from(std::size_t lane, RansDecoder& decoder, std::span<std::uint8_t> tokens, const std::uint8_t* table_of,
                        const std::uint32_t* tables);

}  // namespace epipe::kernels::scalar_impl
