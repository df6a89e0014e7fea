// epipe.Codec and epipe.decode
#include <pybind11/stl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "epipe/epipe.h"
#include "module.h"

namespace py = pybind11;

namespace epipe::python {
namespace {

using State = std::map<std::string, torch::Tensor>;

// Asks for pages of 2 MB where they fit: allocating small ones takes longer than most codecs. Only a hint.
void use_huge_pages(char* begin, std::size_t size) {
  constexpr std::uintptr_t kPage = std::uintptr_t{1} << 21U;
  const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(begin) + kPage - 1) & ~(kPage - 1);
  const std::uintptr_t last = (reinterpret_cast<std::uintptr_t>(begin) + size) & ~(kPage - 1);
  if (first < last) static_cast<void>(::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE));
}

// The GIL is held by the caller, but not while bytes are copied: nobody else knows the object yet.
py::bytes copied(std::span<const std::byte> frame) {
  auto made = py::reinterpret_steal<py::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(frame.size())));
  if (!made) throw py::error_already_set();
  char* const begin = PyBytes_AS_STRING(made.ptr());
  const py::gil_scoped_release unlocked;
  use_huge_pages(begin, frame.size());
  if (!frame.empty()) std::memcpy(begin, frame.data(), frame.size());
  return made;
}

// A codec that several Python threads may use, one at a time.
class SharedCodec {
 public:
  SharedCodec(const std::string& spec, int threads) : codec_(std::make_unique<Codec>(checked(spec, threads), threads)), threads_(threads) {}
  ~SharedCodec() {
    if (elsewhere()) static_cast<void>(codec_.release());  // its threads are in another process and cannot be joined
  }
  SharedCodec(const SharedCodec&) = delete;
  SharedCodec& operator=(const SharedCodec&) = delete;

  std::string spec() const { return codec_->spec(); }
  int threads() const { return threads_; }

  py::bytes encode(const torch::Tensor& x, bool frozen) {
    check_process();
    std::span<const std::byte> frame;
    std::unique_lock lock(mutex_, std::defer_lock);
    {
      const py::gil_scoped_release unlocked;
      lock.lock();
      frame = codec_->encode_view(x.detach(), frozen);
    }
    return copied(frame);
  }

  Codec::HeldFrame encode_view(const torch::Tensor& x, bool frozen) {
    check_process();
    const py::gil_scoped_release unlocked;
    const std::lock_guard lock(mutex_);
    return codec_->encode_held(x.detach(), frozen);
  }

  State state() const {
    const py::gil_scoped_release unlocked;
    const std::lock_guard lock(mutex_);
    State copy;
    for (const auto& [name, tensor] : codec_->state()) copy[name] = tensor.clone();
    return copy;
  }
  void set_state(const State& state) {
    const py::gil_scoped_release unlocked;
    const std::lock_guard lock(mutex_);
    codec_->set_state(state);
  }

 private:
  static const std::string& checked(const std::string& spec, int threads) {
    if (threads < 1 || threads > 1024) throw std::invalid_argument("threads: expected 1 to 1024, got " + std::to_string(threads));
    return spec;
  }
  // The threads of a pool stay with the process that started them.
  bool elsewhere() const { return threads_ > 1 && ::getpid() != process_; }
  void check_process() const {
    if (!elsewhere()) return;
    throw std::runtime_error("this epipe.Codec with threads=" + std::to_string(threads_) +
                             " was made before the process forked; make a new one in the child, or use threads=1");
  }

  mutable std::mutex mutex_;  // guards the codec and its last frame
  std::unique_ptr<Codec> codec_;
  int threads_;
  pid_t process_ = ::getpid();
};

torch::Tensor decode_bytes(const py::buffer& frame, std::uint64_t max_bytes, const std::optional<torch::Tensor>& reuse,
                           const std::string& device) {
  const py::buffer_info info = frame.request();
  if (PyBuffer_IsContiguous(info.view(), 'C') == 0) throw std::invalid_argument("expected the bytes of a frame one after the other");
  const auto* const begin = static_cast<const std::byte*>(info.ptr);
  const py::gil_scoped_release unlocked;
  return decode({begin, static_cast<std::size_t>(info.size * info.itemsize)}, max_bytes, reuse.value_or(torch::Tensor()),
                torch::Device(device));
}

py::buffer_info read_only(const Codec::HeldFrame& frame) {
  auto* const begin = reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(frame.bytes.data()));
  return {begin, static_cast<py::ssize_t>(frame.bytes.size()), true};
}

}  // namespace

void add_codec(py::module_& module) {
  py::class_<Codec::HeldFrame>(module, "Frame", py::buffer_protocol()).def_buffer(&read_only);
  py::class_<SharedCodec>(module, "Codec")
      .def(py::init<const std::string&, int>(), py::arg("spec"), py::arg("threads") = 1)
      .def_property_readonly("spec", &SharedCodec::spec)
      .def_property_readonly("threads", &SharedCodec::threads)
      .def("encode", &SharedCodec::encode, py::arg("x"), py::arg("frozen") = false)
      .def("encode_view", &SharedCodec::encode_view, py::arg("x"), py::arg("frozen") = false)
      .def("state", &SharedCodec::state)
      .def("set_state", &SharedCodec::set_state, py::arg("state"));
  module.def("decode", &decode_bytes, py::arg("frame"), py::arg("max_bytes"), py::arg("reuse"), py::arg("device") = "cpu");
  module.def("codecs", &codecs);
}

}  // namespace epipe::python
