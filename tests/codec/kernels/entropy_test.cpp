// The kernels of the entropy codecs: every SIMD version gives the bits of the scalar one, and the scalar one does what it says.
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "epipe/codec/kernels/bits.h"
#include "epipe/codec/kernels/contexts.h"
#include "epipe/codec/kernels/cuda/rans.h"
#include "epipe/codec/kernels/kernels.h"
#include "epipe/codec/kernels/rans.h"
#include "epipe/codec/kernels/transform.h"
#include "support/tensors.h"

namespace epipe::kernels {
namespace {

using testing::hard_values;
using testing::normal_values;

class EntropyKernels : public ::testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (GetParam() == nullptr) GTEST_SKIP() << "this CPU does not have the instructions";
  }
  const Kernels& simd() const { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Scalar, EntropyKernels, ::testing::Values(&scalar()));
INSTANTIATE_TEST_SUITE_P(Avx2, EntropyKernels, ::testing::Values(avx2()));
INSTANTIATE_TEST_SUITE_P(Avx512, EntropyKernels, ::testing::Values(avx512()));

const std::vector<std::size_t> kTokenSizes = {0, 1, 7, 15, 16, 17, 31, 32, 33, 63, 64, 100, 1000, 4096, 5001};

std::vector<std::uint32_t> bits_of(const std::vector<float>& x) {
  std::vector<std::uint32_t> bits;
  for (const float v : x) bits.push_back(std::bit_cast<std::uint32_t>(v));
  return bits;
}

// Frequencies that sum to the scale: a few tokens, all tokens, one token, one that is almost certain.
std::vector<Frequencies> some_tables() {
  std::vector<Frequencies> tables(4);
  for (auto& table : tables) table.fill(0);
  tables[0][0] = 3000;
  tables[0][1] = 596;
  tables[0][2] = 500;
  for (std::size_t t = 0; t < kTokens; ++t) tables[1][t] = 41;
  tables[1][0] += kProbabilityScale - 41 * kTokens;
  tables[2][5] = kProbabilityScale;
  tables[3][0] = kProbabilityScale - 1;
  tables[3][98] = 1;
  return tables;
}

struct Message {
  std::vector<std::uint8_t> tokens;
  std::vector<std::uint8_t> table_of;
};

Message random_message(std::size_t n, std::uint32_t seed) {
  const auto tables = some_tables();
  std::mt19937 engine(seed);
  Message message;
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t t = engine() % tables.size();
    std::uint32_t slot = engine() % kProbabilityScale;
    std::uint8_t token = 0;
    while (slot >= tables[t][token]) slot -= tables[t][token++];
    message.tokens.push_back(token);
    message.table_of.push_back(static_cast<std::uint8_t>(t));
  }
  return message;
}

struct Coded {
  std::array<std::uint32_t, kMaxStates> states;
  Bytes words;
};

// Two runs of symbols, one after the other, as the planes of a chunk are.
Coded encoded(const Kernels& kernels, unsigned lanes, const Message& first, const Message& second) {
  const EncodeTables tables(some_tables());
  Bytes room(2 * (first.tokens.size() + second.tokens.size()) + 64);
  auto encoder = start_encoder(lanes, room);
  kernels.encode_tokens(encoder, second.tokens, second.table_of.data(), tables.data());
  kernels.encode_tokens(encoder, first.tokens, first.table_of.data(), tables.data());
  return {encoder.states, Bytes(encoder.out, room.data() + room.size())};
}

TEST_P(EntropyKernels, CodeTokensLikeTheReferenceAndBack) {
  const DecodeTables tables(some_tables());
  for (const unsigned lanes : {1U, 4U, 32U}) {
    for (const std::size_t n : kTokenSizes) {
      const Message first = random_message(n, 1);
      const Message second = random_message(n / 3 + 5, 2);
      const Coded coded = encoded(simd(), lanes, first, second);
      const Coded reference = encoded(scalar(), lanes, first, second);
      ASSERT_EQ(coded.words, reference.words) << n;
      ASSERT_EQ(coded.states, reference.states) << n;
      RansDecoder decoder{lanes, coded.states, coded.words.data(), coded.words.data() + coded.words.size()};
      std::vector<std::uint8_t> tokens(n);
      ASSERT_TRUE(simd().decode_tokens(decoder, tokens, first.table_of.data(), tables.data()));
      ASSERT_EQ(tokens, first.tokens) << n;
      tokens.resize(second.tokens.size());
      ASSERT_TRUE(simd().decode_tokens(decoder, tokens, second.table_of.data(), tables.data()));
      ASSERT_EQ(tokens, second.tokens) << n;
      EXPECT_TRUE(finished(decoder));
    }
  }
}

