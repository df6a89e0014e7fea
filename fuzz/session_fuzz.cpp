// A session that is told anything in any order, and whose data channels carry anything: every command gets an answer, nothing crashes or
// hangs.
//
// tests/support/session_script.h says what the bytes are.
#include <cstdlib>
#include <stdexcept>

#include "epipe/base/file.h"
#include "support/session_script.h"
#include "support/temp_folder.h"

namespace {

using namespace epipe;

constexpr std::size_t kMaxSpecBytes = 12;  // no digits for a codec of gigabytes
constexpr int kMaxExtent = 64;

// Everything that a server allows and a fuzzer has no time for.
void admit(const nlohmann::json& plan) {
  const auto small = [](bool good) {
    if (!good) throw std::invalid_argument("only small models and data here");
  };
  const auto& data = plan.at("data");
  small(plan.at("model") == "mlp" || plan.at("model") == "transformer");
  small(data.at("shape").size() <= 3 && data.at("classes") <= kMaxExtent && data.at("vocabulary") <= kMaxExtent);
  for (const auto& extent : data.at("shape")) small(extent <= kMaxExtent);
  for (const auto& pair : plan.at("codecs"))
    small(pair.at(0).get<std::string>().size() <= kMaxSpecBytes && pair.at(1).get<std::string>().size() <= kMaxSpecBytes);
  small(plan.at("threads") == 1);
}

// An answer can be read, and an error has a reason that does not say where the server keeps its files.
void check_answer(ByteView bytes, const std::string& folder) {
  const auto reply = session::read_reply(bytes);
  if (!reply) std::abort();
  const auto* const failed = std::get_if<session::ErrorReply>(&reply.value());
  if (failed != nullptr && (failed->error.empty() || failed->error.find(folder) != std::string::npos)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const testing::TempFolder folder;
  const auto script = testing::read_script({reinterpret_cast<const std::byte*>(data), size});
  const std::size_t commands = script.commands.size();
  const auto answers = testing::play(script, folder.file("checkpoints"), std::chrono::milliseconds(20), admit);
  if (answers.size() > commands) std::abort();
  for (const Bytes& answer : answers) check_answer(answer, folder.path());
  if (!remove_tree(folder.file("checkpoints"))) std::abort();
  return 0;
}
