// How a coordinator runs an audit: its micro-batches in groups that the run has room for, everywhere at once, and the sums of all stages.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "epipe/session/coordinator.h"
#include "epipe/session/step_result.h"

namespace epipe::session {
namespace {

constexpr double kMostError = 4;  // relative; a codec that errs by more is none

torch::Tensor joined(const std::vector<torch::Tensor>& parts) { return parts.front().defined() ? torch::cat(parts) : torch::Tensor(); }

layer::Tensors joined_lists(const std::vector<const layer::Batch*>& parts, layer::Tensors layer::Batch::*list) {
  layer::Tensors all;
  for (std::size_t k = 0; k < (parts.front()->*list).size(); ++k) {
    std::vector<torch::Tensor> tensors;
    for (const auto* const part : parts) tensors.push_back((part->*list)[k]);
    all.push_back(joined(tensors));
  }
  return all;
}

layer::Batch joined(const std::vector<const layer::Batch*>& parts) {
  layer::Batch all;
  all.inputs = joined_lists(parts, &layer::Batch::inputs);
  all.side = joined_lists(parts, &layer::Batch::side);
  std::vector<torch::Tensor> targets;
  for (const auto* const part : parts) {
    targets.push_back(part->targets);
    all.samples.insert(all.samples.end(), part->samples.begin(), part->samples.end());
  }
  all.targets = joined(targets);
  return all;
}

std::vector<double> listed(const pipeline::Rates& rates) {
  std::vector<double> all;
  for (const pipeline::CutRates& cut : rates) {
    all.push_back(cut.forward);
    all.push_back(cut.backward);
  }
  return all;
}

// A rate below another does not err less; a peer says what it likes.
void check_curve(const std::vector<double>& curve, std::size_t tried) {
  if (curve.size() != tried) throw std::invalid_argument(fmt::format("expected the errors at {} rates, got {}", tried, curve.size()));
  for (const double error : curve) {
    if (!(error >= 0 && error <= kMostError)) throw std::invalid_argument(fmt::format("no codec has the relative error {}", error));
  }
}

}  // namespace

// Micro-batches from `first` on, at most as many as the run has.
AuditCommand Coordinator::audit_part(const AuditRequest& request, std::size_t first) const {
  const std::size_t all = 2 * request.passes.size();
  const std::size_t end = std::min(all, first + static_cast<std::size_t>(most_at_once(local_->pipeline_config())));
  AuditCommand command;
  std::vector<const layer::Batch*> parts;
  for (std::size_t i = first; i < end; ++i) {
    parts.push_back(&request.samples[i % 2]);
    command.part.rates.push_back(listed(request.passes[i / 2]));
  }
  command.batch = joined(parts);
  command.id = request.id;
  command.id.chunks = static_cast<int>(end - first);
  command.id.terms = std::max<std::int64_t>(1, (layer::loss_terms(request.samples[0]) + layer::loss_terms(request.samples[1])) / 2);
  command.id.loss_scale = local_->loss_scale();
  command.part.first = static_cast<std::uint32_t>(first);
  command.part.last = end == all;
  if (first == 0) command.part.tried = request.tried;
  return command;
}

void Coordinator::send_audit(const AuditCommand& command) {
  const int last = local_->pipeline_config().placement.worker_of.back();
  AuditCommand sent = command;
  sent.batch.inputs.clear();
  AuditCommand without_targets = sent;
  without_targets.batch.targets = torch::Tensor();
  for (const auto& peer : peers_) {
    if (!peer->leads()) peer->send(peer->worker() == last ? sent : without_targets);
  }
}

// Stages of one worker, or of all that are here.
std::vector<bool> Coordinator::stages_of(const Peer* peer) const {
  const auto& config = local_->pipeline_config();
  std::vector<bool> own;
  for (const int worker : config.placement.worker_of) {
    own.push_back(peer != nullptr ? worker == peer->worker() : !config.remote.has(worker));
  }
  return own;
}

void Coordinator::take_audit(AuditOutcome& outcome, const AuditPartResult& part, const AuditCommand& command, const Peer* peer) const {
  const std::vector<bool> own = stages_of(peer);
  outcome.non_finite = outcome.non_finite || part.non_finite;
  for (std::size_t d = 0; d < command.part.tried.size(); ++d) {
    const bool sends = own[d % 2 == 0 ? d / 2 : d / 2 + 1];
    if (!sends || command.part.tried[d].empty() || d >= part.curves.size() || part.curves[d].empty()) continue;
    check_curve(part.curves[d], command.part.tried[d].size());
    outcome.curves[d] = part.curves[d];
  }
  if (!command.part.last || part.non_finite) return;
  if (own.back()) outcome.losses = read_losses(part.losses, outcome.by_stage.size());
  const auto sums = read_sums(part.sums, own);
  if (sums.size() != outcome.by_stage.size()) throw std::invalid_argument("it has sums of another audit");
  for (std::size_t c = 0; c < sums.size(); ++c) {
    for (std::size_t j = 0; j < own.size(); ++j) {
      if (own[j]) outcome.by_stage[c][j] = sums[c][j];
    }
  }
}

AuditPartResult Coordinator::audit_own(const AuditCommand& command) {
  try {
    return local_->audit(command.batch, command.id, command.part);
  } catch (const std::runtime_error&) {
    explain<AuditReply>(std::current_exception(), /*leaders_know=*/false);
  }
}

AuditOutcome Coordinator::audit(const AuditRequest& request) {
  AuditOutcome outcome;
  const std::size_t micro_batches = 2 * request.passes.size();
  outcome.step = no_result(cuts(), workers());
  outcome.by_stage.assign(request.passes.size(), std::vector<AuditSums>(cuts() + 1));
  outcome.curves.resize(2 * cuts());
  for (std::size_t first = 0; first < micro_batches;) {
    const AuditCommand command = audit_part(request, first);
    send_audit(command);
    const AuditPartResult own = audit_own(command);
    merge(outcome.step, own.step);
    take_audit(outcome, own, command, nullptr);
    confirm_commit();
    for (const auto& peer : peers_) {
      if (peer->leads()) continue;
      const AuditReply reply = peer->recv<AuditReply>();
      try {
        check_fits(reply.result.step, cuts(), workers());
        merge(outcome.step, reply.result.step);
        take_audit(outcome, reply.result, command, peer.get());
      } catch (const std::exception& error) {
        throw PeerFailed(fmt::format("{}: its reply to the audit is damaged: {}", peer->name(), error.what()));
      }
    }
    outcome.step.samples += command.batch.size();
    ++outcome.parts;
    first += command.part.rates.size();
  }
  return outcome;
}

}  // namespace epipe::session
