#include "harness/suites/engine/run_trials.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <tuple>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kEnded = R"({"ended":true})";

bool is_undecided(const CaseResult& one) { return one.verdict == CaseVerdict::undecided; }

}  // namespace

static void to_json(Json& json, const TimelineStep& step) { json = {step.process, step.operation, step.mark}; }
static void from_json(const Json& json, TimelineStep& step) { step = {json.at(0), json.at(1), json.at(2)}; }

static void to_json(Json& json, CaseVerdict verdict) { json = name_of(verdict); }
static void from_json(const Json& json, CaseVerdict& verdict) {
  const auto found = std::ranges::find(case_verdict_names(), json.get<std::string>());
  if (found == case_verdict_names().end()) throw Json::other_error::create(501, "unknown verdict", nullptr);
  verdict = static_cast<CaseVerdict>(found - case_verdict_names().begin());
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CaseResult, outcome, verdict, cases, sentence, timeline)

std::string to_text(const TrialRecord& record) {
  Json json = {{"trial", record.trial}, {"cases", record.cases}, {"measured", record.measured.to_json()}};
  seal(json);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

static std::optional<TrialRecord> trial_record(const std::string& text) {
  const Json json = parse_json(text);
  if (!seal_problem(json).empty()) return std::nullopt;
  try {
    return TrialRecord{json.at("trial"), json.at("cases"), Measurements::from_json(json.at("measured"))};
  } catch (const Json::exception&) {
    return std::nullopt;  // it was sealed by another version
  }
}

TrialJournal::TrialJournal(std::string path, const std::string& key, bool fresh) : path_(std::move(path)) {
  const std::string head = Json{{"trials_of", key}}.dump();
  std::string kept;
  if (std::ifstream file(path_); file && !fresh) {
    std::string line;
    if (std::getline(file, line) && line == head) {
      kept = head + "\n";
      while (std::getline(file, line) && !file.eof()) {
        if (line == kEnded) {
          records_.clear();
          kept.clear();
          break;
        }
        std::optional<TrialRecord> record = trial_record(line);
        if (!record) break;  // what stands behind a damaged line is not believed either
        records_.insert_or_assign(record->trial, *std::move(record));
        kept += line + "\n";
      }
    }
  }
  write_file_atomically(path_, kept.empty() ? head + "\n" : kept);
  file_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file_ < 0) throw MachineError(path_ + ": " + std::strerror(errno));
}

TrialJournal::~TrialJournal() {
  if (file_ >= 0) ::close(file_);
}

const TrialRecord* TrialJournal::find(const std::string& trial) const {
  const auto found = records_.find(trial);
  if (found == records_.end() || std::ranges::any_of(found->second.cases, is_undecided)) return nullptr;
  return &found->second;
}

void TrialJournal::append(const TrialRecord& record) {
  write(to_text(record) + "\n");
}

void TrialJournal::end() { write(std::string(kEnded) + "\n"); }

void TrialJournal::write(const std::string& text) {
  // What a trial finds in a folder that somebody removed says nothing of what is tried.
  struct stat now {};
  if (::fstat(file_, &now) == 0 && now.st_nlink == 0) throw removed_meanwhile(path_);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(file_, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) throw MachineError(path_ + ": " + std::strerror(errno));
    done += static_cast<std::size_t>(wrote);
  }
}

int64_t recorded_trials(const std::string& out_dir) {
  std::ifstream file(out_dir + "/" + kTrialJournal);
  int64_t lines = 0;
  for (std::string line; std::getline(file, line);) lines += file.eof() || line == kEnded ? 0 : 1;
  return std::max<int64_t>(0, lines - 1);
}

namespace {

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

/// Trials that have run, in the order of the list, whichever slot took them.
class Trials {
 public:
  Trials(std::vector<Trial> trials, const TrialOptions& options)
      : trials_(std::move(trials)), results_(trials_.size()), options_(options), started_(options.clock()) {
    for (std::size_t i = 0; i < trials_.size(); ++i) {
      const TrialRecord* record = options.journal == nullptr ? nullptr : options.journal->find(trials_[i].name);
      if (record == nullptr) {
        estimate_s_ += trials_[i].estimate_s;
        continue;
      }
      ++recorded_;
      hold(i, *record);
    }
  }