TEST_P(EntropyKernels, DecodeTwoRunsAtOnceLikeOneAfterTheOther) {
  const DecodeTables tables(some_tables());
  for (const unsigned lanes : {4U, 32U}) {
    for (const auto& [n, m] : {std::pair<std::size_t, std::size_t>{0, 100}, {33, 33}, {1000, 5001}, {4096, 1}}) {
      const std::array<Message, 2> sent = {random_message(n, 1), random_message(m, 2)};
      std::array<Coded, 2> coded;
      std::array<RansDecoder, 2> decoders;
      std::array<std::vector<std::uint8_t>, 2> tokens;
      for (std::size_t k = 0; k < 2; ++k) {
        coded[k] = encoded(simd(), lanes, sent[k], {});
        decoders[k] = {lanes, coded[k].states, coded[k].words.data(), coded[k].words.data() + coded[k].words.size()};
        tokens[k].resize(sent[k].tokens.size());
      }
      ASSERT_TRUE(simd().decode_two({&decoders[0], tokens[0], sent[0].table_of.data()}, {&decoders[1], tokens[1], sent[1].table_of.data()},
                                    tables.data()));
      for (std::size_t k = 0; k < 2; ++k) {
        ASSERT_EQ(tokens[k], sent[k].tokens) << n << ' ' << m;
        EXPECT_TRUE(finished(decoders[k])) << n << ' ' << m;
      }
    }
  }
}

TEST_P(EntropyKernels, DecodeTwoRunsFailWhenTheWordsOfEitherRunOut) {
  const DecodeTables tables(some_tables());
  const Message message = random_message(3000, 4);
  const Coded coded = encoded(scalar(), 32, message, {});
  for (const std::size_t shorter : {0U, 1U, 2U}) {  // neither, the first, the second
    std::array<RansDecoder, 2> decoders;
    std::array<std::vector<std::uint8_t>, 2> tokens;
    for (std::size_t k = 0; k < 2; ++k) {
      const std::size_t missing = shorter == k + 1 ? 2 : 0;
      decoders[k] = {32, coded.states, coded.words.data(), coded.words.data() + coded.words.size() - missing};
      tokens[k].resize(message.tokens.size());
    }
    EXPECT_EQ(simd().decode_two({&decoders[0], tokens[0], message.table_of.data()}, {&decoders[1], tokens[1], message.table_of.data()},
                                tables.data()),
              shorter == 0);
  }
}

// Values whose tokens escape often, and with up to 19 raw bits.
std::vector<float> values_with_escapes(std::size_t n, std::uint32_t seed) {
  auto values = normal_values(n, seed);
  for (std::size_t i = 0; i < n; ++i) values[i] *= i % 3 == 0 ? 40.0F : i % 97 < 9 ? 3e5F : 0.5F;
  return values;
}

Bytes raw_of(const Kernels& kernels, const std::vector<std::uint8_t>& tokens, const std::vector<float>& values, const DeadZone& zone) {
  Bytes raw(3 * tokens.size() + 1);
  BitWriter writer(raw);
  kernels.write_raw(tokens, values.data(), zone, writer);
  writer.finish();
  raw.resize(writer.bytes());
  return raw;
}

TEST_P(EntropyKernels, WriteRawBitsLikeTheReferenceAndReadThemBack) {
  const DeadZone zone{1, 0.6F, 0.45F};
  for (const std::size_t n : kTokenSizes) {
    const auto values = values_with_escapes(n, 12);
    std::vector<std::uint8_t> tokens(n);
    scalar().quantize(values, zone, tokens.data());
    const Bytes raw = raw_of(simd(), tokens, values, zone);
    ASSERT_EQ(raw, raw_of(scalar(), tokens, values, zone)) << n;
    const float step = 0.3F;
    std::vector<float> actual(n, 0.125F);  // what to take off
    BitReader reader(raw);
    ASSERT_TRUE(simd().read_raw(tokens, step, reader, actual.data()));
    EXPECT_LT(reader.available(), 8U);
    for (std::size_t i = 0; i < n; ++i) {
      const float magnitude = (static_cast<float>(level_of(values[i], zone)) - 0.125F) * step;
      ASSERT_EQ(actual[i], tokens[i] < kFirstEscape ? 0.125F : values[i] < 0 ? -magnitude : magnitude) << n << ' ' << i;
    }
    if (raw.empty()) continue;
    BitReader short_reader(ByteView(raw).first(raw.size() - 1));
    EXPECT_FALSE(simd().read_raw(tokens, step, short_reader, actual.data())) << n;
  }
}

