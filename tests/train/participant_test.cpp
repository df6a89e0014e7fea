// What a participant answers, also to a client that is wrong, mad or malicious.
#include "epipe/train/participant.h"

#include <gtest/gtest.h>

#include <fstream>

#include "epipe/model/portable.h"
#include "epipe/train/metrics.h"
#include "epipe/train/timeline.h"
#include "epipe/transport/inproc/inproc.h"
#include "support/session_cases.h"
#include "support/temp_folder.h"

namespace epipe::train {
namespace {

using nlohmann::json;
using testing::TempFolder;

class Follower_ : public ::testing::Test {
 protected:
  ParticipantConfig config() {
    ParticipantConfig c;
    c.checkpoints = folder_.file("checkpoints");
    c.timeout = std::chrono::milliseconds(100);
    c.open_channel = [this](const ChannelRequest&) {
      auto [here, there] = transport::make_inproc_link(8);
      peers_.push_back(std::move(there));
      return std::move(here);
    };
    return c;
  }
  Message plan_message() const { return testing::plan_message(case_); }
  Message load_message() const { return testing::load_message(case_); }
  static std::string error(const Message& answer) {
    EXPECT_EQ(answer.kind, "failed");
    return answer.fields.value("error", "");
  }

  const testing::SessionCase case_ = testing::small_case("none");
  TempFolder folder_;
  std::vector<std::unique_ptr<transport::Link>> peers_;
};

TEST(Timeline, OfAPeerKeepsItsEventsAndNothingElse) {
  Tracer tracer(10);
  tracer.add({1, "forward", "F 0 1", 1, 2, 7});
  tracer.add({104, "encode", "encode 0", 2, 3, 7});
  const auto events = timeline_from_json(timeline_json(tracer), 1, 2, 0.5);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].track, 1);
  EXPECT_EQ(events[0].category, "forward");
  EXPECT_EQ(events[0].name, "F 0 1");
  EXPECT_EQ(events[0].begin, 1.5);
  EXPECT_EQ(events[0].end, 2.5);
  EXPECT_EQ(events[0].step, 7U);
  EXPECT_EQ(events[1].track, 104);
  for (const char* const wrong : {
           "7",
           "{}",
           "[7]",
           "[[]]",
           R"([[1, "wait", "", 0, 1]])",       // no list of events
           R"([[0, "wait", "", 0, 1, 0]])",    // the client's own track
           R"([[108, "wait", "", 0, 1, 0]])",  // a cut that the run does not have
           R"([[1, "wait", "", 3, 2, 0]])",    // ends before it begins
           R"([[1, "wait", "", -5, 2, 0]])",   // before the run
           R"([[1e300, "wait", "", 0, 1, 0]])",
           R"([[1, "wait", "", 0, 1, "x"]])",
           R"([[1, 2, 3, 4, 5, 6]])",
       }) {
    EXPECT_TRUE(timeline_from_json(json::parse(wrong), 1, 2, 0).empty()) << wrong;
  }
  EXPECT_EQ(timeline_from_json(json::parse(R"([[1, "anything", "a name that is far too long to be one of ours", 0, 1, 0]])"), 1, 2, 0)
                .at(0)
                .name.size(),
            32U);
  EXPECT_EQ(timeline_from_json(json(std::vector<json>(kParticipantEvents + 9, {1, "wait", "", 0, 1, 0})), 1, 2, 0).size(),
            kParticipantEvents);
}

// A name that is cut within a letter would be no UTF-8, and the trace could not be written.
TEST(Timeline, NamesOfAPeerArePrintable) {
  const json events = {{1, "wait", std::string(31, 'x') + "\xc3\xa9\x1b[2J", 0, 1, 0}};
  const auto read = timeline_from_json(events, 1, 2, 0);
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].name, std::string(31, 'x') + "?");
  EXPECT_NO_THROW(trace_json(read, 2));
}

TEST(Message, QuotesBytesThatAreNotText) {
  const auto read = read_message(to_bytes({"failed", {{"error", "a name like \xff\xfe"}}}));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.value().fields.at("error"), "a name like \xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(PortableName, NamesNoFile) {
  const TempFolder folder;
  std::ofstream(folder.file("config.json")) << R"({"hidden_size": 24, "num_attention_heads": 3, "layer_norm_eps": 0.001})";
  const std::string name = model::portable_name("roberta:" + folder.path());
  EXPECT_EQ(name.find(folder.path()), std::string::npos);
  EXPECT_TRUE(name.starts_with("roberta:{")) << name;
  EXPECT_EQ(model::portable_name(name), name);
  EXPECT_TRUE(model::is_portable(name));
  EXPECT_EQ(model::portable_name("cnn"), "cnn");
  EXPECT_TRUE(model::is_portable("cnn"));
  for (const char* const path : {"roberta:DIR", "roberta:/etc", "torchscript:FILE", "torchscript:/etc/passwd", "unknown"}) {
    EXPECT_FALSE(model::is_portable(path)) << path;
  }
  EXPECT_THROW(model::portable_name("roberta:/nowhere"), std::invalid_argument);
}

