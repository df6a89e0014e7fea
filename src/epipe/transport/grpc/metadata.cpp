#include "epipe/transport/grpc/metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "epipe/base/secret.h"
#include "epipe/base/sha256.h"

namespace epipe::transport {
namespace {

const std::string kAboutPrefix = "epipe-about-";
constexpr const char* kBearer = "Bearer ";

constexpr std::array<std::pair<Refusal, ::grpc::StatusCode>, 6> kCodes{{{Refusal::kUnauthenticated, ::grpc::StatusCode::UNAUTHENTICATED},
                                                                        {Refusal::kVersion, ::grpc::StatusCode::FAILED_PRECONDITION},
                                                                        {Refusal::kFull, ::grpc::StatusCode::RESOURCE_EXHAUSTED},
                                                                        {Refusal::kNotFound, ::grpc::StatusCode::NOT_FOUND},
                                                                        {Refusal::kEnded, ::grpc::StatusCode::PERMISSION_DENIED},
                                                                        {Refusal::kOther, ::grpc::StatusCode::ABORTED}}};

bool is_printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

bool is_name(const std::string& text) {
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-'; };
  return !text.empty() && std::all_of(text.begin(), text.end(), fits);
}

std::string text_of(const ::grpc::string_ref& ref) { return {ref.data(), ref.size()}; }

}  // namespace

std::map<std::string, std::string> to_metadata(const std::map<std::string, std::string>& about) {
  std::map<std::string, std::string> metadata;
  std::size_t bytes = 0;
  for (const auto& [name, value] : about) {
    if (!is_name(name)) throw std::invalid_argument(fmt::format("expected a name of a-z, 0-9, - and _, got '{}'", name));
    if (!is_printable(value)) throw std::invalid_argument(fmt::format("'{}' has a value that is not printable ASCII", name));
    bytes += name.size() + value.size();
    metadata[kAboutPrefix + name] = value;
  }
  if (bytes > kMaxAboutBytes)
    throw std::invalid_argument(fmt::format("expected at most {} bytes about a link, got {}", kMaxAboutBytes, bytes));
  return metadata;
}

std::map<std::string, std::string> about_of(const Metadata& metadata) {
  std::map<std::string, std::string> about;
  for (const auto& [key, value] : metadata) {
    if (key.starts_with(kAboutPrefix)) about.emplace(text_of(key).substr(kAboutPrefix.size()), text_of(value));
  }
  return about;
}

std::string value_of(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string() : text_of(found->second);
}

std::string bearer(const std::string& token) {
  if (!is_printable(token) || token.size() > kMaxAboutBytes) throw std::invalid_argument("the token is not one line of printable ASCII");
  return kBearer + token;
}

bool any_token(const std::vector<std::string>& tokens, const std::string& authorization) {
  unsigned found = 0;
  for (const auto& token : tokens) found |= static_cast<unsigned>(equal_secret(kBearer + token, authorization));
  return found != 0;
}

std::optional<std::string> name_of_token(const std::vector<NamedToken>& tokens, const std::string& authorization) {
  const std::string_view prefix = kBearer;
  const bool is_bearer = authorization.starts_with(prefix);
  const std::string hash = sha256_hex(std::string_view(authorization).substr(is_bearer ? prefix.size() : 0));
  std::size_t found = tokens.size();
  for (std::size_t i = 0; i < tokens.size(); ++i) found = equal_secret(tokens[i].sha256, hash) ? i : found;
  return is_bearer && found < tokens.size() ? std::optional(tokens[found].name) : std::nullopt;
}

::grpc::Status refusal_status(Refusal why, const std::string& text) {
  const auto* const row = std::find_if(kCodes.begin(), kCodes.end(), [why](const auto& code) { return code.first == why; });
  return {row == kCodes.end() ? ::grpc::StatusCode::ABORTED : row->second, text};
}

Refusal refusal_of(::grpc::StatusCode code) {
  const auto* const row = std::find_if(kCodes.begin(), kCodes.end(), [code](const auto& entry) { return entry.second == code; });
  return row == kCodes.end() ? Refusal::kOther : row->first;
}

void throw_refused(const std::string& peer, ::grpc::StatusCode code, const std::string& text) {
  const std::string message = fmt::format("{}: {}", peer, text);
  const auto* const row = std::find_if(kCodes.begin(), kCodes.end(), [code](const auto& entry) { return entry.second == code; });
  if (row != kCodes.end()) throw Refused(row->first, message);
  throw ConnectionLost(message);
}

}  // namespace epipe::transport
