// Any bytes as a command or an answer: a message that says the same when it is sent on, or an error.
#include <cstdint>
#include <cstdlib>

#include "epipe/train/message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace epipe;
  const auto message = train::read_message({reinterpret_cast<const std::byte*>(data), size});
  if (!message) {
    if (message.error().message.empty()) std::abort();
    return 0;
  }
  const auto again = train::read_message(train::to_bytes(message.value()));
  if (!again || again.value().kind != message.value().kind || again.value().fields != message.value().fields) std::abort();
  if (again.value().tensors.size() != message.value().tensors.size()) std::abort();
  return 0;
}
