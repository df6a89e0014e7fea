#include "epipe/serve/token_file.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <set>
#include <span>
#include <sstream>

#include "epipe/base/file.h"
#include "epipe/base/sha256.h"

namespace epipe::serve {
namespace {

constexpr std::uint64_t kMaxFileBytes = 1 << 20;
constexpr std::size_t kMostClients = 1000;
constexpr std::size_t kMostHashes = 2;
constexpr std::size_t kNameLetters = 32;
constexpr double kMostGigabytes = 1e6;
constexpr int kMostSessions = 1'000'000;
constexpr double kMostSeconds = 1e9;
constexpr int kMostWeight = 64;

bool is_hash(std::string_view text) { return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos; }

template <typename T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc() && end == text.data() + text.size();
}

// Parses a number above 0 and at most `most`; false if it was given before.
template <typename T>
bool parse_limit_once(std::string_view text, T most, T& value) {
  T number = 0;
  if (value != 0 || !parse_number(text, number) || !(number > 0 && number <= most)) return false;
  value = number;
  return true;
}

// The same in GB; at least one byte.
bool parse_gigabytes_once(std::string_view text, std::uint64_t& bytes) {
  double gigabytes = 0;
  if (bytes != 0 || !parse_limit_once(text, kMostGigabytes, gigabytes)) return false;
  bytes = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(gigabytes * 1e9)));
  return true;
}

bool parse_limit(std::string_view key, std::string_view value, Client& client) {
  if (key == "sessions") {
    int number = client.sessions.value_or(0);
    if (!parse_limit_once(value, kMostSessions, number)) return false;
    client.sessions = number;
    return true;
  }
  if (key == "memory") return parse_gigabytes_once(value, client.memory_bytes);
  if (key == "gb-per-day") return parse_gigabytes_once(value, client.bytes_per_day);
  if (key == "seconds-per-day") return parse_limit_once(value, kMostSeconds, client.seconds_per_day);
  return key == "weight" && parse_limit_once(value, kMostWeight, client.weight);
}

Result<void> parse_limit(std::string_view word, Client& client) {
  const auto equals = word.find('=');
  const std::string_view value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
  if (parse_limit(word.substr(0, equals), value, client)) return {};
  return bad_file(fmt::format(
      "expected the limits sessions=N, memory=GB, gb-per-day=GB, seconds-per-day=S and weight=N (1 to {}), each once and above 0",
      kMostWeight));
}

Result<Client> parse_client(const std::string& line) {
  std::istringstream words(line);
  Client client;
  std::string hashes;
  words >> client.name >> hashes;
  if (!is_client_name(client.name)) {
    return bad_file(fmt::format("expected a name of a-z, 0-9, -, _ and ., at most {} letters", kNameLetters));
  }
  std::istringstream list(hashes);
  for (std::string hash; std::getline(list, hash, ',');) client.hashes.push_back(hash);
  const bool fit = std::all_of(client.hashes.begin(), client.hashes.end(), is_hash) && !hashes.ends_with(',');
  if (client.hashes.empty() || client.hashes.size() > kMostHashes || !fit) {
    return bad_file("expected the SHA-256 of a token in 64 hex digits after the name, or two with a comma; \"--add-token NAME\" writes it");
  }
  for (std::string word; words >> word;) EPIPE_TRY(parse_limit(word, client));
  return client;
}

std::string random_token() {
  std::array<char, 32> bytes{};
  for (std::size_t got = 0; got < bytes.size();) {
    const ssize_t more = ::getrandom(bytes.data() + got, bytes.size() - got, 0);
    if (more > 0) got += static_cast<std::size_t>(more);
  }
  return sha256_hex({bytes.data(), bytes.size()});
}

Result<std::string> read_text(const std::string& path) {
  const auto bytes = read_file(path, kMaxFileBytes);
  if (!bytes) return bytes.error();
  return std::string(reinterpret_cast<const char*>(bytes.value().data()), bytes.value().size());
}

}  // namespace

bool is_client_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameLetters &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_.") == std::string_view::npos;
}

Result<std::vector<Client>> parse_token_file(std::string_view text) {
  std::vector<Client> clients;
  std::set<std::string> names;
  std::set<std::string> hashes;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const auto wrong = [number](const std::string& what) { return bad_file(fmt::format("line {}: {}", number, what)); };
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto client = parse_client(line);
    if (!client) return wrong(client.error().message);
    if (!names.insert(client.value().name).second) return wrong(fmt::format("the name '{}' exists already", client.value().name));
    for (const auto& hash : client.value().hashes) {
      if (!hashes.insert(hash).second) return wrong("this hash exists already: every client needs its own token");
    }
    clients.push_back(std::move(client).value());
    if (clients.size() > kMostClients) return wrong(fmt::format("expected at most {} names", kMostClients));
  }
  if (clients.empty()) return bad_file("it holds no token");
  return clients;
}

Result<std::vector<Client>> read_token_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return Error{ErrorCode::kIo, fmt::format("cannot read {}: {}", path, std::strerror(errno))};
  if (!S_ISREG(status.st_mode)) return bad_file(path + " is not a regular file");
  if ((status.st_mode & 077) != 0) {
    return bad_file(fmt::format("expected {} to be readable by its owner only, got mode {:04o}; chmod 600", path, status.st_mode & 07777));
  }
  const auto text = read_text(path);
  if (!text) return text.error();
  auto clients = parse_token_file(text.value());
  if (!clients) return bad_file(fmt::format("{}, {}", path, clients.error().message));
  return clients;
}

Result<std::string> add_token(const std::string& path, const std::string& name) {
  struct stat status {};
  std::string text;
  if (::stat(path.c_str(), &status) == 0) {
    if (const auto present = read_token_file(path); !present) return present.error();
    auto old = read_text(path);
    if (!old) return old.error();
    text = std::move(old).value();
    if (!text.ends_with('\n')) text += '\n';
  }
  std::string token = random_token();
  text += fmt::format("{} {}\n", name, sha256_hex(token));
  if (const auto whole = parse_token_file(text); !whole) return bad_file(fmt::format("{}, {}", path, whole.error().message));
  EPIPE_TRY(write_private_file(path, {std::as_bytes(std::span(text))}));
  return token;
}

}  // namespace epipe::serve
