#include "epipe/data/text/tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "epipe/data/text/tokenizer/word_model.h"
#include "epipe/data/text/unicode.h"

namespace epipe::data {
namespace {

constexpr std::size_t kMostTokenBytes = 512;

bool is_word(char32_t p) {
  if (p < 0x80) return p == '_' || (p >= '0' && p <= '9') || (p >= 'a' && p <= 'z') || (p >= 'A' && p <= 'Z');
  return is_letter(p) || is_number(p);
}

// Where the last character of a text that is not empty begins.
std::size_t last_begin(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80U) --at;
  return at;
}

bool ends_with_word(std::string_view text) { return !text.empty() && is_word(first_code_point(text.substr(last_begin(text))).value); }
bool starts_with_word(std::string_view text) { return !text.empty() && is_word(first_code_point(text).value); }

std::size_t spaces_at_end(std::string_view text) {
  const std::size_t whole = text.size();
  while (!text.empty() && is_space(first_code_point(text.substr(last_begin(text))).value))
    text.remove_suffix(text.size() - last_begin(text));
  return whole - text.size();
}
std::size_t spaces_at_begin(std::string_view text) {
  const std::size_t whole = text.size();
  while (!text.empty() && is_space(first_code_point(text).value)) text.remove_prefix(first_code_point(text).bytes);
  return whole - text.size();
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const Component& list) {
  std::vector<AddedToken> tokens;
  if (list.absent()) return tokens;
  for (const Component& entry : list.list()) {
    AddedToken token{};
    token.id = static_cast<std::int32_t>(entry.at("id").number(kMostTokens - 1));
    token.text = entry.at("content").text();
    token.special = entry.flag("special", false);
    token.normalized = entry.flag("normalized", !token.special);
    token.strip_left = entry.flag("lstrip", false);
    token.strip_right = entry.flag("rstrip", false);
    token.single_word = entry.flag("single_word", false);
    if (token.text.size() > kMostTokenBytes) entry.at("content").fail(fmt::format("expected at most {} bytes", kMostTokenBytes));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

TokenFinder::TokenFinder(const std::vector<AddedToken>& tokens, bool normalized, const Normalizer& change) {
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized || token.text.empty()) continue;
    add(change ? change(token.text) : token.text, token);
  }
}

void TokenFinder::add(std::string_view text, const AddedToken& token) {
  if (text.empty() || text.size() > 4 * kMostTokenBytes) return;
  begins_[static_cast<unsigned char>(text[0])] = true;
  std::uint32_t node = 0;
  for (const char c : text) {
    const auto [edge, is_new] = edges_.try_emplace(std::uint64_t{node} * 256 + static_cast<unsigned char>(c), nodes_);
    if (is_new) ++nodes_;
    node = edge->second;
  }
  ends_[node] = tokens_.size();
  tokens_.push_back(token);
}

TokenFinder::Found TokenFinder::find_at(std::string_view text) const {
  Found best;
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto edge = edges_.find(std::uint64_t{node} * 256 + static_cast<unsigned char>(text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (const auto end = ends_.find(node); end != ends_.end()) best = {i + 1, &tokens_[end->second]};
  }
  return best;
}

void TokenFinder::split(std::string_view text, const TextSink& between, const TokenSink& token) const {
  std::size_t done = 0;
  for (std::size_t at = 0; !tokens_.empty() && at < text.size(); ++at) {
    if (!begins_[static_cast<unsigned char>(text[at])]) continue;
    const Found found = find_at(text.substr(at));
    if (found.bytes == 0) continue;
    std::size_t begin = at;
    std::size_t end = at + found.bytes;
    at = end - 1;
    if (found.token->single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (found.token->strip_left) begin -= std::min(begin - done, spaces_at_end(text.substr(done, begin - done)));
    if (found.token->strip_right) end += spaces_at_begin(text.substr(end));
    if (begin > done) between(text.substr(done, begin - done));
    token(found.token->id);
    done = end;
    at = end - 1;
  }
  if (done < text.size()) between(text.substr(done));
}

}  // namespace epipe::data
