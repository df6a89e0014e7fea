#pragma once

#include <optional>
#include <string>
#include <vector>

#include "epipe/base/bytes.h"
#include "epipe/base/result.h"
#include "epipe/codec/channel_basis.h"
#include "epipe/codec/codec.h"
#include "epipe/codec/parallel.h"
#include "epipe/codec/planes.h"
#include "epipe/codec/reflections.h"
#include "epipe/codec/token_stream.h"
#include "epipe/codec/token_tables.h"

// The payload of the entropy codecs. docs/wire_format.md is normative.
//
//   u8 kind: 0 values as they are (f32 each) | 1 all zeros | 4 the channels' means, then a payload of kind 2, 3 or 5
//            3 a basis of the channels, 5 reflections of the features, then a payload of kind 2
//            6 spectra of small maps, then a payload of kind 5 for these | 2 coded:
//   u8 edge + 32 shift of the means + 128 if transformed | u8 context | u8 log2 of the chunk + 32 log2 of the lanes | f32 step
//   i16 exponent | tables
//   per chunk: varint words, varint raw bytes | zeros up to a multiple of 4
//   per chunk: states and words | per chunk: raw bits
namespace epipe::codec {

enum class PayloadKind : std::uint8_t { kPlain = 0, kZeros = 1, kCoded = 2, kKlt = 3, kWithMeans = 4, kReflections = 5, kSpectra = 6 };

struct CodedHead {
  Form form;
  unsigned chunk_log2 = 16;
  unsigned lanes = 32;
  float step = 1;
  int exponent = 0;  // the values are those coded times 2^exponent
};

// In bytes.
struct ChunkSizes {
  std::size_t words, raw;
};

struct EncodedChunk {
  Bytes words;  // states included
  Bytes raw;
};

// Appends a coded payload.
void write_coded(const CodedHead& head, const TokenTables& tables, std::size_t levels, std::span<const EncodedChunk> chunks, Bytes& out);

// For any shape: at most the values as they are.
PayloadBounds entropy_bounds(const wire::TensorSpec& tensor);

// The part of a coded payload in front of the words, for a payload of this shape.
void write_front(const CodedHead& head, const TokenTables& tables, std::size_t levels, std::span<const ChunkSizes> chunks, Bytes& out);

// Where a chunk lies, from the payload's start.
struct ChunkPlace {
  std::size_t words, raw;
  ChunkSizes sizes;
};

struct CodedFront {
  CodedHead head;
  TokenTables tables;
  std::vector<ChunkPlace> chunks;
};

// Reads it from the first bytes of a coded payload of `size` bytes, as many as the caller has.
Result<CodedFront> read_front(const wire::TensorSpec& tensor, ByteView first, std::size_t size);

// Fills x from a payload of kind 2.
Result<void> decode_kind2(const wire::TensorSpec& tensor, ByteView in, const kernels::Kernels& kernels, ThreadPool* pool,
                          std::span<float> x);

// Fills x from any payload of the entropy codecs.
Result<void> decode_coded(const wire::TensorSpec& tensor, ByteView in, const kernels::Kernels& kernels, ThreadPool* pool,
                          ReflectionReader& reflection_reader, std::span<float> x);

// What may stand in front of a coded payload, read from its first bytes.
struct Fronts {
  std::vector<float> means;                        // of the channels; empty without
  std::optional<ChannelBasis> basis;               // that the coded values are in
  std::shared_ptr<const Reflections> reflections;  // of features, that they are along; the reader has them as well
  std::size_t bytes = 0;                           // of all; the coded payload follows
};
// For a payload of kind 2 to 5. `first` holds all of it, or at least its first fronts_room() bytes where there are no reflections.
Result<Fronts> read_fronts(const wire::TensorSpec& tensor, ByteView first, const kernels::Kernels& kernels,
                           ReflectionReader& reflection_reader);

std::size_t fronts_room(const wire::TensorSpec& tensor);

// "dct 16" and so on, for people; see chosen_form().
std::string form_name(ByteView payload);

// Lanes for chunks of this many symbols: a state costs two bytes more than it carries, so small chunks have fewer.
unsigned lanes_for(std::size_t symbols);

// Warm buffers of one thread that codes chunks.
struct ChunkScratch {
  Planes::Scratch planes;
  TokenScratch tokens;
  std::vector<float> y;
};

// Calls each(thread, index, chunk, scratch) for every chunk; a thread takes the next chunk when it is done with one.
template <typename Each>
void for_chunks(const Planes& planes, ThreadPool* pool, Each&& each) {
  const std::size_t count = planes.chunks();
  share_items(pool, planes.symbols(), count, [&](std::size_t thread, const auto& next) {
    ChunkScratch scratch;
    for (std::size_t c = next(); c < count; c = next()) each(thread, c, planes.chunk(c), scratch);
  });
}

}  // namespace epipe::codec
