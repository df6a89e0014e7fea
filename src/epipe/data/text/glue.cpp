#include "epipe/data/text/glue.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "epipe/base/file.h"
#include "epipe/data/sources.h"
#include "epipe/data/text/bpe.h"
#include "epipe/data/text/text_dataset.h"
#include "epipe/data/text/tokenizer.h"

namespace epipe::data {
namespace {

constexpr std::int64_t kDefaultLength = 128;
constexpr std::int64_t kShortest = 8;
constexpr std::uint64_t kMaxGlueBytes = std::uint64_t{1} << 31;

// Classes have the same numbers as in Hugging Face's copies of the tasks.
std::vector<GlueTask> tasks() {
  const std::vector<std::string> zero_one = {"0", "1"};
  const std::vector<std::string> entailment = {"entailment", "not_entailment"};
  const std::vector<std::string> mnli = {"entailment", "neutral", "contradiction"};
  return {
      {"cola", "CoLA", "dev.tsv", {{}, {3, 1}}, 1, zero_one, {"matthews", "accuracy"}},  // no header line
      {"sst2", "SST-2", "dev.tsv", {{"sentence", "label"}, {}}, 1, zero_one},
      {"mrpc", "MRPC", "dev.tsv", {{"#1 String", "#2 String", "Quality"}, {}}, 2, zero_one, {"f1", "accuracy"}},
      {"stsb", "STS-B", "dev.tsv", {{"sentence1", "sentence2", "score"}, {}}, 2, {}, {"pearson", "spearman"}},
      // A few of QQP's training lines are split by line breaks inside a question; the usual practice is to skip them.
      {"qqp", "QQP", "dev.tsv", {{"question1", "question2", "is_duplicate"}, {}, true}, 2, zero_one, {"f1", "accuracy"}},
      {"mnli", "MNLI", "dev_matched.tsv", {{"sentence1", "sentence2", "gold_label"}, {}}, 2, mnli},
      {"mnlimm", "MNLI", "dev_mismatched.tsv", {{"sentence1", "sentence2", "gold_label"}, {}}, 2, mnli},
      {"qnli", "QNLI", "dev.tsv", {{"question", "sentence", "label"}, {}}, 2, entailment},
      {"rte", "RTE", "dev.tsv", {{"sentence1", "sentence2", "label"}, {}}, 2, entailment},
      {"wnli", "WNLI", "dev.tsv", {{"sentence1", "sentence2", "label"}, {}}, 2, zero_one},
  };
}

// "SST-2" -> "sst2"
std::string plain(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (c != '-' && c != '_') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return letters;
}

std::optional<float> target_of(std::string_view text, const GlueTask& task) {
  if (task.regression()) {
    float value = 0;
    const auto [stop, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc() || stop != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
    return value;
  }
  const auto found = std::find(task.labels.begin(), task.labels.end(), text);
  if (found == task.labels.end()) return std::nullopt;
  return static_cast<float>(found - task.labels.begin());
}

// The folder of the task: the given one, or its subfolder with the task's name.
std::string find_glue_folder(const std::string& given, const GlueTask& task) {
  std::vector<std::string> candidates = {given};
  for (const std::string& name : list_folder(given)) {
    if (plain(name) == plain(task.folder)) candidates.push_back(path_in(given, name));
  }
  for (const std::string& folder : candidates) {
    if (exists(path_in(folder, "train.tsv")) && exists(path_in(folder, task.validation))) return folder;
  }
  throw std::runtime_error(fmt::format(
      "no GLUE task {0} in {1}: expected {1}/{2}/train.tsv and {3}; download it from https://gluebenchmark.com/tasks and unpack it there",
      task.name, given, task.folder, task.validation));
}

// A roberta-bpe folder in `folder` or one of its parents.
std::string find_bpe(const std::string& given, const std::string& folder) {
  if (!given.empty()) return given;
  std::string at = folder;
  for (int up = 0; up < 4; ++up, at += "/..") {
    if (exists(at + "/roberta-bpe/vocab.json")) return at + "/roberta-bpe";
  }
  throw std::runtime_error(fmt::format(
      "text needs RoBERTa's vocab.json and merges.txt: pass their folder with --bpe DIR, or put it as roberta-bpe beside {}", folder));
}

// Turns sentences into ids, with RoBERTa's byte pairs or a tokenizer.json.
class SentenceEncoder {
 public:
  SentenceEncoder(const DataConfig& config, const std::string& folder) {
    if (config.tokenizer.empty()) {
      bpe_.emplace(value_or_throw(Bpe::open(find_bpe(config.bpe, folder))));
      return;
    }
    if (!config.bpe.empty()) throw std::invalid_argument("expected either --tokenizer or --bpe, got both");
    tokenizer_.emplace(value_or_throw(Tokenizer::read(config.tokenizer)));
    if (!tokenizer_->pad()) {
      throw std::runtime_error(fmt::format("{} names no token to pad with: set pad_token in its tokenizer_config.json", config.tokenizer));
    }
  }

  std::int64_t vocabulary() const { return tokenizer_ ? tokenizer_->vocabulary() : bpe_->vocabulary(); }
  std::int32_t pad() const { return tokenizer_ ? *tokenizer_->pad() : bpe_->pad(); }

  void add(const GlueExample& example, std::size_t max_length, Sentences& out) const {
    if (tokenizer_) return add_encoded(example, max_length, out);
    std::vector<TokenIds> parts;
    for (const std::string_view sentence : example.sentences) bpe_->encode(sentence, parts.emplace_back());
    out.add(
        parts.size() == 1 ? with_special_tokens(*bpe_, parts[0], max_length) : with_special_tokens(*bpe_, parts[0], parts[1], max_length),
        example.target);
  }

 private:
  void add_encoded(const GlueExample& example, std::size_t max_length, Sentences& out) const {
    const auto encoding = value_or_throw(tokenizer_->encode_texts(example.sentences, true, max_length));
    if (tokenizer_->has_types()) {
      out.add(encoding, example.target);
    } else {
      out.add(encoding.ids, example.target);
    }
  }

  std::optional<Bpe> bpe_;
  std::optional<Tokenizer> tokenizer_;
};

Sentences read_glue_split(const std::string& path, const GlueTask& task, const SentenceEncoder& encoder, std::size_t max_length) {
  const auto bytes = value_or_throw(read_file(path, kMaxGlueBytes));
  const auto examples = parse_glue({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, task);
  if (!examples) throw std::runtime_error(fmt::format("{}: {}", path, examples.error().message));
  Sentences all;
  for (std::size_t i = 0; i < examples.value().size(); ++i) {
    try {
      encoder.add(examples.value()[i], max_length, all);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("{}: example {}: {}", path, i, error.what()));
    }
  }
  return all;
}

}  // namespace

GlueTask glue_task(std::string_view name) {
  std::vector<std::string> known;
  for (GlueTask& task : tasks()) {
    if (task.name == plain(name)) return task;
    known.push_back(task.name);
  }
  throw std::invalid_argument(fmt::format("unknown GLUE task \"{}\"; known are {}", name, fmt::join(known, ", ")));
}

Result<std::vector<GlueExample>> parse_glue(std::string_view text, const GlueTask& task) {
  const auto rows = parse_tsv(text, task.columns);
  if (!rows) return rows.error();
  std::vector<GlueExample> examples;
  for (std::size_t i = 0; i < rows.value().size(); ++i) {
    const auto& row = rows.value()[i];
    const auto target = target_of(row.back(), task);
    if (!target) {
      return Error{ErrorCode::kBadFile,
                   fmt::format("example {}: expected {}, got the label \"{}\"", i,
                               task.regression() ? "a number" : fmt::format("one of {}", fmt::join(task.labels, ", ")), row.back())};
    }
    examples.push_back({{row.begin(), row.end() - 1}, *target});
  }
  return examples;
}

Splits open_glue(const std::string& name, const std::string& given, const DataConfig& config) {
  const GlueTask task = glue_task(name);
  const std::string folder = find_glue_folder(given, task);
  const SentenceEncoder encoder(config, folder);
  const std::int64_t length = config.max_length == 0 ? kDefaultLength : config.max_length;
  if (length < kShortest) throw std::invalid_argument(fmt::format("--max-length: expected at least {} tokens, got {}", kShortest, length));
  DataSpec spec{DataSpec::Kind::kText, {length}, 1, encoder.vocabulary(), task.regression(), task.metrics};
  if (!task.regression()) spec.classes = static_cast<std::int64_t>(task.labels.size());
  const auto open = [&](const std::string& file) {
    return make_text_dataset(read_glue_split(path_in(folder, file), task, encoder, static_cast<std::size_t>(length)), spec, encoder.pad());
  };
  return {open("train.tsv"), open(task.validation)};
}

}  // namespace epipe::data
