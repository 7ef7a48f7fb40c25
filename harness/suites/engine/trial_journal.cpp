#include "harness/suites/engine/trial_journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <nlohmann/json.hpp>

#include "harness/base/atomic_file.h"
#include "harness/base/errors.h"
#include "harness/base/json_text.h"
#include "harness/base/sealed_json.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kEnded = R"({"ended":true})";

Json to_json(const TrialRecord& record) {
  Json cases = Json::array();
  for (const CaseResult& each : record.cases) {
    Json timeline = Json::array();
    for (const TimelineStep& step : each.timeline) timeline.push_back({step.process, step.operation, step.mark});
    cases.push_back({{"outcome", each.outcome},
                     {"verdict", name_of(each.verdict)},
                     {"cases", each.cases},
                     {"sentence", each.sentence},
                     {"timeline", std::move(timeline)}});
  }
  return {{"trial", record.trial}, {"cases", std::move(cases)}, {"measured", record.measured.to_json()}};
}

CaseVerdict verdict_named(const std::string& name) {
  const auto names = case_verdict_names();
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) throw Json::other_error::create(501, "unknown verdict", nullptr);
  return static_cast<CaseVerdict>(found - names.begin());
}

TrialRecord from_json(const Json& json) {
  TrialRecord record{json.at("trial")};
  for (const Json& each : json.at("cases")) {
    CaseResult one{each.at("outcome"), verdict_named(each.at("verdict")), each.at("cases"), each.at("sentence")};
    for (const Json& step : each.at("timeline")) one.timeline.push_back({step.at(0), step.at(1), step.at(2)});
    record.cases.push_back(std::move(one));
  }
  record.measured = Measurements::from_json(json.at("measured"));
  return record;
}

bool is_undecided(const CaseResult& one) { return one.verdict == CaseVerdict::undecided; }

}  // namespace

std::string to_text(const TrialRecord& record) {
  Json json = to_json(record);
  seal(json);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<TrialRecord> trial_record(const std::string& text) {
  const Json json = parse_json(text);
  if (!seal_problem(json).empty()) return std::nullopt;
  try {
    return from_json(json);
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

}  // namespace lockstep
