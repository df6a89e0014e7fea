#include "epipe/train/events_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>

#include "epipe/base/file.h"
#include "support/python.h"
#include "support/temp_folder.h"
#include "support/train_run.h"

namespace epipe::train {
namespace {

using nlohmann::json;
using testing::TempFolder;

// A reader of its own, written from the format's description: nothing here is shared with the writer.
struct Event {
  double wall_time = 0;
  std::uint64_t step = 0;
  std::string file_version;
  std::optional<std::uint64_t> session_status;
  std::map<std::string, float> values;  // by tag
};

std::uint32_t bitwise_crc32c(const std::string& bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
  }
  return ~crc;
}

std::uint32_t mask(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

template <typename T>
T take(const std::string& bytes, std::size_t& at) {
  if (at + sizeof(T) > bytes.size()) throw std::runtime_error("the file ends early");
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  at += sizeof(T);
  return value;
}

std::uint64_t take_varint(const std::string& bytes, std::size_t& at) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<std::uint8_t>(bytes, at);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return value;
  }
}

std::string take_bytes(const std::string& bytes, std::size_t& at) {
  const std::size_t length = take_varint(bytes, at);
  if (at + length > bytes.size()) throw std::runtime_error("a field ends early");
  at += length;
  return bytes.substr(at - length, length);
}

// The fields of a message, by number; each as bytes, 4 or 8 for numbers of fixed length, or a varint's value.
struct Field {
  std::uint64_t number = 0;
  std::uint64_t value = 0;
  std::string bytes;
};

std::vector<Field> fields_of(const std::string& message) {
  std::vector<Field> fields;
  for (std::size_t at = 0; at < message.size();) {
    const std::uint64_t key = take_varint(message, at);
    Field field{key >> 3, 0, ""};
    switch (key & 7) {
      case 0: field.value = take_varint(message, at); break;
      case 1: field.value = take<std::uint64_t>(message, at); break;
      case 2: field.bytes = take_bytes(message, at); break;
      case 5: field.value = take<std::uint32_t>(message, at); break;
      default: throw std::runtime_error("no such type of field");
    }
    fields.push_back(std::move(field));
  }
  return fields;
}

Event event_of(const std::string& message) {
  Event event;
  for (const Field& field : fields_of(message)) {
    if (field.number == 1) event.wall_time = std::bit_cast<double>(field.value);
    if (field.number == 2) event.step = field.value;
    if (field.number == 3) event.file_version = field.bytes;
    if (field.number == 7) event.session_status = fields_of(field.bytes).at(0).value;
    if (field.number != 5) continue;
    for (const Field& value : fields_of(field.bytes)) {
      std::string tag;
      float number = 0;
      for (const Field& part : fields_of(value.bytes)) {
        if (part.number == 1) tag = part.bytes;
        if (part.number == 2) number = std::bit_cast<float>(static_cast<std::uint32_t>(part.value));
      }
      event.values[tag] = number;
    }
  }
  return event;
}

std::vector<Event> events_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<Event> events;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::string length_bytes = bytes.substr(at, 8);
    const auto length = take<std::uint64_t>(bytes, at);
    EXPECT_EQ(take<std::uint32_t>(bytes, at), mask(bitwise_crc32c(length_bytes)));
    const std::string message = bytes.substr(at, length);
    at += length;
    EXPECT_EQ(take<std::uint32_t>(bytes, at), mask(bitwise_crc32c(message)));
    events.push_back(event_of(message));
  }
  return events;
}

