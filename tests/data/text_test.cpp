// Text before it is a data set: code points, words, byte pairs, TSV, GLUE's tasks.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "epipe/data/text/bpe.h"
#include "epipe/data/text/glue.h"
#include "epipe/data/text/merge.h"
#include "epipe/data/text/unicode.h"
#include "epipe/data/text/words.h"
#include "support/shared.h"
#include "support/tiny_bpe.h"

namespace epipe::data {
namespace {

using nlohmann::json;
using testing::shared;
using testing::tiny_bpe;

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> all;
  while (!text.empty()) all.emplace_back(take_word(text));
  return all;
}

TEST(Unicode, KnowsLettersNumbersAndSpaces) {
  for (const char32_t letter : {U'a', U'Z', U'\u00e9', U'\u0416', U'\u65e5', U'\ufb01', U'\U0001d518'}) EXPECT_TRUE(is_letter(letter));
  for (const char32_t number : {U'0', U'9', U'\u00bd', U'\u00b2', U'\u0663', U'\u2167'}) EXPECT_TRUE(is_number(number));
  for (const char32_t other : {U'!', U'_', U'\u0301', U'\u200b', U'\U0001f600', U'\u2122'}) {
    EXPECT_FALSE(is_letter(other) || is_number(other) || is_space(other)) << static_cast<unsigned>(other);
  }
  for (const char32_t space : {U' ', U'\t', U'\n', U'\r', U'\u0085', U'\u00a0', U'\u2003', U'\u3000'}) EXPECT_TRUE(is_space(space));
  EXPECT_FALSE(is_space(U'\u180e') || is_space(0x1c) || is_letter(kInvalid) || is_number(kInvalid));
}

TEST(Unicode, BytesThatAreNotUtf8AreCodePointsOfTheirOwn) {
  const auto first = [](std::string_view text) { return first_code_point(text); };
  EXPECT_EQ(first("\xc3\xa9").value, U'\u00e9');
  EXPECT_EQ(first("\xf0\x9f\x98\x80").value, U'\U0001f600');
  for (const std::string_view bad :
       {"\x80", "\xc3", "\xc3(", "\xe2\x82", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"}) {
    EXPECT_EQ(first(bad).value, kInvalid);
    EXPECT_EQ(first(bad).bytes, 1U);
  }
}

TEST(Words, AreThoseOfGpt2) {
  using List = std::vector<std::string>;
  EXPECT_EQ(words("Hello world!"), (List{"Hello", " world", "!"}));
  EXPECT_EQ(words("  two  spaces "), (List{" ", " two", " ", " spaces", " "}));
  EXPECT_EQ(words("don't we'll X's 'Tis"), (List{"don", "'t", " we", "'ll", " X", "'s", " '", "Tis"}));
  EXPECT_EQ(words("tab\tand\n\nnewline\r\n"), (List{"tab", "\t", "and", "\n", "\n", "newline", "\r\n"}));
  EXPECT_EQ(words("1,234 a1b2"), (List{"1", ",", "234", " a", "1", "b", "2"}));
  EXPECT_EQ(words("a\u00a0b"), (List{"a", "\u00a0", "b"}));
  EXPECT_EQ(words("a \u00a0b"), (List{"a", " ", "\u00a0", "b"}));
}

TEST(Words, PutTogetherAreTheTextWhateverTheBytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (auto i = random() % 40; i > 0; --i)
      text += static_cast<char>(random() % 3 == 0 ? " '\t\xc3\xe2\xf0"[random() % 6] : random() % 256);
    std::string joined;
    for (const std::string& word : words(text)) {
      EXPECT_FALSE(word.empty());
      joined += word;
    }
    EXPECT_EQ(joined, text);
  }
}

TEST(Merges, GoByRankThenFromTheLeft) {
  MergeTable table;  // 1 = a, 2 = b, 3 = c; 4 = bc, 5 = ab, 6 = aa, 7 = aabc
  table.add(2, 3, {0, 4});
  table.add(1, 2, {1, 5});
  table.add(1, 1, {2, 6});
  table.add(6, 4, {3, 7});
  const auto merged = [&](std::vector<std::int32_t> tokens) {
    merge_tokens(table, tokens);
    return tokens;
  };
  EXPECT_EQ(merged({1, 2, 3}), (TokenIds{1, 4}));
  EXPECT_EQ(merged({1, 2, 1}), (TokenIds{5, 1}));
  EXPECT_EQ(merged({1, 1, 1}), (TokenIds{6, 1}));
  EXPECT_EQ(merged({1, 1, 2, 3}), (TokenIds{7}));
  EXPECT_EQ(merged({3}), (TokenIds{3}));
  EXPECT_EQ(merged({}), (TokenIds{}));
}

// The definition, word for word: find the best pair, merge all of its occurrences from the left, again.
TokenIds merge_slowly(const MergeTable& table, TokenIds tokens) {
  while (true) {
    const Merge* best = nullptr;
    std::pair<std::int32_t, std::int32_t> pair;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const Merge* const merge = table.find(tokens[i], tokens[i + 1]);
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) best = merge, pair = {tokens[i], tokens[i + 1]};
    }
    if (best == nullptr) return tokens;
    TokenIds next;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool both = i + 1 < tokens.size() && std::pair(tokens[i], tokens[i + 1]) == pair;
      next.push_back(both ? best->token : tokens[i]);
      i += both ? 1 : 0;
    }
    tokens = next;
  }
}

