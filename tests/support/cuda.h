#pragma once

#include <gtest/gtest.h>
#include <torch/cuda.h>

// Skips a test where there is no device to run it on.
#define EPIPE_NEEDS_CUDA() \
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a CUDA device and a build with --preset cuda"
