// Session data shown by `epipe serve status` and the audit log.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "epipe/serve/child.h"
#include "epipe/serve/sessions.h"

namespace epipe::serve {

nlohmann::json work_of(const RunningSession& session) {
  nlohmann::json work = {{"bytes_received", session.activity->received()},
                         {"bytes_sent", session.activity->sent()},
                         {"seconds", session.life.seconds()},
                         {"device_seconds", session.device_seconds}};
  if (!session.reports) return work;
  const auto& totals = session.reports->totals();
  work.update(
      {{"model", session.reports->model()}, {"steps", totals.steps}, {"samples", totals.samples}, {"checkpoints", totals.checkpoints}});
  return work;
}

nlohmann::json Sessions::status() {
  const std::lock_guard lock(mutex_);
  nlohmann::json sessions = nlohmann::json::array();
  for (const auto& [name, session] : running_) {
    nlohmann::json shown = work_of(session);
    const char* const state = session.condemned ? "ending" : draining_ || !session.leaving.empty() ? "leaving" : "running";
    shown.update({{"id", name},
                  {"state", state},
                  {"who", session.who},
                  {"peer", session.peer},
                  {"since", utc_text(session.since)},
                  {"pid", session.pid},
                  {"device", config_.device},
                  {"memory_bytes", held_bytes(session.pid)},
                  {"idle_seconds", session.activity->silent_seconds()}});
    sessions.push_back(std::move(shown));
  }
  nlohmann::json names = nlohmann::json::array();
  for (const Client& client : config_.clients) {
    const Usage used = usage_.today(client.name);
    names.push_back({{"name", client.name},
                     {"sessions", running_of(SessionConfig::Purpose::kTrain, "client " + client.name)},
                     {"sessions_limit", client.sessions.value_or(config_.share_of(client.name))},
                     {"weight", std::max(1, client.weight)},
                     {"bytes_today", used.bytes},
                     {"bytes_per_day", client.bytes_per_day},
                     {"device_seconds_today", used.seconds},
                     {"device_seconds_per_day", client.seconds_per_day}});
  }
  return {{"sessions", std::move(sessions)}, {"names", std::move(names)}};
}

}  // namespace epipe::serve