TEST(Merges, AreThoseOfTheDefinition) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    MergeTable table;
    std::int32_t next = 4;
    for (std::uint32_t rank = 0; rank < 12; ++rank, ++next) {  // a pair is made of tokens that exist by then, as in training
      table.add(static_cast<std::int32_t>(random() % next), static_cast<std::int32_t>(random() % next), {rank, next});
    }
    TokenIds tokens(round % 10 == 0 ? 200 + random() % 400 : random() % 30);
    const auto letters = 1 + random() % 4;
    for (auto& token : tokens) token = static_cast<std::int32_t>(random() % letters);
    TokenIds fast = tokens;
    merge_tokens(table, fast);
    EXPECT_EQ(fast, merge_slowly(table, tokens)) << tokens.size() << " tokens";
  }
}

// The lowest rank, the leftmost among equals, one merge at a time.
TokenIds merge_one_by_one(const MergeTable& table, TokenIds tokens) {
  while (true) {
    const Merge* best = nullptr;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const Merge* const merge = table.find(tokens[i], tokens[i + 1]);
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) best = merge, at = i;
    }
    if (best == nullptr) return tokens;
    tokens[at] = best->token;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// Candidates then come from right to left as well, and behind the rank that is being merged.
TEST(Merges, GoByRankThenFromTheLeftWhateverTheOrderOfTheRanks) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::uint32_t> ranks(14);
    for (std::uint32_t i = 0; i < ranks.size(); ++i) ranks[i] = i / (1 + round % 2);
    std::shuffle(ranks.begin(), ranks.end(), random);
    MergeTable table;
    std::int32_t next = 3;
    for (const std::uint32_t rank : ranks) {
      table.add(static_cast<std::int32_t>(random() % next), static_cast<std::int32_t>(random() % next), {rank, next});
      ++next;
    }
    TokenIds tokens(round % 2 == 0 ? 256 + random() % 200 : random() % 256);
    for (auto& token : tokens) token = static_cast<std::int32_t>(random() % 3);
    TokenIds fast = tokens;
    merge_tokens(table, fast);
    EXPECT_EQ(fast, merge_one_by_one(table, tokens)) << tokens.size() << " tokens";
  }
}

TEST(Bpe, GivesEveryByteAToken) {
  const Bpe bpe = tiny_bpe();
  for (int byte = 0; byte < 256; ++byte) {
    TokenIds ids;
    bpe.encode(std::string(1, static_cast<char>(byte)), ids);
    EXPECT_EQ(ids, (TokenIds{3 + byte}));
  }
  EXPECT_EQ(bpe.vocabulary(), 3 + 256 + 2);
}

