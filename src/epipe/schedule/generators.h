#pragma once

#include "epipe/schedule/generate.h"

namespace epipe::schedule {

Schedule gpipe(const Request& request);
Schedule one_f_one_b(const Request& request);
Schedule zb_h1(const Request& request);

}  // namespace epipe::schedule
