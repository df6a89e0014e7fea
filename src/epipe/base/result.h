#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace epipe {

// What was wrong with bytes, text or a tensor from outside.
enum class ErrorCode : std::uint8_t {
  kTruncated,    // fewer bytes than the lengths inside announce
  kBadMagic,     // not an epipe frame at all
  kBadVersion,   // a frame of another format version
  kBadHeader,    // a header field holds a value the format does not allow
  kBadChecksum,  // the bytes were corrupted in transit
  kTooLarge,     // a length is above the configured limit
  kBadSpec,      // codec text that the grammar does not accept
  kBadSchedule,  // a placement or a schedule that cannot be run
  kBadPayload,   // payload bytes that no encoder writes
  kNonFinite,    // NaN or Inf where only numbers are allowed
  kOutOfRange,   // finite, but not representable by this codec
  kBadFile,      // a file of the wrong kind
  kBadMessage,   // a command or an answer that no correct peer sends
  kIo,           // the operating system refused
};

// The name that logs, tests and other programs match: "bad_checksum".
std::string_view name(ErrorCode code);

struct Error {
  ErrorCode code;
  std::string message;  // expected X, got Y, do Z

  // "bad_checksum: message"
  std::string text() const;
};

// A file of the wrong kind, or a damaged one.
Error bad_file(std::string message);

// A value, or the error why there is none. Used wherever the input is not ours: bytes, files, specs.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }

  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : failed_(true), error_(std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return !failed_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return error_; }

 private:
  bool failed_ = false;
  Error error_{};
};

// For callers that report errors as exceptions: throws a std::runtime_error with the message if there is an error.
void require(const Result<void>& result);

}  // namespace epipe

// Returns from the function if there is an error.
#define EPIPE_TRY(expression)                                                \
  do {                                                                       \
    if (auto epipe_try = (expression); !epipe_try) return epipe_try.error(); \
  } while (false)