TEST_P(EntropyKernels, AddUpEnergyLikeTheReference) {
  for (const std::size_t n : kTokenSizes) {
    for (auto [name, x] : hard_values(n, 14)) {
      for (std::size_t i = 0; i < n; i += 5) x[i] = i % 2 == 0 ? 0.0F : -0.0F;
      const EnergySum expected = scalar().energy(x);
      const EnergySum actual = simd().energy(x);
      ASSERT_EQ(std::bit_cast<std::uint64_t>(actual.energy), std::bit_cast<std::uint64_t>(expected.energy)) << name << ' ' << n;
      ASSERT_EQ(actual.nonzero, expected.nonzero) << name << ' ' << n;
    }
  }
}

TEST(Bits, ComeBackWhateverTheirWidthsAndWhereverTheBytesEnd) {
  std::mt19937_64 engine(3);
  for (std::size_t fields = 0; fields < 60; ++fields) {
    std::vector<std::pair<std::uint64_t, unsigned>> sent;
    std::size_t bits = 0;
    for (std::size_t i = 0; i < fields; ++i) {
      const auto width = static_cast<unsigned>(1 + engine() % 56);
      sent.emplace_back(engine() & ((std::uint64_t{1} << width) - 1), width);
      bits += width;
    }
    Bytes bytes((bits + 7) / 8);  // not one more
    BitWriter writer(bytes);
    for (const auto& [value, width] : sent) writer.put(value, width);
    writer.finish();
    ASSERT_EQ(writer.bytes(), bytes.size());
    BitReader reader(bytes);
    std::size_t taken = 0;
    for (const auto& [value, width] : sent) {
      ASSERT_EQ(reader.available(), 8 * bytes.size() - taken);
      ASSERT_EQ(reader.take(width), value);
      taken += width;
      ASSERT_EQ(reader.bytes(), (taken + 7) / 8);
    }
  }
}

TEST_P(EntropyKernels, DecodeAnyWordsAlikeAndStopWhereTheyEnd) {
  const DecodeTables tables(some_tables());
  std::mt19937 engine(7);
  const std::size_t n = 3000;
  const Message shape = random_message(n, 3);
  for (const std::size_t words : {0U, 1U, 31U, 64U, 500U, 4000U}) {
    Bytes bytes(2 * words);
    for (auto& b : bytes) b = static_cast<std::byte>(engine());
    RansDecoder a{32, {}, bytes.data(), bytes.data() + bytes.size()};
    for (auto& state : a.states) state = kLowestState + static_cast<std::uint32_t>(engine() % 0xfffe0000U);
    RansDecoder b = a;
    std::vector<std::uint8_t> expected(n);
    std::vector<std::uint8_t> actual(n);
    const bool complete = scalar().decode_tokens(a, expected, shape.table_of.data(), tables.data());
    ASSERT_EQ(simd().decode_tokens(b, actual, shape.table_of.data(), tables.data()), complete) << words;
    if (!complete) continue;
    EXPECT_EQ(actual, expected) << words;
    EXPECT_EQ(b.states, a.states) << words;
    EXPECT_EQ(b.in, a.in) << words;
  }
}

TEST_P(EntropyKernels, QuantizeLikeTheReference) {
  for (const std::size_t n : kTokenSizes) {
    for (const auto& [name, x] : hard_values(n, 4)) {
      float largest = 1e-30F;
      for (const float v : x) largest = std::max(largest, std::fabs(v));
      for (const float finest : {4.0F, 300.0F, kMaxLevel * 0.999F}) {
        const DeadZone zone{finest / largest, 0.6F, 0.45F};
        std::vector<std::uint8_t> expected(n);
        std::vector<std::uint8_t> actual(n);
        scalar().quantize(x, zone, expected.data());
        simd().quantize(x, zone, actual.data());
        ASSERT_EQ(actual, expected) << name << ' ' << n;
        for (const std::uint8_t token : expected) ASSERT_LT(token, kTokens);
      }
    }
  }
}

TEST_P(EntropyKernels, LookUpLikeTheReference) {
  const auto values = normal_values(4 * kTokenRoom, 9);
  for (const std::size_t n : kTokenSizes) {
    const Message message = random_message(n, 5);
    std::vector<float> expected(n);
    std::vector<float> actual(n);
    scalar().look_up(message.tokens, message.table_of.data(), values.data(), expected.data());
    simd().look_up(message.tokens, message.table_of.data(), values.data(), actual.data());
    ASSERT_EQ(bits_of(actual), bits_of(expected)) << n;
  }
}

