#include "epipe/data/text/tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "epipe/base/bounded_json.h"
#include "epipe/base/file.h"
#include "epipe/base/sha256.h"
#include "epipe/data/text/tokenizer/added_tokens.h"
#include "epipe/data/text/tokenizer/decoder.h"
#include "epipe/data/text/tokenizer/normalizer.h"
#include "epipe/data/text/tokenizer/pre_tokenizer.h"
#include "epipe/data/text/tokenizer/word_model.h"
#include "epipe/data/text/unicode.h"

namespace epipe::data {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMostFileBytes = std::uint64_t{1} << 28;
// A vocabulary of 150,000 tokens makes 300,000 values and as many merges.
constexpr JsonLimits kTokenizerLimits = {.depth = 32, .values = std::size_t{1} << 23, .allocated = std::size_t{1} << 24};

json parse_json(std::string_view text, const char* file) {
  auto parsed = parse_bounded_json(text, kTokenizerLimits);
  if (!parsed) throw BadTokenizer(fmt::format("{} {}", file, parsed.error().message));
  if (!parsed.value().is_object()) throw BadTokenizer(fmt::format("expected {} to hold one JSON object", file));
  return std::move(parsed).value();
}

// "eos_token": "</s>" or {"content": "</s>", ...}
std::string named_token(const json& config, const char* name) {
  if (!config.is_object() || !config.contains(name)) return "";
  const json& entry = config[name];
  if (entry.is_string()) return entry.get<std::string>();
  if (entry.is_object() && entry.contains("content") && entry["content"].is_string()) return entry["content"].get<std::string>();
  return "";
}

std::string hex(ByteView bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

std::string fingerprint_of(std::string_view tokenizer, std::string_view config) {
  const auto first = sha256(std::as_bytes(std::span(tokenizer)));
  const auto second = sha256(std::as_bytes(std::span(config)));
  Bytes both;
  append_bytes(both, first);
  append_bytes(both, second);
  return hex(sha256(both));
}

std::string_view text_view(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

class Tokenizer::Impl {
 public:
  Impl(std::string_view tokenizer, std::string_view config) : Impl(parse_json(tokenizer, "tokenizer.json")) {
    fingerprint_ = fingerprint_of(tokenizer, config);
    const json named = config.empty() ? json() : parse_json(config, "tokenizer_config.json");
    end_of_text_ = find_special(named_token(named, "eos_token"), {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]"});
    pad_ = find_special(named_token(named, "pad_token"), {"<pad>", "[PAD]", "<|pad|>", "<|endoftext|>"});
  }

  void encode(std::string_view text, TokenIds& out) const {
    const std::size_t good = valid_utf8_bytes(text);
    if (good < text.size()) throw BadTokenizer(fmt::format("the text is not UTF-8 at byte {}", good));
    const auto take_token = [&](std::int32_t id) { out.push_back(id); };
    const auto take_word = [&](std::string_view word) {
      if (!word.empty()) model_->encode(word, out);
    };
    const auto take_normal = [&](std::string_view part) { pre_tokenizer_.split(part, take_word); };
    raw_finder_.split(
        text,
        [&](std::string_view part) {
          const std::string changed = normalizer_ ? normalizer_(part) : std::string();
          normal_finder_.split(normalizer_ ? changed : part, take_normal, take_token);
        },
        take_token);
  }

  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const {
    std::vector<std::string> texts;
    for (const std::int32_t id : ids) {
      const bool known = id >= 0 && id < vocabulary() && texts_[static_cast<std::size_t>(id)] != nullptr;
      if (!known || (skip_special && special_[static_cast<std::size_t>(id)])) continue;
      texts.push_back(*texts_[static_cast<std::size_t>(id)]);
    }
    if (texts.empty()) return "";
    decoder_(texts);
    std::string all;
    for (const std::string& text : texts) all += text;
    return all;
  }

  std::int64_t vocabulary() const { return static_cast<std::int64_t>(texts_.size()); }
  std::optional<std::int32_t> token_id(std::string_view token) const {
    for (const AddedToken& added : added_) {
      if (added.text == token) return added.id;
    }
    const auto found = tokens_.find(token);
    return found == tokens_.end() ? std::nullopt : std::optional(found->second);
  }

  const PostProcessor& post_processor() const { return post_processor_; }
  std::optional<std::int32_t> end_of_text() const { return end_of_text_; }
  std::optional<std::int32_t> pad() const { return pad_; }
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  explicit Impl(const json& file) : Impl(Component(file, "")) {}
  explicit Impl(const Component& file)
      : normalizer_(make_normalizer(file.at("normalizer"))),
        pre_tokenizer_(make_pre_tokenizer(file.at("pre_tokenizer"))),
        tokens_(read_vocabulary(file.at("model"))),
        model_(make_word_model(file.at("model"), tokens_, pre_tokenizer_.byte_level)),
        post_processor_(make_post_processor(file.at("post_processor"))),
        decoder_(make_decoder(file.at("decoder"))),
        added_(read_added_tokens(file.at("added_tokens"))),
        raw_finder_(added_, false, {}),
        normal_finder_(added_, true, normalizer_) {
    for (const auto& [token, id] : tokens_) name(id, token);
    added_texts_.reserve(added_.size());  // keeps their addresses stable
    for (const AddedToken& token : added_) {
      const bool changed = token.normalized && normalizer_;
      name(token.id, added_texts_.emplace_back(changed ? normalizer_(token.text) : token.text));
      special_[static_cast<std::size_t>(token.id)] = token.special;
    }
  }

  void name(std::int32_t id, const std::string& text) {
    const auto index = static_cast<std::size_t>(id);
    if (index >= texts_.size()) texts_.resize(index + 1);
    if (index >= special_.size()) special_.resize(texts_.size());
    texts_[index] = &text;
  }

  std::optional<std::int32_t> find_special(const std::string& named, std::initializer_list<const char*> usual) const {
    if (!named.empty()) {
      if (const auto id = token_id(named)) return id;
    }
    for (const char* const token : usual) {
      if (const auto id = token_id(token)) return id;
    }
    return std::nullopt;
  }

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  TokenTable tokens_;
  std::unique_ptr<WordModel> model_;
  PostProcessor post_processor_;
  TokenDecoder decoder_;
  std::vector<AddedToken> added_;
  std::vector<std::string> added_texts_;  // their decoded texts
  TokenFinder raw_finder_;
  TokenFinder normal_finder_;
  std::vector<const std::string*> texts_;  // by id; into tokens_ and added_texts_
  std::vector<bool> special_;              // by id
  std::optional<std::int32_t> end_of_text_;
  std::optional<std::int32_t> pad_;
  std::string fingerprint_;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer, std::string_view config) {
  try {
    return Tokenizer(std::make_unique<Impl>(tokenizer, config));
  } catch (const BadTokenizer& error) {
    return bad_file(error.what());
  }
}

Result<Tokenizer> Tokenizer::read(const std::string& path) {
  const std::string file = is_folder(path) ? path + "/tokenizer.json" : path;
  const std::string config_file = file.substr(0, file.rfind('/') + 1) + "tokenizer_config.json";
  const auto bytes = read_file(file, kMostFileBytes);
  if (!bytes)
    return Error{bytes.error().code, fmt::format("{}; expected a folder with a tokenizer.json, or that file", bytes.error().message)};
  Bytes config;
  if (::access(config_file.c_str(), F_OK) == 0) {
    auto found = read_file(config_file, kMostFileBytes);
    if (!found) return found.error();
    config = std::move(found).value();
  }
  auto tokenizer = parse(text_view(bytes.value()), text_view(config));
  if (!tokenizer) return Error{tokenizer.error().code, fmt::format("{}: {}", file, tokenizer.error().message)};
  return tokenizer;
}

Result<TokenIds> Tokenizer::encode(std::string_view text, bool special) const {
  auto encoding = encode_texts({text}, special);
  if (!encoding) return encoding.error();
  return std::move(std::move(encoding).value().ids);
}

Result<Encoding> Tokenizer::encode_texts(const std::vector<std::string_view>& texts, bool special, std::size_t max_length) const {
  const PostProcessor& post = impl_->post_processor();
  const Template& form = texts.size() == 1 ? post.single : post.pair;
  std::vector<TokenIds> ids(texts.size());
  try {
    for (std::size_t i = 0; i < texts.size(); ++i) impl_->encode(texts[i], ids[i]);
  } catch (const BadTokenizer& error) {
    return bad_file(error.what());
  }
  const std::size_t around = special ? form.special_tokens() : 0;
  if (max_length > 0) truncate_longest_first(ids, std::max(max_length, around) - around);
  return form.apply(ids, special);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const { return impl_->decode(ids, skip_special); }
std::int64_t Tokenizer::vocabulary() const { return impl_->vocabulary(); }
std::optional<std::int32_t> Tokenizer::token_id(std::string_view token) const { return impl_->token_id(token); }
std::optional<std::int32_t> Tokenizer::end_of_text() const { return impl_->end_of_text(); }
std::optional<std::int32_t> Tokenizer::pad() const { return impl_->pad(); }
bool Tokenizer::has_types() const { return impl_->post_processor().has_types; }
const std::string& Tokenizer::fingerprint() const { return impl_->fingerprint(); }

}  // namespace epipe::data
