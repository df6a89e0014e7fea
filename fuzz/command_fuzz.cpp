// Any bytes as a command or a reply: a message that says the same when it is sent on, or an error.
#include <cstdint>
#include <cstdlib>

#include "epipe/session/messages.h"

namespace {

template <typename Message>
void check(const epipe::Result<Message>& message, epipe::Result<Message> (*read)(epipe::ByteView)) {
  if (!message) {
    if (message.error().message.empty()) std::abort();
    return;
  }
  const epipe::Bytes sent_on = to_bytes(message.value());
  const auto again = read(sent_on);
  if (!again || again.value().index() != message.value().index() || to_bytes(again.value()) != sent_on) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace epipe::session;
  const epipe::ByteView bytes{reinterpret_cast<const std::byte*>(data), size};
  check(read_command(bytes), read_command);
  check(read_reply(bytes), read_reply);
  return 0;
}