TEST_F(Follower_, SaysWhereItStands) {
  WorkerParticipant participant(config());
  Message answer = participant.handle(plan_message());
  EXPECT_EQ(answer.kind, "planned");
  EXPECT_FALSE(answer.fields.contains("steps_done")) << "it has no memory of this run";
  EXPECT_EQ(participant.handle(load_message()).kind, "loaded");
  EXPECT_EQ(participant.handle({"save"}).kind, "saved");
  answer = participant.handle(plan_message());
  EXPECT_EQ(answer.fields.at("steps_done"), 0);
  EXPECT_EQ(answer.fields.at("checkpoints"), json({0}));
  EXPECT_EQ(answer.fields.at("damaged"), json::array());
  std::ofstream(folder_.file("checkpoints/step-000000000/model.safetensors")) << "no tensors";
  answer = participant.handle(plan_message());
  EXPECT_EQ(answer.fields.at("checkpoints"), json::array()) << "what it offers is whole";
  EXPECT_EQ(answer.fields.at("damaged"), json({0}));
}

TEST_F(Follower_, SavesNoMoreThanItMayKeep) {
  auto limited = config();
  limited.checkpoint_bytes = 100;
  WorkerParticipant participant(std::move(limited));
  participant.handle(plan_message());
  EXPECT_EQ(participant.handle(load_message()).kind, "loaded");
  EXPECT_NE(error(participant.handle({"save"})).find("--state-quota of the server limits it"), std::string::npos);
}

TEST_F(Follower_, RefusesCommandsBeforeTheirTime) {
  WorkerParticipant participant(config());
  for (const char* kind : {"save", "weights"})
    EXPECT_NE(error(participant.handle({kind})).find("no plan was given"), std::string::npos) << kind;
  EXPECT_NE(error(participant.handle({"dance"})).find("unknown command \"dance\""), std::string::npos);
  participant.handle(plan_message());
  EXPECT_NE(error(participant.handle(testing::connect_message())).find("no weights"), std::string::npos);
  participant.handle(load_message());
  EXPECT_NE(error(participant.handle(testing::commit_message(0))).find("cannot be committed"), std::string::npos);
}

TEST_F(Follower_, NamesWhatIsWrongWithAPlan) {
  const auto refused = [&](const std::string& field, const json& value) {
    WorkerParticipant participant(config());
    Message message = plan_message();
    message.fields["plan"][field] = value;
    return error(participant.handle(message));
  };
  EXPECT_NE(refused("model", "no-such-model").find("no-such-model"), std::string::npos);
  EXPECT_NE(refused("chunks", 0).find("chunks is 0"), std::string::npos);
  EXPECT_NE(refused("cuts", "none").find("cuts has the wrong type"), std::string::npos);
  EXPECT_NE(refused("place", json({0, 5, 0})).find("worker"), std::string::npos);
  EXPECT_NE(refused("codecs", json::array()).find("do not match its cuts"), std::string::npos);
  EXPECT_NE(refused("precision", "fp8").find("precision is fp8, expected fp32, bf16, fp16"), std::string::npos);
  EXPECT_NE(refused("loss_scaling", "yes").find("loss_scaling has the wrong type"), std::string::npos);
  EXPECT_NE(refused("threads", -1).find("threads is -1"), std::string::npos);
  EXPECT_NE(
      refused("data", {{"kind", "images"}, {"shape", {1 << 30}}, {"classes", 2}, {"vocabulary", 0}, {"regression", false}}).find("extent"),
      std::string::npos);
}

