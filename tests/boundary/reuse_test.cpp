// Activations that are kept by sample: what crosses once does not cross again, and nothing that is missing, damaged or made up is believed.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "epipe/boundary/reused_frames.h"
#include "epipe/boundary/reusing_receiver.h"
#include "epipe/boundary/reusing_sender.h"
#include "epipe/transport/inproc/inproc.h"
#include "support/temp_folder.h"

namespace epipe::boundary {
namespace {

using namespace std::chrono_literals;

// Both ends of a link; what fails first is its failure.
class ReuseEnds {
 public:
  ReuseEnds(const BoundaryConfig& config, std::shared_ptr<FrameStore> store)
      : link_(transport::make_inproc_link(4)),
        sender_(config, *link_.first, [this](const std::exception_ptr& e) { fail(e); }),
        receiver_(config, *link_.second, std::move(store), [this](const std::exception_ptr& e) { fail(e); }) {}

  // Sends these samples as a proper client does, and gives what arrives.
  torch::Tensor cross(std::uint32_t index, const std::vector<std::int64_t>& ids, const torch::Tensor& all, std::uint64_t tag = 5) {
    MicroBatchTensors micro_batch{3, index, false, false, {}};
    for (const std::int64_t id : ids) {
      const SampleKey key{sample_number(id, false), tag};
      micro_batch.samples.push_back(key);
      micro_batch.tensors.push_back(sender_.holds(key) ? torch::Tensor() : all.narrow(0, id, 1));
    }
    sender_.send(std::move(micro_batch));
    auto got = receiver_.recv(3, index).at(0);
    sender_.finish_encoding();
    return got;
  }
  std::uint64_t bytes() { return sender_.take_traffic().wire_bytes; }
  // Waits until the sender knows what was kept.
  void settle(const SampleKey& key) {
    while (!sender_.holds(key)) std::this_thread::sleep_for(1ms);
  }
  ReusingSender& sender() { return sender_; }
  ReusingReceiver& receiver() { return receiver_; }
  std::exception_ptr failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  void fail(const std::exception_ptr& error) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = error;
    }
    sender_.close();
    receiver_.close();
  }

  std::mutex mutex_;
  std::exception_ptr failure_;
  std::pair<std::unique_ptr<transport::Link>, std::unique_ptr<transport::Link>> link_;
  ReusingSender sender_;
  ReusingReceiver receiver_;
};

BoundaryConfig config_with(const std::string& codec) {
  BoundaryConfig config;
  config.codec = codec;
  config.timeout = 10s;
  config.capacity = 4;
  return config;
}

SampleKey key_of(std::int64_t id, std::uint64_t tag = 5) { return {sample_number(id, false), tag}; }

TEST(Reuse, WhatCrossedOnceCrossesAsANameAndArrivesTheSame) {
  for (const std::string codec : {"none", "ec:2", "power:2", "auto:1"}) {
    const testing::TempFolder folder;
    const auto store = std::make_shared<FrameStore>(folder.file("a"), 1 << 24);
    ReuseEnds ends(config_with(codec), store);
    const auto x = torch::randn({6, 16, 32});
    const auto first = ends.cross(0, {0, 1, 2}, x);
    ends.settle(key_of(2));
    const std::uint64_t paid = ends.bytes();
    const auto again = ends.cross(1, {2, 0, 1}, x);
    EXPECT_TRUE(torch::equal(again, first.index_select(0, torch::tensor({2, 0, 1})))) << codec;
    EXPECT_LT(ends.bytes(), 150U) << codec;
    EXPECT_GT(paid, 400U) << codec;
    const auto mixed = ends.cross(2, {1, 4}, x);
    EXPECT_TRUE(torch::equal(mixed[0], first[1])) << codec;
    EXPECT_TRUE(codec != "none" || torch::equal(mixed[1], x[4]));
  }
}

TEST(Reuse, AFrameDoesNotDependOnTheOthersOrOnWhatCameBefore) {
  const testing::TempFolder folder;
  const auto x = torch::randn({6, 16, 32});
  ReuseEnds one(config_with("power:2"), std::make_shared<FrameStore>(folder.file("a"), 0));
  ReuseEnds other(config_with("power:2"), std::make_shared<FrameStore>(folder.file("b"), 0));
  one.cross(0, {3, 1}, x);
  EXPECT_TRUE(torch::equal(one.cross(1, {0, 2}, x)[1], other.cross(0, {2}, x)[0]));
}

