// Commands and replies as bytes, also those that are made to cost time or memory.
#include "epipe/session/messages.h"

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>

namespace epipe::session {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 24;  // of a message's JSON

// Where a type stands in its variant, which is how a message names it.
template <typename One, typename... All>
constexpr std::size_t index_in(const std::variant<All...>*) {
  std::size_t index = 0;
  (void)((std::is_same_v<One, All> || (++index, false)) || ...);
  return index;
}
constexpr std::size_t kStep = index_in<StepCommand>(static_cast<Command*>(nullptr));

Bytes message_of(const std::string& fields, std::size_t type = kStep) {
  Bytes bytes(1, static_cast<std::byte>(type));
  append(bytes, static_cast<std::uint32_t>(fields.size()));
  const auto text = std::as_bytes(std::span(fields));
  bytes.insert(bytes.end(), text.begin(), text.end());
  return bytes;
}

// `begin`, as many of `piece` as there is room for, `end`.
std::string filled(const std::string& begin, const std::string& piece, const std::string& end) {
  std::string text = begin;
  while (text.size() + piece.size() + end.size() <= kMostBytes) text += piece;
  return text + end;
}

// Members with keys of their own.
std::string members(const std::string& value) {
  std::string text = R"({"b":0)";
  for (int i = 0; text.size() + 32 + value.size() <= kMostBytes; ++i) text += ",\"" + std::to_string(i) + "\":" + value;
  return text + "}";
}

struct Cost {
  bool accepted = false;
  double cpu_seconds = 0;
  double grown_megabytes = 0;  // of the process's peak
};

// Since forget_peak(), where the kernel lets us forget it.
double peak_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

void forget_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

Cost cost_of(const std::string& fields) {
  const Bytes bytes = message_of(fields);
  forget_peak();
  const double before = peak_megabytes();
  const std::clock_t start = std::clock();
  Cost cost;
  {
    const auto message = read_command(bytes);
    cost.accepted = message.ok();
  }
  cost.cpu_seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  cost.grown_megabytes = peak_megabytes() - before;
  return cost;
}

TEST(Messages, HaveRoomForTheSamplesOfALargeBatch) {
  StepCommand command;
  command.id.chunks = 1;
  command.batch.samples.resize(1'500'000);
  std::iota(command.batch.samples.begin(), command.batch.samples.end(), 0);
  const auto read = read_command(to_bytes(Command(command)));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(std::get<StepCommand>(read.value()).batch.samples, command.batch.samples);
}

// Whatever its fields are, a message says the same when it is read and sent on.
TEST(Messages, OfEveryKindSurviveTheirBytes) {
  pipeline::StepResult result;
  result.loss = 0.5;
  result.forward.resize(2);
  result.backward.resize(2);
  result.workers.resize(2);
  result.peak_live = {1, 2, 3};
  result.predictions = torch::ones({2, 3});
  StepCommand step;
  step.batch.samples = {7, 3};
  step.batch.side = {torch::ones({2, 4})};
  step.batch.targets = torch::zeros({2}, torch::kInt64);
  step.id = {1, 2, 2, true, 4, 0.25};
  step.id.rates = {{0.5, 2}, {0, 16}};
  AuditCommand audit;
  audit.batch = step.batch;
  audit.id = {1, 2, 2, false, 4, 0.25};
  audit.part = {4, true, {{1, 2}, {0.03, 16}}, {{1, 2, 4}, {}}};
  const std::vector<Command> commands = {ConfigureCommand{{{"model", "mlp"}}, 2},
                                         LoadCommand{3, true, {{"w", torch::ones({2})}}},
                                         RestoreCommand{9},
                                         OpenChannelsCommand{4, {"host:1", "host:2"}},
                                         step,
                                         ReplicaStepCommand{1, 2, true, false, {{1, 2}}},
                                         CommitCommand{5, {0.1, 0.5, true}},
                                         SaveCommand{},
                                         WeightsCommand{6},
                                         ClockCommand{},
                                         TimelineCommand{},
                                         EndCommand{},
                                         LeaveCommand{},
                                         ForwardCommand{3, 1, true, false, {4, 5}},
                                         BackwardCommand{3, 1},
                                         audit,
                                         LinkProbeCommand{probe_bytes(3), 5},
                                         OverlappedStepCommand{true, step.batch, {1, 2, 2, true, 4}},
                                         EarlyBackwardsCommand{}};
  ASSERT_EQ(commands.size(), std::variant_size_v<Command>);
  for (std::size_t i = 0; i < commands.size(); ++i) {
    ASSERT_EQ(commands[i].index(), i) << "one of each";
    const Bytes bytes = to_bytes(commands[i]);
    const auto read = read_command(bytes);
    ASSERT_TRUE(read) << name_of(commands[i]) << ": " << read.error().text();
    EXPECT_EQ(read.value().index(), i);
    EXPECT_EQ(to_bytes(read.value()), bytes) << name_of(commands[i]);
  }
  const std::vector<Reply> replies = {ErrorReply{"why", true, false},
                                      ConfigureReply{3, 4, {{1, 2}, {3}}},
                                      LoadReply{},
                                      RestoreReply{},
                                      OpenChannelsReply{},
                                      StepReply{result, {{"w", 2.0}}},
                                      CommitReply{true},
                                      SaveReply{},
                                      WeightsReply{{{"w", torch::ones({2})}}},
                                      ClockReply{1.5},
                                      TimelineReply{nlohmann::json::array({1, "x"})},
                                      EndReply{},
                                      LeaveReply{},
                                      ForwardReply{},
                                      BackwardReply{},
                                      AuditReply{{result, {{0.5, 0.25}, {}}, {{1, 2, 3}, {4, 5, 6}}, {{0.5, 1.5, 0, 0.25}}, true}},
                                      LinkProbeReply{probe_bytes(5)},
                                      OverlappedStepReply{result},
                                      EarlyBackwardsReply{}};
  ASSERT_EQ(replies.size(), std::variant_size_v<Reply>);
  for (std::size_t i = 0; i < replies.size(); ++i) {
    ASSERT_EQ(replies[i].index(), i) << "one of each";
    const Bytes bytes = to_bytes(replies[i]);
    const auto read = read_reply(bytes);
    ASSERT_TRUE(read) << name_of(replies[i]) << ": " << read.error().text();
    EXPECT_EQ(to_bytes(read.value()), bytes) << name_of(replies[i]);
  }
}

TEST(Messages, RefuseAStepThatContradictsItself) {
  const auto refused = [](StepCommand command) {
    const auto read = read_command(to_bytes(Command(std::move(command))));
    return read ? std::string("taken") : read.error().message;
  };
  StepCommand good;
  good.batch.samples = {1, 2};
  good.id.chunks = 2;
  EXPECT_EQ(refused(good), "taken");
  StepCommand chunks = good;
  chunks.id.chunks = 3;
  EXPECT_EQ(refused(chunks), "a step of 2 samples cannot have 3 chunks");
  StepCommand scale = good;
  scale.id.loss_scale = 0;
  EXPECT_EQ(refused(scale), "a loss scale must be above 0, got 0");
  StepCommand part = good;
  part.id.terms = 1;
  EXPECT_EQ(refused(part), "a loss of 1 terms cannot have a part of 2 samples");
  StepCommand side = good;
  side.batch.side = {torch::ones({3, 4})};
  EXPECT_EQ(refused(side), "side.0 of a step has not one entry for each of 2 samples");
}

TEST(Messages, RefuseAnOverlappedStepThatContradictsItself) {
  const auto refused = [](OverlappedStepCommand command) {
    const auto read = read_command(to_bytes(Command(std::move(command))));
    return read ? std::string("taken") : read.error().message;
  };
  OverlappedStepCommand good;
  good.batch.samples = {1, 2};
  good.id.chunks = 2;
  EXPECT_EQ(refused(good), "taken");
  OverlappedStepCommand draining;
  draining.forwards = false;
  EXPECT_EQ(refused(draining), "taken");
  OverlappedStepCommand empty = good;
  empty.batch.samples.clear();
  EXPECT_EQ(refused(empty), "a step of 0 samples cannot have 2 chunks");
  OverlappedStepCommand both = good;
  both.forwards = false;
  EXPECT_EQ(refused(both), "a step without forwards cannot have 2 samples in 2 chunks");
  OverlappedStepCommand part = good;
  part.id.terms = 1;
  EXPECT_EQ(refused(part), "a loss of 1 terms cannot have a part of 2 samples");
}

TEST(Messages, RefuseRatesThatNoCodecHas) {
  StepCommand step;
  step.batch.samples = {1};
  step.id.chunks = 1;
  AuditCommand audit;
  audit.batch.samples = {1};
  audit.id.chunks = 1;
  audit.id.terms = 1;
  for (const double rate : {0.03, 1.0, 16.0, 0.0}) {
    step.id.rates = {{rate, 1}};
    audit.part.rates = {{rate, 1}};
    EXPECT_TRUE(read_command(to_bytes(Command(step)))) << rate;
    EXPECT_TRUE(read_command(to_bytes(Command(audit)))) << rate;
  }
  for (const double rate : {0.02, 16.1, -1.0, 1e300, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    step.id.rates = {{1, rate}};
    audit.part.rates = {{1, rate}};
    EXPECT_FALSE(read_command(to_bytes(Command(step)))) << rate;
    EXPECT_FALSE(read_command(to_bytes(Command(ReplicaStepCommand{0, 0, false, true, {{rate, 1}}})))) << rate;
    EXPECT_FALSE(read_command(to_bytes(Command(audit)))) << rate;
    audit.part.rates = {{1, 1}};
    audit.part.tried = {{rate}};
    EXPECT_FALSE(read_command(to_bytes(Command(audit)))) << rate;
    audit.part.tried.clear();
  }
}

TEST(Messages, RefuseAnAuditThatContradictsItself) {
  const auto taken = [](const AuditCommand& command) { return read_command(to_bytes(Command(command))).ok(); };
  AuditCommand good;
  good.batch.samples = {1, 2, 1, 2};
  good.id.chunks = 2;
  good.id.terms = 2;
  good.part.rates = {{1}, {2}};
  ASSERT_TRUE(taken(good));
  AuditCommand chunks = good;
  chunks.id.chunks = 3;
  EXPECT_FALSE(taken(chunks)) << "micro-batches of unequal size";
  AuditCommand rates = good;
  rates.part.rates.pop_back();
  EXPECT_FALSE(taken(rates));
  AuditCommand terms = good;
  terms.id.terms = 0;
  EXPECT_FALSE(taken(terms));
  AuditCommand tried = good;
  tried.part.tried = {std::vector<double>(9, 1)};
  EXPECT_FALSE(taken(tried));
  AuditCommand none = good;
  none.batch.samples.clear();
  EXPECT_FALSE(taken(none));
}

TEST(Messages, RefuseAProbeThatAsksForMoreThanALinkNeeds) {
  EXPECT_TRUE(read_command(to_bytes(Command(LinkProbeCommand{{}, kMostProbeBytes}))));
  EXPECT_FALSE(read_command(to_bytes(Command(LinkProbeCommand{{}, kMostProbeBytes + 1}))));
}

// A message is made of what it needs, each of its own type: nothing is rounded, wrapped or dropped without a word.
TEST(Messages, TakeNoNumberForAnother) {
  constexpr std::size_t kConfigure = index_in<ConfigureCommand>(static_cast<Command*>(nullptr));
  constexpr std::size_t kGetWeights = index_in<WeightsCommand>(static_cast<Command*>(nullptr));
  EXPECT_TRUE(read_command(message_of(R"({"layer":3,"trained":false})", kGetWeights)));
  for (const char* const wrong : {"-1", "3.0", "1e300", "true", "\"3\"", "null", "[3]", "18446744073709551616"}) {
    EXPECT_FALSE(read_command(message_of(std::string(R"({"trained":false,"layer":)") + wrong + "}", kGetWeights))) << wrong;
  }
  EXPECT_TRUE(read_command(message_of(R"({"spec":{},"worker":1})", kConfigure)));
  EXPECT_FALSE(read_command(message_of(R"({"spec":{},"worker":4294967297})", kConfigure))) << "1 in 32 bits";
  EXPECT_FALSE(read_command(message_of(R"({"layer":3,"trained":false,"more":1})", kGetWeights))) << "a field too many";
  const auto with_tensors = to_bytes(Command(LoadCommand{0, true, {{"w", torch::ones({2})}}}));
  Bytes clock = message_of("{}", index_in<ClockCommand>(static_cast<Command*>(nullptr)));
  const std::size_t front = 5 + load<std::uint32_t>(with_tensors, 1);
  clock.insert(clock.end(), with_tensors.begin() + static_cast<std::ptrdiff_t>(front), with_tensors.end());
  EXPECT_FALSE(read_command(clock)) << "tensors that nobody asked for";
}

TEST(Messages, TakeNoNumberOfAStepResultForAnother) {
  constexpr std::size_t kStepped = index_in<StepReply>(static_cast<Reply*>(nullptr));
  const auto stepped = [](const std::string& field, const std::string& value) {
    nlohmann::json result = {{"loss", 0.5},
                             {"correct", 1},
                             {"samples", 2},
                             {"terms", 2},
                             {"non_finite", false},
                             {"forward", nlohmann::json::array()},
                             {"backward", nlohmann::json::array()},
                             {"workers", nlohmann::json::array()},
                             {"peak_live", {1}}};
    result[field] = nlohmann::json::parse(value);
    return read_reply(message_of(nlohmann::json{{"result", result}, {"norms", nlohmann::json::object()}}.dump(), kStepped)).ok();
  };
  EXPECT_TRUE(stepped("samples", "2"));
  EXPECT_TRUE(stepped("loss", "null")) << "NaN";
  EXPECT_FALSE(stepped("samples", "2.5"));
  EXPECT_FALSE(stepped("samples", "1e300"));
  EXPECT_FALSE(stepped("non_finite", "0"));
  EXPECT_FALSE(stepped("peak_live", "[4294967297]"));
  EXPECT_FALSE(stepped("correct", "\"all\""));
  EXPECT_FALSE(stepped("forward", "[{\"wire_bytes\": -1}]"));
}

TEST(Messages, QuoteBytesThatAreNotText) {
  const auto read = read_reply(to_bytes(Reply(ErrorReply{"a name like \xff\xfe"})));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::get<ErrorReply>(read.value()).error, "a name like \xEF\xBF\xBD\xEF\xBF\xBD");
}

// Lists of objects took quadratic time: twelve megabytes an hour. Seconds of CPU are compared with those of an honest message of the same
// size, so a slow machine changes nothing.
TEST(Messages, OfSixteenMegabytesCostLittleWhateverTheySay) {
  const Cost honest = cost_of(
      filled(R"({"epoch":0,"step":0,"chunks":1,"measure_error":false,"loss_scale":1,"terms":0,"training":true,"norms":false,"samples":[)",
             "12345678,", "0]}"));
  ASSERT_TRUE(honest.accepted);
  const double most_seconds = 5 * honest.cpu_seconds + 0.2;
  const std::vector<std::pair<const char*, std::function<std::string()>>> hostile = {
      {"objects", [] { return filled(R"({"a":[)", "{},", "{}]}"); }},
      {"lists", [] { return filled(R"({"a":[)", "[],", "[]]}"); }},
      {"lists of objects", [] { return filled(R"({"a":[)", "[{},{}],", "0]}"); }},
      {"objects in objects", [] { return filled(R"({"a":[)", R"({"a":{},"b":{}},)", "0]}"); }},
      {"members", [] { return members("{}"); }},
      {"members with numbers", [] { return members("0"); }},
      {"empty strings", [] { return filled(R"({"a":[)", "\"\",", "\"\"]}"); }},
      {"small numbers", [] { return filled(R"({"a":[)", "0,", "0]}"); }},
      {"fractions", [] { return filled(R"({"a":[)", "1e-9,", "0]}"); }},
      {"the same key", [] { return filled(R"({"b":0)", R"(,"a":{})", "}"); }},
      {"deep lists", [] { return filled("", "[", ""); }},
      {"deep objects", [] { return filled("", R"({"a":)", ""); }},
      {"a long string", [] { return filled(R"({"a":")", "x", "\"}"); }},
      {"a long key", [] { return filled(R"({")", "x", "\":0}"); }},
      {"escapes", [] { return filled(R"({"a":")", "\\u00e9", "\"}"); }},
      {"a long number", [] { return filled(R"({"a":)", "1", "}"); }},
      {"a long fraction", [] { return filled(R"({"a":0.)", "1", "}"); }},
      {"a long exponent", [] { return filled(R"({"a":1e)", "1", "}"); }},
      {"a string that is not UTF-8", [] { return filled(R"({"a":")", "\xc3\xa9", "\xff\"}"); }},
      {"control characters", [] { return filled(R"({"a":")", "xxxxxxxx", "\n\"}"); }},
      {"spaces", [] { return filled(R"({"b":0)", " ", "}"); }},
      {"zeros", [] { return filled(R"({"b":0})", std::string(1, '\0'), ""); }},
  };
  for (const auto& [name, text] : hostile) {
    const Cost cost = cost_of(text());
    EXPECT_LT(cost.cpu_seconds, most_seconds) << name << ", an honest message takes " << honest.cpu_seconds;
    EXPECT_LT(cost.grown_megabytes, 12.0 * kMostBytes / 1e6) << name;
    RecordProperty(std::string(name), std::to_string(cost.cpu_seconds));
  }
}

