// epipe train, epipe eval
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <optional>

#include "epipe/base/clock.h"
#include "epipe/base/file.h"
#include "epipe/cli/command.h"
#include "epipe/cli/plan_run.h"
#include "epipe/cli/resume.h"
#include "epipe/cli/run_folder.h"
#include "epipe/cli/stop_signal.h"
#include "epipe/cli/train_flags.h"
#include "epipe/cli/train_metrics.h"
#include "epipe/model/hf_folder.h"
#include "epipe/report/page.h"
#include "epipe/session/checkpoint.h"
#include "epipe/session/servers.h"
#include "epipe/train/cluster.h"
#include "epipe/train/probe.h"
#include "epipe/train/reuse.h"
#include "epipe/train/trainer.h"

namespace epipe::cli {
namespace {

using train::TrainConfig;

// ", matthews 0.5123, accuracy 0.8000"
std::string metrics_text(const train::EpochResult& result) {
  std::string text;
  for (const auto& [name, value] : result.val_metrics) text += fmt::format(", {} {:.4f}", name, value);
  return text;
}

// Prints a line that is rewritten on a terminal, or occasional plain lines in a log.
class Console final : public train::Observer {
 public:
  void on_step(const train::Progress& p) override {
    stepped_ = true;
    const double interval = terminal_ ? 0.1 : 10;
    if (p.step < p.total_steps && since_last_.seconds() < interval) return;
    since_last_ = {};
    const std::string line = fmt::format("epoch {} step {}/{}  loss {:.4f}  accuracy {:.3f}  {:.0f} samples/s  {:.2f} MB/s on the cuts",
                                         p.epoch, p.step, p.total_steps, p.loss, p.accuracy, p.samples_per_s, p.cut_MBps);
    fmt::print(stderr, "{}{}{}", terminal_ ? "\r\033[K" : "", line, terminal_ ? "" : "\n");
  }
  void on_epoch(const train::EpochResult& e) override {
    if (terminal_) fmt::print(stderr, "\r\033[K");
    fmt::print("epoch {}: loss {:.4f}, accuracy {:.4f}, validation loss {:.4f}{}, {:.1f} s\n", e.epoch, e.loss, e.accuracy, e.val_loss,
               metrics_text(e), e.seconds);
    std::fflush(stdout);
  }
  void on_audit(const train::AuditRecord& audit) override { on_note(train::describe(audit)); }
  void on_rate_change(const train::RateChange& change) override { on_note(train::describe(change)); }
  void on_note(const std::string& text) override { fmt::print(stderr, "{}{}\n", terminal_ ? "\r\033[K" : "", text); }
  bool stepped() const { return stepped_; }  // at least once