TEST_P(EntropyKernels, FindContextsLikeTheReference) {
  std::mt19937 engine(6);
  for (const std::size_t n : kTokenSizes) {
    std::vector<std::vector<std::uint8_t>> planes(5, std::vector<std::uint8_t>(n));
    for (auto& plane : planes) {
      for (auto& m : plane) m = static_cast<std::uint8_t>(engine() % 4 == 0 ? engine() % 16 : engine() % 2);
    }
    std::vector<std::uint8_t> expected(n);
    std::vector<std::uint8_t> actual(n);
    const ParentPlanes parents{planes[0].data(), planes[1].data(), planes[2].data(), planes[3].data(), planes[4].data()};
    scalar().parent_levels(parents, n, expected.data());
    simd().parent_levels(parents, n, actual.data());
    ASSERT_EQ(actual, expected);
    if (n > 0) {
      const int sum = 2 * (planes[0][0] + planes[1][0]) + planes[2][0] + planes[3][0] + planes[4][0];
      EXPECT_EQ(expected[0], std::count_if(kParentLimits.begin(), kParentLimits.end(), [&](int limit) { return sum >= limit; }));
    }
    scalar().neighbour_levels(planes[0].data(), n, expected.data());
    simd().neighbour_levels(planes[0].data(), n, actual.data());
    ASSERT_EQ(actual, expected);
    std::vector<std::uint16_t> means(n, 77);
    std::vector<std::uint16_t> simd_means = means;
    for (const auto& plane : planes) {
      scalar().running_levels(plane.data(), n, means.data(), expected.data());
      simd().running_levels(plane.data(), n, simd_means.data(), actual.data());
      ASSERT_EQ(actual, expected);
      ASSERT_EQ(simd_means, means);
      for (const std::uint8_t level : expected) ASSERT_LT(level, 16);
    }
    std::array<std::uint8_t, 16> map;
    for (auto& m : map) m = static_cast<std::uint8_t>(engine());
    scalar().map_bytes(planes[1], map, expected.data());
    simd().map_bytes(planes[1], map, actual.data());
    ASSERT_EQ(actual, expected);
    const Message message = random_message(n, 8);
    scalar().magnitudes_of(message.tokens, expected.data());
    simd().magnitudes_of(message.tokens, actual.data());
    ASSERT_EQ(actual, expected);
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(expected[i], magnitude_of(message.tokens[i]));
  }
}

TEST_P(EntropyKernels, TransformLikeTheReferenceForEveryBlockSize) {
  for (std::size_t h = 1; h <= kMaxEdge; ++h) {
    for (std::size_t w = 1; w <= kMaxEdge; ++w) {
      const BlockTransform t{h, w, forward_dct(h), forward_dct(w)};
      const auto in = normal_values(h * w * 20, static_cast<std::uint32_t>(16 * h + w));
      std::vector<float> expected(h * w * kBatch);
      std::vector<float> actual(h * w * kBatch);
      scalar().transform_blocks(t, in.data(), 20, expected.data(), kBatch);
      simd().transform_blocks(t, in.data(), 20, actual.data(), kBatch);
      ASSERT_EQ(bits_of(actual), bits_of(expected)) << h << 'x' << w;
    }
  }
}

TEST_P(EntropyKernels, ReflectLikeTheReference) {
  for (const std::size_t length : {32U, 64U, 96U, 384U}) {
    for (const std::size_t count : {1U, 2U, 7U}) {
      const auto rows = normal_values(count * length, static_cast<std::uint32_t>(length + count));
      const auto scales = normal_values(count, 5);
      const ReflectionRows reflections{count, length, rows.data(), scales.data()};
      for (const bool backwards : {false, true}) {
        auto expected = normal_values(length, 6);
        auto actual = expected;
        scalar().reflect(reflections, backwards, expected.data());
        simd().reflect(reflections, backwards, actual.data());
        ASSERT_EQ(bits_of(actual), bits_of(expected)) << count << 'x' << length;
      }
    }
  }
}

TEST(Dct, IsUndoneByItsTransposeAndKeepsTheEnergy) {
  for (const auto& [h, w] : {std::pair{8U, 8U}, {7U, 7U}, {16U, 16U}, {1U, 1U}, {3U, 16U}}) {
    const auto x = normal_values(h * w * kBatch, 1);
    std::vector<float> y(x.size());
    std::vector<float> back(x.size());
    scalar().transform_blocks({h, w, forward_dct(h), forward_dct(w)}, x.data(), kBatch, y.data(), kBatch);
    scalar().transform_blocks({h, w, inverse_dct(h), inverse_dct(w)}, y.data(), kBatch, back.data(), kBatch);
    double before = 0;
    double after = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      before += x[i] * x[i];
      after += y[i] * y[i];
      ASSERT_NEAR(back[i], x[i], 2e-6);
    }
    EXPECT_NEAR(after / before, 1, 1e-6);
  }
}

