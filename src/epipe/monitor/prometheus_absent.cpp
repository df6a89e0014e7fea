#include <stdexcept>

#include "epipe/monitor/metric_page.h"

// Linked in builds without prometheus-cpp.
namespace epipe::monitor {

std::string MetricPage::text() const {
  throw std::runtime_error("this epipe was built without prometheus-cpp: install prometheus-cpp-dev, then rebuild");
}

Part prometheus_part() { return {"prometheus-cpp", false, "not in this build: install prometheus-cpp-dev, then rebuild"}; }

}  // namespace epipe::monitor