 private:
  bool stepped_ = false;
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  Stopwatch since_last_;
};

void print_result(const train::TrainResult& result, const TrainFlags& flags) {
  const std::string& run_dir = flags.config.run_dir;
  if (result.stopped && result.steps == 0) {
    fmt::print("stopped before the first step: there is nothing to continue from\n");
    return;
  }
  if (result.stopped) {
    fmt::print("stopped after step {}, everything is saved; continue with: {}\n", result.steps, resume_command(flags));
    return;
  }
  if (result.new_steps == 0) {
    const char* const more = flags.config.max_steps > 0 ? "; for more, give --max-steps (0: all epochs)" : "";
    fmt::print("all {} steps were done before, nothing is left to do{}; results in {}\n", result.steps, more, run_dir);
    return;
  }
  if (result.skipped > 0) fmt::print("{} steps were skipped: their gradients were not finite\n", result.skipped);
  fmt::print("{} steps, validation accuracy {:.4f}, {:.0f} bytes per step on the cuts, {:.0f} samples/s\nresults in {}\n", result.steps,
             result.val_accuracy, result.bytes_per_step, result.samples_per_s, run_dir);
}

void write_run_report(const std::string& run_dir) {
  const std::string page = report::page({value_or_fail(report::read_run(run_dir))});
  value_or_fail(write_file(run_dir + "/report.html", {std::as_bytes(std::span(page))}));
}

bool holds_run(const std::string& run_dir) { return !session::Checkpoints(run_dir + "/checkpoints").steps().empty(); }

void check_resume(TrainConfig& config, const TrainFlags& flags) {
  const bool begun = holds_run(config.run_dir);
  if (std::getenv(kRestarted) != nullptr) config.resume = begun;  // epipe launch --restarts
  if (!config.resume && begun) {
    throw Failure(
        fmt::format("{} already holds a run; choose another --run-dir, or continue it with: {}", config.run_dir, resume_command(flags)));
  }
}

// The number that --seed random drew when the run began.
std::uint64_t recorded_seed(const std::string& run_dir) { return checked(flags_of_run(run_dir, CLI::App())).seed; }

// Rank 0 draws for all.
std::uint64_t shared_seed(std::uint64_t own, transport::Group& world, transport::Timeout timeout) {
  if (world.rank() == 0) world.key_values().put("seed", fmt::to_string(own));
  return seed_of(world.key_values().get("seed", timeout));
}

// If steps were done, adds how to continue to the reason why it ended.
std::string with_way_on(const std::string& reason, const Console& console, const TrainFlags& flags) {
  if (!console.stepped() || !holds_run(flags.config.run_dir)) return reason;
  return fmt::format("{}; from its newest checkpoint the run continues with: {}", reason, resume_command(flags));
}

void lead(const train::Registry& registry, const TrainConfig& config, const TrainFlags& flags, session::PeerConnector* connector,
          std::unique_ptr<transport::Group> replicas = nullptr, std::optional<train::FollowOptions> follow = std::nullopt) {
  const auto& stop = stop_on_signals();
  Console console;
  TrainMetrics metrics(console);
  const auto http = serve_metrics(config.metrics, metrics);
  try {
    const auto result = train::train(registry, config, metrics, stop, connector, std::move(replicas), std::move(follow));
    write_run_report(config.run_dir);
    print_result(result, flags);
  } catch (const std::invalid_argument&) {
    throw;
  } catch (const c10::Error& error) {
    throw Failure(with_way_on(error.what_without_backtrace(), console, flags));
  } catch (const std::exception& error) {
    throw Failure(with_way_on(error.what(), console, flags));
  }
}

// Not where a record says the rates of all steps.
bool follows_link(const TrainConfig& config) { return config.follow_link && (config.resume || config.rate_changes.empty()); }

// One rank of a cluster: the first leads, the others follow.
void run_rank(const train::Registry& registry, TrainConfig config, const TrainFlags& flags) {
  auto place = transport::group_from_environment();
  place.backend = config.backend;
  if (follows_link(config)) throw UsageError("--follow-link is for the link of --connect, not for the ranks of a cluster");
  config.local_rank = place.local_rank;
  config.reconnect = 0;  // one failed rank ends all; epipe launch --restarts starts them again
  place.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(config.timeout * 1000));
  train::check_ranks(config, place.size);
  std::optional<RunFolder> folder;
  if (place.rank == 0) folder.emplace(config.run_dir);
  if (place.rank == 0) check_resume(config, flags);
  const bool random_seed = flags.seed == kRandomSeed;
  if (place.rank == 0 && random_seed && config.resume) config.seed = recorded_seed(config.run_dir);
  const auto group = transport::make_group(place);
  if (random_seed) config.seed = shared_seed(config.seed, *group, place.timeout);
  auto cluster = train::join_cluster(config, *group);
  if (place.rank == 0) {
    const auto connector = train::connect_ranks(cluster);
    lead(registry, config, flags, connector.get(), std::move(cluster.across));
  } else {
    std::signal(SIGINT, SIG_IGN);  // a terminal sends it to all; rank 0 saves and ends the others
    train::participate(registry, config, std::move(cluster));
  }
}

// With --resume, missing flags are taken from the run's config.toml.
TrainFlags completed(const TrainFlags& given, const CLI::App& command) {
  const std::string& run_dir = given.config.run_dir;
  if (run_dir.empty()) throw UsageError("expected --run-dir DIR, the folder that the run writes its results to");
  if (!given.config.resume) return given;
  if (has_config(run_dir)) {
    const std::string model = flags_of_run(run_dir, CLI::App()).config.model;
    if (command.count("--model") > 0 && given.config.model != model) {  // the run's cuts would not fit it
      throw UsageError(fmt::format("cannot resume, {} holds another run: --model: {} here, {} there", run_dir, given.config.model, model));
    }
    return flags_of_run(run_dir, command);
  }
  if (holds_run(run_dir)) fmt::print(stderr, "{} has no config.toml: flags that are not given have their defaults\n", run_dir);
  return given;
}

// What a plan made here keeps. Either bound asks for codecs that choose their bits.
std::set<std::string> kept_by_plan(const CLI::App& command) {
  std::set<std::string> given;
  if (command.count("--place") > 0) given.insert("place");
  if (command.count("--harm") + command.count("--loss-added") > 0) given.insert("harm");
  return given;
}

// Bounds beside codecs that do harm and do not measure it. The codec none keeps any bound.
void check_bounds(const TrainConfig& config) {
  const TrainConfig usual;
  const bool changed =
      config.harm != usual.harm || config.loss_added != usual.loss_added || config.audit_share != usual.audit_share;
  if (!changed || config.audit) return;
  std::vector<std::string> codecs = {config.codec, config.codec_forward, config.codec_backward};
  for (const auto& at : config.codec_at) codecs.push_back(at.spec);
  const auto chooses = [](const std::string& spec) { return spec == "auto" || spec.ends_with(">auto"); };
  if (std::any_of(codecs.begin(), codecs.end(), chooses)) return;
  const auto fixed = std::find_if(codecs.begin(), codecs.end(), [](const std::string& spec) { return !spec.empty() && spec != "none"; });
  if (fixed == codecs.end()) return;
  throw UsageError(fmt::format(
      "--loss-added, --harm and --audit-share are for codecs that choose their bits, and {} does not: say --codec auto, or leave them out",
      *fixed));
}

void run_train(const train::Registry& registry, const TrainFlags& given, const CLI::App& command) {
  keep_files_private();
  const TrainFlags flags = completed(given, command);
  TrainConfig config = checked(flags);
  try {
    if (!plans_itself(config, command)) check_bounds(config);
    if (transport::launched_as_rank()) return run_rank(registry, config, flags);
    if (config.backend != "gloo") throw UsageError("--backend is for the ranks of a cluster; start them with epipe launch");
    if (config.replicas > 1) train::check_ranks(config, 0);
    if (config.connect.empty() && says_how_to_connect(flags.security)) {
      throw UsageError("--tls, --ca, --cert, --key, --token-file and --insecure are for --connect; leave them out or say where to connect");
    }
    if (config.connect.empty() && follows_link(config)) {
      throw UsageError("--follow-link measures the link to a server: say --connect HOST:PORT, or leave it out");
    }
    train::check_reuse_settings(config);
    const RunFolder folder(config.run_dir);
    check_resume(config, flags);
    if (flags.seed == kRandomSeed && config.resume) config.seed = recorded_seed(config.run_dir);
    if (config.connect.empty()) return lead(registry, config, flags, nullptr);
    transport::ConnectConfig dial = connect_config(flags.security);
    dial.send_timeout = transport::Timeout(static_cast<std::int64_t>(config.timeout * 1000));
    std::optional<train::FollowOptions> follow;
    if (plans_itself(config, command)) {
      PlannedRun run = planned(registry, config, dial, kept_by_plan(command));
      config = std::move(run.config);
      follow = std::move(run.follow);
    }
    if (train::wants_measuring(config)) {
      session::Servers measured(config.connect, dial, session::new_session_key());
      config = train::with_measured_costs(registry, config, measured, [](const std::string& text) { fmt::print(stderr, "{}\n", text); });
    }
    if (follows_link(config) && !follow) follow = measured_for_following(registry, config, dial);
    session::Servers servers(config.connect, dial, session::session_key(config.run_dir, config.resume));
    lead(registry, config, flags, &servers, nullptr, std::move(follow));
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

void run_eval(const train::Registry& registry, const TrainFlags& flags) {
  try {
    const TrainConfig config = checked(flags);
    if (flags.weights.empty() && !model::hf_folder_of(config.model)) throw UsageError("--weights is required");
    const auto result = train::evaluate(registry, config, flags.weights);
    fmt::print("validation loss {:.6f}{}\n", result.val_loss, metrics_text(result));
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

void add_train_command(CLI::App& app, const train::Registry& registry) {
  auto flags = std::make_shared<TrainFlags>();  // owned by the callback as well
  auto* command = app.add_subcommand("train", "Train a model cut into stages");
  add_train_flags(*command, *flags);
  command->callback([flags, command, &registry] { run_train(registry, *flags, *command); });
}

void add_eval_command(CLI::App& app, const train::Registry& registry) {
  auto flags = std::make_shared<TrainFlags>();  // owned by the callback as well
  auto* command = app.add_subcommand("eval", "Loss and accuracy of saved weights on the validation data");
  add_stage_flags(*command, *flags);
  command->add_option("--weights", flags->weights, "A model.safetensors, or a state dict by torch.save; hf:DIR brings its own");
  command->callback([flags, &registry] { run_eval(registry, *flags); });
}

}  // namespace epipe::cli
