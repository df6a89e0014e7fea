#include "epipe/epipe.h"

#include <utility>

#include "epipe/cli/program.h"
#include "epipe/data_spec_adapter.h"
#include "epipe/loss_adapter.h"
#include "epipe/model/sequential.h"
#include "epipe/train/registry.h"

namespace epipe {
namespace {

// Adapts a user's dataset for the loader.
class UserDataset final : public data::Dataset {
 public:
  explicit UserDataset(std::unique_ptr<epipe::Dataset> own) : own_(std::move(own)) {
    if (!own_) throw std::invalid_argument("expected a dataset for training and one for validation");
  }
  data::DataSpec spec() const override { return to_private(own_->spec()); }
  std::int64_t size() const override { return own_->size(); }
  layer::Batch batch(std::span<const std::int64_t> ids, const data::BatchContext& at) const override {
    epipe::Batch made = own_->batch(ids, at.seed, at.epoch, at.step);
    return {std::move(made.inputs), std::move(made.side), std::move(made.targets), {ids.begin(), ids.end()}};
  }

 private:
  std::unique_ptr<epipe::Dataset> own_;
};

}  // namespace

std::vector<std::string> Layers::names() const {
  std::vector<std::string> all;
  for (const auto& maker : architecture_->layers) all.push_back(maker.name);
  return all;
}

std::size_t Layers::size() const { return architecture_->layers.size(); }

Layers layers(const torch::nn::Sequential& net) {
  const auto passes_through = [](const torch::nn::SequentialImpl& nested) { return dynamic_cast<const NestedImpl*>(&nested) != nullptr; };
  return Layers(std::make_shared<model::Architecture>(model::layers_of(net, passes_through)));
}

Registry::Registry() : Registry(std::make_unique<train::Registry>(train::Registry{{}, {}, {}})) {}
Registry::Registry(std::unique_ptr<train::Registry> known) : known_(std::move(known)) {}
Registry::~Registry() = default;
Registry::Registry(const Registry& other) : known_(std::make_unique<train::Registry>(*other.known_)) {}
Registry::Registry(Registry&& other) noexcept = default;
Registry& Registry::operator=(const Registry& other) {
  if (this != &other) known_ = std::make_unique<train::Registry>(*other.known_);
  return *this;
}
Registry& Registry::operator=(Registry&& other) noexcept = default;

void Registry::add(const std::string& name, ModelFactory factory, DataSpec::Kind input) {
  if (!factory) throw std::invalid_argument("the model " + name + " has no factory");
  known_->models.add(
      {name, "", static_cast<data::DataSpec::Kind>(input),
       [factory = std::move(factory)](const data::DataSpec& data, const std::string&) { return factory(to_public(data)).architecture(); }});
}

void Registry::add_dataset(const std::string& name, DatasetFactory factory) {
  if (!factory) throw std::invalid_argument("the data " + name + " has no factory");
  known_->data.add(name, [factory = std::move(factory)](const std::string& argument) -> data::Splits {
    Datasets made = factory(argument);
    return {std::make_unique<UserDataset>(std::move(made.train)), std::make_unique<UserDataset>(std::move(made.validation))};
  });
}

void Registry::add_loss(const std::string& name, Loss loss) {
  if (!loss) throw std::invalid_argument("the loss " + name + " has no function");
  known_->losses.add(name, to_private(loss));
}

std::vector<std::string> Registry::models() const { return known_->models.names(); }

Registry builtin_models() { return Registry(std::make_unique<train::Registry>()); }

int main(int argc, char** argv, const Registry& models) { return cli::run_program(argc, argv, models.known()); }

}  // namespace epipe
