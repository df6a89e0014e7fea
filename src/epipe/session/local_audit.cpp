#include "epipe/session/local_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace epipe::session {

void LocalAudit::check_follows(const AuditPart& part) const {
  const std::size_t directions = 2 * cuts_;
  const auto fits = [&](const std::vector<double>& rates) { return rates.size() == directions; };
  if (!std::all_of(part.rates.begin(), part.rates.end(), fits) || (!part.tried.empty() && part.tried.size() != directions)) {
    throw std::invalid_argument(fmt::format("an audit needs rates for each of {} cuts and both directions", cuts_));
  }
  const bool follows = part.first == 0 || (comparisons_ && part.first == done_);
  if (!follows || part.first + part.rates.size() > 2 * (2 + directions)) {
    throw std::invalid_argument(fmt::format("an audit cannot go on with micro-batch {}", part.first));
  }
}

pipeline::AuditRun LocalAudit::begin(const AuditPart& part) {
  if (part.first == 0) {
    comparisons_.emplace(cuts_ + 1, scale_);
    losses_.emplace();
    done_ = 0;
  }
  pipeline::AuditRun run;
  for (const auto& rates : part.rates) {
    pipeline::Rates& of_cuts = run.rates.emplace_back();
    for (std::size_t j = 0; j < rates.size(); j += 2) of_cuts.push_back({rates[j], rates[j + 1]});
  }
  run.try_rates = part.tried;
  run.take = [this, first = part.first](int i, int stage, const GradientComparisons::Layers& layers) {
    comparisons_->take(first + static_cast<std::uint32_t>(i), stage, layers);
  };
  run.take_loss = [this](int, const pipeline::AuditedLoss& loss) { losses_->take(loss); };
  return run;
}

AuditPartResult LocalAudit::end(const AuditPart& part, pipeline::AuditRunResult done) {
  done_ += static_cast<std::uint32_t>(part.rates.size());
  AuditPartResult result{std::move(done.step)};
  for (const auto& curve : done.curves) {
    auto& errors = result.curves.emplace_back();
    for (const boundary::RatePoint& point : curve) errors.push_back(point.rel_error());
  }
  result.non_finite = result.step.non_finite;
  if (!part.last) return result;
  result.sums = comparisons_->sums(done_ / 2);
  result.losses = losses_->losses();
  comparisons_.reset();
  losses_.reset();
  for (const auto* const lists : {&result.sums, &result.losses}) {
    for (const auto& numbers : *lists) {
      if (!std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); })) result.non_finite = true;
    }
  }
  if (!result.non_finite) return result;
  result.sums.clear();  // JSON has no NaN
  result.losses.clear();
  return result;
}

}  // namespace epipe::session
