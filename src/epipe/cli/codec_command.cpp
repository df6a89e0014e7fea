// epipe codec encode | decode | measure
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "epipe/base/file.h"
#include "epipe/cli/command.h"
#include "epipe/cli/measurement.h"
#include "epipe/codec/frame_codec.h"
#include "epipe/codec/measure.h"
#include "epipe/data/npy.h"

namespace epipe::cli {
namespace {

struct CodecFlags {
  std::string codec;
  std::vector<std::string> codecs;  // for measure
  std::string input;
  std::string output;
  std::vector<std::string> files;
  int threads = 1;
  bool json = false;
  double seconds = codec::MeasureOptions{}.seconds;
  std::uint64_t max_bytes = wire::Limits{}.max_payload_bytes;
};

void run_encode(const CodecFlags& flags) {
  ThreadPool pool(flags.threads);
  const codec::CodecOptions options{&pool};
  const auto codec = codec_from_flag(flags.codec, options);
  const auto x = value_or_fail(data::read_npy(flags.input));
  Bytes frame;
  value_or_fail(codec::encode_frame(*codec, x, {}, {}, &pool, frame));
  value_or_fail(write_file(flags.output, {frame}));
}

void run_decode(const CodecFlags& flags) {
  ThreadPool pool(flags.threads);
  const wire::Limits limits{flags.max_bytes, flags.max_bytes / sizeof(float)};
  const auto frame = value_or_fail(read_file(flags.input, flags.max_bytes + wire::kMaxHeaderBytes));
  auto x = codec::decode_frame(frame, limits, {&pool});
  if (!x) throw Failure(fmt::format("{}: {}", flags.input, x.error().text()));
  value_or_fail(data::write_npy(flags.output, x.value().to(torch::kFloat32)));
}

void run_measure(const CodecFlags& flags) {
  ThreadPool pool(flags.threads);
  const codec::CodecOptions options{&pool};
  std::vector<std::string> specs;  // all are checked before anything is measured
  for (const std::string& spec : flags.codecs) specs.push_back(codec_from_flag(spec, options)->spec());
  MeasurementTable table;
  for (const std::string& file : flags.files) {
    const auto x = value_or_fail(data::read_npy(file));
    for (const std::string& spec : specs) {
      const auto result = codec::measure(spec, x, options, {flags.seconds});
      if (!result) throw Failure(fmt::format("{}: {}", file, result.error().text()));
      if (flags.json) {
        auto line = to_json(spec, result.value());
        line["file"] = file;
        fmt::print("{}\n", line.dump());
      } else {
        table.add(file, spec, result.value());
      }
    }
  }
  if (!flags.json) table.print();
}

}  // namespace

void add_codec_command(CLI::App& app) {
  // Owned by the callbacks below as well, which run after this function returns.
  auto flags = std::make_shared<CodecFlags>();
  auto* codec = app.add_subcommand("codec", "Encode, decode and measure tensors in .npy files");
  codec->require_subcommand(1);
  const auto add = [&](const char* name, const char* text, void (*run)(const CodecFlags&)) {
    auto* command = codec->add_subcommand(name, text);
    command->add_option("--threads", flags->threads, "Threads that share the work")->check(CLI::Range(1, 1024))->capture_default_str();
    command->callback([flags, run] { run(*flags); });
    return command;
  };
  const std::string spec_help = fmt::format("One of {}; the transforms at the end may be followed by >CODEC", codec::known_codecs());

  auto* encode = add("encode", "Write the frame that would cross a cut", run_encode);
  encode->add_option("--codec", flags->codec, spec_help)->required();
  encode->add_option("input", flags->input, "float32 .npy of any shape")->required();
  encode->add_option("output", flags->output, "the frame, .epf")->required();

  auto* decode = add("decode", "Turn a frame back into a tensor", run_decode);
  decode->add_option("input", flags->input, "a frame, .epf")->required();
  decode->add_option("output", flags->output, "float32 .npy")->required();
  decode->add_option("--max-bytes", flags->max_bytes, "Refuse payloads and tensors above this many bytes")->capture_default_str();

  auto* measure = add("measure", "Bytes on the wire, error and speed, against memcpy", run_measure);
  measure->add_option("--codec", flags->codecs, spec_help + "; may be given several times")
      ->required()
      ->allow_extra_args(false);  // a file may follow
  measure->add_option("files", flags->files, "float32 .npy files")->required();
  measure->add_option("--seconds", flags->seconds, "Time spent on the speeds of each codec on each file")
      ->check(positive_number())
      ->capture_default_str();
  measure->add_flag("--json", flags->json, "One JSON object per file and codec, on a line of its own, instead of a table");
}

}  // namespace epipe::cli
