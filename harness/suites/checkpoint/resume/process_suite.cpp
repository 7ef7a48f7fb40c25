#include "harness/suites/checkpoint/resume/process_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "harness/base/errors.h"
#include "harness/suites/engine/trial_journal.h"

namespace lockstep::resume {

namespace {

void make_empty(const std::string& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (!error) std::filesystem::create_directories(folder, error);
  if (error) throw MachineError(fmt::format("{}: {}", folder, error.message()));
}

}  // namespace

std::vector<Trial> ProcessSuite::trials(const SuiteRun& run) {
  std::vector<Trial> all = planned();
  fork_servers_.clear();
  for (int slot = 0; slot < run.jobs; ++slot) {
    const std::string folder = fmt::format("{}/work/{}", run.out_dir, slot);
    fork_servers_.push_back(std::make_unique<ForkServer>([this, folder](const std::string& name) {
      make_empty(folder);
      Board board;
      TrialRecord record{name};
      {
        const MeasuredTrial measures(record.measured);
        Cases cases;
        run_trial(name, folder, board, cases);
        record.cases = cases.take();
      }
      std::error_code left_behind;
      std::filesystem::remove_all(folder, left_behind);
      return to_text(record);
    }));
  }
  for (Trial& trial : all) {
    trial.run = [this, name = trial.name](Slot& slot) {
      std::optional<TrialRecord> record = trial_record(fork_servers_.at(static_cast<std::size_t>(slot.number()))->ask(name));
      LOCKSTEP_CHECK(record, "a fork server of ours says what it has tried");
      measured().merge(record->measured);
      return std::move(record->cases);
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
