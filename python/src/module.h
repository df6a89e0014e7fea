#pragma once

#include <torch/csrc/utils/pybind.h>

// The part of the library visible to the Python code in python/epipe. Releases the GIL wherever it works or waits.
namespace epipe::python {

void add_codec(pybind11::module_& module);
void add_output_node(pybind11::module_& module);
void add_remote_stage(pybind11::module_& module);

}  // namespace epipe::python
