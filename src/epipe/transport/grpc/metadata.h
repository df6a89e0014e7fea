#pragma once

#include <grpcpp/support/status.h>
#include <grpcpp/support/string_ref.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "epipe/transport/network_config.h"
#include "epipe/transport/refused.h"

// The metadata sent when a stream is opened, and how it is checked.
namespace epipe::transport {

inline constexpr const char* kMethod = "/epipe.Link/Open";
inline constexpr const char* kVersion =
    "5";  // 1: the plan had settings of the client; 2: commands were told apart by their text; 3: all of a model was trained; 4: no rates
inline constexpr const char* kVersionKey = "epipe-version";
inline constexpr const char* kTokenKey = "authorization";
inline constexpr std::size_t kMaxAboutBytes = 4096;

using Metadata = std::multimap<::grpc::string_ref, ::grpc::string_ref>;

// "session" <-> "epipe-about-session". Throws std::invalid_argument for names and values that gRPC cannot carry.
std::map<std::string, std::string> to_metadata(const std::map<std::string, std::string>& about);
std::map<std::string, std::string> about_of(const Metadata& metadata);

// The value, or "" if there is none.
std::string value_of(const Metadata& metadata, const char* key);

// "Bearer ...". Throws std::invalid_argument, without the token, when it cannot be sent.
std::string bearer(const std::string& token);
// Constant time: independent of which token matches and where a wrong one differs.
bool any_token(const std::vector<std::string>& tokens, const std::string& authorization);
// The name of the matching token, or nullopt if none matches. Also constant time.
std::optional<std::string> name_of_token(const std::vector<NamedToken>& tokens, const std::string& authorization);

::grpc::Status refusal_status(Refusal why, const std::string& text);
// kOther if no refusal has this code.
Refusal refusal_of(::grpc::StatusCode code);
// Throws Refused if the listener refused, otherwise ConnectionLost.
[[noreturn]] void throw_refused(const std::string& peer, ::grpc::StatusCode code, const std::string& text);

}  // namespace epipe::transport