  /// The next one that is not recorded, or nothing: all are taken.
  const Trial* take(std::size_t& index) {
    const std::lock_guard lock(mutex_);
    while (next_ < trials_.size() && results_[next_]) ++next_;
    if (next_ == trials_.size() || failed_) return nullptr;
    index = next_++;
    running_[index] = options_.clock();
    return &trials_[index];
  }

  void put(std::size_t index, TrialRecord record) {
    const std::lock_guard lock(mutex_);
    if (options_.journal != nullptr) options_.journal->append(record);
    hold(index, std::move(record));
    done_s_ += trials_[index].estimate_s;
    running_.erase(index);
    tell();
  }

  /// Tells every second how far they are, until each of the `threads` has left.
  void watch(int threads) {
    std::unique_lock lock(mutex_);
    while (!all_left_.wait_for(lock, std::chrono::seconds(1), [&] { return left_ == threads; })) tell();
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    ++left_;
    all_left_.notify_one();
  }

  int64_t recorded() const { return recorded_; }
  Measurements measured() const {
    Measurements all;
    for (const auto& record : results_) {
      if (record) all.merge(record->measured);
    }
    return all;
  }

  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!failed_) failed_ = std::move(error);
  }
  void throw_if_failed() const {
    if (failed_) std::rethrow_exception(failed_);
  }
  bool empty() const { return trials_.empty(); }
  std::size_t size() const { return trials_.size(); }
  std::size_t done() const { return progress_.done; }

  SuiteResult counted() const {
    SuiteResult result;
    using Key = std::tuple<std::string, std::string, std::string, CaseVerdict>;
    std::map<Key, std::size_t> rows;
    std::vector<std::size_t> listed;
    for (std::size_t i = 0; i < trials_.size(); ++i) {
      if (!results_[i]) continue;
      const Trial& trial = trials_[i];
      ++result.trials;
      for (const CaseResult& each : results_[i]->cases) {
        const auto [row, added] =
            rows.try_emplace(Key(trial.failure, trial.place, each.outcome, each.verdict), result.table.size());
        if (added) {
          result.table.push_back({trial.failure, trial.place, each.outcome, each.verdict, 0});
          listed.push_back(0);
        }
        result.table[row->second].cases += each.cases;
        result.cases += each.cases;
        if (each.verdict == CaseVerdict::good) continue;
        if (each.verdict == CaseVerdict::fault) result.faults += each.cases;
        if (each.verdict == CaseVerdict::undecided) result.undecided += each.cases;
        if (++listed[row->second] > options_.findings_a_row) {
          ++result.findings_left_out;
          continue;
        }
        result.findings.push_back({trial.name, trial.failure, trial.place, each.outcome, each.verdict, each.sentence,
                                   each.timeline, ""});
      }
    }
    result.seconds = options_.clock() - started_;
    return result;
  }

 private:
  void tell() {
    if (!options_.on_progress) return;
    const double now = options_.clock();
    progress_.all = trials_.size();
    progress_.elapsed_s = now - started_;
    const double run = static_cast<double>(progress_.done) - static_cast<double>(recorded_);
    const double share = estimate_s_ > 0 ? done_s_ / estimate_s_ : run / (static_cast<double>(progress_.all) - static_cast<double>(recorded_));
    progress_.left_s = share > 0 ? progress_.elapsed_s * (1 - share) / share : 0;
    const auto longest = std::ranges::min_element(running_, {}, [](const auto& each) { return each.second; });
    progress_.longest = longest == running_.end() ? "" : trials_[longest->first].name;
    progress_.longest_s = longest == running_.end() ? 0 : now - longest->second;
    options_.on_progress(progress_);
  }

  void hold(std::size_t index, TrialRecord record) {
    for (const CaseResult& each : record.cases) {
      if (each.verdict == CaseVerdict::fault) progress_.faults += each.cases;
    }
    results_[index] = std::move(record);
    ++progress_.done;
  }

  std::vector<Trial> trials_;
  std::vector<std::optional<TrialRecord>> results_;
  const TrialOptions& options_;
  double started_, estimate_s_ = 0, done_s_ = 0;
  std::mutex mutex_;
  std::size_t next_ = 0;
  std::exception_ptr failed_;
  std::map<std::size_t, double> running_;  ///< trials, and when each began
  std::condition_variable all_left_;
  int left_ = 0;  ///< of the slots' threads
  int64_t recorded_ = 0;
  TrialProgress progress_;
};