std::vector<std::string> event_files(const std::string& folder) {
  std::vector<std::string> paths;
  for (const std::string& name : list_folder(folder)) {
    if (name.starts_with("events.out.tfevents.")) paths.push_back(folder + "/" + name);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// What TensorBoard shows of one tag: files in the order of their names, and a start drops the steps from there on.
std::vector<std::pair<std::uint64_t, float>> shown(const std::string& folder, const std::string& tag) {
  std::vector<std::pair<std::uint64_t, float>> points;
  for (const std::string& path : event_files(folder)) {
    for (const Event& event : events_in(path)) {
      if (event.session_status == 1U) std::erase_if(points, [&](const auto& point) { return point.first >= event.step; });
      if (const auto found = event.values.find(tag); found != event.values.end()) points.emplace_back(event.step, found->second);
    }
  }
  return points;
}

void expect_shown_as_written(const std::string& folder) {
  const auto steps = testing::metrics_in(folder, "step");
  for (const std::string tag : {"loss", "accuracy", "lr", "samples_per_s"}) {
    const auto points = shown(folder, tag);
    ASSERT_EQ(points.size(), steps.size()) << tag;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(points[i].first, steps[i]["step"].get<std::uint64_t>()) << tag;
      EXPECT_EQ(points[i].second, static_cast<float>(steps[i][tag].get<double>())) << tag;
    }
  }
  const auto epochs = testing::metrics_in(folder, "epoch");
  const auto validated = shown(folder, "val_loss");
  ASSERT_EQ(validated.size(), epochs.size());
  for (std::size_t i = 0; i < epochs.size(); ++i) {
    EXPECT_EQ(validated[i].first + 1, epochs[i]["end_step"].get<std::uint64_t>());
    EXPECT_EQ(validated[i].second, static_cast<float>(epochs[i]["val_loss"].get<double>()));
  }
}

TrainConfig ring(const std::string& folder) {
  TrainConfig config = testing::small_run(folder);
  config.place = {0, 1, 0};
  config.codec = "uniform:8";
  config.error_every = 2;
  config.data_part = 0.05;
  config.epochs = 3;
  return config;
}

TEST(EventsFile, HoldsEveryNumberOfTheMetrics) {
  const TempFolder folder;
  testing::run(ring(folder.path()));
  expect_shown_as_written(folder.path());
  const auto files = event_files(folder.path());
  ASSERT_EQ(files.size(), 1U);
  const auto events = events_in(files[0]);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_NEAR(events[0].wall_time, static_cast<double>(::time(nullptr)), 600);
  const json line = testing::metrics_in(folder.path(), "step")[0];
  for (const json& cut : line["cuts"]) {
    for (const auto& [key, value] : cut.items()) {
      if (!value.is_number() || key == "cut") continue;
      const std::string tag = fmt::format("cut_{}_{}/{}", cut["cut"].get<int>(), cut["direction"].get<std::string>(), key);
      EXPECT_EQ(events[1].values.at(tag), static_cast<float>(value.get<double>())) << tag;
    }
  }
  EXPECT_GT(events[1].values.at("worker_1/forward"), 0);
  EXPECT_EQ(shown(folder.path(), "cut_0_forward/rel_error").size(), (testing::metrics_in(folder.path(), "step").size() + 1) / 2)
      << "only where it was measured";
  struct stat status {};
  ASSERT_EQ(::stat(files[0].c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST(EventsFile, OfARunThatStopsAndGoesOnHasEveryStepOnce) {
  const TempFolder folder;
  TrainConfig config = ring(folder.path());
  testing::run(config, 4);
  config.resume = true;
  testing::run(config, 6);
  testing::run(config);
  EXPECT_EQ(event_files(folder.path()).size(), 3U);
  expect_shown_as_written(folder.path());
}

// As after a crash: the run goes on from an earlier step, in the same process or another one.
TEST(EventsFile, StepsThatAreDoneAgainCountOnce) {
  const TempFolder folder;
  const auto line = [](std::uint64_t step, double loss) { return json{{"kind", "step"}, {"epoch", 0}, {"step", step}, {"loss", loss}}; };
  {
    EventsFile file(folder.path(), 0);
    for (std::uint64_t step = 0; step < 5; ++step) file.append(line(step, 1));
    file.append({{"kind", "epoch"}, {"end_step", 5}, {"val_loss", 0.5}, {"val_metrics", {{"f1", 0.25}}}});
    EventsFile again(folder.path(), 3);
    for (std::uint64_t step = 3; step < 5; ++step) again.append(line(step, 2));
  }
  EventsFile other(folder.path(), 4);
  other.append(line(4, 3));
  other.append({{"kind", "epoch"}, {"end_step", 5}, {"val_loss", 0.75}, {"val_metrics", {{"f1", nullptr}}}});
  using Points = std::vector<std::pair<std::uint64_t, float>>;
  EXPECT_EQ(shown(folder.path(), "loss"), (Points{{0, 1}, {1, 1}, {2, 1}, {3, 2}, {4, 3}}));
  EXPECT_EQ(shown(folder.path(), "val_loss"), (Points{{4, 0.75}}));
  EXPECT_EQ(shown(folder.path(), "val_metrics/f1"), Points{});
}

TEST(EventsFile, IsNotThereBeforeTheFirstStepAndSaysWhenItCannotBeWritten) {
  const TempFolder folder;
  EventsFile unused(folder.path(), 0);
  EXPECT_TRUE(event_files(folder.path()).empty());
  EventsFile nowhere(folder.file("missing"), 0);
  EXPECT_THROW(nowhere.append({{"kind", "step"}, {"step", 0}}), std::runtime_error);
}

TEST(EventsFile, IsReadByTensorBoardItself) {
  if (!testing::python_has("tensorboard.backend.event_processing.event_accumulator")) {
    GTEST_SKIP() << "tensorboard is not installed (pip install tensorboard; EPIPE_PYTHON names its python)";
  }
  const TempFolder folder;
  TrainConfig config = ring(folder.path());
  testing::run(config, 4);
  config.resume = true;
  testing::run(config);
  testing::run_python("read_tensorboard.py", folder.path(), folder.file("log"));
}

}  // namespace
}  // namespace epipe::train
