#pragma once

#include <iosfwd>

#include "epipe/data/data_spec.h"
#include "epipe/model/architecture.h"

// One function per architecture, each in its own file. To add one: write the file, name it here and in registry.cpp.
namespace epipe::model {

// The layers of an architecture for the data. `argument` is the text after the colon in the model's name, empty if there is none. They
// throw std::invalid_argument if the data or the argument is unsuitable.
Architecture make_mlp(const data::DataSpec& data, const std::string& argument);
Architecture make_cnn(const data::DataSpec& data, const std::string& argument);
Architecture make_transformer(const data::DataSpec& data, const std::string& argument);
Architecture make_mobilenet_v2(const data::DataSpec& data, const std::string& argument);
Architecture make_resnet18(const data::DataSpec& data, const std::string& argument);
Architecture make_resnet50(const data::DataSpec& data, const std::string& argument);
Architecture make_resnet101(const data::DataSpec& data, const std::string& argument);
Architecture make_vgg13(const data::DataSpec& data, const std::string& argument);
Architecture make_amoebanet_d(const data::DataSpec& data, const std::string& argument);
Architecture make_roberta_base(const data::DataSpec& data, const std::string& argument);
Architecture make_roberta(const data::DataSpec& data, const std::string& argument);
Architecture make_hf(const data::DataSpec& data, const std::string& argument);
Architecture make_torchscript(const data::DataSpec& data, const std::string& argument);

// The same from a stream, which errors call `what`.
Architecture read_torchscript(std::istream& in, const std::string& what);

// The config.json of a RoBERTa as an argument that opens no file.
std::string encoder_config_text(const std::string& argument);
// The same for a Hugging Face folder.
std::string hf_config_text(const std::string& argument);

// Throw std::invalid_argument for other kinds of data.
void require_images(std::string_view model, const data::DataSpec& data);
void require_text(std::string_view model, const data::DataSpec& data);

}  // namespace epipe::model
