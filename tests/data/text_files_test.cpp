// text:PATH: files become blocks of tokens, once; and GLUE with a tokenizer.json.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <numeric>

#include "epipe/base/file.h"
#include "epipe/data/open.h"
#include "epipe/data/text/text_files.h"
#include "epipe/data/text/token_store.h"
#include "support/temp_folder.h"
#include "support/tiny_tokenizer.h"

namespace epipe::data {
namespace {

constexpr std::int64_t kEnd = 261;
constexpr std::int64_t kPad = 1;

class TextData : public ::testing::Test {
 protected:
  void SetUp() override {
    put("tokenizer/tokenizer.json", testing::tiny_tokenizer().dump());
    put("pairs/tokenizer.json", testing::tiny_pair_tokenizer().dump());
  }

  void put(const std::string& name, const std::string& text) const {
    const std::string path = folder_.file(name);
    ASSERT_TRUE(make_folders(path.substr(0, path.rfind('/'))).ok());
    std::ofstream(path, std::ios::binary) << text;
  }
  Splits open_text(const std::string& path, std::int64_t length, const std::string& cache = "cache") const {
    DataConfig config;
    config.spec = "text:" + folder_.file(path);
    config.max_length = length;
    config.tokenizer = folder_.file("tokenizer");
    if (!cache.empty()) config.cache_dir = folder_.file(cache);
    return open_data(config, DataSpec::Kind::kImages, 0);
  }
  std::string text_error(const std::string& path, std::int64_t length = 4) const {
    try {
      open_text(path, length);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }
  static std::vector<std::int64_t> row_of(const torch::Tensor& rows, std::int64_t row) {
    const auto values = rows[row].contiguous();
    return {values.data_ptr<std::int64_t>(), values.data_ptr<std::int64_t>() + values.numel()};
  }
  static std::vector<std::int64_t> row(const Dataset& data, std::int64_t id) {
    return row_of(data.batch(std::vector<std::int64_t>{id}).inputs[0], 0);
  }
  static std::vector<std::int64_t> targets(const Dataset& data, std::int64_t id) {
    return row_of(data.batch(std::vector<std::int64_t>{id}).targets, 0);
  }
  static std::int64_t byte(char c) { return 3 + static_cast<unsigned char>(c); }
  std::vector<std::string> caches(const std::string& name = "cache") const { return list_folder(folder_.file(name)); }

  testing::TempFolder folder_;
};

TEST_F(TextData, DocumentsAreJoinedWithEndOfTextAndCutIntoBlocks) {
  put("text/train/b.txt", "xyz");
  put("text/train/a.txt", "bc");
  put("text/train/deep/c.txt", "pq");
  put("text/train/.hidden", "\xff");
  put("text/train/empty.txt", "");
  put("text/val/v.txt", "hij");
  const Splits splits = open_text("text", 4);
  EXPECT_TRUE(splits.notes.empty());
  ASSERT_EQ(splits.train->size(), 3);  // b c E x | y z E p | q E
  ASSERT_EQ(splits.validation->size(), 1);
  EXPECT_EQ(row(*splits.train, 0), (std::vector<std::int64_t>{byte('b'), byte('c'), kEnd, byte('x')}));
  EXPECT_EQ(row(*splits.train, 1), (std::vector<std::int64_t>{byte('y'), byte('z'), kEnd, byte('p')}));
  EXPECT_EQ(row(*splits.train, 2), (std::vector<std::int64_t>{byte('q'), kEnd, kPad, kPad}));
  EXPECT_EQ(targets(*splits.train, 1), row(*splits.train, 1));
  EXPECT_EQ(targets(*splits.train, 2), (std::vector<std::int64_t>{byte('q'), kEnd, layer::kNoTarget, layer::kNoTarget}));
  EXPECT_EQ(row(*splits.validation, 0), (std::vector<std::int64_t>{byte('h'), byte('i'), byte('j'), kEnd}));
  const auto batch = splits.train->batch(std::vector<std::int64_t>{2, 0});
  EXPECT_EQ(batch.inputs.size(), 1U);
  EXPECT_TRUE(batch.side.empty());
  EXPECT_EQ(batch.samples, (std::vector<std::int64_t>{2, 0}));
  const DataSpec spec = splits.train->spec();
  EXPECT_EQ(spec.kind, DataSpec::Kind::kText);
  EXPECT_EQ(spec.shape, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(spec.vocabulary, 262);
  EXPECT_EQ(spec.classes, 262);
  EXPECT_TRUE(spec.next_token);
  EXPECT_EQ(spec.metrics, (std::vector<std::string>{"perplexity"}));
}

TEST_F(TextData, WithoutAValidationFolderTheTailIsHeldOut) {
  std::string text;
  for (int i = 0; i < 45; ++i) text += "wxyz";
  put("book.txt", text);
  const Splits splits = open_text("book.txt", 4);
  EXPECT_EQ(splits.train->size(), 41);  // 45 blocks; the end-of-text token alone predicts nothing
  EXPECT_EQ(splits.validation->size(), 4);
  ASSERT_EQ(splits.notes.size(), 1U);
  EXPECT_NE(splits.notes[0].find("last 4 of 45 blocks"), std::string::npos) << splits.notes[0];
  put("short.txt", "ab");
  EXPECT_NE(text_error("short.txt").find("one block of 2 tokens"), std::string::npos) << text_error("short.txt");
  put("long.txt", std::string(2000, 'x'));
  EXPECT_EQ(open_text("long.txt", 0).train->spec().max_length(), 512);
}

TEST_F(TextData, TheLossOfAnAnswerIsOnTheCompletionOnly) {
  put("answers/train/a.jsonl",
      "{\"prompt\": \"bc\", \"completion\": \"xy\"}\n\n{\"prompt\": \"bcd\", \"completion\": \"xyz\"}\r\n"
      "{\"prompt\": \"bcdefgh\", \"completion\": \"x\"}\n{\"prompt\": \"\", \"completion\": \"x\"}\n");
  put("answers/validation/b.jsonl", "{\"text\": \"hijk\"}\n{\"text\": \"lm\"}\n");
  const Splits splits = open_text("answers", 6);
  ASSERT_EQ(splits.train->size(), 3);
  EXPECT_EQ(row(*splits.train, 0), (std::vector<std::int64_t>{byte('b'), byte('c'), byte('x'), byte('y'), kEnd, kPad}));
  EXPECT_EQ(targets(*splits.train, 0),
            (std::vector<std::int64_t>{layer::kNoTarget, layer::kNoTarget, byte('x'), byte('y'), kEnd, layer::kNoTarget}));
  EXPECT_EQ(targets(*splits.train, 1),
            (std::vector<std::int64_t>{layer::kNoTarget, layer::kNoTarget, layer::kNoTarget, byte('x'), byte('y'), byte('z')}));
  EXPECT_EQ(targets(*splits.train, 2),
            (std::vector<std::int64_t>{byte('x'), kEnd, layer::kNoTarget, layer::kNoTarget, layer::kNoTarget, layer::kNoTarget}));
  ASSERT_EQ(splits.notes.size(), 1U);
  EXPECT_NE(splits.notes[0].find("1 samples are left out"), std::string::npos) << splits.notes[0];
  EXPECT_EQ(row(*splits.validation, 0), (std::vector<std::int64_t>{byte('h'), byte('i'), byte('j'), byte('k'), kEnd, byte('l')}));
  EXPECT_EQ(open_text("answers", 6).notes, splits.notes);  // the cache remembers them
}

TEST_F(TextData, BadFilesAreErrorsThatNameThePlace) {
  EXPECT_NE(text_error("absent").find("absent: expected a text file, or a folder"), std::string::npos) << text_error("absent");
  ASSERT_TRUE(make_folders(folder_.file("void")).ok());
  EXPECT_NE(text_error("void").find("has no files of text"), std::string::npos);
  put("bad/a.txt", "good");
  put("bad/b.txt", "caf\xc3\xa9 \xe9t\xe9");
  EXPECT_NE(text_error("bad").find("bad/b.txt: expected UTF-8, got another byte at offset 6"), std::string::npos) << text_error("bad");
  for (const std::string line : {"{\"text\": 1}", "{\"prompt\": \"a\"}", "[]", "{\"text\": \"a", "text"}) {
    put("lines.jsonl", "{\"text\": \"a\"}\n" + line + "\n");
    EXPECT_NE(text_error("lines.jsonl").find("lines.jsonl:2: expected {\"text\""), std::string::npos) << text_error("lines.jsonl");
  }
  EXPECT_TRUE(caches().empty());  // nothing half done is kept
  put("fine.txt", "some text");
  EXPECT_NE(text_error("fine.txt", 1).find("at least 2 tokens, got 1"), std::string::npos);
  put("tokenizer/tokenizer.json", "{}");
  EXPECT_NE(text_error("fine.txt").find("tokenizer/tokenizer.json: model"), std::string::npos) << text_error("fine.txt");
  nlohmann::json endless = testing::tiny_tokenizer();
  endless["added_tokens"] = nlohmann::json::array();
  endless["model"]["vocab"].erase("</s>");
  put("tokenizer/tokenizer.json", endless.dump());
  EXPECT_NE(text_error("fine.txt").find("no end-of-text token"), std::string::npos) << text_error("fine.txt");
}

TEST_F(TextData, FlagsThatWouldDoNothingAreRefused) {
  const auto error = [](const std::string& spec, const std::string& tokenizer, const std::string& bpe,
                        std::int64_t image_size) -> std::string {
    DataConfig config;
    config.spec = spec;
    config.tokenizer = tokenizer;
    config.bpe = bpe;
    config.image_size = image_size;
    try {
      open_data(config, DataSpec::Kind::kImages, 0);
    } catch (const std::invalid_argument& refused) {
      return refused.what();
    }
    return "";
  };
  EXPECT_NE(error("text:x", "", "", 0).find("--tokenizer DIR"), std::string::npos);
  EXPECT_NE(error("text:x", "tok", "bpe", 0).find("--bpe has no meaning"), std::string::npos);
  EXPECT_NE(error("text:x", "tok", "", 32).find("--image-size has no meaning"), std::string::npos);
  EXPECT_NE(error("npy:x", "tok", "", 0).find("--tokenizer has no meaning"), std::string::npos);
  EXPECT_NE(error("text:", "tok", "", 0).find("expected text:"), std::string::npos);
}

TEST_F(TextData, TokensAreMadeOnceAndAgainWhenAnythingChanges) {
  put("book.txt", "one two three four five six");
  const auto expected = row(*open_text("book.txt", 4).train, 1);
  ASSERT_EQ(caches().size(), 1U);
  const auto made = [&] {
    struct stat status {};
    ::stat(folder_.file("cache/" + caches()[0]).c_str(), &status);
    return status.st_ino;
  };
  const auto first = made();
  EXPECT_EQ(row(*open_text("book.txt", 4).train, 1), expected);
  EXPECT_EQ(made(), first);  // not written again
  open_text("book.txt", 5);
  EXPECT_EQ(caches().size(), 2U);
  put("book.txt", "one two three four five seven");
  open_text("book.txt", 4);
  EXPECT_EQ(caches().size(), 3U);
  put("tokenizer/tokenizer_config.json", "{\"eos_token\": \"</s>\"}");
  open_text("book.txt", 4);
  EXPECT_EQ(caches().size(), 4U);
}

TEST_F(TextData, ADamagedCacheIsNoticedAndMadeAgain) {
  put("book.txt", "one two three four five six");
  const auto expected = row(*open_text("book.txt", 4).train, 1);
  const std::string path = folder_.file("cache/" + caches().at(0));
  const auto whole = read_file(path, 1 << 20).value();
  const std::string bytes(reinterpret_cast<const char*>(whole.data()), whole.size());
  std::vector<std::string> damaged = {"", bytes.substr(0, 40), bytes.substr(0, bytes.size() - 4), bytes + "more"};
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    damaged.push_back(bytes);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 0x10);
  }
  for (const std::string& content : damaged) {
    std::ofstream(path, std::ios::binary) << content;
    const Splits splits = open_text("book.txt", 4);
    EXPECT_EQ(row(*splits.train, 1), expected);
    ASSERT_EQ(splits.notes.size(), 2U);  // and the tail
    EXPECT_NE(splits.notes[0].find("tokenized again"), std::string::npos) << splits.notes[0];
    EXPECT_EQ(read_file(path, 1 << 20).value(), whole);
  }
}

TEST_F(TextData, TheCacheIsBesideTheTextOrNowhere) {
  put("books/a.txt", "one two three four five six");
  open_text("books", 4, "");
  EXPECT_EQ(caches("books/.epipe-cache").size(), 1U);
  EXPECT_EQ(open_text("books", 4, "").train->size(), 6);  // its own cache is no text
  put("file", "");
  const Splits splits = open_text("books", 4, "file/cache");  // cannot be made
  ASSERT_EQ(splits.notes.size(), 2U);
  EXPECT_NE(splits.notes[0].find("kept in memory only"), std::string::npos);
  EXPECT_EQ(splits.train->size(), 6);
}

TEST_F(TextData, TheCacheIsReadableToItsOwnerAlone) {
  put("books/a.txt", "one two three four five six");
  const mode_t before = ::umask(022);
  open_text("books", 4, "");
  open_text("books", 4, "kept/tokens");
  ::umask(before);
  const auto mode = [&](const std::string& name) {
    struct stat status {};
    EXPECT_EQ(::stat(folder_.file(name).c_str(), &status), 0) << name;
    return status.st_mode & 0777U;
  };
  for (const char* const cache : {"books/.epipe-cache", "kept/tokens"}) {
    EXPECT_EQ(mode(cache), 0700U) << cache;
    ASSERT_EQ(caches(cache).size(), 1U) << cache;
    EXPECT_EQ(mode(std::string(cache) + "/" + caches(cache)[0]), 0600U) << cache;
  }
  EXPECT_EQ(mode("kept"), 0700U);
}

TEST_F(TextData, GlueTakesATokenizerWithItsTemplateAndTypes) {
  put("RTE/train.tsv", "index\tsentence1\tsentence2\tlabel\n0\tbcdefghij\txyz\tentailment\n1\tb\tx\tnot_entailment\n");
  put("RTE/dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\tbcd\txyz\tentailment\n");
  DataConfig config;
  config.spec = "glue/rte:" + folder_.path();
  config.tokenizer = folder_.file("pairs");
  config.max_length = 10;
  const Splits splits = open_data(config, DataSpec::Kind::kText, 0);
  const auto batch = splits.train->batch(std::vector<std::int64_t>{0, 1});
  ASSERT_EQ(batch.inputs.size(), 2U);
  EXPECT_EQ(row_of(batch.inputs[0], 0),
            (std::vector<std::int64_t>{0, byte('b'), byte('c'), byte('d'), byte('e'), 2, byte('x'), byte('y'), byte('z'), 2}));
  EXPECT_EQ(row_of(batch.inputs[1], 0), (std::vector<std::int64_t>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(row_of(batch.inputs[0], 1), (std::vector<std::int64_t>{0, byte('b'), 2, byte('x'), 2, kPad, kPad, kPad, kPad, kPad}));
  EXPECT_EQ(row_of(batch.inputs[1], 1), (std::vector<std::int64_t>{0, 0, 0, 1, 1, 0, 0, 0, 0, 0}));
  ASSERT_EQ(batch.side.size(), 1U);
  EXPECT_EQ(batch.side[0][1].sum().item<float>(), 5);
  EXPECT_EQ(splits.train->spec().vocabulary, 262);
  config.tokenizer = folder_.file("tokenizer");  // no types
  EXPECT_EQ(open_data(config, DataSpec::Kind::kText, 0).train->batch(std::vector<std::int64_t>{0}).inputs.size(), 1U);
  config.bpe = "x";
  EXPECT_THROW(open_data(config, DataSpec::Kind::kText, 0), std::invalid_argument);
  config.bpe = "";
  put("RTE/dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\tb\xff\txyz\tentailment\n");
  try {
    open_data(config, DataSpec::Kind::kText, 0);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("dev.tsv: example 0: the text is not UTF-8 at byte 1"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace epipe::data
