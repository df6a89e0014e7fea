#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "epipe/data/loader.h"
#include "epipe/pipeline/pipeline.h"
#include "epipe/session/coordinator.h"

namespace epipe::train {

// One cut and direction whose harm is measured.
struct AuditedCut {
  std::size_t cut = 0;
  wire::Direction direction = wire::Direction::kForward;
  double fixed = 0;  // bits per value of its spec; 0: to be chosen

  std::size_t index() const { return 2 * cut + static_cast<std::size_t>(direction); }
};

// Those that cross between workers and carry something: codecs whose rate is open, and with `all` also those of a fixed rate. What crosses
// last in a step comes first (session/audit.h).
std::vector<AuditedCut> audited_cuts(const pipeline::PipelineConfig& config, bool all);

struct AutoRatesConfig {
  std::vector<AuditedCut> audited;
  std::size_t cuts = 0;         // of the pipeline
  double harm = 0;              // most of all cuts and directions together
  double loss_added = 0;        // most of all activations together
  bool log_likelihood = true;   // the loss is one, so that it has nats; false: what is added counts as a share of twice the loss
  double share = 0;             // of the training's bytes, samples and steps that audits may take
  double steps = 0;             // of the whole run: audits come early and often where later steps pay for them
  std::int64_t batch = 0;       // samples, of all replicas
  std::int64_t batch_here = 0;  // of this replica
  // A server keeps the first cut's activations: their bytes depend on what it has, so they do not count, or a run whose server lost some
  // would be audited at other steps, and end with other weights.
  bool reuses = false;
};

// What an audit found of one cut and direction; base/audit_metrics.def says what each is.
struct CutAudit {
  AuditedCut at;
  double seen = 1;  // share of the relative error that the comparison took away
#define METRIC EPIPE_METRIC_MEMBER
#include "epipe/base/audit_metrics.def"
#undef METRIC

  template <typename Visit, typename... Structs>
  static void each(Visit&& visit, Structs&... structs) {
#define METRIC EPIPE_METRIC_VISIT
#include "epipe/base/audit_metrics.def"
#undef METRIC
  }
};

struct AuditRecord {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;  // that it came before
  bool valid = false;      // false: gradients that are not finite, or none; nothing was chosen
  double harm = 0;
  double loss = 0;            // of the audit's samples, per term
  double loss_added = 0;
  double noise = 0;           // of a batch's gradient, relative to the gradient
  pipeline::StepResult took;  // bytes, samples and times
  std::vector<CutAudit> cuts;

  std::uint64_t wire_bytes() const;
};

// Decides the rates of codecs `auto` without a number, by audits (session/audit.h). What it decides follows from the audits and from counts
// of bytes, samples and steps, never from time: a run that is repeated or resumed has the same rates. docs/codecs.md explains harm.
class AutoRates final : public session::OwnState {
 public:
  static constexpr double kFirst = 1;  // bits per value, before the first audit
  static constexpr double kLeast = 0.06;
  static constexpr double kMost = 8;
  // Relative, of any tensor: beyond it what coding does no longer grows as its error does.
  static constexpr double kMostError = 0.2;

  explicit AutoRates(AutoRatesConfig config);

  const AutoRatesConfig& config() const { return config_; }
  // Of the next step; empty where no rate is open.
  const pipeline::Rates& rates() const { return rates_; }
  // Whether an audit is to come before this step: the first one that has the samples, later ones when the training can afford them.
  bool is_due(const data::LoadedBatch& loaded) const;
  session::AuditRequest request(const data::LoadedBatch& loaded) const;
  // Takes what the audit found and chooses rates for the steps from now on.
  AuditRecord take(const session::AuditRequest& request, const session::AuditOutcome& outcome);
  // For an evaluation without a training, which says nothing of rates: as many bits as there may be.
  void take_most();
  // A step is committed.
  void count(const pipeline::StepResult& result);

  session::NamedTensors state() const override;
  void set_state(const session::NamedTensors& state) override;

 private:
  // What trainings and audits cost.
  struct Cost {
    double bytes = 0;
    double samples = 0;
    double rounds = 0;  // steps, or parts of an audit: each waits for the network
  };
  // What is known of one cut and direction.
  struct Known {
    double rate = 0;
    double log_sensitivity = 0;  // mean over the audits, the later the heavier; once there was one
    bool measured = false;
    double loss = 0;      // added by a unit of relative error; mean likewise
    double variance = 0;  // of that mean
  };
  struct Harm {
    double all = 0;
    double bias = 0;  // its part that does not average out
  };
  static Harm harm_of(const std::vector<session::AuditSums>& gradients, const std::vector<session::AuditSums>& errors, double batches);
  std::int64_t samples_of_audit() const;
  std::vector<double> possible_rates(const Known& known) const;
  std::vector<double> tried_rates(std::size_t k) const;
  bool affords_audit(double steps_in_advance) const;
  void measure(const session::AuditRequest& request, const session::AuditOutcome& outcome, AuditRecord& record);
  void learn(std::size_t k, const session::AuditOutcome& outcome, const AuditRecord& record);
  void choose(const session::AuditRequest& request, const session::AuditOutcome& outcome, AuditRecord& record);
  void set_rates();

  AutoRatesConfig config_;
  std::vector<Known> known_;  // by audited cut
  pipeline::Rates rates_;
  Cost trained_;
  Cost audited_;  // after the first
  Cost last_;  // audit
  std::uint64_t audits_ = 0;
  std::uint64_t next_step_ = 0;  // the first step that was not audited
};

// A line of metrics.jsonl; codecs by cut.
nlohmann::json audit_json(const AuditRecord& record, const std::vector<pipeline::CutCodecs>& codecs, const AutoRatesConfig& bounds);
// For people: "audit before step 0: loss added 0.004, harm 0.02; bits per value: cut 0 forward 0.25, ..."
std::string describe(const AuditRecord& record);

}  // namespace epipe::train
