#include "harness/suites/engine/suite.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/run/launchers/local/launcher.h"

namespace lockstep {
TrialDisturbed::TrialDisturbed(const std::string& who)
    : MachineError(fmt::format("{} was killed by signal 9 (SIGKILL), which nobody here had sent: the machine was out of memory (dmesg and the "
                               "cgroup's memory.events say so), or somebody ended it", who)) {}

bool count_alike(std::vector<CaseResult>& cases, const std::string& outcome, CaseVerdict verdict) {
  const auto alike = std::ranges::find_if(
      cases, [&](const CaseResult& each) { return each.verdict == verdict && each.outcome == outcome; });
  if (alike == cases.end()) return false;
  ++alike->cases;
  return true;
}

namespace {

thread_local Measurements* t_measured = nullptr;

}  // namespace

void Measurements::at_least(const std::string& name, double value) {
  const auto [place, added] = greatest_.try_emplace(name, value);
  if (!added) place->second = std::max(place->second, value);
}

int64_t Measurements::count(const std::string& name) const {
  const auto found = counts_.find(name);
  return found == counts_.end() ? 0 : found->second;
}

double Measurements::greatest(const std::string& name) const {
  const auto found = greatest_.find(name);
  return found == greatest_.end() ? 0 : found->second;
}

const std::map<std::string, nlohmann::json>& Measurements::entries(const std::string& name) const {
  static const std::map<std::string, nlohmann::json> kNone;
  const auto found = entries_.find(name);
  return found == entries_.end() ? kNone : found->second;
}

void Measurements::merge(const Measurements& other) {
  for (const auto& [name, count] : other.counts_) add(name, count);
  for (const auto& [name, value] : other.greatest_) at_least(name, value);
  for (const auto& [name, values] : other.samples_) samples_[name].insert(samples_[name].end(), values.begin(), values.end());
  for (const auto& [name, entries] : other.entries_) {
    for (const auto& [key, value] : entries) entries_[name][key] = value;
  }
}

nlohmann::json Measurements::to_json() const {
  return {{"counts", counts_}, {"greatest", greatest_}, {"samples", samples_}, {"entries", entries_}};
}

Measurements Measurements::from_json(const nlohmann::json& json) {
  Measurements read;
  json.at("counts").get_to(read.counts_);
  json.at("greatest").get_to(read.greatest_);
  json.at("samples").get_to(read.samples_);
  json.at("entries").get_to(read.entries_);
  return read;
}

Measurements& measured() {
  LOCKSTEP_CHECK(t_measured != nullptr, "only a trial measures");
  return *t_measured;
}

MeasuredTrial::MeasuredTrial(Measurements& measurements) : before_(t_measured) { t_measured = &measurements; }
MeasuredTrial::~MeasuredTrial() { t_measured = before_; }

namespace fs = std::filesystem;

Thresholds RankRun::no_thresholds() {
  constexpr double kLong_s = 1e9;
  return {kLong_s, kLong_s, kLong_s, kLong_s, kLong_s, kLong_s};
}

RankRuns::RankRuns(std::string rank_program, std::string work, const volatile int* stop_requested)
    : rank_program_(std::move(rank_program)), work_(std::move(work)), stop_requested_(stop_requested) {
  fs::remove_all(work_);
  fs::create_directories(work_);
}

std::string RankRuns::folder(const std::string& name) const {
  std::string dir = work_ + "/" + name;
  fs::remove_all(dir);
  fs::create_directories(dir);
  return dir;
}

EndedRun RankRuns::run(const std::string& dir, nlohmann::json run_json, const RankRun& asked, RunHooks hooks) {
  constexpr double kLookEvery_s = 0.002;  // a fault strikes within a step
  seal(run_json);
  write_file_atomically(dir + "/run.json", run_json.dump(2) + "\n");
  if (supervisor_ == nullptr) supervisor_ = std::make_unique<Supervisor>(std::make_unique<LocalLauncher>(rank_program_), rank_program_);
  going_ = fmt::format("run-{}", ++runs_);
  RunSpec spec;
  spec.start.run = going_;
  spec.start.dir = dir;
  spec.start.world_size = asked.world_size;
  spec.start.processes = asked.processes > 0 ? asked.processes : asked.world_size;
  spec.thresholds = asked.thresholds;
  spec.failure_grace_s = asked.failure_grace_s;
  spec.stop_grace_s = asked.stop_grace_s;
  spec.deadline_s = asked.deadline_s;
  spec.look_every_s = kLookEvery_s;
  EndedRun ended = supervise(*supervisor_, std::move(spec), std::move(hooks), stop_requested_);
  for (const RankEnd& end : ended.ends) {
    const bool by_others = end.signal == SIGKILL && !end.killed_by_us && !(asked.kills && asked.kills(std::max(end.rank, 0)));
    if (by_others && *stop_requested_ == 0) throw TrialDisturbed(fmt::format("rank {}", std::max(end.rank, 0)));
  }
  return ended;
}

void RankRuns::signal(int number) {
  if (supervisor_ != nullptr) supervisor_->stop(going_, number);
}

std::string in_words(const std::vector<RankEnd>& ends) {
  std::string text;
  for (const RankEnd& end : ends) {
    const std::string how = end.signal != 0 ? fmt::format("killed by signal {}", end.signal) : fmt::format("status {}", end.code);
    text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", std::max(end.rank, 0), how);
  }
  return text;
}

}  // namespace lockstep
