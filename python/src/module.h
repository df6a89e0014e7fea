#pragma once

#include <torch/csrc/utils/pybind.h>

// What is written in Python (python/epipe) sees of the library. Wherever work is done or waited for, the interpreter's lock is released.
namespace epipe::python {

void add_codec(pybind11::module_& module);
void add_remote_stage(pybind11::module_& module);

}  // namespace epipe::python