TEST(Messages, NameWhatIsWrongWithThem) {
  const auto error = [](const std::string& fields, std::size_t type) {
    const auto message = read_command(message_of(fields, type));
    return message ? std::string() : message.error().text();
  };
  constexpr std::size_t kSave = index_in<SaveCommand>(static_cast<Command*>(nullptr));
  EXPECT_EQ(error("{}", kSave), "");
  EXPECT_EQ(error("[]", kSave), "bad_message: a message of a peer is not a JSON object");
  EXPECT_EQ(error("{}", 200), "bad_message: a message of a peer is of no known kind, expected one of 19");
  EXPECT_EQ(error("{}", kStep), "bad_message: the message step has no proper epoch");
  EXPECT_EQ(error(R"({"a":1,"a":2})", kSave), "bad_message: a message of a peer has a key twice");
  EXPECT_EQ(error(R"({"a":[[[[[[[[1]]]]]]]]})", kSave), "bad_message: a message of a peer is nested deeper than 8");
  EXPECT_EQ(error("{}x", kSave), "bad_message: a message of a peer is not valid JSON in UTF-8 at byte 3");
  const auto too_long = read_command(message_of(std::string(kMostBytes + 1, ' ')));
  ASSERT_FALSE(too_long);
  EXPECT_NE(too_long.error().message.find("too large"), std::string::npos);
  EXPECT_FALSE(read_command({}));
  EXPECT_FALSE(read_command(Bytes(1, static_cast<std::byte>(kSave))));
}

}  // namespace
}  // namespace epipe::session
