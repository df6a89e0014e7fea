#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "epipe/model/adapter.h"
#include "epipe/session/coordinator.h"
#include "epipe/train/auto_rates.h"
#include "epipe/train/batches.h"
#include "epipe/train/config.h"
#include "epipe/train/initial_weights.h"
#include "epipe/train/local_setup.h"
#include "epipe/train/lr_schedule.h"
#include "epipe/train/metrics.h"
#include "epipe/train/plan.h"
#include "epipe/train/rate_record.h"
#include "epipe/train/registry.h"

namespace epipe::train {

// What the coordinating process keeps between steps besides weights.
class ClientState final : public session::OwnState {
 public:
  ClientState(AutoRates& harm, RateRecord& link) : harm_(harm), link_(link) {}
  session::NamedTensors state() const override;
  void set_state(const session::NamedTensors& state) override;

 private:
  AutoRates& harm_;
  RateRecord& link_;
};

// What the process that coordinates a run, or one replica of it, works with.
struct RunParts {
  std::unique_ptr<Batches> batches;
  Plan plan;                           // what all processes are told
  std::vector<std::string> cut_names;  // of the layers that begin a stage
  std::vector<CutNames> codec_names;
  LrSchedule lr;
  model::AdapterTask adapter_task;
  std::unique_ptr<AutoRates> auto_rates;  // these three outlive the coordinator
  std::unique_ptr<RateRecord> rate_record;
  std::unique_ptr<ClientState> state;
  std::unique_ptr<session::Coordinator> coordinator;

  int workers() const { return schedule::Placement{plan.place}.workers(); }
  // By what harm asks for and the link has room for.
  pipeline::Rates rates_at(std::uint64_t step) const { return at_least(auto_rates->rates(), rate_record->at(step)); }
  // At the rates of this step, or at those that the first replica's client says.
  pipeline::StepResult forward_backward(const data::LoadedBatch& loaded, bool measure_error, const pipeline::Rates* rates = nullptr);
  // With a delay, instead; null: no step follows.
  pipeline::StepResult overlapped_step(const data::LoadedBatch* loaded, bool measure_error);
  pipeline::StepResult evaluate(const data::LoadedBatch& loaded, std::uint64_t epoch, std::uint64_t step,
                                const pipeline::Rates* rates = nullptr);
};

struct AssembleOptions {
  session::PeerConnector* connector = nullptr;     // outlives the parts; null: all workers are in this process
  std::unique_ptr<transport::Group> replicas{};    // worker 0 in all replicas; null: there is one
  Tracer* tracer = nullptr;                        // outlives the parts; null: no timeline
  pipeline::TensorObserver observer{};             // sees what crosses the cuts
  WeightsFiles weights{};                          // that the run begins from; none: first values by the seed
  bool weights_are_whole = false;                  // every tensor must be in the file
  std::function<void(const std::string&)> note{};  // what a person should know; lives as long as the parts
};

// The weights and the adapter that a configuration begins from: those it names, or those in the folder of its model.
WeightsFiles files_of(const TrainConfig& config);

// Puts a run together from its configuration. The registry outlives the parts. Throws std::invalid_argument where they do not fit.
RunParts assemble(const Registry& registry, const TrainConfig& config, AssembleOptions options);

}  // namespace epipe::train
