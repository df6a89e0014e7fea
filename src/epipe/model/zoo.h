#pragma once

#include "epipe/model/model.h"

// One function per architecture, each in a file of its own. To add one: write the file, name it here and in registry.cpp.
namespace epipe::model {

using Layers = std::vector<std::shared_ptr<layer::Layer>>;

// The layers of an architecture, fitted to the data. `argument` is what follows the colon of the model's name; empty where nothing does.
// They throw std::invalid_argument where the data or the argument does not fit.
Layers make_mlp(const data::DataSpec& data, const std::string& argument);
Layers make_cnn(const data::DataSpec& data, const std::string& argument);
Layers make_transformer(const data::DataSpec& data, const std::string& argument);
Layers make_mobilenet_v2(const data::DataSpec& data, const std::string& argument);
Layers make_resnet18(const data::DataSpec& data, const std::string& argument);
Layers make_resnet50(const data::DataSpec& data, const std::string& argument);
Layers make_resnet101(const data::DataSpec& data, const std::string& argument);
Layers make_vgg13(const data::DataSpec& data, const std::string& argument);
Layers make_amoebanet_d(const data::DataSpec& data, const std::string& argument);
Layers make_roberta_base(const data::DataSpec& data, const std::string& argument);
Layers make_roberta(const data::DataSpec& data, const std::string& argument);
Layers make_torchscript(const data::DataSpec& data, const std::string& argument);

// Adds what a user must know of a model that came as TorchScript.
void describe_torchscript(Model& model);

// Throw std::invalid_argument for data of another kind.
void require_images(std::string_view model, const data::DataSpec& data);
void require_text(std::string_view model, const data::DataSpec& data);

}  // namespace epipe::model
