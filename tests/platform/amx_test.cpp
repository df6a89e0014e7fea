// bf16 through LibTorch's oneDNN on every machine that announces AMX: where it works, where the kernel refuses it, and where a virtual
// machine hides the sizes of its tiles, on which oneDNN by itself dies of SIGILL. Each case is a forked child, because oneDNN decides once.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "epipe/base/amx.h"
#include "support/fake_cpuid.h"
#include "support/program.h"

namespace epipe {
namespace {

#if defined(__x86_64__) && defined(__linux__)

using namespace epipe::testing;

constexpr int kRight = 0;
constexpr int kWrongNumbers = 3;
constexpr int kNotAsFound = 4;
constexpr int kOnednnIgnoresIt = 5;
constexpr int kNoFilter = 6;

// A product and a convolution, large enough for tiles.
int compute_bf16() {
  torch::manual_seed(1);
  const auto near = [](const torch::Tensor& actual, const torch::Tensor& expected) {
    return (actual.to(torch::kFloat32) - expected).norm().item<float>() < 0.02F * expected.norm().item<float>();
  };
  const auto a = torch::randn({64, 96});
  const auto b = torch::randn({96, 64});
  const auto x = torch::randn({2, 32, 12, 12});
  const auto w = torch::randn({32, 32, 3, 3});
  const auto half = [](const torch::Tensor& t) { return t.to(torch::kBFloat16); };
  if (!near(torch::matmul(half(a), half(b)), torch::matmul(a, b))) return kWrongNumbers;
  if (!near(torch::conv2d(half(x), half(w)), torch::conv2d(x, w))) return kWrongNumbers;
  return kRight;
}

// Whether oneDNN means to use AMX; nothing where LibTorch keeps its oneDNN to itself.
std::optional<bool> onednn_uses_amx() {
  constexpr int kAmxBits = 0x300;  // of dnnl_cpu_isa_t
  auto* const effective = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "dnnl_get_effective_cpu_isa"));
  return effective == nullptr ? std::nullopt : std::optional((effective() & kAmxBits) == kAmxBits);
}

void forget_limits() {
  ::unsetenv("ONEDNN_MAX_CPU_ISA");
  ::unsetenv("DNNL_MAX_CPU_ISA");
}

// In a child: what is found must be `amx`, oneDNN must act on it, and bf16 must come out right.
int computes_as(Amx amx) {
  forget_limits();
  const AmxUse use = prepare_amx();
  if (use.amx != amx) return kNotAsFound;
  if (use.onednn_limit.has_value() != (amx != Amx::kGranted)) return kNotAsFound;
  if (use.onednn_limit && *use.onednn_limit != ::getenv("ONEDNN_MAX_CPU_ISA")) return kNotAsFound;
  if (onednn_uses_amx().value_or(amx == Amx::kGranted) != (amx == Amx::kGranted)) return kOnednnIgnoresIt;
  return compute_bf16();
}

bool tiles_are_permitted() {
  constexpr long kGetPermission = 0x1022;  // ARCH_GET_XCOMP_PERM
  std::uint64_t states = 0;
  return ::syscall(SYS_arch_prctl, kGetPermission, &states) == 0 && (states >> 18 & 1) != 0;
}

// Before main(), and without a call to epipe.
const bool kTilesAtStart = tiles_are_permitted();
const bool kLimitAtStart = ::getenv("ONEDNN_MAX_CPU_ISA") != nullptr || ::getenv("DNNL_MAX_CPU_ISA") != nullptr;

class AmxMachine : public ::testing::Test {
 protected:
  void SetUp() override {
    if (amx_use().amx == Amx::kAbsent) GTEST_SKIP() << "this CPU has no AMX, or its system does not switch it on";
  }
};

bool has_tiles() { return amx_use().amx != Amx::kIncomplete; }

