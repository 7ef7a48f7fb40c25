// Schedules of writers: every single preemption of two and of three, every double one of two.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/base/counted.h"
#include "harness/base/errors.h"
#include "harness/suites/checkpoint/saver/search.h"
#include "harness/suites/checkpoint/saver/writer_race.h"

namespace lockstep::saver {
namespace {

using checkpoint::MemoryStorage;
using checkpoint::OperationKind;

struct Family : scheduler::Family {
  const WriterRace* writer_race = nullptr;
};

std::string name_of(const Family& family, int64_t at) {
  std::string order;
  for (const int process : family.order) order += static_cast<char>('a' + process);
  return fmt::format("{}:{}:{}-at-{}-{}{}", family.writer_race->name, order, static_cast<char>('a' + family.stops), at,
                     static_cast<char>('a' + family.goes_on), family.soon ? "-soon" : "");
}

std::vector<Family> families_of(const WriterRace& writer_race) {
  std::vector<Family> all;
  for (scheduler::Family& each : scheduler::families_of(writer_race.processes())) all.push_back({std::move(each), &writer_race});
  return all;
}

class ScheduleSearch final : public Suite {
 public:
  explicit ScheduleSearch(const SaverConfig& config) : config_(config) {}

  std::string subject() const override { return "the saver library, several writers in every order"; }

  std::vector<std::string> plan() const override {
    std::vector<std::string> lines;
    for (const WriterRace& writer_race : writer_races()) lines.push_back(fmt::format("{}: {}", writer_race.name, writer_race.words));
    lines.emplace_back("one of two or three writers stops before each of its operations until another has ended or waits; of "
                       "two, that one also stops before each of its own");
    return lines;
  }

  std::vector<Trial> trials(const SuiteRun& run) override {
    std::vector<Trial> all;
    for (const WriterRace& writer_race : writer_races()) disks_[&writer_race] = disk_of(writer_race.scene, 1, contents_);
    if (config_.planted) add_mutants(all);
    for (const WriterRace& writer_race : writer_races()) {
      std::vector<Trial> of_writer_race;
      for (const Family& family : families_of(writer_race)) {
        const std::vector<OperationKind> kinds = operations_of(family);
        for (int64_t at = 0; at < static_cast<int64_t>(kinds.size()); ++at)
          of_writer_race.push_back(schedules_at(family, at, kinds[static_cast<std::size_t>(at)]));
      }
      seen_ += static_cast<int64_t>(of_writer_race.size());
      for (Trial& planned : even_sample(of_writer_race, static_cast<std::size_t>(config_.points))) all.push_back(std::move(planned));
    }
    run.say(fmt::format("{} trials", with_commas(static_cast<int64_t>(all.size()))));
    return all;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    return {{"schedules", with_commas(m.count("singles_of_two") + m.count("doubles") + m.count("singles_of_three"))},
            {"single preemptions of two writers", with_commas(m.count("singles_of_two"))},
            {"double preemptions of two writers", with_commas(m.count("doubles"))},
            {"single preemptions of three writers", with_commas(m.count("singles_of_three"))},
            {"operations before which a writer stopped",
             fmt::format("{} of {}", with_commas(m.count("stopped")), with_commas(seen_))}};
  }

  std::vector<std::string> notes(const Measurements&) const override {
    return {"Writers share a disk in memory, and one of them goes on at a time. A writer that waits for another at a collective "
            "gives the turn away by itself."};
  }

 private:
  const MemoryStorage& disk_for(const WriterRace& writer_race) const { return *disks_.at(&writer_race); }

  /// Of the one that stops, where nobody stops it.
  std::vector<OperationKind> operations_of(const Family& family, const checkpoint::Planted* mutant = nullptr) {
    const checkpoint::Planted planted = mutant == nullptr ? checkpoint::Planted{} : *mutant;
    const WriterRaceEnd end = judge_writer_race(disk_for(*family.writer_race), *family.writer_race, {family.order, {}}, planted, false, contents_);
    if (!mutant && end.judgement.fault)
      throw ConfigError(fmt::format("{} fails without a preemption: {}", family.writer_race->words, end.judgement.found));
    return end.kinds[static_cast<std::size_t>(family.stops)];
  }

  CaseResult fault_of(const WriterRace& writer_race, const scheduler::Schedule& schedule, const checkpoint::Planted& planted,
                      const Judgement& judgement) {
    CaseResult result = case_of(judgement, fmt::format("{}: {}", writer_race.words, in_words(writer_race, schedule)));
    result.timeline = timeline_of(judge_writer_race(disk_for(writer_race), writer_race, schedule, planted, true, contents_).notes, writer_race.names());
    return result;
  }

