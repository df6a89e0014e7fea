#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <limits>

#include "epipe/base/clock.h"
#include "epipe/boundary/receiver.h"
#include "epipe/boundary/sender.h"
#include "epipe/transport/inproc/inproc.h"

namespace epipe::boundary {
namespace {

using namespace std::chrono_literals;

class Ends {
 public:
  Ends(BoundaryConfig sender_config, BoundaryConfig receiver_config)
      : link_(transport::make_inproc_link(2)),
        sender_(std::move(sender_config), *link_.first, [this](std::exception_ptr e) { fail(std::move(e)); }),
        receiver_(std::move(receiver_config), *link_.second, [this](std::exception_ptr e) { fail(std::move(e)); }) {}
  explicit Ends(const BoundaryConfig& config) : Ends(config, config) {}

  transport::Link& link() { return *link_.first; }
  Sender& sender() { return sender_; }
  Receiver& receiver() { return receiver_; }

  std::string failure() {
    const std::lock_guard lock(mutex_);
    try {
      if (failure_) std::rethrow_exception(failure_);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }

 private:
  void fail(std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::move(error);
    }
    sender_.close();
    receiver_.close();
  }

  std::mutex mutex_;
  std::exception_ptr failure_;
  std::pair<std::unique_ptr<transport::Link>, std::unique_ptr<transport::Link>> link_;
  Sender sender_;
  Receiver receiver_;
};

TEST(Boundary, CarriesSeveralTensorsInOrder) {
  BoundaryConfig config;
  config.cut = 3;
  Ends ends(config);
  const auto a = torch::randn({2, 3});
  const auto b = torch::randn({4});
  for (std::uint32_t i = 0; i < 5; ++i) {
    ends.sender().send({9, i, false, false, {a + static_cast<double>(i), b}});
    const auto got = ends.receiver().recv(9, i);
    ASSERT_EQ(got.size(), 2U);
    EXPECT_TRUE(torch::equal(got[0], a + static_cast<double>(i)));
    EXPECT_TRUE(torch::equal(got[1], b));
  }
}

// What a device cannot encode goes by way of the host, and keeps its place among the frames that stay there.
TEST(Boundary, CarriesFramesOfTheHostBetweenWorkersThatShareADevice) {
  BoundaryConfig config;
  config.codec = "uniform:8";
  config.on_device = std::make_shared<Queue<Frame>>(2);
  Ends ends(config);
  const auto x = torch::randn({2, 3});
  for (std::uint32_t i = 0; i < 3; ++i) {
    ends.sender().send({9, i, false, true, {x}});
    const auto got = ends.receiver().recv(9, i);
    ASSERT_EQ(got.size(), 1U);
    EXPECT_LT((got[0] - x).abs().max().item<float>(), 0.1F);
  }
  ends.sender().finish_encoding();
  EXPECT_GT(ends.sender().take_traffic().wire_bytes, 0U);
  ends.sender().send({9, 4, false, false, {torch::tensor({std::numeric_limits<float>::quiet_NaN()})}});
  EXPECT_THROW(ends.receiver().recv(9, 4), Closed);
  EXPECT_NE(ends.failure().find("cut 0 forward, step 9, micro-batch 4"), std::string::npos) << ends.failure();
}

TEST(Boundary, CountsTheMicroBatchesThatWait) {
  BoundaryConfig config;
  config.capacity = 4;
  Ends ends(config);
  for (std::uint32_t i = 0; i < 3; ++i) ends.sender().send({9, i, false, false, {torch::randn({2})}});
  ends.sender().finish_encoding();
  std::uint64_t depth = 0;
  for (const Stopwatch watch; depth < 3 && watch.seconds() < 30;) depth = std::max(depth, ends.receiver().take_traffic().recv_queue_depth);
  EXPECT_EQ(depth, 3U) << "nobody took them";
  const std::uint64_t sending = ends.sender().take_traffic().send_queue_depth;
  EXPECT_GE(sending, 1U);
  EXPECT_LE(sending, 3U);
  EXPECT_EQ(ends.sender().take_traffic().send_queue_depth, 0U) << "since the last call";
}

TEST(Boundary, LimitsTheTensorsOfAMicroBatchTogether) {
  BoundaryConfig config;
  config.limits.max_values = 10;
  Ends ends(config);
  ends.sender().send({9, 0, false, false, {torch::randn({6}), torch::randn({4})}});
  EXPECT_EQ(ends.receiver().recv(9, 0).size(), 2U);
  ends.sender().send({9, 1, false, false, {torch::randn({6}), torch::randn({5})}});
  EXPECT_THROW(ends.receiver().recv(9, 1), Closed);
  EXPECT_NE(ends.failure().find("4 values"), std::string::npos) << ends.failure();
}

TEST(Boundary, KeepsOneEncoderPerTensor) {
  BoundaryConfig config;
  config.codec = "power:1";
  Ends ends(config);
  const auto a = torch::randn({2, 6, 8});
  const auto b = torch::randn({3, 5, 9});
  ends.sender().send({0, 0, false, false, {a, b}});
  ends.receiver().recv(0, 0);
  const auto states = ends.sender().state();
  ASSERT_EQ(states.size(), 2U);
  EXPECT_EQ(states[0].at("p").size(1), 8);
  EXPECT_EQ(states[1].at("p").size(1), 9);
}

TEST(Boundary, FlagsWhatIsNotFiniteWhereThatIsAllowed) {
  BoundaryConfig config;
  config.codec = "fp16";
  config.flag_non_finite = true;
  Ends ends(config);
  auto x = torch::randn({2, 3});
  x[1][2] = std::numeric_limits<float>::infinity();
  ends.sender().send({0, 0, false, true, {x, torch::full({2}, 1e6), torch::ones({4}, torch::kBFloat16)}});
  const auto got = ends.receiver().recv(0, 0);
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ(got[0].sizes(), x.sizes());
  EXPECT_TRUE(got[0].isnan().all().item<bool>());
  EXPECT_TRUE(got[1].isnan().all().item<bool>()) << "too large for the codec";
  EXPECT_TRUE(torch::equal(got[2], torch::ones({4}, torch::kBFloat16)));
  EXPECT_EQ(ends.sender().take_traffic().rel_error(), 0) << "of the tensors that were sent";
}

TEST(Boundary, MeasuresWhatOtherRatesWouldLoseBesideSending) {
  BoundaryConfig config;
  config.codec = "auto";
  Ends ends(config);
  torch::manual_seed(3);
  boundary::MicroBatchTensors sent{0, 0, true, false, {torch::randn({64, 64}), torch::randn({32, 64})}};
  sent.rate = 8;
  sent.try_rates = {1, 2, 4};
  ends.sender().send(sent);
  const auto got = ends.receiver().recv(0, 0);
  EXPECT_LT((got[0] - sent.tensors[0]).square().sum().item<double>(), 1e-3 * sent.tensors[0].square().sum().item<double>()) << "at 8 bits";
  const auto curve = ends.sender().take_curve();
  ASSERT_EQ(curve.size(), 3U);
  const double energy = sent.tensors[0].square().sum().item<double>() + sent.tensors[1].square().sum().item<double>();
  double before = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(curve[i].rate, sent.try_rates[i]);
    EXPECT_NEAR(curve[i].signal_energy, energy, 1e-3 * energy) << "of all tensors";
    EXPECT_LT(curve[i].rel_error(), 0.7 * before);
    EXPECT_GT(curve[i].rel_error(), 0);
    before = curve[i].rel_error();
  }
  EXPECT_TRUE(ends.sender().take_curve().empty());
}

TEST(Boundary, AFlaggedFrameIsAnErrorWhereItIsNotAllowed) {
  BoundaryConfig lenient;
  lenient.flag_non_finite = true;
  Ends ends(lenient, BoundaryConfig{});
  ends.sender().send({4, 1, false, false, {torch::full({2}, std::numeric_limits<float>::quiet_NaN())}});
  EXPECT_ANY_THROW(ends.receiver().recv(4, 1));
  EXPECT_NE(ends.failure().find("cut 0 forward, step 4, micro-batch 1: non_finite"), std::string::npos) << ends.failure();
}

TEST(Boundary, SaysWhatItExpectedWhenTheOrderIsWrong) {
  Ends ends(BoundaryConfig{});
  ends.sender().send({4, 1, false, false, {torch::ones({2})}});
  try {
    ends.receiver().recv(4, 0);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "expected cut 0 forward, step 4, micro-batch 0, got step 4, micro-batch 1");
  }
}

