#include "epipe/transport/group_config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace epipe::transport {
namespace {

using Variables = std::map<std::string, std::string>;

class Environment : public ::testing::Test {
 protected:
  void SetUp() override { set({}); }

  static void set(const Variables& variables) {
    for (const char* const name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                   "SLURM_PROCID", "SLURM_NTASKS", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID",
                                   "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"}) {
      ::unsetenv(name);
    }
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }

  static std::string error_with(const Variables& variables) {
    set(variables);
    try {
      group_from_environment();
    } catch (const std::invalid_argument& wrong) {
      return wrong.what();
    }
    return "nothing was wrong";
  }
};

TEST_F(Environment, TakesWhatTorchrunSets) {
  set({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "head"}, {"MASTER_PORT", "29500"}});
  const auto config = group_from_environment();
  EXPECT_EQ(config.rank, 2);
  EXPECT_EQ(config.size, 4);
  EXPECT_EQ(config.master_address, "head");
  EXPECT_EQ(config.master_port, 29500);
  EXPECT_EQ(config.local_rank, 2) << "as far as one knows, all ranks are on this machine";
  EXPECT_TRUE(launched_as_rank());
  ::setenv("LOCAL_RANK", "1", 1);
  EXPECT_EQ(group_from_environment().local_rank, 1);
}

TEST_F(Environment, KnowsTheStoreOfTorchrunsAgent) {
  set({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(group_from_environment().agent_prefix, "") << "rank 0 keeps the store";
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1);
  EXPECT_EQ(group_from_environment().agent_prefix, "");
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  EXPECT_EQ(group_from_environment().agent_prefix, "/worker/attempt_0");
  ::setenv("TORCHELASTIC_RESTART_COUNT", "3", 1);
  EXPECT_EQ(group_from_environment().agent_prefix, "/worker/attempt_3");
}

TEST_F(Environment, TakesWhatMpirunAndSrunSet) {
  set({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "3"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(group_from_environment().rank, 1);
  EXPECT_EQ(group_from_environment().size, 3);
  set({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(group_from_environment().rank, 0);
  EXPECT_EQ(group_from_environment().size, 2);
}

TEST_F(Environment, NamesWhatIsMissingOrWrong) {
  EXPECT_FALSE(launched_as_rank());
  const Variables good{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}};
  for (const auto& [name, value] : good) {
    Variables without = good;
    without.erase(name);
    EXPECT_NE(error_with(without).find(name), std::string::npos) << error_with(without);
  }
  const Variables bad{{"RANK", "2"}, {"WORLD_SIZE", "0"}, {"MASTER_ADDR", ""}, {"MASTER_PORT", "70000"}};
  for (const auto& [name, value] : bad) {
    Variables wrong = good;
    wrong[name] = value;
    EXPECT_EQ(error_with(wrong).find(name + ":"), 0U) << error_with(wrong);
  }
  for (const char* const text : {"one", "1x", "", " 1", "-1", "99999999999999999999"}) {
    Variables wrong = good;
    wrong["RANK"] = text;
    EXPECT_EQ(error_with(wrong).find("RANK: expected"), 0U) << text;
  }
}

TEST_F(Environment, FindsAFreePort) {
  for (int i = 0; i < 20; ++i) {
    const int port = free_port();
    EXPECT_GE(port, 10000);
    EXPECT_LT(port, 30000) << "systems take ports from there for outgoing connections";
  }
}

}  // namespace
}  // namespace epipe::transport
