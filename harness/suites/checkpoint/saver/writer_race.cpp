#include "harness/suites/checkpoint/saver/writer_race.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "harness/base/errors.h"
#include "harness/lib/checkpoint/hooked_storage.h"
#include "harness/lib/checkpoint/saver.h"
#include "harness/lib/checkpoint/survey.h"
#include "harness/suites/checkpoint/saver/kill.h"

namespace lockstep::saver {
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
