#pragma once

#include "epipe/monitor/metric_page.h"

namespace epipe::cli {

// What this program was built from and runs with, for epipe_build_info: version, build_type, compiler, libtorch, and cuda: whether a device
// of it answers.
monitor::Labels build_labels();

}  // namespace epipe::cli
