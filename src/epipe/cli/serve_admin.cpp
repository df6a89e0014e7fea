// epipe serve status, drain and end
#include "epipe/cli/serve_admin.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "epipe/base/printable.h"
#include "epipe/cli/command.h"
#include "epipe/serve/admin_socket.h"

namespace epipe::cli {
namespace {

using nlohmann::json;
using serve::AdminRequest;

struct AdminFlags {
  std::string state_dir = "epipe-sessions";
  bool as_json = false;
  bool wait = false;
  AdminRequest request{};
};

json ask(const AdminFlags& flags) {
  try {
    return serve::ask_server(flags.state_dir, flags.request);
  } catch (const std::runtime_error& error) {
    throw Failure(error.what());
  }
}

std::string text_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? printable(found->get<std::string>(), 64) : "";
}

double number_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string size_text(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.1f} GB", bytes / 1e9);
  return bytes >= 1e6 ? fmt::format("{:.1f} MB", bytes / 1e6) : fmt::format("{:.0f} kB", bytes / 1e3);
}

// A limit of 0 means no limit.
std::string of_limit(const std::string& used, double limit, const std::string& limit_text) {
  return limit > 0 ? fmt::format("{} of {}", used, limit_text) : used;
}

void print_sessions(const json& sessions) {
  if (sessions.empty()) return;
  fmt::print("{:<10}{:<16}{:<22}{:<22}{:>9}{:>11}{:>10}{:>10}{:>10}  {:<8}{:>7}  {}\n", "session", "who", "since", "model", "steps",
             "samples", "received", "sent", "memory", "device", "idle", "state");
  for (const json& session : sessions) {
    const std::string id = text_of(session, "id");
    fmt::print("{:<10}{:<16.15}{:<22}{:<22.21}{:>9.0f}{:>11.0f}{:>10}{:>10}{:>10}  {:<8}{:>5.0f} s  {}\n",
               id.size() == 32 ? id.substr(0, 8) : id, text_of(session, "who"), text_of(session, "since"), text_of(session, "model"),
               number_of(session, "steps"), number_of(session, "samples"), size_text(number_of(session, "bytes_received")),
               size_text(number_of(session, "bytes_sent")), size_text(number_of(session, "memory_bytes")), text_of(session, "device"),
               number_of(session, "idle_seconds"), text_of(session, "state"));
  }
}

void print_names(const json& names) {
  if (names.empty()) return;
  fmt::print("\n{:<16}{:>12}{:>8}  {:<22}{}\n", "name", "sessions", "weight", "traffic today", "device seconds today");
  for (const json& name : names) {
    const double bytes = number_of(name, "bytes_today");
    const double most_bytes = number_of(name, "bytes_per_day");
    const double seconds = number_of(name, "device_seconds_today");
    const double most_seconds = number_of(name, "device_seconds_per_day");
    fmt::print("{:<16.15}{:>12}{:>8.0f}  {:<22}{}\n", text_of(name, "name"),
               fmt::format("{:.0f} of {:.0f}", number_of(name, "sessions"), number_of(name, "sessions_limit")), number_of(name, "weight"),
               of_limit(size_text(bytes), most_bytes, size_text(most_bytes)),
               of_limit(fmt::format("{:.0f}", seconds), most_seconds, fmt::format("{:.0f}", most_seconds)));
  }
}

void print_status(const json& status) {
  const json& sessions = status.at("sessions");
  const std::string draining =
      status.value("draining", false) ? fmt::format(", draining, {:.0f} s left", number_of(status, "drain_seconds_left")) : "";
  fmt::print("epipe {} on {}, process {:.0f}, since {}: {} of {:.0f} sessions{}\n", text_of(status, "version"), text_of(status, "address"),
             number_of(status, "pid"), text_of(status, "since"), sessions.size(), number_of(status.at("limits"), "sessions"), draining);
  if (const std::string until = text_of(status, "certificate_until"); !until.empty()) fmt::print("certificate until {}\n", until);
  if (number_of(status, "audit_lines_lost") > 0) fmt::print("{:.0f} lines of the audit are lost\n", number_of(status, "audit_lines_lost"));
  print_sessions(sessions);
  print_names(status.at("names"));
}

void show(const AdminFlags& flags, const json& status) {
  if (flags.as_json) return fmt::print("{}\n", status.dump());
  try {
    print_status(status);
  } catch (const json::exception&) {
    throw Failure("the server is of another version of epipe; --json shows what it says");
  }
}

// Waits until no server listens any more. One that listens and is silent has not ended: Failure.
void wait_for_end(const AdminFlags& flags) {
  while (true) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    try {
      (void)serve::ask_server(flags.state_dir, {});
    } catch (const serve::NoServer&) {
      return fmt::print("the server has ended\n");
    } catch (const serve::ServerHungUp&) {  // it closes its socket next
    } catch (const std::runtime_error& error) {
      throw Failure(fmt::format("cannot tell whether it has ended: {}", error.what()));
    }
  }
}

void run_drain(const AdminFlags& flags) {
  show(flags, ask(flags));
  if (flags.wait) wait_for_end(flags);
}

CLI::App* add_admin_command(CLI::App& serve, const char* name, const char* help, const std::shared_ptr<AdminFlags>& flags) {
  auto* command = serve.add_subcommand(name, help);
  command->add_option("--state-dir", flags->state_dir, "The server's")->capture_default_str();
  return command;
}

}  // namespace

void add_admin_commands(CLI::App& serve) {
  const auto status = std::make_shared<AdminFlags>();  // each is owned by its callback as well
  auto* command = add_admin_command(serve, "status", "Show a running server's sessions, limits and usage by name", status);
  command->add_flag("--json", status->as_json, "One JSON object");
  command->callback([status] { show(*status, ask(*status)); });

  const auto drain = std::make_shared<AdminFlags>();
  drain->request.kind = AdminRequest::Kind::kDrain;
  command = add_admin_command(serve, "drain", "Take no new sessions, ask clients to save and leave, and end", drain);
  command->add_option("--seconds", drain->request.seconds, "For clients to leave; 0: at once, unasked; default: the server's --drain-time")
      ->check(number_from_zero());
  command->add_flag("--wait", drain->wait, "Return when the server has ended");
  command->add_flag("--json", drain->as_json, "One JSON object");
  command->callback([drain] { run_drain(*drain); });

  const auto end = std::make_shared<AdminFlags>();
  end->request.kind = AdminRequest::Kind::kEnd;
  command = add_admin_command(serve, "end", "End one session now; its client is told why", end);
  command->add_option("session", end->request.session, "Its id, or the first digits")->required();
  command->add_option("--reason", end->request.reason, "For its client");
  command->callback([end] {
    const auto checked = serve::parse_admin_request(to_line(end->request));
    if (!checked) throw UsageError(checked.error().message);
    fmt::print("ended {}\n", text_of(ask(*end), "ended"));
  });
}

}  // namespace epipe::cli
