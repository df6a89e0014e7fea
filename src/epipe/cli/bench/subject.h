#pragma once

#include <string>

#include "epipe/model/registry.h"
#include "epipe/pipeline/pipeline.h"

// The subjects of `epipe bench pipeline`.
namespace epipe::cli {

// A model and the batch it is measured with.
struct Subject {
  std::string name;
  data::DataSpec data;
  layer::Batch batch;
};

Subject make_subject(const std::string& model, std::int64_t size);
model::Architecture architecture_of(const Subject& subject);
model::Model model_of(const Subject& subject);
layer::ForwardContext context_of(const layer::Batch& batch);

// Steps of one pipeline, timed one by one.
class Steps {
 public:
  Steps(const Subject& subject, const pipeline::PipelineConfig& config);

  double time_one();
  const pipeline::StepResult& last() const { return last_; }

 private:
  layer::Batch batch_;
  model::Model model_;
  pipeline::Pipeline pipeline_;
  pipeline::StepResult last_;
  std::uint64_t step_ = 0;
};

}  // namespace epipe::cli