TEST(Dct, HasTheEntriesOfTheDefinition) {
  EXPECT_EQ(forward_dct(1)[0], 1.0F);
  EXPECT_EQ(forward_dct(8)[0], 0.35355339059327378F);
  EXPECT_EQ(forward_dct(8)[8], 0.49039264020161522F);      // cos(pi/16) / 2
  EXPECT_EQ(forward_dct(8)[7 * 8], 0.09754516100806413F);  // cos(7 pi/16) / 2
  EXPECT_EQ(forward_dct(7)[0], 0.37796447300922722F);
  EXPECT_EQ(inverse_dct(8)[1], forward_dct(8)[8]);
}

TEST(Tokens, StandForEveryLevel) {
  for (std::int32_t level = 0; level < (1 << 20); level += level < 5000 ? 1 : 97) {
    for (const bool negative : {false, true}) {
      const std::uint8_t token = token_of(level, negative);
      ASSERT_LT(token, kTokens);
      ASSERT_EQ(magnitude_of(token), std::min<std::int32_t>(level, kMaxMagnitude));
      if (level != 0) {
        ASSERT_EQ(is_negative(token), negative);
      }
      if (token < kFirstEscape) continue;
      const std::int32_t raw = level & ((1 << raw_bits(token)) - 1);
      ASSERT_EQ(escape_base(token) + raw, level);
    }
  }
  EXPECT_EQ(token_of(1 << 20, false), 31 + 4 * 16);
}

TEST(Rans, SpendsTheEntropyOfTheTable) {
  const std::size_t n = 100'000;
  Message message = random_message(n, 11);
  message.table_of.assign(n, 0);
  for (auto& token : message.tokens) token = static_cast<std::uint8_t>(token % 3);
  std::array<std::size_t, 3> counts{};
  for (const auto token : message.tokens) ++counts[token];
  const auto table = some_tables()[0];
  double bits = 0;
  for (std::size_t t = 0; t < 3; ++t) bits += static_cast<double>(counts[t]) * std::log2(4096.0 / table[t]);
  const Coded coded = encoded(scalar(), 32, message, {});
  EXPECT_NEAR(static_cast<double>(8 * (coded.words.size() + 128)), bits, 32 * 32 + 0.001 * bits);
}

// As the comment on EncodeEntry says it.
std::uint32_t with_token(std::uint32_t x, const cuda::EncodeEntry& entry) {
  const auto t = static_cast<std::uint32_t>((std::uint64_t{x} * entry.factor) >> 32U);
  const std::uint32_t quotient = (t + ((x - t) >> 1U)) >> (entry.word & 31U);
  const std::uint32_t bias = (entry.word >> cuda::EncodeEntry::kBiasAt) & cuda::EncodeEntry::kBiasMask;
  return x + bias + (kProbabilityScale - (entry.word >> cuda::EncodeEntry::kFrequencyAt)) * quotient;
}

TEST(Rans, EntriesOfADeviceTakeEveryStateWhereTheDefinitionDoes) {
  std::mt19937 random(7);
  const auto draw = [&](std::uint32_t below) { return static_cast<std::uint32_t>(random() % below); };
  for (std::uint32_t frequency = 1; frequency <= kProbabilityScale; ++frequency) {
    const std::uint32_t start = frequency == kProbabilityScale ? 0 : draw(kProbabilityScale - frequency + 1);
    const cuda::EncodeEntry entry = cuda::encode_entry(frequency << 16U | start);
    const auto last = static_cast<std::uint32_t>((std::uint64_t{frequency} << 20U) - 1);  // a larger state is full
    std::vector<std::uint32_t> states = {kLowestState, kLowestState + 1, last - 1, last, last / frequency * frequency - 1};
    for (int i = 0; i < 100; ++i) states.push_back(kLowestState + draw(last - kLowestState + 1));
    for (const std::uint32_t x : states) {
      const std::uint32_t next = (x / frequency << kProbabilityBits) + x % frequency + start;
      ASSERT_EQ(with_token(x, entry), next) << x << " with frequency " << frequency << " and start " << start;
      ASSERT_EQ(with_token(x, cuda::kNoEntry), x);
    }
  }
}

}  // namespace
}  // namespace epipe::kernels
