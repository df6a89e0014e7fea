#include "epipe/train/message.h"

#include <stdexcept>

#include "epipe/base/bounded_json.h"
#include "epipe/model/safetensors.h"

namespace epipe::train {
namespace {

using nlohmann::json;

constexpr std::uint32_t kMaxJsonBytes = 1 << 24;  // sample ids of a large batch are the longest

Error bad(const std::string& text) { return {ErrorCode::kBadMessage, "a message of a peer " + text}; }

}  // namespace

Bytes to_bytes(const Message& message) {
  json head = message.fields;
  head["kind"] = message.kind;
  const std::string text = head.dump(-1, ' ', false, json::error_handler_t::replace);  // an error may quote bytes that are not UTF-8
  Bytes out;
  append(out, static_cast<std::uint32_t>(text.size()));
  const auto view = std::as_bytes(std::span(text));
  out.insert(out.end(), view.begin(), view.end());
  if (message.tensors.empty()) return out;
  const auto tensors = model::serialize_safetensors(message.tensors);
  if (!tensors) throw std::runtime_error(tensors.error().message);
  out.insert(out.end(), tensors.value().begin(), tensors.value().end());
  return out;
}

Result<Message> read_message(ByteView bytes) {
  ByteReader reader(bytes);
  const auto length = reader.take<std::uint32_t>();
  if (!length || *length > kMaxJsonBytes) return bad("has no length, or too large a one");
  const auto text = reader.take_bytes(*length);
  if (!text) return bad("is shorter than it says");
  Message message;
  auto fields = parse_bounded_json({reinterpret_cast<const char*>(text->data()), text->size()});
  if (!fields) return bad(fields.error().message);
  message.fields = std::move(fields).value();
  if (!message.fields.is_object()) return bad("is not a JSON object");
  const auto kind = message.fields.find("kind");
  if (kind == message.fields.end() || !kind->is_string()) return bad("has no kind");
  message.kind = kind->get<std::string>();
  if (reader.rest().empty()) return message;
  auto tensors = model::parse_safetensors(reader.rest());
  if (!tensors) return tensors.error();
  message.tensors = std::move(tensors.value().tensors);
  return message;
}

}  // namespace epipe::train