TEST(Boundary, RefusesAPeerWithAnotherCodec) {
  BoundaryConfig one;
  one.codec = "uniform:8";
  BoundaryConfig other;
  other.codec = "uniform:4";
  Ends ends(one, other);
  ends.sender().send({0, 0, false, false, {torch::ones({2})}});
  EXPECT_THROW(ends.receiver().recv(0, 0), Closed);
  EXPECT_NE(ends.failure().find("by uniform:4, got tensor 0 of 1 by uniform:8"), std::string::npos) << ends.failure();
}

TEST(Boundary, ADamagedFrameEndsTheRunWithItsReason) {
  Ends ends(BoundaryConfig{});
  ends.link().send(Bytes(100, std::byte{7}));
  EXPECT_THROW(ends.receiver().recv(0, 0), Closed);
  EXPECT_NE(ends.failure().find("bad_magic"), std::string::npos) << ends.failure();
}

TEST(Boundary, ClosingWakesWhoeverWaits) {
  Ends ends(BoundaryConfig{});
  std::thread closer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ends.receiver().close();
  });
  const Stopwatch watch;
  EXPECT_THROW(ends.receiver().recv(0, 0), Closed);
  EXPECT_LT(watch.seconds(), 1);
  closer.join();
}

TEST(Boundary, AWorkerThatWaitsLosesItsTimeout) {
  BoundaryConfig config;
  config.timeout = std::chrono::milliseconds(30);
  Ends ends(config);
  try {
    ends.receiver().recv(7, 2);
    FAIL();
  } catch (const transport::TimedOut& error) {
    EXPECT_NE(std::string(error.what()).find("cut 0 forward, step 7, micro-batch 2: nothing arrived for 0.03 s"), std::string::npos);
  }
}

