#include "epipe/experiment/catalogue.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "epipe/experiment/csv.h"
#include "epipe/experiment/files.h"

namespace epipe::experiment {
namespace {

template <typename T>
T number(const std::string& text) {
  T value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "0 1 0" as "0,1,0"
std::string with_commas(const std::string& text) { return fmt::format("{}", fmt::join(words_of(text), ",")); }

int workers_of(const std::string& place) {
  int most = 0;
  for (const std::string& word : words_of(place)) most = std::max(most, number<int>(word));
  return most + 1;
}

// Lines of one file by their first column.
using Named = std::map<std::string, Record>;

Result<Named> read_named(const std::vector<File>& files, std::string_view name, const std::string& key) {
  for (const File& file : files) {
    if (file.name != name) continue;
    auto records = parse_csv(file.text, file.name);
    if (!records) return records.error();
    Named named;
    for (Record& record : records.value()) named.emplace(record[key], record);
    return named;
  }
  return bad_file(fmt::format("experiments/{} is missing", name));
}

Figures figures_of(const std::string& text) {
  Figures figures;
  for (const std::string& word : words_of(text)) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) figures.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  return figures;
}

// The flags of a row in the order model, partition, task, row.
Result<Flags> flags_of(const Record& row, const Record& task, const Record& partition) {
  Flags flags;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) flags.emplace_back(name, value);
  };
  add("--model", task.at("model"));
  add("--cuts", with_commas(partition.at("cuts")));
  add("--place", with_commas(partition.at("place")));
  for (const Record* const from : {&task, &row}) {
    auto more = parse_flags(words_of(from->at("flags")));
    if (!more) return more.error();
    flags = overridden(flags, more.value());
  }
  add("--batch", row.at("batch"));
  if (row.at("chunks") != "1") add("--chunks", row.at("chunks"));
  add("--lr", row.at("lr"));
  return flags;
}

Result<Entry> entry_of(const Record& row, const std::string& table, const Named& tasks, const Named& partitions) {
  const Record no_partition = {{"cuts", ""}, {"place", ""}};
  const auto task = tasks.find(row.at("task"));
  const auto partition = partitions.find(row.at("partition"));
  if (task == tasks.end()) return bad_file(fmt::format("{}: there is no task \"{}\"", row.at("id"), row.at("task")));
  const bool parameters = task->first == "parameters";
  if (!parameters && partition == partitions.end())
    return bad_file(fmt::format("{}: there is no partition \"{}\"", row.at("id"), row.at("partition")));
  auto flags = flags_of(row, task->second, parameters ? no_partition : partition->second);
  if (!flags) return flags.error();
  Entry entry;
  entry.id = row.at("id");
  entry.table = table;
  entry.partition = row.at("partition");
  entry.kind = parameters ? Kind::kParameters : entry.partition == "data" ? Kind::kDataParallel : Kind::kPipeline;
  entry.data = task->second.at("data");
  entry.weights = task->second.at("weights");
  entry.flags = std::move(flags).value();
  entry.model = entry.flag("--model");
  entry.samples = number<std::int64_t>(task->second.at("samples"));
  entry.epochs = number<int>(task->second.at("epochs"));
  entry.warmup = number<double>(task->second.at("warmup"));
  entry.workers = entry.kind == Kind::kPipeline ? workers_of(partition->second.at("place")) : 1;
  entry.replicas = entry.kind == Kind::kDataParallel ? number<int>(row.at("gpus")) : 1;
  entry.baseline = row.at("baseline");
  entry.published = figures_of(row.at("published"));
  entry.note = row.at("note");
  return entry;
}

// Equal for entries that are the same run.
std::string fingerprint(const Entry& e) {
  return fmt::format("{} {} {} {} {} {} {}", static_cast<int>(e.kind), e.data, e.weights, e.epochs, e.warmup, e.replicas,
                     fmt::join(e.flags, " "));
}

Result<void> check(std::vector<Entry>& entries) {
  std::map<std::string, std::string> first;
  std::set<std::string> ids;
  for (Entry& entry : entries) {
    if (!ids.insert(entry.id).second) return bad_file(fmt::format("the id {} occurs twice", entry.id));
    entry.same_as = first.emplace(fingerprint(entry), entry.id).first->second;
  }
  for (const Entry& entry : entries) {
    if (!entry.baseline.empty() && !ids.contains(entry.baseline)) {
      return bad_file(fmt::format("{}: there is no entry \"{}\" to compare with", entry.id, entry.baseline));
    }
  }
  return {};
}

