#pragma once

#include <fmt/format.h>

#include <fstream>
#include <string>

#include "epipe/report/run_data.h"

// Lines as the trainer writes them.
namespace epipe::testing {

inline std::string step_line(int epoch, int step, const std::string& codec = "sort:6+2", const std::string& error = "4.5e-05") {
  return fmt::format(
      R"({{"kind":"step","epoch":{},"step":{},"loss":{},"accuracy":0.31,"lr":0.01,"samples":64,"seconds":0.125,"samples_per_s":512.0,)"
      R"("cuts":[{{"cut":0,"direction":"forward","codec":"{}","wire_bytes":1000,"values":1000,"bits_per_value":8.0,"rel_error":{},)"
      R"("recv_MBps":812.0}},{{"cut":0,"direction":"backward","codec":"{}","wire_bytes":500,"values":1000,"bits_per_value":4.0,)"
      R"("rel_error":null,"recv_MBps":812.0}}],"workers":[{{"worker":0,"data":0.001,"forward":0.05,"backward":0.06,"optimizer":0.002,)"
      R"("encode":0.003,"decode":0.002,"all_reduce":0.0,"wait":0.01,"peak_memory_bytes":123456789}}]}})"
      "\n",
      epoch, step, 2.0 / (1 + step), codec, error, codec);
}

inline std::string epoch_line(int epoch, double val_accuracy = 0.45) {
  return fmt::format(
      R"({{"kind":"epoch","epoch":{},"steps":100,"loss":1.9,"accuracy":0.4,"val_loss":1.7,"val_accuracy":{},"val_samples":1000,)"
      R"("lr":0.01,"seconds":12.0,"samples_per_s":533.0,"wire_bytes":123456}})"
      "\n",
      epoch, val_accuracy);
}

inline std::string span_event(const std::string& name, const std::string& category, double start, double duration, int thread, int step) {
  return fmt::format(R"({{"name":"{}","cat":"{}","ph":"X","ts":{},"dur":{},"pid":0,"tid":{},"args":{{"step":{}}}}})", name, category, start,
                     duration, thread, step);
}

inline std::string thread_event(int thread, const std::string& name) {
  return fmt::format(R"({{"ph":"M","name":"thread_name","pid":0,"tid":{},"args":{{"name":"{}"}}}})", thread, name);
}

inline void write_text(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

}  // namespace epipe::testing
