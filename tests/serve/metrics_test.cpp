// What an operator sees: /metrics and /healthz of a server and of a client, and whether dashboard and alerts ask for what is there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "epipe/base/metric.h"
#include "epipe/monitor/metric_page.h"
#include "serve/split.h"
#include "support/http_client.h"

namespace epipe::serve {
namespace {

using nlohmann::json;
using testing::Arguments;
using testing::file_bytes;
using testing::http_get;
using testing::kRun;
using testing::Process;
using testing::run_program;
using testing::Split;
using testing::operator+;

using Scraped = std::map<std::string, double>;  // by name and labels

Scraped parse_metrics(const std::string& text) {
  Scraped scraped;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const auto space = line.rfind(' ');
    scraped[line.substr(0, space)] = std::stod(line.substr(space + 1));
  }
  return scraped;
}

Scraped scrape(int port) { return parse_metrics(http_get(port, "/metrics").body); }

std::set<std::string> names_of(const Scraped& scraped) {
  std::set<std::string> names;
  for (const auto& [key, value] : scraped) names.insert(key.substr(0, key.find('{')));
  return names;
}

// Waits until `enough` of a scrape is true.
template <typename Enough>
Scraped scrape_until(int port, const Enough& enough) {
  Scraped scraped;
  for (int i = 0; i < 600; ++i) {
    scraped = scrape(port);
    if (enough(scraped)) return scraped;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ADD_FAILURE() << "it never came to that";
  return scraped;
}

json last_step(const std::string& run_dir) {
  std::ifstream file(run_dir + "/metrics.jsonl");
  json last;
  for (std::string line; std::getline(file, line);) {
    json parsed = json::parse(line);
    if (parsed["kind"] == "step") last = std::move(parsed);
  }
  return last;
}

// Sums of all steps, by cut and direction.
std::map<std::string, double> wire_bytes(const std::string& run_dir) {
  std::map<std::string, double> sums;
  std::ifstream file(run_dir + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const json parsed = json::parse(line);
    if (parsed["kind"] != "step") continue;
    for (const json& cut : parsed["cuts"]) {
      sums[fmt::format("epipe_wire_bytes_total{{cut=\"{}\",direction=\"{}\"}}", cut["cut"].get<int>(),
                       cut["direction"].get<std::string>())] += cut["wire_bytes"].get<double>();
    }
  }
  return sums;
}

TEST(Metrics, OfAServerCountWhatItsClientsDid) {
  Split split(1);
  const int port = transport::free_port();
  split.start_server(0, {"--metrics", "127.0.0.1:" + std::to_string(port)});
  EXPECT_EQ(http_get(port, "/healthz").status, 200);
  Scraped at_first = scrape(port);
  EXPECT_EQ(at_first.at("epipe_sessions"), 0);
  EXPECT_EQ(at_first.at("epipe_sessions_limit"), 4);
  const auto client = split.start_client(split.file("run"), kRun + Arguments{"--codec", "dct:1", "--max-steps", "12"});
  scrape_until(port, [](Scraped& s) { return s["epipe_sessions"] == 1; });
  ASSERT_EQ(client->wait(60), 0) << client->log();
  Scraped at_last = scrape_until(port, [](Scraped& s) { return s["epipe_sessions"] == 0; });
  EXPECT_EQ(at_last["epipe_session_steps_total"], 12);
  EXPECT_EQ(at_last["epipe_session_samples_total"], 12 * 32);
  EXPECT_EQ(at_last["epipe_session_checkpoints_total"], 1);
  EXPECT_EQ(at_last["epipe_sessions_started_total"], 1);
  EXPECT_EQ(at_last["epipe_sessions_ended_total{how=\"left\"}"], 1);
  EXPECT_EQ(at_last["epipe_session_reports_rejected_total"], 0);
  EXPECT_GT(at_last["epipe_worker_forward_seconds_total"], 0);
  // The server's own encoders: gradients of cut 0, activations of cut 1.
  const auto expected = wire_bytes(split.file("run"));
  for (const char* const sent :
       {"epipe_wire_bytes_total{cut=\"0\",direction=\"backward\"}", "epipe_wire_bytes_total{cut=\"1\",direction=\"forward\"}"}) {
    EXPECT_EQ(at_last[sent], expected.at(sent));
  }
  double frames = 0;
  for (const auto& [key, bytes] : expected) frames += bytes;
  const double relayed =
      at_last["epipe_relay_bytes_total{direction=\"received\"}"] + at_last["epipe_relay_bytes_total{direction=\"sent\"}"];
  EXPECT_GT(relayed, frames) << "commands and weights come on top";
  for (const auto& [key, value] : at_first) {
    const bool counts = key.substr(0, key.find('{')).ends_with("_total");
    EXPECT_TRUE(!counts || at_last[key] >= value) << key;
  }
}

TEST(Metrics, OfAServerCountRefusalsAndKilledSessionsByReason) {
  Split split(1);
  const int port = transport::free_port();
  split.start_server(0, {"--metrics", "127.0.0.1:" + std::to_string(port), "--session-time", "8"});
  std::ofstream(split.file("wrong-token")) << "nonsense\n";
  const auto refused = run_program("train --connect " + split.address(0) + " --ca " + split.file("tls/ca.pem") + " --token-file " +
                                   split.file("wrong-token") + " --max-steps 1 --run-dir " + split.file("refused"));
  EXPECT_EQ(refused.code, 1) << refused.output;
  Scraped scraped = scrape(port);
  EXPECT_GE(scraped["epipe_refusals_total{reason=\"unauthenticated\"}"], 1);
  EXPECT_EQ(scraped["epipe_refusals_total{reason=\"full\"}"], 0);
  const auto client = split.start_client(split.file("killed"), kRun + Arguments{"--reconnect", "0"});
  scraped = scrape_until(port, [](Scraped& s) { return s["epipe_sessions_ended_total{how=\"killed\"}"] == 1; });
  EXPECT_GT(scraped["epipe_session_steps_total"], 0) << "what it did before counts";
  EXPECT_EQ(client->wait(30), 1);
}

TEST(Metrics, ReconnectsAndTheAgeOfCheckpointsAreSeenAtBothEnds) {
  Split split(1);
  const int port = transport::free_port();
  const int own = transport::free_port();
  const Arguments shown = {"--metrics", "127.0.0.1:" + std::to_string(port)};
  split.start_server(0, shown);
  EXPECT_EQ(scrape(port).at("epipe_checkpoint_timestamp_seconds"), 0) << "no session";
  const auto saved = [](Scraped& s) { return s["epipe_checkpoint_timestamp_seconds"] > 0; };
  auto client = split.start_client(split.file("run"), kRun + Arguments{"--max-steps", "100000", "--checkpoint-every", "2"});
  Scraped scraped = scrape_until(port, saved);
  EXPECT_NEAR(scraped["epipe_checkpoint_timestamp_seconds"], static_cast<double>(::time(nullptr)), 60);
  EXPECT_EQ(scraped["epipe_reconnects_total"], 0) << "its first connection is none";
  client->signal(SIGKILL);
  client->wait(10);
  client = split.start_client(split.file("run"), {"--resume", "--metrics", "127.0.0.1:" + std::to_string(own)});
  scrape_until(port, [](Scraped& s) { return s["epipe_reconnects_total"] == 1; });
  ASSERT_TRUE(client->says("metrics at", 30)) << client->log();
  scrape_until(own, saved);
  EXPECT_EQ(scrape(own).at("epipe_reconnects_total"), 0);
  split.server(0).signal(SIGKILL);
  split.server(0).wait(10);
  split.start_server(0, shown);
  scraped = scrape_until(port, [](Scraped& s) { return s["epipe_reconnects_total"] > 0; });
  scrape_until(own, [](Scraped& s) { return s["epipe_reconnects_total"] > 0 && s["epipe_connected"] == 1; });
  scrape_until(port, saved);
  client->signal(SIGTERM);
  EXPECT_EQ(client->wait(60), 0) << client->log();
  scrape_until(port, [](Scraped& s) { return s["epipe_sessions"] == 0 && s["epipe_checkpoint_timestamp_seconds"] == 0; });
}

// The table of docs/operate.md has the reasons that a server counts, no more and no fewer.
TEST(Metrics, ReasonsOfRefusalsAreThoseOfTheManual) {
  Split split(1);
  const int port = transport::free_port();
  split.start_server(0, {"--metrics", "127.0.0.1:" + std::to_string(port)});
  std::set<std::string> counted;
  const std::regex label(R"x(epipe_refusals_total\{reason="([a-z_]+)"\})x");
  for (const auto& [key, value] : scrape(port)) {
    std::smatch found;
    if (std::regex_match(key, found, label)) counted.insert(found[1]);
  }
  const std::string manual = file_bytes(std::string(EPIPE_SOURCE_DIR) + "/docs/operate.md");
  const auto row = manual.find("| `epipe_refusals_total{reason}` | ");
  ASSERT_NE(row, std::string::npos);
  const std::string said = manual.substr(row, manual.find('\n', row) - row);
  std::set<std::string> listed;
  const std::regex word("`([a-z_]+)`");
  for (auto it = std::sregex_iterator(said.begin(), said.end(), word); it != std::sregex_iterator(); ++it) listed.insert((*it)[1]);
  EXPECT_EQ(counted, listed);
}

TEST(Metrics, ADrainingServerSaysSoToThoseWhoAskForItsHealth) {
  Split split(1);
  const int port = transport::free_port();
  split.start_server(0, {"--metrics", "127.0.0.1:" + std::to_string(port)});
  const auto client = split.start_client(split.file("run"), kRun + Arguments{"--model", "resnet18", "--max-steps", "1000"});
  scrape_until(port, [](Scraped& s) { return s["epipe_links{state=\"open\"}"] >= 3; });
  split.server(0).signal(SIGTERM);
  int status = 200;
  for (int i = 0; i < 400 && status == 200; ++i) {
    try {
      status = http_get(port, "/healthz").status;
    } catch (const std::runtime_error&) {
      break;
    }
  }
  EXPECT_EQ(status, 503);
  EXPECT_EQ(client->wait(60), 0) << client->log();
}

TEST(Metrics, OfARunAreThoseOfItsFile) {
  const testing::TempFolder folder;
  const int port = transport::free_port();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  Process run({"train", "--place", "0,1,0", "--chunks", "2", "--codec", "dct:1", "--epochs", "1000", "--checkpoint-every", "5", "--metrics",
               address, "--run-dir", folder.file("run")},
              folder.file("log"));
  ASSERT_TRUE(run.says("metrics at http://" + address, 30)) << run.log();
  EXPECT_EQ(http_get(port, "/healthz").body, "training\n");
  Scraped scraped = scrape_until(port, [](Scraped& s) { return s["epipe_steps_total"] > 40 && s.contains("epipe_validation_loss"); });
  EXPECT_GT(scraped["epipe_checkpoints_total"], 0);
  EXPECT_EQ(scraped["epipe_reconnects_total"], 0);
  EXPECT_NEAR(scraped["epipe_checkpoint_timestamp_seconds"], static_cast<double>(::time(nullptr)), 60);
  EXPECT_GT(scraped["epipe_learning_rate"], 0);
  for (const char* const direction : {"forward", "backward"}) {
    const std::string labels = fmt::format("{{cut=\"1\",direction=\"{}\"}}", direction);
    EXPECT_NEAR(8 * scraped["epipe_bytes_per_value" + labels], 1, 1);
    EXPECT_GT(scraped["epipe_relative_error_ratio" + labels], 0);
    EXPECT_GE(scraped["epipe_send_queue_depth" + labels], 1);
    EXPECT_NEAR(8 * scraped["epipe_wire_bytes_total" + labels] / scraped["epipe_values_total" + labels], 1, 1);
  }
  EXPECT_GT(scraped["epipe_worker_forward_seconds_total{worker=\"1\"}"], 0);
  const auto names = names_of(scraped);
  for (const Metric& metric : kWorkerMetrics) EXPECT_TRUE(names.contains(monitor::exported_name("epipe_worker_", metric))) << metric.name;
  for (const Metric& metric : kCutMetrics) {
    const bool shown = metric.unit != MetricUnit::kText && metric.name != "recv_MBps";  // no base unit: Prometheus divides
    EXPECT_EQ(names.contains(monitor::exported_name("epipe_", metric)), shown) << metric.name;
  }
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(60), 0) << run.log();
  EXPECT_GE(last_step(folder.file("run"))["step"].get<double>() + 1, scraped["epipe_steps_total"]);
}

TEST(Metrics, WhereTheyCannotBeShownIsSaidAtTheStart) {
  Split split(1);
  const int port = transport::free_port();
  const std::string taken = "127.0.0.1:" + std::to_string(port);
  split.start_server(0, {"--metrics", taken});
  const auto server = run_program("serve --insecure --listen 127.0.0.1:0 --metrics " + taken + " --state-dir " + split.file("other"));
  EXPECT_EQ(server.code, 1) << server.output;
  EXPECT_NE(server.output.find("cannot listen on " + taken), std::string::npos) << server.output;
  const auto client = run_program("train --max-steps 1 --metrics " + taken + " --run-dir " + split.file("run"));
  EXPECT_EQ(client.code, 1) << client.output;
  EXPECT_NE(client.output.find("cannot listen on " + taken), std::string::npos) << client.output;
  for (const std::string wrong : {"9100", "127.0.0.1", "127.0.0.1:http"}) {
    EXPECT_EQ(run_program("serve --insecure --listen 127.0.0.1:0 --metrics " + wrong + " --state-dir " + split.file("other")).code, 2);
    EXPECT_EQ(run_program("train --max-steps 1 --metrics " + wrong + " --run-dir " + split.file("run")).code, 2);
  }
}

TEST(Metrics, PromtoolHasNothingAgainstMetricsAndRules) {
  if (std::system("command -v promtool > /dev/null") != 0) GTEST_SKIP() << "promtool is not installed (Debian: in the package prometheus)";
  Split split(1);
  const int port = transport::free_port();
  const int own = transport::free_port();
  split.start_server(0, {"--metrics", "127.0.0.1:" + std::to_string(port)});
  const auto client = split.start_client(
      split.file("run"), kRun + Arguments{"--codec", "auto", "--metrics", "127.0.0.1:" + std::to_string(own), "--max-steps", "100000"});
  ASSERT_TRUE(client->says("metrics at", 30)) << client->log();
  scrape_until(own, [](Scraped& s) { return s.contains("epipe_harm_ratio") && s.contains("epipe_validation_loss"); });
  for (const int at : {port, own}) {
    std::ofstream(split.file("metrics")) << http_get(at, "/metrics").body;
    const std::string complaints = split.file("complaints");
    EXPECT_EQ(std::system(("promtool check metrics < " + split.file("metrics") + " > " + complaints + " 2>&1").c_str()), 0)
        << file_bytes(complaints);
  }
  const std::string rules = std::string(EPIPE_SOURCE_DIR) + "/tools/prometheus/alerts.yml";
  EXPECT_EQ(std::system(("promtool check rules " + rules + " > " + split.file("rules") + " 2>&1").c_str()), 0)
      << file_bytes(split.file("rules"));
  client->signal(SIGTERM);
  EXPECT_EQ(client->wait(60), 0) << client->log();
}

TEST(Metrics, DashboardAndAlertsAskForMetricsThatExist) {
  Split split(1);
  const int port = transport::free_port();
  const int own = transport::free_port();
  split.start_server(0, {"--metrics", "127.0.0.1:" + std::to_string(port)});
  const auto client = split.start_client(
      split.file("run"), kRun + Arguments{"--codec", "auto", "--metrics", "127.0.0.1:" + std::to_string(own), "--max-steps", "100000"});
  std::set<std::string> known = {"up"};
  for (const int at : {port, own}) {
    ASSERT_TRUE(at == port || client->says("metrics at", 30)) << client->log();
    const auto scraped = scrape_until(at, [&](Scraped& s) {
      return s.contains("epipe_wire_bytes_total{cut=\"1\",direction=\"forward\"}") && (at == port || s.contains("epipe_validation_loss"));
    });
    known.merge(names_of(scraped));
  }
  for (const std::string file : {"grafana-dashboard.json", "alerts.yml"}) {
    const std::string text = file_bytes(std::string(EPIPE_SOURCE_DIR) + "/tools/prometheus/" + file);
    const std::regex name(R"(\b(epipe|process)_[a-z0-9_]+\b)");
    std::set<std::string> asked;
    for (auto it = std::sregex_iterator(text.begin(), text.end(), name); it != std::sregex_iterator(); ++it) asked.insert(it->str());
    EXPECT_GT(asked.size(), 3U) << file;
    for (const std::string& one : asked) EXPECT_TRUE(known.contains(one)) << file << " asks for " << one;
  }
  const json dashboard = json::parse(file_bytes(std::string(EPIPE_SOURCE_DIR) + "/tools/prometheus/grafana-dashboard.json"));
  EXPECT_FALSE(dashboard.at("panels").empty());
  client->signal(SIGTERM);
  EXPECT_EQ(client->wait(60), 0) << client->log();
}

}  // namespace
}  // namespace epipe::serve
