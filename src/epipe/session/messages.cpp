#include "epipe/session/messages.h"

#include <fmt/format.h>

#include <stdexcept>

#include "epipe/base/bounded_json.h"
#include "epipe/base/json_type.h"
#include "epipe/model/safetensors.h"
#include "epipe/session/step_result.h"

namespace epipe::session {
namespace {

using nlohmann::json;

constexpr std::uint32_t kMaxJsonBytes = 1 << 24;  // sample ids of a large batch are the longest
constexpr std::size_t kMaxListedTensors = 16;

std::string listed(const char* name, std::size_t k) { return fmt::format("{}.{}", name, k); }

class MessageWriter {
 public:
  template <typename T>
  void operator()(const char* name, const T& value) {
    fields_[name] = value;
  }
  void operator()(const char* name, const pipeline::StepResult& result) { fields_[name] = to_json(result); }
  // Forward and backward of each cut; none where none are set.
  void operator()(const char* name, const pipeline::Rates& rates) {
    for (const pipeline::CutRates& cut : rates) {
      fields_[name].push_back(cut.forward);
      fields_[name].push_back(cut.backward);
    }
  }
  template <typename T>
  void operator()(const char* name, const std::optional<T>& value) {
    if (value) fields_[name] = *value;
  }
  void tensors(const model::NamedTensors& tensors) { tensors_ = tensors; }
  void tensor(const char* name, const torch::Tensor& tensor) {
    if (tensor.defined()) tensors_[name] = tensor;
  }
  void tensor_list(const char* name, const layer::Tensors& list) {
    for (std::size_t k = 0; k < list.size(); ++k) tensors_[listed(name, k)] = list[k];
  }

  Bytes bytes(std::size_t type) const {
    const std::string text = fields_.dump(-1, ' ', false, json::error_handler_t::replace);  // an error may quote bytes that are not UTF-8
    Bytes out;
    append(out, static_cast<std::uint8_t>(type));
    append(out, static_cast<std::uint32_t>(text.size()));
    append_bytes(out, std::as_bytes(std::span(text)));
    if (tensors_.empty()) return out;
    const auto tensors = model::serialize_safetensors(tensors_);
    if (!tensors) throw std::runtime_error(tensors.error().message);
    append_bytes(out, tensors.value());
    return out;
  }

 private:
  json fields_ = json::object();
  model::NamedTensors tensors_;
};

// Throws std::invalid_argument that names the field.
class MessageReader {
 public:
  MessageReader(std::string_view message, const json& fields, model::NamedTensors tensors)
      : message_(message), fields_(fields), tensors_(std::move(tensors)) {}

  template <typename T>
  void operator()(const char* name, T& value) {
    const json& field = take(name);
    if (!holds<T>(field)) refuse(name);
    field.get_to(value);
  }
  void operator()(const char* name, json& value) { value = take(name); }
  void operator()(const char* name, pipeline::StepResult& result) { result = step_result_from_json(take(name)); }
  void operator()(const char* name, pipeline::Rates& rates) {
    std::optional<std::vector<double>> listed;
    (*this)(name, listed);
    if (!listed) return;
    if (listed->size() % 2 != 0) refuse(name);
    for (std::size_t i = 0; i < listed->size(); i += 2) rates.push_back({(*listed)[i], (*listed)[i + 1]});
  }
  template <typename T>
  void operator()(const char* name, std::optional<T>& value) {
    if (!fields_.contains(name)) return;
    T there{};
    (*this)(name, there);
    value = std::move(there);
  }
  void tensors(model::NamedTensors& tensors) { tensors = std::exchange(tensors_, {}); }
  void tensor(const std::string& name, torch::Tensor& tensor) {
    const auto taken = tensors_.extract(name);
    if (!taken.empty()) tensor = taken.mapped();
  }
  void tensor_list(const char* name, layer::Tensors& list) {
    for (std::size_t k = 0; k < kMaxListedTensors && tensors_.contains(listed(name, k)); ++k) tensor(listed(name, k), list.emplace_back());
  }
  // What nobody asked for is not part of the message.
  void finish() const {
    if (taken_ != fields_.size() || !tensors_.empty()) {
      throw std::invalid_argument(fmt::format("the message {} has fields or tensors that do not belong to it", message_));
    }
  }

 private:
  const json& take(const char* name) {
    const auto found = fields_.find(name);
    if (found == fields_.end()) refuse(name);
    ++taken_;
    return *found;
  }
  [[noreturn]] void refuse(const char* name) const {
    throw std::invalid_argument(fmt::format("the message {} has no proper {}", message_, name));
  }