TEST(Reuse, AReceiverWithoutAQuotaIsSentEverythingAgain) {
  const testing::TempFolder folder;
  ReuseEnds ends(config_with("ec:2"), std::make_shared<FrameStore>(folder.file("a"), 0));
  const auto x = torch::randn({2, 16, 32});
  const auto first = ends.cross(0, {0, 1}, x);
  const std::uint64_t paid = ends.bytes();
  EXPECT_TRUE(torch::equal(ends.cross(1, {0, 1}, x), first));
  EXPECT_EQ(ends.bytes(), paid);
}

TEST(Reuse, ANewLinkKnowsWhatIsKept) {
  const testing::TempFolder folder;
  const auto x = torch::randn({2, 16, 32});
  torch::Tensor first;
  {
    ReuseEnds ends(config_with("ec:2"), std::make_shared<FrameStore>(folder.file("a"), 1 << 24));
    first = ends.cross(0, {0, 1}, x);
  }
  ReuseEnds ends(config_with("ec:2"), std::make_shared<FrameStore>(folder.file("a"), 1 << 24));
  EXPECT_TRUE(ends.sender().holds(key_of(0)) && ends.sender().holds(key_of(1)));
  EXPECT_FALSE(ends.sender().holds(key_of(0, 6))) << "made of something else";
  EXPECT_FALSE(ends.sender().holds({sample_number(0, true), 5})) << "a sample of the validation set";
  EXPECT_TRUE(torch::equal(ends.cross(0, {1, 0}, torch::Tensor()), first.flip(0)));
}

