// Any bytes are examples or a named error, by every task's columns.
#include <cstdlib>

#include "epipe/data/text/glue.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace epipe::data;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const char* const name : {"cola", "sst2", "stsb", "qqp", "rte"}) {
    const GlueTask task = glue_task(name);
    const auto examples = parse_glue(text, task);
    if (!examples && examples.error().message.empty()) std::abort();
    if (!examples) continue;
    for (const GlueExample& example : examples.value()) {
      if (example.sentences.size() != task.sentences) std::abort();
    }
  }
  return 0;
}