/// As often as it takes until nobody disturbs it, within reason.
TrialRecord tried(const Trial& trial, Slot& slot) {
  constexpr int kAttempts = 3;
  TrialRecord record{trial.name};
  for (int attempt = 1;; ++attempt) {
    record.measured = {};
    const MeasuredTrial measures(record.measured);
    try {
      record.cases = trial.run(slot);
      return record;
    } catch (const TrialDisturbed& error) {
      if (attempt < kAttempts) continue;
      record.cases = {{"disturbed", CaseVerdict::undecided, 1, fmt::format("{}: {}; so it was at each of {} attempts", trial.name, error.what(), kAttempts)}};
      return record;
    }
  }
}

void work(const SuiteRun& run, int number, Trials& trials) {
  try {
    Slot slot(run, number);
    std::size_t index = 0;
    while (*run.stop_requested == 0) {
      const Trial* trial = trials.take(index);
      if (trial == nullptr) return;
      TrialRecord record = tried(*trial, slot);
      if (*run.stop_requested == 0) trials.put(index, std::move(record));
    }
  } catch (...) {
    trials.fail(std::current_exception());
  }
}

}  // namespace

TrialFilter::TrialFilter(const std::string& only) {
  if (only.find("==") == std::string::npos && only.find("!=") == std::string::npos) {
    name_ = trimmed(only);
    return;
  }
  for (std::size_t begin = 0; begin <= only.size();) {
    const std::size_t end = std::min(only.find("&&", begin), only.size());
    const std::string part = only.substr(begin, end - begin);
    const std::size_t sign = std::min(part.find("=="), part.find("!="));
    const std::string key = trimmed(part.substr(0, std::min(sign, part.size())));
    if (sign >= part.size() || (key != "failure" && key != "place")) {
      throw ConfigError(fmt::format("--only {}: a trial is selected by its name, or by failure==… and place==…",
                                    in_quotes(only)));
    }
    conditions_.push_back({key == "place", part[sign] == '=', trimmed(part.substr(sign + 2))});
    begin = end + 2;
  }
}

bool TrialFilter::takes(const Trial& trial) const {
  if (conditions_.empty()) return name_.empty() || trial.name == name_;
  return std::ranges::all_of(conditions_, [&](const Condition& condition) {
    return ((condition.of_place ? trial.place : trial.failure) == condition.value) == condition.equal;
  });
}

TrialsDone run_trials(Suite& suite, const SuiteRun& run, const TrialOptions& options) {
  const TrialFilter filter(options.only);
  std::vector<Trial> selected = suite.trials(run);
  std::erase_if(selected, [&](const Trial& trial) { return !filter.takes(trial); });
  Trials trials(std::move(selected), options);
  if (trials.recorded() > 0 && options.on_recorded) options.on_recorded(static_cast<std::size_t>(trials.recorded()), trials.size());
  const int slots = std::clamp(run.jobs, 1, static_cast<int>(std::max<std::size_t>(1, trials.size())));
  {
    std::vector<std::jthread> threads;
    for (int slot = 0; slot < slots && !trials.empty(); ++slot)
      threads.emplace_back([&, slot] {
        work(run, slot, trials);
        trials.leave();
      });
    if (!threads.empty()) trials.watch(slots);
  }
  trials.throw_if_failed();
  TrialsDone done{trials.counted(), trials.done() < trials.size(), trials.recorded(), trials.done(), trials.size()};
  const Measurements measured = trials.measured();
  done.result.subject = suite.subject();
  done.result.facts = suite.facts(measured);
  done.result.notes = suite.notes(measured);
  done.result.tables = suite.tables(measured);
  done.result.charts = suite.charts(measured);
  return done;
}

}  // namespace lockstep
