// epipe.RemoteStage
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <stdexcept>

#include "epipe/epipe.h"
#include "module.h"

namespace py = pybind11;

namespace epipe::python {
namespace {

// Ctrl-C ends a wait.
void check_signals() {
  const py::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// Keyword arguments by the names of the options.
RemoteStageOptions options_of(const py::dict& given) {
  RemoteStageOptions o;
  const auto take = [&](const char* name, auto& into) {
    if (given.contains(name)) into = given[name].cast<std::decay_t<decltype(into)>>();
  };
  take("connect", o.connect);
  take("model", o.model);
  take("first_layer", o.first_layer);
  take("end_layer", o.end_layer);
  take("weights", o.weights);
  take("shape", o.data.shape);
  take("classes", o.data.classes);
  take("vocabulary", o.data.vocabulary);
  if (o.data.vocabulary > 0) o.data.kind = DataSpec::Kind::kText;
  take("lora", o.lora);
  take("codec_forward", o.codec_forward);
  take("codec_backward", o.codec_backward);
  take("optimizer", o.optimizer);
  take("lr", o.lr);
  take("momentum", o.momentum);
  take("nesterov", o.nesterov);
  take("weight_decay", o.weight_decay);
  take("beta1", o.beta1);
  take("beta2", o.beta2);
  take("eps", o.eps);
  take("chunks", o.chunks);
  take("threads", o.threads);
  take("seed", o.seed);
  take("tls", o.tls);
  take("token", o.token);
  take("insecure", o.insecure);
  take("run_dir", o.run_dir);
  take("timeout", o.timeout);
  o.poll = check_signals;
  take("note", o.note);
  return o;
}

// gRPC's threads stay in the process that started them, and a child that was forked later would wait for them without end.
void require_no_fork_since_the_first_stage() {
  static std::atomic<pid_t> first{0};
  pid_t process = 0;
  if (first.compare_exchange_strong(process, ::getpid()) || process == ::getpid()) return;
  throw std::runtime_error(
      "this process was forked after an epipe.RemoteStage had been made in its parent, which gRPC does not survive; start it by "
      "multiprocessing's method \"spawn\", or fork before the first stage is made");
}

// A stage that Python threads use one at a time, with the GIL released, and only in the process that made it.
class SharedStage {
 public:
  explicit SharedStage(const py::dict& given) {
    RemoteStageOptions options = options_of(given);
    require_no_fork_since_the_first_stage();
    const py::gil_scoped_release unlocked;
    stage_ = std::make_unique<RemoteStage>(std::move(options));
  }
  ~SharedStage() {
    const py::gil_scoped_release unlocked;
    if (::getpid() != process_) static_cast<void>(stage_.release());  // its threads are in another process and cannot be joined
    stage_.reset();
  }
  SharedStage(const SharedStage&) = delete;
  SharedStage& operator=(const SharedStage&) = delete;

  template <typename Work>
  auto call(const Work& work) {
    if (::getpid() != process_)
      throw std::runtime_error(
          "this epipe.RemoteStage was made before the process forked, and belongs to the parent; a process started by multiprocessing's "
          "method \"spawn\" can make its own");
    const py::gil_scoped_release unlocked;
    const std::lock_guard lock(mutex_);
    return work(*stage_);
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<RemoteStage> stage_;
  pid_t process_ = ::getpid();
};

using Crossed = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // wire bytes and values, by cut

Crossed to_pairs(const std::vector<Traffic>& cuts) {
  Crossed pairs;
  for (const Traffic& cut : cuts) pairs.emplace_back(cut.wire_bytes, cut.values);
  return pairs;
}

}  // namespace

void add_remote_stage(py::module_& module) {
  py::register_exception<ServerLost>(module, "ServerLost", PyExc_ConnectionError);
  py::register_exception<ServerFailed>(module, "ServerFailed", PyExc_RuntimeError);
  py::register_exception<RolledBack>(module, "RolledBack", PyExc_RuntimeError);
  py::class_<SharedStage>(module, "RemoteStage")
      .def(py::init<const py::dict&>(), py::arg("options"))
      .def("forward",
           [](SharedStage& s, const torch::Tensor& x, bool training) { return s.call([&](auto& r) { return r.forward(x, training); }); })
      .def("output", [](SharedStage& s, std::uint32_t i) { return s.call([&](auto& r) { return r.output(i); }); })
      .def("backward", [](SharedStage& s, std::uint32_t i, const torch::Tensor& g) { s.call([&](auto& r) { r.backward(i, g); }); })
      .def("gradient", [](SharedStage& s, std::uint32_t i) { return s.call([&](auto& r) { return r.gradient(i); }); })
      .def("step", [](SharedStage& s, std::optional<double> lr) { s.call([&](auto& r) { lr ? r.step(*lr) : r.step(); }); })
      .def("discard", [](SharedStage& s) { s.call([](auto& r) { r.discard(); }); })
      .def("steps_done", [](SharedStage& s) { return s.call([](auto& r) { return r.steps_done(); }); })
      .def("save", [](SharedStage& s, const std::string& own) { s.call([&](auto& r) { r.save(std::as_bytes(std::span(own))); }); })
      .def("saved",
           [](SharedStage& s) {
             const std::span<const std::byte> own = s.call([](auto& r) { return r.saved(); });
             return py::bytes(reinterpret_cast<const char*>(own.data()), own.size());
           })
      .def("weights", [](SharedStage& s) { return s.call([](auto& r) { return r.weights(); }); })
      .def("layers", [](SharedStage& s) { return s.call([](auto& r) { return r.layers(); }); })
      .def("take_traffic",
           [](SharedStage& s) {
             const RemoteStage::Crossed crossed = s.call([](auto& r) { return r.take_traffic(); });
             return std::pair{to_pairs(crossed.forward), to_pairs(crossed.backward)};
           })
      .def("end", [](SharedStage& s) { s.call([](auto& r) { r.end(); }); })
      .def("leave", [](SharedStage& s) { s.call([](auto& r) { r.leave(); }); });
}

}  // namespace epipe::python
