// EPIPE_CPU holds epipe's own kernels at a level; what crosses the wire does not depend on it.
#include "epipe/base/cpu_level.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "epipe/data/npy.h"
#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::cli {
namespace {

using namespace epipe::testing;

Outcome run_at(const std::string& level, const std::string& arguments, const std::string& folder = ".") {
  ::setenv("EPIPE_CPU", level.c_str(), 1);
  return run_program(arguments, folder);
}

std::string bytes_of(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

TEST(CpuLevel, HasThreeNames) {
  EXPECT_EQ(parse_cpu_level("scalar"), CpuLevel::kScalar);
  EXPECT_EQ(parse_cpu_level("avx2"), CpuLevel::kAvx2);
  EXPECT_EQ(parse_cpu_level("avx512"), CpuLevel::kAvx512);
  for (const char* const wrong : {"", "AVX2", "avx", "sse2", "avx5122"})
    EXPECT_THROW(parse_cpu_level(wrong), std::invalid_argument) << wrong;
}

TEST(CpuLevel, OfAnUnknownNameIsWrongUsage) {
  const Outcome refused = run_at("sse2", "info");
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.output, "epipe: EPIPE_CPU: expected scalar, avx2 or avx512, got 'sse2'; unset it to use all this CPU has\n");
}

TEST(CpuLevel, HoldsTheKernelsThatInfoNames) {
  const std::vector<std::string> ascending = {"scalar", "avx2", "avx512"};
  for (std::size_t level = 0; level < ascending.size(); ++level) {
    const Outcome info = run_at(ascending[level], "info --json");
    ASSERT_EQ(info.code, 0) << info.output;
    const auto names = nlohmann::json::parse(info.output)["kernels"].get<std::vector<std::string>>();
    EXPECT_LE(names.size(), level + 1);
    for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(names[i], ascending[i]);
    EXPECT_EQ(nlohmann::json::parse(info.output)["kernels_used"], names.back());
    EXPECT_NE(run_at(ascending[level], "info").output.find("at most " + ascending[level] + " by EPIPE_CPU"), std::string::npos);
  }
}

TEST(CpuLevel, DoesNotShowInFramesNorInWhatTheyDecodeTo) {
  const TempFolder folder;
  torch::manual_seed(5);
  ASSERT_TRUE(data::write_npy(folder.file("x.npy"), torch::randn({3, 8, 21, 19})).ok());
  for (const std::string spec : {"sort:6+2", "power:2>uniform:8", "dct:1"}) {
    std::vector<std::string> frames;
    std::vector<std::string> decoded;
    for (const std::string level : {"scalar", "avx2", "avx512"}) {
      const Outcome coded = run_at(level, "codec encode --codec '" + spec + "' x.npy x.epf", folder.path());
      ASSERT_EQ(coded.code, 0) << coded.output;
      ASSERT_EQ(run_at(level, "codec decode x.epf y.npy", folder.path()).code, 0);
      frames.push_back(bytes_of(folder.file("x.epf")));
      decoded.push_back(bytes_of(folder.file("y.npy")));
    }
    ASSERT_FALSE(frames[0].empty());
    EXPECT_TRUE(frames[0] == frames[1] && frames[0] == frames[2]) << spec << ": the frame depends on the level";
    EXPECT_TRUE(decoded[0] == decoded[1] && decoded[0] == decoded[2]) << spec << ": the tensor depends on the level";
  }
}

}  // namespace
}  // namespace epipe::cli
