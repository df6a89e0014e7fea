// What an operator's files and socket may hold: any bytes are a value or a named error. The first byte says which reader gets the rest.
#include <cstdlib>

#include "epipe/serve/admin_request.h"
#include "epipe/serve/token_file.h"
#include "epipe/serve/usage_book.h"
#include "epipe/session/step_totals.h"

namespace {

// What was read is written and read to the same again.
void check_request(std::string_view text) {
  const auto request = epipe::serve::parse_admin_request(text);
  if (!request && request.error().message.empty()) std::abort();
  if (!request) return;
  const auto again = epipe::serve::parse_admin_request(to_line(request.value()));
  if (!again || to_line(again.value()) != to_line(request.value())) std::abort();
}

void check_tokens(std::string_view text) {
  const auto clients = epipe::serve::parse_token_file(text);
  if (!clients && clients.error().message.empty()) std::abort();
  if (!clients) return;
  for (const auto& client : clients.value()) {
    if (!epipe::serve::is_client_name(client.name) || client.hashes.empty() || client.weight < 0 || client.seconds_per_day < 0)
      std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0: check_request(text); break;
    case 1: check_tokens(text); break;
    case 2: (void)epipe::serve::parse_usage(text).ok(); break;
    case 3: (void)epipe::session::step_totals_from_text(text).ok(); break;
  }
  return 0;
}
