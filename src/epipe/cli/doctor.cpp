#include "epipe/cli/doctor.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/version.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <thread>

#include "epipe/base/amx.h"
#include "epipe/codec/kernels/cuda_part.h"
#include "epipe/codec/kernels/kernels.h"
#include "epipe/monitor/http_server.h"
#include "epipe/monitor/metric_page.h"
#include "epipe/transport/build_parts.h"

namespace epipe::cli {
namespace {

using Level = Finding::Level;

constexpr double kLeastMemoryGB = 1;
constexpr double kLeastDiskGB = 0.1;
constexpr double kLittleDiskGB = 5;
constexpr rlim_t kFewFiles = 4096;
constexpr std::time_t kSomeTimeAgo = 1'735'689'600;  // the beginning of 2025: a correct clock is later

Finding cpu() {
  const std::string found = fmt::format("{} kernels, {} hardware threads", kernels::best().name, std::thread::hardware_concurrency());
  if (kernels::best().name != kernels::scalar().name) return {"CPU", Level::kFine, found};
  return {"CPU", Level::kWarning, found, "without AVX2, or held there by EPIPE_CPU, codecs are several times slower: docs/cpus.md"};
}

Finding amx() {
  const Amx state = amx_use().amx;
  const bool fine = state == Amx::kAbsent || state == Amx::kGranted;
  return {"AMX", fine ? Level::kFine : Level::kWarning, describe(amx_use()),
          fine ? "" : "oneDNN is kept from it, bf16 is slower than it could be: ask who runs the virtual machine"};
}

Finding libtorch() {
  const auto ones = torch::ones({64, 64});
  const bool right = torch::equal(torch::mm(ones, ones), torch::full({64, 64}, 64.0F));
  if (right) return {"LibTorch", Level::kFine, TORCH_VERSION};
  return {"LibTorch", Level::kWrong, fmt::format("{}: a product of ones is wrong", TORCH_VERSION), "reinstall it; check the memory"};
}

// OpenBLAS built for pthreads ignores the number of threads a worker asks for.
Finding blas() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const bool pthread_build = line.find("openblas") != std::string::npos && line.find("pthread") != std::string::npos;
    if (pthread_build) {
      return {"BLAS", Level::kWarning, "OpenBLAS for pthreads, which ignores --threads",
              "apt-get install libopenblas0-openmp && update-alternatives --config libblas.so.3-x86_64-linux-gnu"};
    }
  }
  return {"BLAS", Level::kFine, "takes the number of threads it is told"};
}

Finding cuda() {
  const Part part = kernels::cuda_part();
  const auto devices = static_cast<int>(torch::cuda::device_count());
  const bool driver = std::ifstream("/proc/driver/nvidia/version").good();
  if (driver && (!part.available || devices == 0)) {
    return {"CUDA", Level::kWarning, "there is an NVIDIA driver, but this build finds no device",
            "build with the preset cuda: docs/gpu.md"};
  }
  return {"CUDA", Level::kFine, devices > 0 ? fmt::format("{} devices", devices) : "no device; train with --devices cpu"};
}

Finding part_of_build(const Part& part) {
  return {part.name, part.available ? Level::kFine : Level::kWarning, part.available ? part.detail : "missing",
          part.available ? "" : part.detail};
}

Finding memory() {
  std::ifstream info("/proc/meminfo");
  double available = 0;
  for (std::string word; info >> word;) {
    if (word == "MemAvailable:") info >> available;
  }
  const double gigabytes = available * 1024 / 1e9;
  const std::string found = fmt::format("{:.1f} GB available", gigabytes);
  if (gigabytes >= kLeastMemoryGB) return {"memory", Level::kFine, found};
  return {"memory", Level::kWarning, found, "a session needs about half a GB and its model: end something, or lower --max-sessions"};
}

Finding disk(const std::string& folder) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) {
    return {"disk", Level::kWrong, fmt::format("{}: {}", folder, std::strerror(errno)), "make the folder, or name another one"};
  }
  const double gigabytes = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize) / 1e9;
  const std::string found = fmt::format("{:.1f} GB free at {}", gigabytes, folder);
  if (gigabytes < kLeastDiskGB) return {"disk", Level::kWrong, found, "checkpoints cannot be saved: free some"};
  return {"disk", gigabytes < kLittleDiskGB ? Level::kWarning : Level::kFine, found,
          gigabytes < kLittleDiskGB ? "a session keeps two checkpoints and writes a third: --state-quota bounds all of them" : ""};
}

Finding open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string found = fmt::format("{} may be open", limit.rlim_max);
  if (limit.rlim_max >= kFewFiles) return {"files", Level::kFine, found};
  return {"files", Level::kWarning, found, "a server with many clients needs more: ulimit -n, or LimitNOFILE of its unit"};
}

Finding clock() {
  if (std::time(nullptr) < kSomeTimeAgo) return {"clock", Level::kWrong, "it is far behind", "set it: certificates are not valid yet"};
  timex state{};
  const bool synchronized = ::adjtimex(&state) != TIME_ERROR;
  if (synchronized) return {"clock", Level::kFine, "synchronized over the network"};
  return {"clock", Level::kWarning, "not synchronized", "certificates need the right time: install chrony or systemd-timesyncd"};
}

Finding port(const std::string& address) {
  try {
    const monitor::HttpServer tried({.address = address, .pages = {}});
    return {"port", Level::kFine, fmt::format("{} is free", address)};
  } catch (const std::exception& error) {
    return {"port", Level::kWrong, error.what(), "give --listen another port, or end what has it: ss -ltnp"};
  }
}

}  // namespace

std::vector<Finding> examine(const DoctorFlags& flags) {
  std::vector<Finding> findings = {cpu(), amx(), libtorch(), blas(), cuda()};
  for (const Part& part : transport::build_parts()) findings.push_back(part_of_build(part));
  findings.push_back(part_of_build(monitor::prometheus_part()));
  for (Finding& finding : std::vector<Finding>{memory(), disk(flags.folder), open_files(), clock()}) findings.push_back(std::move(finding));
  if (!flags.listen.empty()) findings.push_back(port(flags.listen));
  if (!flags.tls.empty()) {
    for (Finding& finding : examine_tls(flags.tls)) findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace epipe::cli
