// A build without CUDA: codecs have no twins, because there are no tensors on devices.
#include <stdexcept>

#include "epipe/codec/cuda/twins.h"

namespace epipe::codec {

std::unique_ptr<Twin> make_plain_twin(PlainFormat) { return nullptr; }
std::unique_ptr<Twin> make_run_twin(RunBorders, unsigned, unsigned) { return nullptr; }
std::unique_ptr<Twin> make_kmeans_twin(unsigned, KMeansFit) { return nullptr; }
std::unique_ptr<Twin> make_topk_twin(TopKShape, std::unique_ptr<Twin>) { return nullptr; }
std::unique_ptr<Twin> make_lowrank_twin(FactorForm, std::vector<std::unique_ptr<Twin>>) { return nullptr; }
std::unique_ptr<Twin> make_power_twin(FactorForm, std::vector<std::unique_ptr<Twin>>) { return nullptr; }
std::unique_ptr<Twin> make_entropy_twin(EntropyKind, EntropyTarget) { return nullptr; }
std::unique_ptr<Codec> on_any_device(std::unique_ptr<Codec> codec) { return codec; }

DevicePayload new_payload(const torch::Tensor&, std::size_t) { throw std::logic_error("this epipe was built without CUDA"); }

}  // namespace epipe::codec
