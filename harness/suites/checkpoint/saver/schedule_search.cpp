#include "harness/suites/checkpoint/saver/schedule_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "harness/base/text.h"
#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/saver.h"
#include "harness/lib/checkpoint/storage.h"
#include "harness/suites/checkpoint/saver/kill.h"

// Schedules of writers: every single preemption of two and of three, every double one of two.

namespace lockstep::saver {

/// `disk`: what stands before; stays as it is.
static WriterRaceEnd judge_writer_race(const checkpoint::MemoryStorage& disk, const WriterRace& writer_race, const scheduler::Schedule& schedule,
                   const checkpoint::Planted& planted, bool notes, Contents& contents);

static const WriterRace& writer_race_named(std::string_view name);

static std::span<const WriterRace> writer_races();
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
    Trial planned{name_of(family, at), std::string(family.writer_race->words), std::string(checkpoint::name_of(kind)),
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

namespace {

using checkpoint::SaveOutcome;

constexpr int kFirstWriter = 20;
constexpr std::string_view kRefusal = "another process saves into this folder now";

/// What the processes of one schedule share.
class ScheduledRace {
 public:
  ScheduledRace(const WriterRace& writer_race, const scheduler::Schedule& schedule, bool notes)
      : writer_race_(writer_race),
        scheduler_(writer_race.processes(), schedule.order),
        play_{.scheduler = scheduler_, .preemptions = schedule.preemptions, .notes_wanted = notes} {
    play_.preempted.resize(schedule.preemptions.size());
    for (const WriterRaceRun& run : writer_race.runs) {
      const int first = static_cast<int>(processes_.size());
      meetings_.push_back(std::make_unique<scheduler::Meeting>(scheduler_, first, run.ranks));
      for (int rank = 0; rank < run.ranks; ++rank) {
        groups_.push_back(std::make_unique<scheduler::ScheduledGroup>(*meetings_.back(), rank));
        run_of_.push_back(meetings_.size() - 1);
        processes_.push_back(std::make_unique<scheduler::ScheduledProcess>(play_, first + rank, groups_.back().get()));
      }
    }
    told_.resize(processes_.size());
  }

  void run(checkpoint::Storage& disk, const checkpoint::Planted& planted, Contents& contents) {
    scheduler_.run([&](int process) {
      const auto at = static_cast<std::size_t>(process);
      const WriterRaceRun& run = writer_race_.runs[run_of_[at]];
      checkpoint::Seam seam(*processes_[at]);
      checkpoint::HookedStorage storage(disk, seam);
      checkpoint::HookedGroup group(*groups_[at], seam);
      const int writer = kFirstWriter + static_cast<int>(run_of_[at]);
      checkpoint::Saver saver(options_of(writer_race_.scene, writer, planted), storage, group);
      told_[at] = saver.save({run.content.step / 10, run.content.step, false},
                             *contents.state(run.content, groups_[at]->rank(), run.ranks));
      groups_[at]->end();
    });
  }

  /// What a load must find after what was told; or what is wrong with what was told.
  Judgement judge_told(std::vector<KnownSave>& known, bool& all_saved) const {
    if (scheduler_.stalled()) return {"hang", true, "a writer waited for the whole deadline"};
    std::vector<bool> committed(writer_race_.runs.size());
    all_saved = true;
    for (std::size_t process = 0; process < told_.size(); ++process) {
      const std::size_t run = run_of_[process];
      const bool first_rank = process == 0 || run_of_[process - 1] != run;
      if (first_rank) committed[run] = static_cast<bool>(told_[process]);
      if (static_cast<bool>(told_[process]) != committed[run])
        return {"mixed", true, fmt::format("one rank of a run was told that its save is committed, another one that it is not: {}",
                                           told_[process].problem)};
      if (told_[process]) continue;
      all_saved = false;
      if (told_[process].problem.find(kRefusal) == std::string::npos)
        return {"save failed", true, "nothing was made to fail, and a save fails: " + told_[process].problem};
    }
    std::size_t last = writer_race_.runs.size();
    for (const int process : play_.committed) {
      const std::size_t run = run_of_[static_cast<std::size_t>(process)];
      if (committed[run]) last = run;
    }
    for (std::size_t run = 0; run < committed.size() && last == writer_race_.runs.size(); ++run) {
      if (committed[run]) last = run;
    }
    if (last == writer_race_.runs.size()) return {"save failed", true, "every run was refused, and none of them saved"};
    for (std::size_t run = 0; run < writer_race_.runs.size(); ++run)
      known.push_back({writer_race_.runs[run].content, writer_race_.runs[run].ranks, run == last});
    for (const int64_t step : writer_race_.scene.before) known.push_back({content_of(step), 1, false});
    return {};
  }

  std::vector<std::vector<checkpoint::OperationKind>> kinds() const {
    std::vector<std::vector<checkpoint::OperationKind>> all;
    for (const auto& process : processes_) all.push_back(process->kinds());
    return all;
  }
  scheduler::SharedRun& play() { return play_; }

 private:
  const WriterRace& writer_race_;
  scheduler::Scheduler scheduler_;
  scheduler::SharedRun play_;
  std::vector<std::unique_ptr<scheduler::Meeting>> meetings_;
  std::vector<std::unique_ptr<scheduler::ScheduledGroup>> groups_;
  std::vector<std::unique_ptr<scheduler::ScheduledProcess>> processes_;
  std::vector<std::size_t> run_of_;
  std::vector<SaveOutcome> told_;
};

Judgement judge_left(checkpoint::MemoryStorage& disk, const WriterRace& writer_race, std::vector<KnownSave> known, bool all_saved,
                     Contents& contents) {
  Judgement newest = judge_load(contents, known, false, load_scheduled(disk, 1));
  if (newest.fault) return newest;
  for (KnownSave& save : known) save.may = true;
  const Judgement pointed = judge_load(contents, known, false, load_scheduled(disk, 1, "latest"));
  if (pointed.fault) return {pointed.outcome, true, "a load of latest: " + pointed.found};
  const Judgement next = judge_next(disk, writer_race.scene, 1, contents);
  if (next.fault) return next;
  newest.outcome = all_saved ? "whole, all saved" : "whole, others were refused";
  return newest;
}

}  // namespace

int WriterRace::processes() const {
  int count = 0;
  for (const WriterRaceRun& run : runs) count += run.ranks;
  return count;
}

std::vector<std::string> WriterRace::names() const {
  std::vector<std::string> names;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const char letter = static_cast<char>('A' + run);
    for (int rank = 0; rank < runs[run].ranks; ++rank)
      names.push_back(runs[run].ranks == 1 ? fmt::format("run {}", letter) : fmt::format("run {}, rank {}", letter, rank));
  }
  return names;
}

std::span<const WriterRace> writer_races() {
  const auto scene = [](std::vector<int64_t> before, int keep_last, bool no_root = false) {
    // The next save, after all, is two steps on.
    return Scene{.name = "duel", .words = "", .before = std::move(before), .step = 12, .keep_last = keep_last, .no_root = no_root};
  };
  const auto by = [](int64_t step, int writer) { return Content{.step = step, .writer = writer}; };
  static const auto kWriterRaces = std::to_array<WriterRace>({
      {"two_same_step", "two runs save the same step", scene({10}, 3), {{by(11, 1)}, {by(11, 2)}}},
      {"two_steps", "two runs save different steps", scene({10}, 3), {{by(11, 1)}, {by(12, 2)}}},
      {"two_keep_one", "two runs save different steps and keep one", scene({9, 10}, 1), {{by(11, 1)}, {by(12, 2)}}},
      {"two_fresh", "two runs save the first checkpoint", scene({}, 3, true), {{by(11, 1)}, {by(11, 2)}}},
      {"ranks_of_two", "the ranks of one run", scene({10}, 3), {{by(11, 1), 2}}},
      {"ranks_of_two_same_step", "the ranks of one run, over the same step", scene({11}, 1), {{by(11, 1), 2}}},
      {"three_runs", "three runs", scene({10}, 2), {{by(11, 1)}, {by(11, 2)}, {by(12, 3)}}},
      {"ranks_of_three", "three ranks of one run", scene({10}, 2), {{by(11, 1), 3}}},
      {"ranks_and_run", "two ranks of one run, and another run with the same step", scene({10}, 3), {{by(11, 1), 2}, {by(11, 2)}}},
  });
  return kWriterRaces;
}

const WriterRace& writer_race_named(std::string_view name) {
  const auto found = std::ranges::find(writer_races(), name, &WriterRace::name);
  LOCKSTEP_CHECK(found != writer_races().end(), "a writer race that is named stands in the table");
  return *found;
}

std::string in_words(const WriterRace& writer_race, const scheduler::Schedule& schedule) {
  const std::vector<std::string> names = writer_race.names();
  std::string text = names[static_cast<std::size_t>(schedule.order.front())] + " begins";
  for (const scheduler::Preemption& preemption : schedule.preemptions) {
    text += fmt::format("; {} stops before its operation {}, and {} goes on{}", names[static_cast<std::size_t>(preemption.process)],
                        preemption.at, names[static_cast<std::size_t>(preemption.to)],
                        preemption.soon ? ", alone until it ends" : "");
  }
  return text;
}

WriterRaceEnd judge_writer_race(const checkpoint::MemoryStorage& before, const WriterRace& writer_race, const scheduler::Schedule& schedule,
                   const checkpoint::Planted& planted, bool notes, Contents& contents) {
  checkpoint::MemoryStorage disk(before);
  ScheduledRace scheduled(writer_race, schedule, notes);
  scheduled.run(disk, planted, contents);
  WriterRaceEnd end;
  std::vector<KnownSave> known;
  bool all_saved = false;
  end.judgement = scheduled.judge_told(known, all_saved);
  if (!end.judgement.fault) end.judgement = judge_left(disk, writer_race, std::move(known), all_saved, contents);
  end.preempted = scheduled.play().preempted;
  end.kinds = scheduled.kinds();
  end.notes = std::move(scheduled.play().notes);
  return end;
}

}  // namespace lockstep::saver