TEST(Bpe, TruncatesTheLongerOfAPairFirst) {
  const Bpe bpe = tiny_bpe();
  const TokenIds a = {10, 11, 12, 13, 14, 15};
  const TokenIds b = {20, 21, 22};
  EXPECT_EQ(with_special_tokens(bpe, a), (TokenIds{0, 10, 11, 12, 13, 14, 15, 2}));
  EXPECT_EQ(with_special_tokens(bpe, a, 5), (TokenIds{0, 10, 11, 12, 2}));
  EXPECT_EQ(with_special_tokens(bpe, a, b), (TokenIds{0, 10, 11, 12, 13, 14, 15, 2, 2, 20, 21, 22, 2}));
  EXPECT_EQ(with_special_tokens(bpe, a, b, 10), (TokenIds{0, 10, 11, 12, 2, 2, 20, 21, 22, 2}));
  EXPECT_EQ(with_special_tokens(bpe, a, b, 9), (TokenIds{0, 10, 11, 12, 2, 2, 20, 21, 2}));
}

TEST(Bpe, LongWordsTakeNoQuadraticTime) {
  const Bpe bpe = tiny_bpe();
  TokenIds ids;
  bpe.encode(std::string(1 << 20, 'a'), ids);
  EXPECT_EQ(ids.size(), std::size_t{1} << 19);  // "aa" is a token
}

TEST(Bpe, NamesWhatIsWrongWithItsFiles) {
  const auto error = [](std::string_view vocab, std::string_view merges) {
    const auto bpe = Bpe::parse(std::as_bytes(std::span(vocab)), std::as_bytes(std::span(merges)));
    return bpe ? "" : bpe.error().message;
  };
  EXPECT_NE(error("[]", "").find("vocab.json"), std::string::npos);
  EXPECT_NE(error(R"({"<s>": -1})", "").find("<s>"), std::string::npos);
  EXPECT_NE(error(R"({"<s>": 0})", "").find("</s>"), std::string::npos);
  EXPECT_NE(error(R"({"a": 0})", "#version: 0.2\na\n").find("line 2 of merges.txt"), std::string::npos);
  EXPECT_NE(error(R"({"a": 0})", "a b\n").find("\"b\""), std::string::npos);
  const auto missing = Bpe::open("/nonexistent");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("/nonexistent/vocab.json"), std::string::npos);
}

TEST(Bpe, GivesTheIdsOfHuggingFaceLineForLine) {
  EPIPE_SKIP_WITHOUT(shared("reference/bpe_reference.jsonl"));
  const auto bpe = Bpe::open(shared("data/roberta-bpe"));
  ASSERT_TRUE(bpe.ok()) << bpe.error().text();
  std::ifstream file(shared("reference/bpe_reference.jsonl"));
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const json parsed = json::parse(line);
    TokenIds ids;
    bpe.value().encode(parsed["text"].get_ref<const std::string&>(), ids);
    EXPECT_EQ(with_special_tokens(bpe.value(), ids), parsed["ids"].get<TokenIds>()) << line;
  }
  EXPECT_EQ(lines, 2032U);
}

TEST(Tsv, TakesColumnsByNameOrNumber) {
  const auto named = parse_tsv("\xef\xbb\xbfid\ttext\tlabel\r\n1\tsay \"hi\t1\r\n\n2\t\t0", {{"label", "text"}, {}});
  ASSERT_TRUE(named.ok()) << named.error().text();
  EXPECT_EQ(named.value(), (TsvRows{{"1", "say \"hi"}, {"0", ""}}));
  const auto numbered = parse_tsv("a\tb\tc\nd\te\tf\tg\n", {{}, {2, 0}});
  ASSERT_TRUE(numbered.ok());
  EXPECT_EQ(numbered.value(), (TsvRows{{"c", "a"}, {"f", "d"}}));
}

