// Commands and answers as bytes, also those that are made to cost time or memory.
#include "epipe/train/message.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ctime>
#include <functional>
#include <numeric>

#include "epipe/train/step_command.h"

namespace epipe::train {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 24;  // of a message's JSON

Bytes message_of(const std::string& json) {
  Bytes bytes;
  append(bytes, static_cast<std::uint32_t>(json.size()));
  const auto text = std::as_bytes(std::span(json));
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
  std::string text = R"({"kind":"step")";
  for (int i = 0; text.size() + 32 + value.size() <= kMostBytes; ++i) text += ",\"" + std::to_string(i) + "\":" + value;
  return text + "}";
}

struct Cost {
  bool accepted = false;
  double cpu_seconds = 0;
  double grown_megabytes = 0;  // of the process's peak
};

double peak_megabytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

Cost cost_of(const std::string& json) {
  const Bytes bytes = message_of(json);
  const double before = peak_megabytes();
  const std::clock_t start = std::clock();
  Cost cost;
  {
    const auto message = read_message(bytes);
    cost.accepted = message.ok();
  }
  cost.cpu_seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  cost.grown_megabytes = peak_megabytes() - before;
  return cost;
}

TEST(Message, HasRoomForTheSamplesOfALargeBatch) {
  StepCommand head;
  head.id.chunks = 1;
  head.batch.samples.resize(1'500'000);
  std::iota(head.batch.samples.begin(), head.batch.samples.end(), 0);
  const auto message = read_message(to_bytes(step_message(head, false)));
  ASSERT_TRUE(message) << message.error().message;
  EXPECT_EQ(read_step_command(message.value()).batch.samples, head.batch.samples);
}

// Lists of objects took quadratic time: twelve megabytes an hour. Seconds of CPU are compared with those of an honest message of the same
// size, so a slow machine changes nothing.
TEST(Message, OfSixteenMegabytesCostsLittleWhateverItSays) {
  const Cost honest = cost_of(filled(R"({"kind":"step","samples":[)", "12345678,", "0]}"));
  ASSERT_TRUE(honest.accepted);
  const double most_seconds = 5 * honest.cpu_seconds + 0.2;
  const std::vector<std::pair<const char*, std::function<std::string()>>> hostile = {
      {"objects", [] { return filled(R"({"kind":"step","a":[)", "{},", "{}]}"); }},
      {"lists", [] { return filled(R"({"kind":"step","a":[)", "[],", "[]]}"); }},
      {"lists of objects", [] { return filled(R"({"kind":"step","a":[)", "[{},{}],", "0]}"); }},
      {"objects in objects", [] { return filled(R"({"kind":"step","a":[)", R"({"a":{},"b":{}},)", "0]}"); }},
      {"members", [] { return members("{}"); }},
      {"members with numbers", [] { return members("0"); }},
      {"empty strings", [] { return filled(R"({"kind":"step","a":[)", "\"\",", "\"\"]}"); }},
      {"small numbers", [] { return filled(R"({"kind":"step","a":[)", "0,", "0]}"); }},
      {"fractions", [] { return filled(R"({"kind":"step","a":[)", "1e-9,", "0]}"); }},
      {"the same key", [] { return filled(R"({"kind":"step")", R"(,"a":{})", "}"); }},
      {"deep lists", [] { return filled("", "[", ""); }},
      {"deep objects", [] { return filled("", R"({"a":)", ""); }},
      {"a long string", [] { return filled(R"({"kind":"step","a":")", "x", "\"}"); }},
      {"a long key", [] { return filled(R"({"kind":"step",")", "x", "\":0}"); }},
      {"a long kind", [] { return filled(R"({"kind":")", "x", "\"}"); }},
      {"escapes", [] { return filled(R"({"kind":"step","a":")", "\\u00e9", "\"}"); }},
      {"a long number", [] { return filled(R"({"kind":"step","a":)", "1", "}"); }},
      {"a long fraction", [] { return filled(R"({"kind":"step","a":0.)", "1", "}"); }},
      {"a long exponent", [] { return filled(R"({"kind":"step","a":1e)", "1", "}"); }},
      {"a string that is not UTF-8", [] { return filled(R"({"kind":"step","a":")", "\xc3\xa9", "\xff\"}"); }},
      {"control characters", [] { return filled(R"({"kind":"step","a":")", "xxxxxxxx", "\n\"}"); }},
      {"spaces", [] { return filled(R"({"kind":"step")", " ", "}"); }},
      {"zeros", [] { return filled(R"({"kind":"step"})", std::string(1, '\0'), ""); }},
  };
  for (const auto& [name, text] : hostile) {
    const Cost cost = cost_of(text());
    EXPECT_LT(cost.cpu_seconds, most_seconds) << name << ", an honest message takes " << honest.cpu_seconds;
    EXPECT_LT(cost.grown_megabytes, 12.0 * kMostBytes / 1e6) << name;
    RecordProperty(std::string(name), std::to_string(cost.cpu_seconds));
  }
}

TEST(Message, NamesWhatIsWrongWithIt) {
  const auto error = [](const std::string& json) {
    const auto message = read_message(message_of(json));
    return message ? std::string() : message.error().text();
  };
  EXPECT_EQ(error(R"({"kind":"step"})"), "");
  EXPECT_EQ(error("[]"), "bad_message: a message of a peer is not a JSON object");
  EXPECT_EQ(error(R"({"kind":1})"), "bad_message: a message of a peer has no kind");
  EXPECT_EQ(error(R"({"kind":"step","kind":"end"})"), "bad_message: a message of a peer has a key twice");
  EXPECT_EQ(error(R"({"a":[[[[[[[[1]]]]]]]]})"), "bad_message: a message of a peer is nested deeper than 8");
  EXPECT_EQ(error(R"({"kind":"step"}x)"), "bad_message: a message of a peer is not valid JSON in UTF-8 at byte 16");
  const auto too_long = read_message(message_of(std::string(kMostBytes + 1, ' ')));
  ASSERT_FALSE(too_long);
  EXPECT_NE(too_long.error().message.find("too large"), std::string::npos);
}

}  // namespace
}  // namespace epipe::train