// The answers of CPUID that a case needs, in a child.
void show_tiles(bool shown) {
  if (has_tiles() != shown) fake_tiles(shown);
}

#define SKIP_WITHOUT_CPUID_FOR(shown) \
  if (has_tiles() != (shown) && !cpuid_can_be_faked()) GTEST_SKIP() << "this CPU's answers to CPUID cannot be faked"

TEST_F(AmxMachine, ComputesBf16AsTheLibraryLeavesIt) { EXPECT_EXIT(std::_Exit(compute_bf16()), ::testing::ExitedWithCode(kRight), ""); }

TEST_F(AmxMachine, IsPreparedBeforeTheProgramsOwnConstructors) {
  EXPECT_TRUE(amx_use().amx == Amx::kGranted ? kTilesAtStart : kLimitAtStart);
}

TEST_F(AmxMachine, ComputesBf16WithTilesThatTheKernelGrants) {
  SKIP_WITHOUT_CPUID_FOR(true);
  EXPECT_EXIT(
      {
        show_tiles(true);
        std::_Exit(computes_as(Amx::kGranted));
      },
      ::testing::ExitedWithCode(kRight), "");
}

TEST_F(AmxMachine, ComputesBf16WhereTheKernelRefuses) {
  SKIP_WITHOUT_CPUID_FOR(true);
  EXPECT_EXIT(
      {
        show_tiles(true);
        std::_Exit(refuse_amx() ? computes_as(Amx::kRefused) : kNoFilter);
      },
      ::testing::ExitedWithCode(kRight), "");
}

TEST_F(AmxMachine, ComputesBf16WhereTheSizesOfTheTilesAreHidden) {
  SKIP_WITHOUT_CPUID_FOR(false);
  EXPECT_EXIT(
      {
        show_tiles(false);
        std::_Exit(computes_as(Amx::kIncomplete));
      },
      ::testing::ExitedWithCode(kRight), "");
}

// In a child: the limit that is left of the user's.
std::string limit_after(const char* variable, const char* value) {
  forget_limits();
  ::setenv(variable, value, 1);
  return prepare_amx().onednn_limit.value_or("none");
}

TEST_F(AmxMachine, KeepsAUsersLimitThatIsStricter) {
  SKIP_WITHOUT_CPUID_FOR(false);
  EXPECT_EXIT(
      {
        show_tiles(false);
        const bool kept = limit_after("ONEDNN_MAX_CPU_ISA", "avx2") == "avx2" && limit_after("DNNL_MAX_CPU_ISA", "SSE41") == "SSE41" &&
                          ::getenv("ONEDNN_MAX_CPU_ISA") == nullptr;
        const bool replaced = limit_after("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_AMX") == "AVX512_CORE_BF16" &&
                              limit_after("ONEDNN_MAX_CPU_ISA", "ALL") == "AVX512_CORE_BF16" &&
                              limit_after("DNNL_MAX_CPU_ISA", "misspelt") == "AVX512_CORE_BF16" && compute_bf16() == kRight;
        std::_Exit(kept && replaced ? kRight : kNotAsFound);
      },
      ::testing::ExitedWithCode(kRight), "");
}

#endif

TEST(Info, SaysWhatBecameOfAmx) {
  const auto info = run_program("info --json");
  ASSERT_EQ(info.code, 0) << info.output;
  const auto amx = nlohmann::json::parse(info.output)["amx"];
  const AmxUse& use = amx_use();
  const std::array<std::string, 4> names = {"absent", "granted", "refused", "incomplete"};
  EXPECT_EQ(amx["state"], names.at(static_cast<std::size_t>(use.amx)));
  EXPECT_EQ(amx["onednn_limit"], use.onednn_limit ? nlohmann::json(*use.onednn_limit) : nlohmann::json(nullptr));
  EXPECT_NE(run_program("info").output.find("AMX       " + describe(use) + "\n"), std::string::npos);
}

}  // namespace
}  // namespace epipe