TEST(Tsv, NamesTheLineAndTheColumnThatIsMissing) {
  const auto header = parse_tsv("id\tlabel\n", {{"sentence"}, {}});
  ASSERT_FALSE(header.ok());
  EXPECT_NE(header.error().message.find("\"sentence\""), std::string::npos);
  const auto line = parse_tsv("id\ttext\n1\ta\n2\n", {{"text"}, {}});
  ASSERT_FALSE(line.ok());
  EXPECT_NE(line.error().message.find("line 3"), std::string::npos);
  const auto skipped = parse_tsv("id\ttext\n1\ta\n2\n", {{"text"}, {}, true});
  ASSERT_TRUE(skipped.ok());
  EXPECT_EQ(skipped.value().size(), 1U);
  EXPECT_FALSE(parse_tsv("", {{"text"}, {}}).ok());
}

TEST(Glue, FindsTasksByAnySpelling) {
  for (const char* const name : {"sst2", "SST-2", "sst-2", "Sst_2"}) EXPECT_EQ(glue_task(name).folder, "SST-2");
  EXPECT_EQ(glue_task("STS-B").metrics, (std::vector<std::string>{"pearson", "spearman"}));
  EXPECT_TRUE(glue_task("stsb").regression());
  EXPECT_EQ(glue_task("mnli-mm").validation, "dev_mismatched.tsv");
  try {
    glue_task("squad");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("cola, sst2, mrpc, stsb, qqp, mnli"), std::string::npos);
  }
}

// One line of every task as its files have them: the sentences and the class must be found.
TEST(Glue, ReadsTheLayoutOfEveryTask) {
  struct Sample {
    const char* task;
    std::string text;
    std::vector<std::string_view> sentences;
    float target;
  };
  const std::vector<Sample> samples = {
      {"cola", "gj04\t1\t\tA.\n", {"A."}, 1},
      {"sst2", "sentence\tlabel\nA. \t0\n", {"A. "}, 0},
      {"mrpc", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tA.\tB.\n", {"A.", "B."}, 1},
      {"stsb",
       "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n0\tg\tf\ty\t1\ts\tt\tA.\tB.\t3.75\n",
       {"A.", "B."},
       3.75F},
      {"qqp", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tA?\tB?\t1\n4\tbroken\n", {"A?", "B?"}, 1},
      {"mnli", "index\tpromptID\tsentence1\tsentence2\tlabel1\tgold_label\n0\t1\tA.\tB.\tneutral\tcontradiction\n", {"A.", "B."}, 2},
      {"qnli", "index\tquestion\tsentence\tlabel\n0\tA?\tB.\tnot_entailment\n", {"A?", "B."}, 1},
      {"rte", "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tentailment\n", {"A.", "B."}, 0},
      {"wnli", "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t1\n", {"A.", "B."}, 1},
  };
  for (const Sample& sample : samples) {
    const auto examples = parse_glue(sample.text, glue_task(sample.task));
    ASSERT_TRUE(examples.ok()) << sample.task << ": " << examples.error().text();
    ASSERT_EQ(examples.value().size(), 1U) << sample.task;
    EXPECT_EQ(examples.value()[0].sentences, sample.sentences) << sample.task;
    EXPECT_EQ(examples.value()[0].target, sample.target) << sample.task;
  }
}

TEST(Glue, RefusesLabelsOutsideTheTask) {
  const auto classes = parse_glue("index\tsentence1\tsentence2\tlabel\n0\tA\tB\tmaybe\n", glue_task("rte"));
  ASSERT_FALSE(classes.ok());
  EXPECT_NE(classes.error().message.find("\"maybe\""), std::string::npos);
  const GlueTask stsb = glue_task("stsb");
  EXPECT_FALSE(parse_glue("sentence1\tsentence2\tscore\na\tb\tnan\n", stsb).ok());
  EXPECT_FALSE(parse_glue("sentence1\tsentence2\tscore\na\tb\t1.5x\n", stsb).ok());
}

}  // namespace
}  // namespace epipe::data
