// --workers and --link, and tables from a file.
#include "epipe/planner/parse.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "epipe/planner/inputs_json.h"
#include "planner/tables.h"

namespace epipe::planner {
namespace {

TEST(Workers, AreDevicesHereAndServersThere) {
  const auto workers = parse_workers("client:cpu,server:host:7000@200GF/8GB/4cores").value();
  ASSERT_EQ(workers.size(), 2U);
  EXPECT_EQ(workers[0].name, "client");
  EXPECT_EQ(workers[0].device, "cpu");
  EXPECT_FALSE(workers[0].flops);
  EXPECT_EQ(workers[1].address, "host:7000");
  EXPECT_DOUBLE_EQ(*workers[1].flops, 200e9);
  EXPECT_DOUBLE_EQ(*workers[1].memory, 8e9);
  EXPECT_DOUBLE_EQ(*workers[1].cores, 4);
  EXPECT_FALSE(workers[1].here);
}

TEST(Workers, NeedNoNames) {
  const auto workers = parse_workers("cpu,cuda:1,[::1]:7000,host:7001").value();
  EXPECT_EQ(workers[0].name, "worker 0");
  EXPECT_EQ(workers[1].device, "cuda:1");
  EXPECT_EQ(workers[2].name, "server");
  EXPECT_EQ(workers[2].address, "[::1]:7000");
  EXPECT_TRUE(workers[2].here);
  EXPECT_EQ(workers[3].name, "server 3");
}

TEST(Workers, ThatMakeNoSenseAreRefused) {
  for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
           {"", "expected a worker such as"},
           {"client:gpu", "got \"client:gpu\""},
           {"client:cpu,", "got \"\""},
           {"client:cpu@fast", "expected a speed such as 200GF"},
           {"client:cpu@0GF", "got \"0GF\""},
           {"client:cpu@20G", "got \"20G\""},
           {"client:cpu@infGF", "got \"infGF\""},
           {"server:host:7000,client:cpu", "the first worker has the data"},
           {"client:cpu,server:host:port", "got \"server:host:port\""},
           {"client:cpu,server:host:7000000", "got \"server:host:7000000\""},
       }) {
    const auto workers = parse_workers(text);
    ASSERT_FALSE(workers.ok()) << text;
    EXPECT_NE(workers.error().message.find(reason), std::string::npos) << workers.error().message;
  }
}

TEST(Link, HasARateEachWayAndADelay) {
  const LinkSpec link = parse_link("up=10M,down=1.5Gbit,delay=20ms").value();
  EXPECT_DOUBLE_EQ(*link.up, 10e6);
  EXPECT_DOUBLE_EQ(*link.down, 1.5e9);
  EXPECT_DOUBLE_EQ(*link.delay, 0.02);
  const LinkSpec both = parse_link("rate=500k").value();
  EXPECT_DOUBLE_EQ(*both.up, 500e3);
  EXPECT_DOUBLE_EQ(*both.down, 500e3);
  EXPECT_FALSE(both.delay);
}

TEST(Link, ThatMakesNoSenseIsRefused) {
  for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
           {"up=0", "a link of rate 0 carries nothing"},
           {"up=-1M", "expected bits per second"},
           {"up=10X", "got \"10X\""},
           {"up", "got \"\""},
           {"speed=10M", "got \"speed=10M\""},
           {"delay=20", "expected a time such as delay=20ms"},
           {"delay=nans", "expected a time"},
           {"up=10M,up=20M", "up is given twice, the second time by up=20M"},
           {"rate=10M,down=20M", "down is given twice, the second time by down=20M"},
           {"delay=1ms,delay=1ms", "delay is given twice"},
       }) {
    const auto link = parse_link(text);
    ASSERT_FALSE(link.ok()) << text;
    EXPECT_NE(link.error().message.find(reason), std::string::npos) << link.error().message;
  }
}

TEST(InputsJson, SurvivesItsText) {
  Inputs inputs = random_inputs(3, 4);
  inputs.workers[0].memory = 5e9;
  inputs.layers[2].with_client = true;
  inputs.constraints.least_samples = 4;
  const auto text = to_json(inputs).dump();
  const auto again = inputs_from_json(nlohmann::json::parse(text));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(to_json(again.value()).dump(), text);
  EXPECT_EQ(again.value().workers[1].memory, kUnlimited);
}

TEST(InputsJson, RefusesEverythingElse) {
  const auto good = nlohmann::json::parse(to_json(random_inputs(3, 4)).dump());
  EXPECT_FALSE(inputs_from_json(nlohmann::json::array()).ok());
  for (const auto& [field, value] : good.items()) {
    auto without = good;
    without.erase(field);
    const auto read = inputs_from_json(without);
    ASSERT_FALSE(read.ok()) << field;
    EXPECT_NE(read.error().message.find("plan again"), std::string::npos) << read.error().text();
    EXPECT_NE(read.error().message.find(field), std::string::npos) << read.error().text();
    auto wrong = good;
    wrong[field] = "x";
    EXPECT_EQ(inputs_from_json(wrong).ok(), field == "model") << field;
  }
  auto negative = good;
  negative["layers"][0]["values"] = -1;
  EXPECT_NE(inputs_from_json(negative).error().message.find("layer0"), std::string::npos);
  auto many = good;
  many["cores"] = std::vector<double>(5000, 1);
  EXPECT_NE(inputs_from_json(many).error().message.find("at most 4096 entries"), std::string::npos);
}

}  // namespace
}  // namespace epipe::planner
