// Any bytes are the config.json of a model or a named error; what was read is written and read to the same again.
#include <cstdlib>

#include "epipe/model/decoder_config.h"
#include "epipe/model/encoder_config.h"

namespace {

template <typename Parse>
void check_config(std::string_view text, const Parse& parse) {
  const auto config = parse(text);
  if (!config && config.error().message.empty()) std::abort();
  if (!config) return;
  const std::string written = to_json_text(config.value());
  const auto again = parse(written);
  if (!again || to_json_text(again.value()) != written) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_config(text, epipe::model::parse_decoder_config);
  check_config(text, epipe::model::parse_encoder_config);
  return 0;
}
