#include "epipe/data/text/tokenizer/word_model.h"

#include <fmt/format.h>

#include <array>
#include <mutex>

namespace epipe::data {
namespace {

constexpr std::size_t kShards = 16;
constexpr std::size_t kMostWordsOfShard = std::size_t{1} << 16;
constexpr std::size_t kMostCachedBytes = 64;  // per word

// Most words of a text were seen before.
class RememberedWords final : public WordModel {
 public:
  explicit RememberedWords(std::unique_ptr<WordModel> model) : model_(std::move(model)) {}

  void encode(std::string_view word, TokenIds& out) const override {
    if (word.size() > kMostCachedBytes) return model_->encode(word, out);
    Shard& shard = shards_[TextHash()(word) % kShards];
    if (recall(shard, word, out)) return;
    const std::size_t begin = out.size();
    model_->encode(word, out);
    const std::lock_guard lock(shard.mutex);
    if (shard.words.size() < kMostWordsOfShard)
      shard.words.try_emplace(std::string(word), out.begin() + static_cast<std::ptrdiff_t>(begin), out.end());
  }

 private:
  struct Shard {
    std::mutex mutex;
    TextMap<TokenIds> words;  // guarded by mutex
  };

  static bool recall(Shard& shard, std::string_view word, TokenIds& out) {
    const std::lock_guard lock(shard.mutex);
    const auto found = shard.words.find(word);
    if (found == shard.words.end()) return false;
    out.insert(out.end(), found->second.begin(), found->second.end());
    return true;
  }

  std::unique_ptr<WordModel> model_;
  mutable std::array<Shard, kShards> shards_;
};

// BPE or WordPiece.
std::string model_type(const Component& model) {
  if (!model.has("type")) return model.has("merges") ? "BPE" : "WordPiece";
  const std::string type = model.type();
  if (type != "BPE" && type != "WordPiece") model.unsupported("BPE and WordPiece");
  return type;
}

}  // namespace

TokenTable read_vocabulary(const Component& model) {
  model_type(model);  // others have vocabularies of another form
  const Component vocab = model.at("vocab");
  if (!vocab.value().is_object()) vocab.fail("expected an object of token: id");
  TokenTable vocabulary;
  vocabulary.reserve(vocab.value().size());
  for (const auto& [token, id] : vocab.value().items()) {
    const Component entry(id, vocab.where());
    vocabulary.emplace(token, static_cast<std::int32_t>(entry.number(kMostTokens - 1)));
  }
  return vocabulary;
}

std::unique_ptr<WordModel> make_word_model(const Component& model, const TokenTable& vocabulary, bool byte_level) {
  const std::string type = model_type(model);
  if (type == "BPE") return std::make_unique<RememberedWords>(make_bpe_model(model, vocabulary, byte_level));
  if (byte_level) model.fail("WordPiece does not go with the pre-tokenizer ByteLevel");
  return std::make_unique<RememberedWords>(make_word_piece_model(model, vocabulary));
}

}  // namespace epipe::data