TEST(Boundary, AWorkerWhosePeerTakesNothingLosesItsTimeout) {
  BoundaryConfig config;
  config.timeout = std::chrono::milliseconds(30);
  auto [here, there] = transport::make_inproc_link(1);  // nobody receives there
  Sender sender(config, *here, [](const std::exception_ptr&) {});
  const auto fill = [&] {
    for (std::uint32_t i = 0; i < 5; ++i) sender.send({0, i, false, false, {torch::ones({2})}});
  };
  EXPECT_THROW(fill(), transport::TimedOut);
}

TEST(Boundary, MakesItsCodecsOnce) {
  std::atomic<int> made = 0;
  BoundaryConfig config;
  config.codec = "ec:4";
  config.codec_factory = [&made](std::string_view spec, const codec::CodecOptions& options) {
    ++made;
    return codec::make_codec(spec, options);
  };
  Ends ends(config);
  for (std::uint32_t i = 0; i < 4; ++i) {
    ends.sender().send({0, i, false, true, {torch::randn({30}), torch::randn({2, 20})}});
    EXPECT_EQ(ends.receiver().recv(0, i).size(), 2U);
  }
  EXPECT_EQ(made, 4) << "two encoders, one for each tensor, and a decoder at each end";
}

TEST(Boundary, SharesACodecsWorkAmongThreadsAndWritesTheSameBytes) {
  torch::manual_seed(2);
  const auto x = torch::randn({4, 16, 40, 40});
  for (const std::string codec : {"none", "uniform:6", "sort:6+2", "topk:0.1>uniform:8", "kmeans:4", "dct:1"}) {
    std::vector<Bytes> frames;
    for (const int threads : {1, 3}) {
      BoundaryConfig config;
      config.codec = codec;
      config.codec_threads = threads;
      config.codec_factory = [threads](std::string_view spec, const codec::CodecOptions& options) {
        EXPECT_EQ(options.pool->threads(), threads);
        return codec::make_codec(spec, options);
      };
      auto [here, there] = transport::make_inproc_link(2);
      Sender sender(config, *here, [](const std::exception_ptr&) { ADD_FAILURE(); });
      sender.send({0, 0, false, true, {x}});
      frames.push_back(there->recv(10s));
      Ends ends(config);
      ends.sender().send({0, 0, false, true, {x}});
      EXPECT_TRUE(torch::equal(ends.receiver().recv(0, 0)[0], codec::decode_frame(frames.back(), {}, {}).value())) << codec;
    }
    EXPECT_EQ(frames[0], frames[1]) << codec;
  }
}