// Numbers of a peer are multiplied: none of these may overflow, nor make it allocate what no model needs.
TEST_F(Follower_, RefusesAPlanOfGiants) {
  const auto refused = [&](const std::string& model, const json& shape, const std::string& codec = "none") {
    WorkerParticipant participant(config());
    Message message = plan_message();
    auto& plan = message.fields["plan"];
    plan["model"] = model;
    plan["data"] = {{"kind", model.starts_with("roberta") || model == "transformer" ? "text" : "images"},
                    {"shape", shape},
                    {"classes", 2},
                    {"vocabulary", 10},
                    {"regression", false}};
    plan["codecs"] = std::vector<std::vector<std::string>>(2, {codec, codec});
    return error(participant.handle(message));
  };
  constexpr int kLarge = 1 << 20;
  EXPECT_NE(refused("mlp", {kLarge, kLarge, kLarge, kLarge}).find("values per sample"), std::string::npos) << "2^80 is 0 in 64 bits";
  EXPECT_NE(refused("mlp", {kLarge, kLarge, 1 << 12}).find("values per sample"), std::string::npos);
  EXPECT_NE(refused("mlp", {kLarge, 32}).find("at most 16777216 values"), std::string::npos);
  EXPECT_NE(refused("mlp", std::vector<int>(1000, 1)).find("more than 8 dims"), std::string::npos);
  EXPECT_NE(refused("cnn", {3, kLarge, kLarge}).find("values per sample"), std::string::npos);
  EXPECT_NE(refused("cnn", {3, 64, 64}, "conv:65536x64").find("is too large"), std::string::npos);
  EXPECT_NE(refused(R"(roberta:{"hidden_size":1048576,"num_attention_heads":1})", {8}).find("weights, got"), std::string::npos);
  EXPECT_NE(refused("mlp", {4}, std::string(5000, 'x')).find("longer than 4096 bytes"), std::string::npos);
}

TEST_F(Follower_, TellsItsClientNoPath) {
  ParticipantConfig c = config();
  std::vector<std::string> logged;
  c.log = [&](const std::string& error) { logged.push_back(error); };
  WorkerParticipant participant(std::move(c));
  participant.handle(plan_message());
  participant.handle(load_message());
  const std::string lost = error(participant.handle({"restore", {{"step", 77}}}));
  EXPECT_NE(lost.find("checkpoints/step-000000077"), std::string::npos) << lost;
  std::ofstream(folder_.file("checkpoints")) << "a file where a folder should be";
  const std::string unsaved = error(participant.handle({"save"}));
  EXPECT_NE(unsaved.find("cannot"), std::string::npos) << unsaved;
  for (const std::string& told : {lost, unsaved}) EXPECT_EQ(told.find(folder_.path()), std::string::npos) << told;
  ASSERT_EQ(logged.size(), 2U);
  for (const std::string& line : logged) EXPECT_NE(line.find(folder_.path()), std::string::npos) << line;
}

TEST_F(Follower_, RefusesWeightsThatDoNotFit) {
  WorkerParticipant participant(config());
  participant.handle(plan_message());
  Message wrong = load_message();
  wrong.tensors.begin()->second = torch::zeros({7});
  EXPECT_NE(error(participant.handle(wrong)).find(wrong.tensors.begin()->first), std::string::npos);
}

TEST_F(Follower_, ASecondPlanMustBeTheSame) {
  WorkerParticipant participant(config());
  participant.handle(plan_message());
  Message other = plan_message();
  other.fields["plan"]["seed"] = 99;
  EXPECT_NE(error(participant.handle(other)).find("seed: 0 here, 99 there"), std::string::npos);
}

TEST_F(Follower_, ALostTensorAsksForAnotherConnection) {
  WorkerParticipant participant(config());
  participant.handle(plan_message());
  participant.handle(load_message());
  ASSERT_EQ(participant.handle(testing::connect_message()).kind, "connected");
  const Message answer = participant.handle(testing::step_message(case_, 0, true));
  EXPECT_EQ(answer.kind, "failed");
  EXPECT_TRUE(answer.fields.at("again").get<bool>()) << answer.fields;
}

// A client that says one thing and is gone when the answer comes.
class LeavingClient final : public transport::Link {
 public:
  explicit LeavingClient(const Message& command) : command_(to_bytes(command)) {}
  void send(Bytes) override { throw transport::ConnectionLost("it closed the link"); }
  Bytes recv(transport::Timeout) override { return command_; }
  void close() override {}

 private:
  Bytes command_;
};

TEST_F(Follower_, DoesNotMissAClientThatHasLeft) {
  for (const char* const kind : {"leave", "end"}) {
    WorkerParticipant participant(config());
    LeavingClient client({kind});
    EXPECT_NO_THROW(handle_commands(client, participant, transport::kNoTimeout)) << kind;
    EXPECT_TRUE(participant.ended());
  }
  WorkerParticipant participant(config());
  LeavingClient client({"clock"});
  EXPECT_THROW(handle_commands(client, participant, transport::kNoTimeout), transport::ConnectionLost);
}

// The schedule that a server admitted says how much memory a step takes.
TEST_F(Follower_, RefusesAStepOfMoreMicroBatchesThanPlanned) {
  WorkerParticipant participant(config());
  participant.handle(plan_message());
  participant.handle(load_message());
  participant.handle(testing::connect_message());
  Message step = testing::step_message(case_, 0, true);
  step.fields["samples"] = {1, 2, 3};
  step.fields["chunks"] = 3;
  EXPECT_NE(error(participant.handle(step)).find("3 micro-batches, but 1 are planned"), std::string::npos);
}

}  // namespace
}  // namespace epipe::train
