#include "epipe/cli/bench/subject.h"

#include "epipe/base/clock.h"
#include "epipe/train/loss.h"

namespace epipe::cli {

using layer::Batch;

Subject make_subject(const std::string& model, std::int64_t size) {
  Subject subject{model, {}, {}};
  if (model == "transformer") {
    subject.data = {data::DataSpec::Kind::kText, {64}, 4, 1000};
    subject.batch.inputs = {torch::randint(1000, {size, 64}, torch::kInt64)};
    subject.batch.side = {torch::ones({size, 64})};
  } else {
    subject.data = {data::DataSpec::Kind::kImages, {3, 32, 32}, 10, 0};
    subject.batch.inputs = {torch::randn({size, 3, 32, 32})};
  }
  subject.batch.targets = torch::randint(subject.data.classes, {size}, torch::kInt64);
  for (std::int64_t i = 0; i < size; ++i) subject.batch.samples.push_back(i);
  return subject;
}

model::Architecture architecture_of(const Subject& subject) { return model::builtin_models().architecture(subject.name, subject.data); }

model::Model model_of(const Subject& subject) { return model::builtin_models().make_model(subject.name, subject.data, 1); }

layer::ForwardContext context_of(const Batch& batch) {
  layer::ForwardContext at;
  at.samples = batch.samples;
  at.side = batch.side;
  return at;
}

Steps::Steps(const Subject& subject, const pipeline::PipelineConfig& config)
    : batch_(subject.batch), model_(model_of(subject)), pipeline_(model_.layers, config, train::make_loss(subject.data)) {}

double Steps::time_one() {
  const Stopwatch watch;
  last_ = pipeline_.train_step(batch_, {0, step_++});
  pipeline_.commit_batch();
  return watch.seconds();
}

}  // namespace epipe::cli
