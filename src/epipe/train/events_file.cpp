#include "epipe/train/events_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>

#include "epipe/wire/crc32c.h"

namespace epipe::train {
namespace {

using nlohmann::json;

// The part of protocol buffers that an Event needs.
class Message {
 public:
  Message& varint(int field, std::uint64_t value) {
    key(field, 0);
    put_varint(value);
    return *this;
  }
  Message& fixed64(int field, double value) {
    key(field, 1);
    put_little_endian(std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  Message& fixed32(int field, float value) {
    key(field, 5);
    put_little_endian(std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }
  Message& bytes(int field, const std::string& value) {
    key(field, 2);
    put_varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& str() const { return bytes_; }

 private:
  void key(int field, unsigned type) { put_varint(static_cast<std::uint64_t>(field) << 3 | type); }
  void put_varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }
  void put_little_endian(std::uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
  }

  std::string bytes_;
};

// Fields of Event, Summary, Summary.Value and SessionLog.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr int kValue = 1;
constexpr int kTag = 1, kSimpleValue = 2;
constexpr int kStatus = 1;
constexpr std::uint64_t kStart = 1;

Message event_at(std::uint64_t step) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return Message().fixed64(kWallTime, now).varint(kStep, step);
}

std::string start_event(std::uint64_t step) { return event_at(step).bytes(kSessionLog, Message().varint(kStatus, kStart).str()).str(); }

void add_value(Message& summary, const std::string& tag, const json& value) {
  if (!value.is_number()) return;
  const auto number = static_cast<float>(value.get<double>());
  summary.bytes(kValue, Message().bytes(kTag, tag).fixed32(kSimpleValue, number).str());
}

// Adds the numbers of an object, except its ids.
void add_values(Message& summary, const std::string& prefix, const json& object, std::initializer_list<std::string_view> ids) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(ids.begin(), ids.end(), key) == ids.end()) add_value(summary, prefix + key, value);
  }
}

Message summary_of(const json& line) {
  Message summary;
  if (line.at("kind") == "epoch") {  // its other numbers are means of steps
    for (const auto& [key, value] : line.items()) {
      if (key.starts_with("val_")) add_value(summary, key, value);
    }
    if (line.contains("val_metrics")) add_values(summary, "val_metrics/", line.at("val_metrics"), {});
    return summary;
  }
  const std::string prefix = line.at("kind") == "audit" ? "audit/" : "";
  add_values(summary, prefix, line, {"epoch", "step"});
  for (const json& cut : line.value("cuts", json::array())) {
    add_values(summary, prefix + fmt::format("cut_{}_{}/", cut.at("cut").get<int>(), cut.at("direction").get<std::string>()), cut, {"cut"});
  }
  for (const json& worker : line.value("workers", json::array())) {
    add_values(summary, fmt::format("worker_{}/", worker.at("worker").get<int>()), worker, {"worker", "replica"});
  }
  return summary;
}

// The format masks CRCs, because CRCs of data with CRCs in it are weak.
std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = wire::crc32c(std::as_bytes(std::span(bytes)));
  return std::rotr(crc, 15) + 0xa282ead8U;
}

std::string little_endian(std::uint64_t value, std::size_t count) {
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

// Files of the same second differ by their numbers, and are read in that order.
std::string file_name(int number) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return fmt::format("events.out.tfevents.{:010}.{}.{}.{:03}", now, host.data(), ::getpid(), number);
}

}  // namespace

EventsFile::~EventsFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void EventsFile::open() {
  std::string path;
  for (int number = 0; number < 1000 && file_ == nullptr; ++number) {
    path = fmt::format("{}/{}", folder_, file_name(number));
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST) break;
    if (fd >= 0) file_ = ::fdopen(fd, "w");
  }
  if (file_ == nullptr) throw std::runtime_error(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  write(event_at(0).bytes(kFileVersion, "brain.Event:2").str());
  if (first_step_ > 0) write(start_event(first_step_));
}

void EventsFile::append(const json& line) {
  if (file_ == nullptr) open();
  const bool epoch = line.at("kind") == "epoch";  // at its last step, which a continuing run does not repeat
  const auto step = epoch ? line.at("end_step").get<std::uint64_t>() - 1 : line.at("step").get<std::uint64_t>();
  write(event_at(step).bytes(kSummary, summary_of(line).str()).str());
}

void EventsFile::write(const std::string& event) {
  const std::string length = little_endian(event.size(), 8);
  const std::string record = length + little_endian(masked_crc(length), 4) + event + little_endian(masked_crc(event), 4);
  if (std::fwrite(record.data(), 1, record.size(), file_) != record.size() || std::fflush(file_) != 0) {
    throw std::runtime_error(fmt::format("cannot append to TensorBoard's events: {}", std::strerror(errno)));
  }
}

}  // namespace epipe::train