  std::string_view message_;
  const json& fields_;
  std::size_t taken_ = 0;  // of the fields
  model::NamedTensors tensors_;
};

Error bad(const std::string& text) { return {ErrorCode::kBadMessage, "a message of a peer " + text}; }

template <typename One, typename Message>
void read_as(Message& out, const json& fields, model::NamedTensors tensors) {
  One one;
  MessageReader reader(One::kName, fields, std::move(tensors));
  One::fields(one, reader);
  reader.finish();
  if constexpr (requires { one.check(); }) one.check();
  out = std::move(one);
}

template <typename Message, std::size_t... kIndex>
void read_alternative(std::size_t type, Message& out, const json& fields, model::NamedTensors tensors, std::index_sequence<kIndex...>) {
  const auto try_one = [&]<std::size_t kOne>() {
    if (type == kOne) read_as<std::variant_alternative_t<kOne, Message>>(out, fields, std::move(tensors));
  };
  (try_one.template operator()<kIndex>(), ...);
}

template <typename Message>
Result<Message> read(ByteView bytes) {
  constexpr std::size_t kTypes = std::variant_size_v<Message>;
  ByteReader reader(bytes);
  const auto type = reader.take<std::uint8_t>();
  if (!type || *type >= kTypes) return bad(fmt::format("is of no known kind, expected one of {}", kTypes));
  const auto length = reader.take<std::uint32_t>();
  if (!length || *length > kMaxJsonBytes) return bad("has no length, or too large a one");
  const auto text = reader.take_bytes(*length);
  if (!text) return bad("is shorter than it says");
  const auto fields = parse_bounded_json({reinterpret_cast<const char*>(text->data()), text->size()});
  if (!fields) return bad(fields.error().message);
  if (!fields.value().is_object()) return bad("is not a JSON object");
  model::NamedTensors tensors;
  if (!reader.rest().empty()) {
    auto parsed = model::parse_safetensors(reader.rest());
    if (!parsed) return parsed.error();
    tensors = std::move(parsed.value().tensors);
  }
  Message message;
  try {
    read_alternative(*type, message, fields.value(), std::move(tensors), std::make_index_sequence<kTypes>());
  } catch (const std::invalid_argument& error) {
    return Error{ErrorCode::kBadMessage, error.what()};
  }
  return message;
}

template <typename Message>
Bytes write(const Message& message) {
  MessageWriter writer;
  std::visit([&](const auto& one) { std::decay_t<decltype(one)>::fields(one, writer); }, message);
  return writer.bytes(message.index());
}

void check_samples(const torch::Tensor& tensor, const layer::Batch& batch, std::string_view name) {
  if (tensor.dim() < 1 || tensor.size(0) != batch.size()) {
    throw std::invalid_argument(fmt::format("{} of a step has not one entry for each of {} samples", name, batch.size()));
  }
}

// Loss scale, side inputs and targets.
void check_batch(const layer::Batch& batch, const pipeline::StepId& id) {
  if (!(id.loss_scale > 0)) throw std::invalid_argument(fmt::format("a loss scale must be above 0, got {}", id.loss_scale));
  for (std::size_t k = 0; k < batch.side.size(); ++k) check_samples(batch.side[k], batch, listed("side", k));
  if (batch.targets.defined()) check_samples(batch.targets, batch, "targets");
}

void check_chunks(const layer::Batch& batch, const pipeline::StepId& id) {
  if (id.chunks < 1 || id.chunks > batch.size()) {
    throw std::invalid_argument(fmt::format("a step of {} samples cannot have {} chunks", batch.size(), id.chunks));
  }
}

void check_terms(const layer::Batch& batch, const pipeline::StepId& id) {
  if (id.terms != 0 && id.terms < batch.size()) {
    throw std::invalid_argument(fmt::format("a loss of {} terms cannot have a part of {} samples", id.terms, batch.size()));
  }
}

}  // namespace

void StepCommand::check() const {
  const bool none = batch.size() == 0 && id.chunks == 0 && training;  // a replica that has no sample of this batch
  if (!none) check_chunks(batch, id);
  check_terms(batch, id);
  check_batch(batch, id);
  check_rates(id.rates);
}

void OverlappedStepCommand::check() const {
  if (forwards) {
    check_chunks(batch, id);
  } else if (batch.size() != 0 || id.chunks != 0) {
    throw std::invalid_argument(fmt::format("a step without forwards cannot have {} samples in {} chunks", batch.size(), id.chunks));
  }
  check_terms(batch, id);
  check_batch(batch, id);
}

void AuditCommand::check() const {
  check_batch(batch, id);
  if (id.chunks < 1 || batch.size() < 1 || batch.size() % id.chunks != 0 || part.rates.size() != static_cast<std::size_t>(id.chunks)) {
    throw std::invalid_argument(fmt::format("an audit of {} samples cannot have {} micro-batches with {} lists of rates", batch.size(),
                                            id.chunks, part.rates.size()));
  }
  if (id.terms < 1) throw std::invalid_argument(fmt::format("the loss of an audit cannot have {} terms", id.terms));
  for (const auto* const lists : {&part.rates, &part.tried}) {
    for (const auto& list : *lists) {
      for (const double rate : list) check_rates({{rate, 0}});
    }
  }
  for (const auto& list : part.tried) {
    if (list.size() <= kMostTriedRates) continue;
    throw std::invalid_argument(fmt::format("an audit tries at most {} rates of a cut, got {}", kMostTriedRates, list.size()));
  }
}

torch::Tensor probe_bytes(std::uint64_t count) {
  return count > 0 ? torch::zeros(static_cast<std::int64_t>(count), torch::kUInt8) : torch::Tensor();
}

void LinkProbeCommand::check() const {
  if (reply_bytes <= kMostProbeBytes) return;
  throw std::invalid_argument(fmt::format("a link is probed with at most {} bytes, got {}", kMostProbeBytes, reply_bytes));
}

Bytes to_bytes(const Command& command) { return write(command); }
Bytes to_bytes(const Reply& reply) { return write(reply); }
Result<Command> read_command(ByteView bytes) { return read<Command>(bytes); }
Result<Reply> read_reply(ByteView bytes) { return read<Reply>(bytes); }

}  // namespace epipe::session
