#include "epipe/base/result.h"

#include <stdexcept>

namespace epipe {

std::string_view name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kTruncated: return "truncated";
    case ErrorCode::kBadMagic: return "bad_magic";
    case ErrorCode::kBadVersion: return "bad_version";
    case ErrorCode::kBadHeader: return "bad_header";
    case ErrorCode::kBadChecksum: return "bad_checksum";
    case ErrorCode::kTooLarge: return "too_large";
    case ErrorCode::kBadSpec: return "bad_spec";
    case ErrorCode::kBadSchedule: return "bad_schedule";
    case ErrorCode::kBadPayload: return "bad_payload";
    case ErrorCode::kNonFinite: return "non_finite";
    case ErrorCode::kOutOfRange: return "out_of_range";
    case ErrorCode::kBadFile: return "bad_file";
    case ErrorCode::kBadMessage: return "bad_message";
    case ErrorCode::kIo: return "io";
  }
  return "unknown";
}

std::string Error::text() const { return std::string(name(code)) + ": " + message; }

Error bad_file(std::string message) { return {ErrorCode::kBadFile, std::move(message)}; }

void require(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

}  // namespace epipe
