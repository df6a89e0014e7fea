// The program as its users call it: contract, exit codes, messages.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "epipe/data/npy.h"
#include "support/program.h"
#include "support/temp_folder.h"

namespace epipe::cli {
namespace {

using testing::Outcome;
using testing::run_program;

class Program : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(1);
    x_ = torch::randn({2, 3, 20, 21});
    ASSERT_TRUE(data::write_npy(path("x.npy"), x_).ok());
  }

  std::string path(const std::string& name) const { return folder_.file(name); }
  Outcome run(const std::string& arguments) const { return run_program(arguments, folder_.path()); }

  testing::TempFolder folder_;
  torch::Tensor x_;
};

TEST_F(Program, EncodesAndDecodesFiles) {
  for (const std::string spec : {"none", "sort:6+2", "'power:2>uniform:8'"}) {
    const Outcome encode = run("codec encode --codec " + spec + " x.npy x.epf");
    ASSERT_EQ(encode.code, 0) << encode.output;
    EXPECT_EQ(encode.output, "");
    const Outcome decode = run("codec decode x.epf y.npy");
    ASSERT_EQ(decode.code, 0) << decode.output;
    const auto y = data::read_npy(path("y.npy"));
    ASSERT_TRUE(y.ok());
    EXPECT_EQ(y.value().sizes(), x_.sizes());
    EXPECT_TRUE(spec != "none" || torch::equal(y.value(), x_));
  }
}

TEST_F(Program, MeasuresWithTheFieldsOfTheContract) {
  const Outcome measured = run("codec measure --codec uniform:8 x.npy x.npy --json");
  ASSERT_EQ(measured.code, 0) << measured.output;
  std::istringstream lines(measured.output);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto json = nlohmann::json::parse(line);
    for (const char* field :
         {"codec", "values", "wire_bytes", "bits_per_value", "rel_error", "encode_MBps", "decode_MBps", "memcpy_MBps"}) {
      ASSERT_TRUE(json.contains(field)) << field;
    }
    EXPECT_EQ(json["codec"], "uniform:8");
    EXPECT_EQ(json["values"], x_.numel());
    run("codec encode --codec uniform:8 x.npy x.epf");
    EXPECT_EQ(json["wire_bytes"], std::filesystem::file_size(path("x.epf"))) << "the frame is what is counted";
    EXPECT_DOUBLE_EQ(json["bits_per_value"].get<double>(), 8.0 * json["wire_bytes"].get<double>() / static_cast<double>(x_.numel()));
    EXPECT_GT(json["rel_error"], 0);
    EXPECT_GT(json["memcpy_MBps"], 0);
  }
  EXPECT_EQ(count, 2);
}

TEST_F(Program, MeasuresATensorOfZerosAndAnEmptyOne) {
  ASSERT_TRUE(data::write_npy(path("zeros.npy"), torch::zeros({10})).ok());
  ASSERT_TRUE(data::write_npy(path("empty.npy"), torch::zeros({0, 4})).ok());
  const Outcome measured = run("codec measure --codec sort:6+2 zeros.npy empty.npy --json");
  ASSERT_EQ(measured.code, 0) << measured.output;
  EXPECT_NE(measured.output.find("\"rel_error\":0.0"), std::string::npos);
}

TEST_F(Program, WrongUsageExitsWith2) {
  for (const std::string arguments :
       {"", "nonsense", "codec", "codec encode", "codec encode --codec none x.npy", "codec encode --codec sort:6 x.npy y.epf",
        "codec measure --codec none x.npy --threads 0", "codec measure --codec none x.npy --bogus", "bench codec --codec srt:1",
        "bench codec --device cuda:0 --shape 1,2", "bench codec --device cpu", "bench loop --device cuda:99 --precision int8"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << '\n' << outcome.output;
    EXPECT_NE(outcome.output.find("epipe: "), std::string::npos) << outcome.output;
  }
}

TEST_F(Program, AWrongSpecShowsWhere) {
  EXPECT_NE(run("codec encode --codec sort:6x2 x.npy y.epf").output.find("\n  sort:6x2\n        ^\n"), std::string::npos);
}

TEST_F(Program, BadFilesExitWith1AndSayWhy) {
  ASSERT_EQ(run("codec encode --codec uniform:8 x.npy x.epf").code, 0);
  {
    std::fstream frame(path("x.epf"), std::ios::in | std::ios::out | std::ios::binary);
    frame.seekp(100);
    frame.put('!');
  }
  std::ofstream(path("text.npy")) << "hello";
  ASSERT_TRUE(data::write_npy(path("nan.npy"), torch::full({3}, NAN)).ok());
  const auto expect_failure = [&](const std::string& arguments, const std::string& reason) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 1) << arguments << '\n' << outcome.output;
    EXPECT_NE(outcome.output.find(reason), std::string::npos) << arguments << '\n' << outcome.output;
  };
  expect_failure("codec decode x.epf y.npy", "bad_checksum");
  expect_failure("codec decode x.npy y.npy", "bad_magic");
  expect_failure("codec decode missing.epf y.npy", "missing.epf");
  expect_failure("codec decode . y.npy", "directory");
  expect_failure("codec encode --codec none text.npy y.epf", "not a .npy");
  expect_failure("codec encode --codec none nan.npy y.epf", "non_finite");
  expect_failure("codec encode --codec none x.npy no/such/folder/y.epf", "no/such/folder");
  expect_failure("codec measure --codec none missing.npy --json", "missing.npy");
  EXPECT_FALSE(std::filesystem::exists(path("y.npy")));
  EXPECT_FALSE(std::filesystem::exists(path("y.epf")));
}

TEST_F(Program, RefusesFramesAboveTheLimit) {
  ASSERT_EQ(run("codec encode --codec uniform:8 x.npy x.epf").code, 0);
  const Outcome outcome = run("codec decode x.epf y.npy --max-bytes 1000");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.output.find("too_large"), std::string::npos) << outcome.output;
}

TEST_F(Program, HelpAndVersionExitWith0) {
  for (const std::string arguments : {"--help", "--version", "codec --help", "codec encode --help", "bench codec --help", "info --help"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << arguments;
    EXPECT_FALSE(outcome.output.empty());
  }
}

TEST_F(Program, InfoNamesEveryOptionalPart) {
  const Outcome outcome = run("info --json");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  const auto info = nlohmann::json::parse(outcome.output);
  for (const char* part : {"CUDA", "gloo", "gRPC"}) {
    ASSERT_TRUE(info["parts"].contains(part)) << part;
    EXPECT_FALSE(info["parts"][part]["detail"].get<std::string>().empty());
  }
}

}  // namespace
}  // namespace epipe::cli
