#include "module.h"

#include <c10/util/Exception.h>

namespace {

// Leaves LibTorch's stack trace out of the text.
void translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const c10::Error& failed) {
    PyErr_SetString(PyExc_RuntimeError, failed.what_without_backtrace());
  }
}

}  // namespace

PYBIND11_MODULE(_epipe, module) {
  module.doc() = "The library, for the package epipe.";
  pybind11::register_exception_translator(translate);
  epipe::python::add_codec(module);
  epipe::python::add_output_node(module);
  epipe::python::add_remote_stage(module);
}