TEST(Reuse, AFrameThatIsDamagedOnTheDiskIsAskedForOverANewLink) {
  const testing::TempFolder folder;
  const auto store = std::make_shared<FrameStore>(folder.file("a"), 1 << 24);
  const auto x = torch::randn({2, 16, 32});
  torch::Tensor first;
  {
    ReuseEnds ends(config_with("ec:2"), store);
    first = ends.cross(0, {0, 1}, x);
    ends.settle(key_of(1));
    std::fstream file(folder.file("a"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(32 + 100);
    file.write("xxxx", 4);
    file.close();
    EXPECT_THROW(ends.cross(1, {1, 0}, x), std::exception);
    EXPECT_THROW(std::rethrow_exception(ends.failure()), transport::ConnectionLost);
  }
  ReuseEnds ends(config_with("ec:2"), store);
  EXPECT_FALSE(ends.sender().holds(key_of(0)));
  EXPECT_TRUE(torch::equal(ends.cross(0, {0, 1}, x), first));
}

TEST(Reuse, ANonFiniteActivationIsAnErrorThatNamesTheStep) {
  const testing::TempFolder folder;
  ReuseEnds ends(config_with("ec:2"), std::make_shared<FrameStore>(folder.file("a"), 1 << 24));
  EXPECT_THROW(ends.cross(0, {0}, torch::full({1, 4}, std::nan(""))), std::exception);
  try {
    std::rethrow_exception(ends.failure());
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("step 3, micro-batch 0"), std::string::npos) << error.what();
  }
}

// What a stranger may send to a receiver.
class HostileReuse : public ::testing::Test {
 protected:
  HostileReuse()
      : link_(transport::make_inproc_link(4)), receiver_(config_with("ec:2"), *link_.second, store_, [this](const auto& e) { fail(e); }) {
    EXPECT_TRUE(link_.first->recv(5s).empty());
  }
  ~HostileReuse() override {
    receiver_.close();
    receiver_.join();
  }
  std::string failure_after(const Bytes& message) {
    link_.first->send(message);
    EXPECT_THROW(receiver_.recv(0, 0), std::exception);
    const std::lock_guard lock(mutex_);
    try {
      if (failure_) std::rethrow_exception(failure_);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }
  static Bytes frame_of(const torch::Tensor& x, const std::string& codec, std::uint16_t cut = 0) {
    Bytes frame;
    EXPECT_TRUE(codec::encode_frame(*codec::make_codec(codec).value(), x, {0, 0, cut, 0, 1}, {}, nullptr, frame));
    return frame;
  }
  static Bytes message_of(const std::vector<Bytes>& frames) {
    ReusedMicroBatch message;
    for (std::size_t i = 0; i < frames.size(); ++i) message.samples.push_back({{2 * i, 1}, frames[i]});
    return to_bytes(message);
  }

 private:
  void fail(const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    receiver_.close();
  }

  testing::TempFolder folder_;
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::shared_ptr<FrameStore> store_ = std::make_shared<FrameStore>(folder_.file("a"), 1 << 20);
  std::pair<std::unique_ptr<transport::Link>, std::unique_ptr<transport::Link>> link_;
  ReusingReceiver receiver_;
};

TEST_F(HostileReuse, ANameOfNothingAsksForAnotherLink) {
  EXPECT_NE(failure_after(message_of({{}})).find("asked for again"), std::string::npos);
}

TEST_F(HostileReuse, SeveralSamplesInOneFrameAreRefused) {
  EXPECT_NE(failure_after(message_of({frame_of(torch::randn({2, 4}), "ec:2")})).find("expected one sample"), std::string::npos);
}

TEST_F(HostileReuse, AFrameOfAnotherCodecIsRefused) {
  EXPECT_NE(failure_after(message_of({frame_of(torch::randn({1, 4}), "none")})).find("expected one sample by ec:2"), std::string::npos);
}

TEST_F(HostileReuse, AFrameOfAnotherCutIsRefused) {
  EXPECT_NE(failure_after(message_of({frame_of(torch::randn({1, 4}), "ec:2", 1)})).find("expected one sample"), std::string::npos);
}

TEST_F(HostileReuse, SamplesOfSeveralShapesAreRefused) {
  const auto frames = {frame_of(torch::randn({1, 4}), "ec:2"), frame_of(torch::randn({1, 5}), "ec:2")};
  EXPECT_NE(failure_after(message_of(frames)).find("differ in shape"), std::string::npos);
}

TEST_F(HostileReuse, BytesThatAreNoMicroBatchAreRefused) {
  EXPECT_NE(failure_after(Bytes(7, std::byte{1})).find("is damaged: it ends too early"), std::string::npos);
}

TEST(ReusedFrames, ReadBackAsTheyWereWrittenAndNoOtherwise) {
  const Bytes frame(10, std::byte{3});
  const Bytes bytes = to_bytes(ReusedMicroBatch{4, 2, {{{6, 7}, frame}, {{8, 9}, {}}}});
  const auto read = read_reused(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read.value().step, 4U);
  EXPECT_EQ(read.value().index, 2U);
  ASSERT_EQ(read.value().samples.size(), 2U);
  EXPECT_EQ(read.value().samples[0].key, (SampleKey{6, 7}));
  EXPECT_EQ(read.value().samples[0].frame.size(), 10U);
  EXPECT_TRUE(read.value().samples[1].frame.empty());
  for (std::size_t length = 0; length < bytes.size(); ++length) EXPECT_FALSE(read_reused(ByteView(bytes).first(length))) << length;
  Bytes longer = bytes;
  append(longer, std::uint8_t{0});
  EXPECT_FALSE(read_reused(longer));
}

TEST(ReusedFrames, OfAnyBytesAreReadOrRefused) {
  std::minstd_rand random(1);
  const Bytes bytes = to_bytes(ReusedMicroBatch{4, 2, {{{6, 7}, Bytes(10, std::byte{3})}, {{8, 9}, {}}}});
  for (int i = 0; i < 20000; ++i) {
    Bytes changed = bytes;
    for (int k = 0; k < 3; ++k) changed[random() % changed.size()] = static_cast<std::byte>(random());
    const auto read = read_reused(changed);
    EXPECT_TRUE(!read || read.value().samples.size() <= 2);
  }
  EXPECT_FALSE(read_reused(to_bytes(ReusedMicroBatch{}))) << "a micro-batch without samples";
}

TEST(ReusedFrames, AListOfHeldActivationsHasWholeEntries) {
  const std::vector<SampleKey> held = {{1, 2}, {3, 4}};
  EXPECT_EQ(read_held(to_bytes(held)).value(), held);
  EXPECT_FALSE(read_held(Bytes(17)));
}

}  // namespace
}  // namespace epipe::boundary