  /// The single preemption there, and all double ones that begin with it. `each` returns false to end it.
  template <class Each>
  void run_family(const Family& family, int64_t at, const checkpoint::Planted& planted, Each each) {
    const auto play = [&](const scheduler::Schedule& schedule) {
      return judge_writer_race(disk_for(*family.writer_race), *family.writer_race, schedule, planted, false, contents_);
    };
    scheduler::play_family(family, at, play, each);
  }

  Trial schedules_at(const Family& family, int64_t at, OperationKind kind) {
    Trial planned;
    planned = {name_of(family, at), std::string(family.writer_race->words), std::string(checkpoint::name_of(kind)),
                     family.doubles ? 0.02 : 0.002};
    planned.run = [this, family, at](Slot&) {
      std::vector<CaseResult> results;
      measured().add("stopped");
      run_family(family, at, {}, [&](const scheduler::Schedule& schedule, const WriterRaceEnd& end, bool is_double) {
        measured().add(is_double ? "doubles" : family.writer_race->processes() == 2 ? "singles_of_two" : "singles_of_three");
        if (end.judgement.fault) {
          results.push_back(fault_of(*family.writer_race, schedule, {}, end.judgement));
          return true;
        }
        if (!count_alike(results, end.judgement.outcome, CaseVerdict::good)) results.push_back(case_of(end.judgement, ""));
        return true;
      });
      return results;
    };
    return planned;
  }

  MutantFound search(std::string_view mutant, const std::vector<std::string_view>& among) {
    const checkpoint::Planted planted = mutant_named(mutant).planted;
    MutantFound found;
    int64_t found_at = 0;
    for (const std::string_view name : among) {
      for (const Family& family : families_of(writer_race_named(name))) {
        const auto count = static_cast<int64_t>(operations_of(family, &planted).size());
        for (int64_t at = 0; at < count && !found.found; ++at) {
          run_family(family, at, planted, [&](const scheduler::Schedule& schedule, const WriterRaceEnd& end, bool) {
            ++found.tried;
            if (!end.judgement.fault) return true;
            // That a writer merely fails is less than what else it may do.
            const bool severe = end.judgement.outcome != "save failed";
            if (!severe && !found.outcome.empty()) return true;
            const CaseResult result = fault_of(*family.writer_race, schedule, planted, end.judgement);
            found.found = severe;
            found_at = found.tried;
            found.outcome = result.outcome;
            found.sentence = result.sentence;
            found.timeline = result.timeline;
            return !severe;
          });
        }
        if (found.found) return found;
      }
    }
    found.found = !found.outcome.empty();
    if (found.found) found.tried = found_at;
    return found;
  }

  void add_mutants(std::vector<Trial>& all) {
    struct Row {
      std::string_view mutant, harmless;
      std::vector<std::string_view> among;
    };
    const Row rows[] = {
        {"no_lock", "", {"two_same_step", "two_steps"}},
        {"shared_name_no_lock", "", {"two_same_step", "two_steps"}},
        {"shared_temporary_name", "the lock keeps every other run out", {"two_same_step", "two_steps"}},
        {"one_file_name", "", {"ranks_of_two"}},
        {"exists_per_rank", "", {"ranks_and_run"}},
        {"skipped_begin", "", {"ranks_of_two"}},
        {"skipped_written", "", {"ranks_of_two"}},
        {"skipped_renamed", "without an error or an end every rank comes to the same manifest", {"ranks_of_two"}},
        {"skipped_committed", "without an end or an error rank 0 commits in any case", {"ranks_of_two"}},
        {"skipped_finished", "without an error there is nothing to tell after the commit", {"ranks_of_two"}},
    };
    for (const Row& row : rows) {
      all.push_back(mutant_trial(row.mutant, "any schedule", row.harmless,
                                 [this, mutant = row.mutant, among = row.among] { return search(mutant, among); }));
    }
  }

  const SaverConfig config_;
  Contents contents_;
  std::map<const WriterRace*, std::unique_ptr<MemoryStorage>> disks_;
  int64_t seen_ = 0;
};

}  // namespace

std::unique_ptr<Suite> make_schedule_search(const SaverConfig& config) { return std::make_unique<ScheduleSearch>(config); }

}  // namespace lockstep::saver
