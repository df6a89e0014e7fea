// epipe doctor: checks whether a machine is fit for epipe, and says what to do if not
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "epipe/cli/command.h"
#include "epipe/cli/doctor.h"

namespace epipe::cli {
namespace {

std::string_view shown(Finding::Level level) {
  switch (level) {
    case Finding::Level::kFine: return "ok";
    case Finding::Level::kWarning: return "warning";
    default: return "wrong";
  }
}

void run_doctor(const DoctorFlags& flags, bool json) {
  const std::vector<Finding> findings = examine(flags);
  bool healthy = true;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    healthy = healthy && finding.level != Finding::Level::kWrong;
    list.push_back({{"name", finding.name}, {"level", shown(finding.level)}, {"found", finding.found}, {"do", finding.advice}});
    if (!json) fmt::print("{:<8} {:<15} {}\n", shown(finding.level), finding.name, finding.found);
    if (!json && !finding.advice.empty()) fmt::print("{:<24} -> {}\n", "", finding.advice);
  }
  if (json) fmt::print("{}\n", nlohmann::ordered_json{{"healthy", healthy}, {"findings", list}}.dump());
  if (!healthy) throw ExitCode(kFailed);
}

}  // namespace

void add_doctor_command(CLI::App& app) {
  struct Flags {
    DoctorFlags doctor;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();  // owned by the callback as well
  auto* command = app.add_subcommand("doctor", "Check this machine, and say how to fix problems");
  command->add_option("--listen", flags->doctor.listen, "HOST:PORT for a server: checks whether it is free");
  command->add_option("--tls", flags->doctor.tls,
                      "Folder of certificates and token, of a server or a client: checks whether they are complete and valid");
  command->add_option("--state-dir", flags->doctor.folder, "Folder for checkpoints: checks whether the disk has room")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "One JSON object");
  command->callback([flags] { run_doctor(flags->doctor, flags->json); });
}

}  // namespace epipe::cli
