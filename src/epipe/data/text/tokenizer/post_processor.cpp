#include "epipe/data/text/tokenizer/post_processor.h"

#include <fmt/format.h>

#include <algorithm>

#include "epipe/base/printable.h"
#include "epipe/data/text/tokenizer/word_model.h"

namespace epipe::data {
namespace {

constexpr const char* kPostProcessors = "ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing and Sequence";
constexpr std::int64_t kMostTypes = 1 << 16;
constexpr std::size_t kMostPieces = 64;

TokenIds ids_of(const Component& list) {
  TokenIds ids;
  for (const Component& id : list.list()) ids.push_back(static_cast<std::int32_t>(id.number(kMostTokens - 1)));
  return ids;
}

std::int32_t type_id_of(const Component& piece) { return static_cast<std::int32_t>(piece.at("type_id").number(kMostTypes)); }

Template::Piece text_piece(const Component& sequence, int texts) {
  const std::string name = sequence.at("id").text();
  const int text = name == "A" ? 0 : name == "B" ? 1 : texts;
  if (text >= texts) sequence.at("id").fail(fmt::format("expected A{}, got \"{}\"", texts == 2 ? " or B" : "", printable(name, 40)));
  return {text, {}, type_id_of(sequence)};
}

Template::Piece special_piece(const Component& special, const Component& known) {
  const std::string name = special.at("id").text();
  const Component found = known.at(name.c_str());
  if (found.absent()) special.at("id").fail(fmt::format("special_tokens has no \"{}\"", printable(name, 40)));
  return {-1, ids_of(found.at("ids")), type_id_of(special)};
}

Template make_template(const Component& list, const Component& known, int texts) {
  Template made;
  for (const Component& piece : list.list()) {
    if (piece.has("Sequence")) {
      made.pieces.push_back(text_piece(piece.at("Sequence"), texts));
    } else if (piece.has("SpecialToken")) {
      made.pieces.push_back(special_piece(piece.at("SpecialToken"), known));
    } else {
      piece.fail("expected Sequence or SpecialToken");
    }
  }
  if (made.pieces.size() > kMostPieces) list.fail(fmt::format("expected at most {} pieces", kMostPieces));
  for (int text = 0; text < texts; ++text) {
    const auto stands = std::count_if(made.pieces.begin(), made.pieces.end(), [&](const auto& piece) { return piece.text == text; });
    if (stands != 1) list.fail(fmt::format("expected the text {} once, got it {} times", text == 0 ? "A" : "B", stands));
  }
  return made;
}

bool tells_apart(const Template& pair) {
  return std::any_of(pair.pieces.begin(), pair.pieces.end(), [&](const auto& piece) { return piece.type != pair.pieces[0].type; });
}

PostProcessor with_types(Template single, Template pair) {
  const bool types = tells_apart(pair);
  return {std::move(single), std::move(pair), types};
}

// ["[SEP]", 102]
TokenIds token_of(const Component& pair) {
  if (!pair.value().is_array() || pair.value().size() != 2) pair.fail("expected [token, id]");
  return {static_cast<std::int32_t>(pair.list()[1].number(kMostTokens - 1))};
}

PostProcessor make_bert_processor(const Component& bert) {
  const TokenIds sep = token_of(bert.at("sep"));
  const TokenIds cls = token_of(bert.at("cls"));
  return with_types({{{-1, cls, 0}, {0, {}, 0}, {-1, sep, 0}}}, {{{-1, cls, 0}, {0, {}, 0}, {-1, sep, 0}, {1, {}, 1}, {-1, sep, 1}}});
}

PostProcessor make_roberta(const Component& roberta) {
  const TokenIds sep = token_of(roberta.at("sep"));
  const TokenIds cls = token_of(roberta.at("cls"));
  return with_types({{{-1, cls, 0}, {0, {}, 0}, {-1, sep, 0}}},
                    {{{-1, cls, 0}, {0, {}, 0}, {-1, sep, 0}, {-1, sep, 0}, {1, {}, 0}, {-1, sep, 0}}});
}

PostProcessor make_processor_sequence(const Component& sequence) {
  PostProcessor made;
  int others = 0;
  for (const Component& part : sequence.list("processors")) {
    if (part.type() == "ByteLevel") continue;
    if (++others > 1) part.fail("a Sequence of several is not supported");
    made = make_post_processor(part);
  }
  return made;
}

}  // namespace

std::size_t Template::special_tokens() const {
  std::size_t count = 0;
  for (const Piece& piece : pieces) count += piece.special.size();
  return count;
}

Encoding Template::apply(const std::vector<TokenIds>& texts, bool special) const {
  Encoding all;
  for (const Piece& piece : pieces) {
    if (piece.text < 0 && !special) continue;
    const TokenIds& ids = piece.text < 0 ? piece.special : texts.at(static_cast<std::size_t>(piece.text));
    all.ids.insert(all.ids.end(), ids.begin(), ids.end());
    all.types.resize(all.ids.size(), piece.type);
  }
  return all;
}

PostProcessor make_post_processor(const Component& post_processor) {
  if (post_processor.absent()) return {};
  const std::string type = post_processor.type();
  if (type == "ByteLevel") return {};
  if (type == "Sequence") return make_processor_sequence(post_processor);
  if (type == "BertProcessing") return make_bert_processor(post_processor);
  if (type == "RobertaProcessing") return make_roberta(post_processor);
  if (type != "TemplateProcessing") post_processor.unsupported(kPostProcessors);
  const Component known = post_processor.at("special_tokens");
  Template single = make_template(post_processor.at("single"), known, 1);
  return with_types(std::move(single), make_template(post_processor.at("pair"), known, 2));
}

void truncate_longest_first(std::vector<TokenIds>& texts, std::size_t most) {
  const auto total = [&] {
    std::size_t sum = 0;
    for (const TokenIds& text : texts) sum += text.size();
    return sum;
  };
  for (std::size_t all = total(); all > most; --all) {
    TokenIds* longest = &texts[0];
    for (TokenIds& text : texts) longest = text.size() >= longest->size() ? &text : longest;
    longest->pop_back();
  }
}

}  // namespace epipe::data
