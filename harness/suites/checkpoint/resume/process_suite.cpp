#include "harness/suites/checkpoint/resume/process_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "harness/base/errors.h"

namespace lockstep::resume {

using Json = nlohmann::json;

namespace {

std::string to_text(const TrialDone& done) {
  Json cases = Json::array();
  for (const CaseResult& each : done.cases) {
    Json timeline = Json::array();
    for (const TimelineStep& step : each.timeline) timeline.push_back({step.process, step.operation, step.mark});
    cases.push_back({{"outcome", each.outcome},
                     {"verdict", static_cast<int>(each.verdict)},
                     {"cases", each.cases},
                     {"sentence", each.sentence},
                     {"timeline", timeline}});
  }
  const Json json{{"cases", cases}, {"sums", done.sums}, {"greatest", done.greatest}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

TrialDone from_text(const std::string& text) {
  const Json json = Json::parse(text);
  TrialDone done;
  for (const Json& each : json.at("cases")) {
    CaseResult result{each.at("outcome"), static_cast<CaseVerdict>(each.at("verdict").get<int>()), each.at("cases"),
                      each.at("sentence")};
    for (const Json& step : each.at("timeline")) result.timeline.push_back({step[0], step[1], step[2]});
    done.cases.push_back(std::move(result));
  }
  done.sums = json.at("sums").get<std::map<std::string, int64_t>>();
  done.greatest = json.at("greatest").get<std::map<std::string, int64_t>>();
  return done;
}

void make_empty(const std::string& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (!error) std::filesystem::create_directories(folder, error);
  if (error) throw MachineError(fmt::format("{}: {}", folder, error.message()));
}

}  // namespace

void TrialDone::add(std::string outcome, CaseVerdict verdict, std::string sentence,
                    std::vector<TimelineStep> timeline) {
  if (verdict == CaseVerdict::good && count_alike(cases, outcome, verdict)) return;
  cases.push_back({std::move(outcome), verdict, 1, std::move(sentence), std::move(timeline)});
}

std::vector<Trial> ProcessSuite::trials(const SuiteRun& run) {
  std::vector<Trial> all = planned();
  fork_servers_.clear();
  for (int slot = 0; slot < run.jobs; ++slot) {
    const std::string folder = fmt::format("{}/work/{}", run.out_dir, slot);
    fork_servers_.push_back(std::make_unique<ForkServer>([this, folder](const std::string& name) {
      make_empty(folder);
      Board board;
      const TrialDone done = run_trial(name, folder, board);
      std::error_code left_behind;
      std::filesystem::remove_all(folder, left_behind);
      return to_text(done);
    }));
  }
  for (Trial& trial : all) {
    trial.run = [this, name = trial.name](Slot& slot) {
      TrialDone done = from_text(fork_servers_.at(static_cast<std::size_t>(slot.number()))->ask(name));
      for (const auto& [sum, count] : done.sums) measured().add(sum, count);
      for (const auto& [most, count] : done.greatest) measured().at_least(most, static_cast<double>(count));
      return std::move(done.cases);
    };
  }
  return all;
}

toy::RunOptions ProcessSuite::options_of(const std::string& folder) const {
  toy::RunOptions options;
  options.config.seed = static_cast<uint64_t>(config_.seed);
  options.root = folder;
  options.save_every = config_.save_every;
  options.keep_last = static_cast<int>(config_.keep_last);
  options.deadline_s = config_.deadline_s;
  options.grace_s = config_.grace_s;
  return options;
}

}  // namespace lockstep::resume
