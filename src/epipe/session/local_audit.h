#pragma once

#include <optional>

#include "epipe/session/audit.h"
#include "epipe/session/loss_comparisons.h"

namespace epipe::session {

// One process's part of an audit (audit.h), from its first part to its last: what runs next, and what its gradients come to.
class LocalAudit {
 public:
  LocalAudit(std::size_t cuts, GradientComparisons::Scale scale) : cuts_(cuts), scale_(std::move(scale)) {}

  // Throws std::invalid_argument for a part that does not follow the one before.
  void check_follows(const AuditPart& part) const;
  // What a pipeline runs for this part. Its gradients are taken here, so the run ends before this object does.
  pipeline::AuditRun begin(const AuditPart& part);
  // What came of it; of the last part, the sums over the whole audit.
  AuditPartResult end(const AuditPart& part, pipeline::AuditRunResult done);
  // A part failed: the next audit begins anew.
  void drop() { comparisons_.reset(); }

 private:
  std::size_t cuts_;
  GradientComparisons::Scale scale_;
  std::optional<GradientComparisons> comparisons_;  // of the audit under way
  std::optional<LossComparisons> losses_;           // the same, by the process of the last stage
  std::uint32_t done_ = 0;                          // its micro-batches so far
};

}  // namespace epipe::session