// "{} samples/s": how a figure is written.
const std::map<std::string, std::string> kForms = {{"accuracy", "accuracy {} %"},
                                                   {"matthews", "Matthews {}"},
                                                   {"error", "top-1 error {} %"},
                                                   {"sd", "\u00b1 {}"},
                                                   {"samples_per_s", "{} samples/s"},
                                                   {"speedup", "speed-up {}"},
                                                   {"ratio", "ratio {}"},
                                                   {"bandwidth_GBps", "{} GB/s"},
                                                   {"seconds_per_batch", "{} s per batch"},
                                                   {"transfer_s", "transfer {} s"},
                                                   {"backward_s", "backward {} s"},
                                                   {"parameters_M", "{} million parameters"}};

}  // namespace

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (const char c : text) {
    if (words.empty() || c == ' ') words.emplace_back();
    if (c != ' ') words.back() += c;
  }
  std::erase(words, "");
  return words;
}

Result<Flags> parse_flags(const std::vector<std::string>& words) {
  Flags flags;
  for (const std::string& word : words) {
    if (word.starts_with("--")) {
      const std::size_t equals = word.find('=');
      flags.emplace_back(word.substr(0, equals), equals == std::string::npos ? "" : word.substr(equals + 1));
    } else if (flags.empty() || !flags.back().second.empty()) {
      return bad_file(fmt::format("expected a flag such as --lr and its value, got \"{}\"", word));
    } else {
      flags.back().second = word;
    }
  }
  return flags;
}

Flags overridden(const Flags& flags, const Flags& others) {
  Flags all;
  for (const auto& flag : flags) {
    const bool replaced = std::any_of(others.begin(), others.end(), [&](const auto& other) { return other.first == flag.first; });
    if (!replaced) all.push_back(flag);
  }
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::string Entry::flag(std::string_view name) const {
  for (const auto& [key, value] : flags) {
    if (key == name) return value;
  }
  return "";
}

std::string Entry::published_value(std::string_view name) const {
  for (const auto& [key, value] : published) {
    if (key == name) return value;
  }
  return "";
}

Result<std::vector<Entry>> read_catalogue() {
  const auto files = read_files(table_folders());
  if (!files) return files.error();
  const auto tasks = read_named(files.value(), "tasks.csv", "task");
  if (!tasks) return tasks.error();
  const auto partitions = read_named(files.value(), "partitions.csv", "partition");
  if (!partitions) return partitions.error();
  std::vector<Entry> entries;
  for (const File& file : files.value()) {
    if (file.name == "tasks.csv" || file.name == "partitions.csv") continue;
    const auto rows = parse_csv(file.text, file.name);
    if (!rows) return rows.error();
    for (const Record& row : rows.value()) {
      auto entry = entry_of(row, file.name.substr(0, file.name.rfind('.')), tasks.value(), partitions.value());
      if (!entry) return entry.error();
      entries.push_back(std::move(entry).value());
    }
  }
  EPIPE_TRY(check(entries));
  return entries;
}

Result<std::vector<Entry>> select(const std::vector<Entry>& all, const std::vector<std::string>& patterns) {
  const auto fits = [](const std::string& pattern, const Entry& entry) { return ::fnmatch(pattern.c_str(), entry.id.c_str(), 0) == 0; };
  for (const std::string& pattern : patterns) {
    if (std::none_of(all.begin(), all.end(), [&](const Entry& entry) { return fits(pattern, entry); })) {
      return bad_file(fmt::format("no experiment is called \"{}\"; `epipe experiment list` shows all", pattern));
    }
  }
  std::vector<Entry> chosen;
  for (const Entry& entry : all) {
    if (patterns.empty() || std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) { return fits(p, entry); })) {
      chosen.push_back(entry);
    }
  }
  return chosen;
}

std::string describe(const Entry& entry) {
  if (entry.kind == Kind::kParameters) return fmt::format("parameters of {}", entry.model);
  std::string codec;
  for (const auto& [name, value] : entry.flags) {
    if (name.starts_with("--codec")) codec += (codec.empty() ? "" : " ") + value;
  }
  if (codec.empty()) codec = "codec not published";
  const std::string chunks = entry.flag("--chunks");
  const std::string batch = fmt::format("batch {}{}", entry.flag("--batch"), chunks.empty() ? "" : " in " + chunks + " chunks");
  if (entry.kind == Kind::kDataParallel) {
    return fmt::format("{}, {}, {}, {}, data parallel on {}", entry.data, entry.model, entry.flag("--optimizer"), batch, entry.replicas);
  }
  return fmt::format("{}, {}, {}, {}, {}, {} workers", entry.data, entry.model, entry.partition, codec, batch, entry.workers);
}

std::string describe(const Figures& figures) {
  std::string text;
  for (const auto& [name, value] : figures) {
    const auto form = kForms.find(name);
    text += text.empty() ? "" : name == "sd" ? " " : ", ";
    text += form == kForms.end() ? name + " " + value : fmt::format(fmt::runtime(form->second), value);
  }
  return text.empty() ? "-" : text;
}

}  // namespace epipe::experiment
