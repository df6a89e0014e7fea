// Tensors and bytes made to hurt the entropy codecs: they cost no more than floats, are refused by name, or are refused at once.
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <random>

#include "epipe/base/clock.h"
#include "epipe/codec/measure.h"
#include "support/codecs.h"

namespace epipe::codec {
namespace {

using namespace epipe::testing;

const std::vector<std::string> kSpecs = {"ec:2", "ec:16", "dct:1", "dct:16", "auto:4", "ec@0.001", "dct@1e-06", "topk:0.1>ec:2"};

// ---- tensors ----

// Every finite float is as likely as any other.
std::vector<float> random_bits(std::size_t n) {
  std::mt19937 engine(1);
  std::vector<float> x;
  while (x.size() < n) {
    const float v = std::bit_cast<float>(static_cast<std::uint32_t>(engine()));
    if (std::isfinite(v)) x.push_back(v);
  }
  return x;
}

std::vector<NamedValues> hostile_values(std::size_t n) {
  std::vector<NamedValues> all = hard_values(n, 11);
  all.push_back({"random bits", random_bits(n)});
  std::vector<float> x(n, 0.0F);
  x[n / 3] = std::numeric_limits<float>::max();
  all.push_back({"the largest float among zeros", x});
  x.assign(n, 1e-3F);
  x[n - 1] = -1e20F;
  all.push_back({"one huge among small ones", x});
  x.assign(n, std::numeric_limits<float>::denorm_min());
  all.push_back({"all the smallest denormal", x});
  x.assign(n, std::numeric_limits<float>::max());
  all.push_back({"all the largest float", x});
  return all;
}

std::vector<std::vector<std::int64_t>> hostile_shapes() { return {{4096}, {2, 2, 32, 32}, {4, 16, 64}, {1, 64, 8, 8}, {4096, 1}}; }

TEST(HostileTensors, NeverCostMoreThanFloatsAndComeBackFinite) {
  for (const auto& shape : hostile_shapes()) {
    for (const auto& [name, values] : hostile_values(4096)) {
      const auto x = tensor_of(values).view(shape);
      for (const std::string& spec : kSpecs) {
        const auto codec = codec_of(spec);
        const Bytes payload = payload_of(*codec, x);
        const std::size_t parts = spec.starts_with("topk") ? 9 + 512 : 0;  // count and bitmap
        EXPECT_LE(payload.size(), 4 * values.size() + 1 + parts) << name << ' ' << spec;
        EXPECT_TRUE(torch::isfinite(decoded(*codec, payload, shape)).all().item<bool>()) << name << ' ' << spec;
      }
    }
  }
}

TEST(HostileTensors, KeepAnErrorBoundAllTheSame) {
  for (const auto& shape : hostile_shapes()) {
    for (const auto& [name, values] : hostile_values(4096)) {
      const auto x = tensor_of(values).view(shape);
      for (const double error : {0.1, 1e-4}) {
        for (const std::string codec : {"ec", "dct", "auto"}) {
          EXPECT_LE(relative_error(x, round_trip(fmt::format("{}@{}", codec, error), x)), error * 1.001)
              << name << ' ' << codec << '@' << error;
        }
      }
    }
  }
}

// One block holds nearly all of the energy, so that what the others may err is below the finest step.
TEST(HostileTensors, KeepAnErrorBoundThatNoStepGives) {
  torch::manual_seed(2);
  for (const std::int64_t map : {0, 99999}) {
    auto x = torch::randn({100000, 1, 8, 8}) * 1e-4;
    x[map].fill_(1);
    for (const std::string spec : {"ec@1e-6", "dct@1e-6", "auto@1e-6"}) {
      EXPECT_LE(relative_error(x, round_trip(spec, x)), 1.001e-6) << spec << ", map " << map;
    }
  }
}

TEST(HostileTensors, DoNotSpoilTheRateOfTheNextOne) {
  torch::manual_seed(1);
  const auto usual = torch::randn({8, 64, 32, 32});
  for (const auto& [name, values] : hostile_values(4096)) {
    const auto codec = codec_of("ec:2");
    payload_of(*codec, usual);
    payload_of(*codec, tensor_of(values).view({1, 4, 32, 32}));
    const double rate = 8.0 * static_cast<double>(payload_of(*codec, usual).size()) / static_cast<double>(usual.numel());
    EXPECT_GT(rate, 1.94) << name;
    EXPECT_LT(rate, 2.06) << name;
  }
}

// ---- threads ----

TEST(EntropyThreads, TheFramesOfARunDoNotDependOnTheirNumber) {
  torch::manual_seed(2);
  std::vector<torch::Tensor> run;
  for (int call = 0; call < 3; ++call) run.push_back(torch::relu(torch::randn({4, 16, 112, 112}).cumsum(3)));
  for (const std::string spec : {"ec:2", "dct:1", "dct:0.25", "auto:1", "ec@0.001", "dct@0.001"}) {
    const auto frames = [&](ThreadPool* pool) {
      const auto codec = codec_of(spec, {pool});
      std::vector<Bytes> all(run.size());
      for (std::size_t i = 0; i < run.size(); ++i) EXPECT_TRUE(encode_frame(*codec, run[i], {}, {}, pool, all[i]).ok());
      return all;
    };
    const auto expected = frames(nullptr);
    for (const int threads : {1, 2, 3, 7}) {
      ThreadPool pool(threads);
      EXPECT_EQ(frames(&pool), expected) << spec << ' ' << threads;
      EXPECT_TRUE(torch::equal(decode_frame(expected[2], {}, {&pool}).value(), decode_frame(expected[2], {}, {}).value())) << spec;
    }
  }
}

// ---- headers that promise more than the payload holds ----

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  statm >> total >> resident;
  return resident * 4096;
}

// A frame with the payload of a sound tensor and other dims.
Bytes with_dims(const std::string& spec, const torch::Tensor& x, std::vector<std::uint64_t> dims) {
  wire::FrameHeader header;
  header.tensor = {std::move(dims)};
  header.codec = spec;
  Bytes frame;
  wire::FrameWriter writer(header, frame);
  const Bytes payload = payload_of(*codec_of(spec), x);
  frame.insert(frame.end(), payload.begin(), payload.end());
  writer.finish();
  return frame;
}

TEST(HostileHeaders, AreRefusedBeforeTheirTensorIsFilled) {
  torch::manual_seed(3);
  for (const std::string spec : {"ec:2", "dct:1", "auto:0.25"}) {
    for (const std::vector<std::uint64_t>& dims : std::vector<std::vector<std::uint64_t>>{{1U << 28U},
                                                                                          {1, 1, 1U << 14U, 1U << 14U},
                                                                                          {1U << 28U, 1, 1, 1},
                                                                                          {1, 1U << 28U, 1},
                                                                                          {16, 1U << 14U, 1U << 10U},
                                                                                          {1U << 14U, 1, 128, 128}}) {
      const Bytes frame = with_dims(spec, torch::randn({2, 4, 16, 16}), dims);
      const std::size_t before = resident_bytes();
      const Stopwatch watch;
      const auto y = decode_frame(frame, {}, {});
      ASSERT_FALSE(y.ok()) << spec;
      EXPECT_EQ(y.error().code, ErrorCode::kBadPayload) << y.error().text();
      EXPECT_LT(watch.seconds(), 0.25) << spec;
      EXPECT_LT(resident_bytes(), before + (std::size_t{64} << 20U)) << spec;
    }
  }
}

TEST(HostileHeaders, AboveTheLimitAreRefusedByName) {
  const Bytes frame = with_dims("ec:2", torch::ones({2, 4, 16, 16}), {std::uint64_t{1} << 20U, std::uint64_t{1} << 20U});
  const auto y = decode_frame(frame, {}, {});
  ASSERT_FALSE(y.ok());
  EXPECT_EQ(y.error().code, ErrorCode::kTooLarge);
}

// The densest payload there can be: one token that is certain costs no words, so a chunk is its states and two sizes.
TEST(HostileHeaders, NoByteStandsForMoreThanAChunkOfValues) {
  const auto x = torch::full({1 << 24}, 1.0F);
  const auto codec = codec_of("ec:0.01");
  const Bytes payload = payload_of(*codec, x);
  EXPECT_GE(payload.size() << 20U, static_cast<std::size_t>(x.numel()) * 4);
  EXPECT_LT(relative_error(x, decoded(*codec, payload, x.sizes())), 1e-4);
}

}  // namespace
}  // namespace epipe::codec