// A codec whose encoders stand still while the gate is shut.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    waiting_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  bool has_somebody_waiting() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 10s, [this] { return waiting_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  bool waiting_ = false;
};

class GatedCodec final : public codec::Codec {
 public:
  GatedCodec(std::unique_ptr<codec::Codec> codec, Gate& gate) : codec_(std::move(codec)), gate_(gate) {}
  std::string spec() const override { return codec_->spec(); }
  codec::PayloadBounds payload_bounds(const codec::TensorSpec& tensor) const override { return codec_->payload_bounds(tensor); }
  Result<void> encode(const torch::Tensor& x, const codec::EncodeContext& at, Bytes& out) override {
    gate_.pass();
    return codec_->encode(x, at, out);
  }
  Result<void> decode_into(torch::Tensor& x, ByteView in) const override { return codec_->decode_into(x, in); }
  codec::State state() const override { return codec_->state(); }
  void set_state(const codec::State& state) override { codec_->set_state(state); }

 private:
  std::unique_ptr<codec::Codec> codec_;
  Gate& gate_;
};

BoundaryConfig gated(Gate& gate) {
  BoundaryConfig config;
  config.codec = "power:1";
  config.codec_factory = [&gate](std::string_view spec, const codec::CodecOptions& options) -> Result<std::unique_ptr<codec::Codec>> {
    auto made = codec::make_codec(spec, options);
    if (!made) return made.error();
    return std::unique_ptr<codec::Codec>(std::make_unique<GatedCodec>(std::move(made).value(), gate));
  };
  return config;
}

// Whether the work is done while the gate is shut; it is opened then, so that nothing waits for ever.
bool done_before_opening(Gate& gate, const std::function<void()>& work, std::chrono::milliseconds timeout) {
  auto working = std::async(std::launch::async, work);
  const bool done = working.wait_for(timeout) == std::future_status::ready;
  if (!done) gate.open();
  working.get();
  return done;
}

TEST(Boundary, SendReturnsWhileASlowCodecEncodes) {
  Gate gate;
  Ends ends(gated(gate));
  ends.sender().send({0, 0, false, false, {torch::randn({4, 6})}});
  ASSERT_TRUE(gate.has_somebody_waiting());
  EXPECT_TRUE(done_before_opening(
      gate,
      [&] {
        ends.sender().send({0, 1, false, false, {torch::randn({4, 6})}});
        ends.sender().take_traffic();
      },
      10s));
  gate.open();
  ends.receiver().recv(0, 0);
  ends.receiver().recv(0, 1);
}

TEST(Boundary, FinishEncodingAndStateWaitForASlowCodec) {
  const std::vector<std::function<void(Sender&)>> waits = {[](Sender& sender) { sender.finish_encoding(); },
                                                           [](Sender& sender) { EXPECT_EQ(sender.state().at(0).count("p"), 1U); },
                                                           [](Sender& sender) { sender.set_state({}); }};
  for (const auto& wait : waits) {
    Gate gate;
    Ends ends(gated(gate));
    ends.sender().send({0, 0, false, false, {torch::randn({4, 6})}});
    ASSERT_TRUE(gate.has_somebody_waiting());
    EXPECT_FALSE(done_before_opening(
        gate, [&] { wait(ends.sender()); }, 50ms));
    EXPECT_EQ(ends.sender().take_traffic().values, 24U);
    ends.receiver().recv(0, 0);
  }
}

TEST(Boundary, AClosedSenderGivesItsStateAndFinishesNothing) {
  Gate gate;
  Ends ends(gated(gate));
  for (const std::uint32_t i : {0U, 1U}) ends.sender().send({0, i, false, false, {torch::randn({4, 6})}});
  ASSERT_TRUE(gate.has_somebody_waiting());
  ends.sender().close();
  gate.open();
  EXPECT_EQ(ends.sender().state().size(), 1U);
  EXPECT_THROW(ends.sender().finish_encoding(), Closed);
}

}  // namespace
}  // namespace epipe::boundary
