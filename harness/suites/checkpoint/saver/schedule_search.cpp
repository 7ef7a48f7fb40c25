// Schedules of writers, runs or ranks of one run, that save into one folder: every single preemption of two and of
// three, every double one of two.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/base/text.h"
#include "harness/suites/checkpoint/saver/search.h"

namespace lockstep::saver {
namespace {

using checkpoint::MemoryStorage;
using checkpoint::OperationKind;
using scheduler::Schedule;
using Disk = std::shared_ptr<const MemoryStorage>;

constexpr int kFirstWriter = 20;
constexpr std::string_view kRefusal = "another process saves into this folder now";

struct WriterRace {
  std::string_view name, words;
  Scene scene;  ///< what stands there, and the options
  std::vector<SavingRun> runs;

  int processes() const {
    int count = 0;
    for (const SavingRun& run : runs) count += run.ranks;
    return count;
  }
  /// Whose process that is, the run of each.
  std::vector<std::size_t> run_of() const {
    std::vector<std::size_t> all;
    for (std::size_t run = 0; run < runs.size(); ++run)
      all.insert(all.end(), static_cast<std::size_t>(runs[run].ranks), run);
    return all;
  }
  /// "run B, rank 1"
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (std::size_t run = 0; run < runs.size(); ++run) {
      const char letter = static_cast<char>('A' + run);
      for (int rank = 0; rank < runs[run].ranks; ++rank)
        names.push_back(runs[run].ranks == 1 ? fmt::format("run {}", letter) : fmt::format("run {}, rank {}", letter, rank));
    }
    return names;
  }
};

std::span<const WriterRace> writer_races() {
  const auto scene = [](std::vector<int64_t> before, int keep_last, bool no_root = false) {
    // The next save, after all, is two steps on.
    return Scene{.name = "duel", .words = "", .before = std::move(before), .step = 12, .keep_last = keep_last, .no_root = no_root};
  };
  const auto by = [](int64_t step, int writer, int ranks = 1) {
    return SavingRun{{.step = step, .writer = writer}, ranks, kFirstWriter + writer - 1};
  };
  static const auto kWriterRaces = std::to_array<WriterRace>({
      {"two_same_step", "two runs save the same step", scene({10}, 3), {by(11, 1), by(11, 2)}},
      {"two_steps", "two runs save different steps", scene({10}, 3), {by(11, 1), by(12, 2)}},
      {"two_keep_one", "two runs save different steps and keep one", scene({9, 10}, 1), {by(11, 1), by(12, 2)}},
      {"two_fresh", "two runs save the first checkpoint", scene({}, 3, true), {by(11, 1), by(11, 2)}},
      {"ranks_of_two", "the ranks of one run", scene({10}, 3), {by(11, 1, 2)}},
      {"ranks_of_two_same_step", "the ranks of one run, over the same step", scene({11}, 1), {by(11, 1, 2)}},
      {"three_runs", "three runs", scene({10}, 2), {by(11, 1), by(11, 2), by(12, 3)}},
      {"ranks_of_three", "three ranks of one run", scene({10}, 2), {by(11, 1, 3)}},
      {"ranks_and_run", "two ranks of one run, and another run with the same step", scene({10}, 3), {by(11, 1, 2), by(11, 2)}},
  });
  return kWriterRaces;
}

/// "run A begins; run A stops before its operation 12, and run B goes on"
std::string in_words(const WriterRace& race, const Schedule& schedule) {
  const std::vector<std::string> names = race.names();
  std::string text = names[static_cast<std::size_t>(schedule.order.front())] + " begins";
  for (const scheduler::Preemption& preemption : schedule.preemptions) {
    text += fmt::format("; {} stops before its operation {}, and {} goes on{}", names[static_cast<std::size_t>(preemption.process)],
                        preemption.at, names[static_cast<std::size_t>(preemption.to)],
                        preemption.soon ? ", alone until it ends" : "");
  }
  return text;
}

/// What a load must find after what was told; or what is wrong with what was told.
Judgement judge_told(const WriterRace& race, const SaveEnd& end, Allowed& allowed, bool& all_saved) {
  if (end.stalled) return {"hang", true, "a writer waited for the whole deadline"};
  const std::vector<std::size_t> run_of = race.run_of();
  std::vector<bool> committed(race.runs.size());
  all_saved = true;
  for (std::size_t process = 0; process < end.told.size(); ++process) {
    const std::size_t run = run_of[process];
    const checkpoint::SaveOutcome& told = end.told[process];
    if (process == 0 || run_of[process - 1] != run) committed[run] = static_cast<bool>(told);
    if (static_cast<bool>(told) != committed[run])
      return {"mixed", true, fmt::format("one rank of a run was told that its save is committed, another one that it is not: {}",
                                         told.problem)};
    if (told) continue;
    all_saved = false;
    if (told.problem.find(kRefusal) == std::string::npos)
      return {"save failed", true, "nothing was made to fail, and a save fails: " + told.problem};
  }
  auto last = static_cast<std::size_t>(std::ranges::find(committed, true) - committed.begin());
  if (last == race.runs.size()) return {"save failed", true, "every run was refused, and none of them saved"};
  for (const int process : end.committed) {
    const std::size_t run = run_of[static_cast<std::size_t>(process)];
    if (committed[run]) last = run;
  }
  for (std::size_t run = 0; run < race.runs.size(); ++run)
    allowed.known.push_back({race.runs[run].content, race.runs[run].ranks, run == last});
  for (const int64_t step : race.scene.before) allowed.known.push_back({content_of(step), 1, false});
  return {};
}

class ScheduleSearch final : public Search {
 public:
  using Search::Search;

  std::string subject() const override { return "the saver library, several writers in every order"; }

  std::vector<std::string> plan() const override {
    std::vector<std::string> lines;
    for (const WriterRace& race : writer_races()) lines.push_back(fmt::format("{}: {}", race.name, race.words));
    lines.emplace_back("one of two or three writers stops before each of its operations until another has ended or waits; of "
                       "two, that one also stops before each of its own");
    return lines;
  }

  Facts facts(const Measurements& m) const override {
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
  std::vector<Choice> choices(const SuiteRun&) override {
    std::vector<Choice> all;
    for (const WriterRace& race : writer_races()) {
      const std::vector<Choice> of_race = schedules_of(race, {}, true);
      seen_ += static_cast<int64_t>(of_race.size());
      for (const Choice& choice : even_sample(of_race, config_.points)) all.push_back(choice);
    }
    return all;
  }

  std::vector<Choice> choices_of(const checkpoint::Planted& planted, const Names& among) override {
    std::vector<Choice> all;
    for (const std::string_view name : among) {
      const auto race = std::ranges::find(writer_races(), name, &WriterRace::name);
      LOCKSTEP_CHECK(race != writer_races().end(), "a writer race that is named stands in the table");
      for (Choice& choice : schedules_of(*race, planted, false)) all.push_back(std::move(choice));
    }
    return all;
  }

  /// A family at each operation of the process that stops: the single preemption there, and all double ones that begin
  /// with it.
  std::vector<Choice> schedules_of(const WriterRace& race, const checkpoint::Planted& planted, bool as_it_is) {
    std::vector<Choice> all;
    const Disk disk = disk_of(race.scene, 1, contents_);
    for (const scheduler::Family& family : scheduler::families_of(race.processes())) {
      SaveEnd end;
      const Judgement whole = judge(race, *disk, {family.order}, planted, end);
      if (as_it_is && whole.fault)
        throw ConfigError(fmt::format("{} fails without a preemption: {}", race.words, whole.found));
      const std::vector<OperationKind> kinds = end.kinds[static_cast<std::size_t>(family.stops)];
      for (std::size_t at = 0; at < kinds.size(); ++at) {
        std::string order;
        for (const int process : family.order) order += static_cast<char>('a' + process);
        const char stops = static_cast<char>('a' + family.stops), goes_on = static_cast<char>('a' + family.goes_on);
        const std::string_view soon = family.soon ? "-soon" : "";
        all.push_back({fmt::format("{}:{}:{}-at-{}-{}{}", race.name, order, stops, at, goes_on, soon),
                       std::string(race.words), std::string(checkpoint::name_of(kinds[at])), family.doubles ? 0.02 : 0.002,
                       [this, &race, disk, family, planted, at = static_cast<int64_t>(at)](const Each& each) {
                         measured().add("stopped");
                         play(race, disk, family, at, planted, each);
                       }});
      }
    }
    return all;
  }

  void play(const WriterRace& race, const Disk& disk, const scheduler::Family& family, int64_t at,
            const checkpoint::Planted& planted, const Each& each) {
    Judgement judgement;
    const auto end_of = [&](const Schedule& schedule) {
      SaveEnd end;
      judgement = judge(race, *disk, schedule, planted, end);
      return end;
    };
    scheduler::play_family(family, at, end_of, [&](const Schedule& schedule, const SaveEnd&, bool is_double) {
      measured().add(is_double ? "doubles" : race.processes() == 2 ? "singles_of_two" : "singles_of_three");
      return each({judgement, [&] { return fmt::format("{}: {}", race.words, in_words(race, schedule)); },
                   [&] {
                     SaveEnd noted;
                     judge(race, *disk, schedule, planted, noted, true);
                     return timeline_of(noted.notes, race.names());
                   }});
    });
  }

  Judgement judge(const WriterRace& race, const MemoryStorage& before, const Schedule& schedule, const checkpoint::Planted& planted,
                  SaveEnd& end, bool notes = false) {
    MemoryStorage disk(before);
    SaveCase how{race.runs.front(), &race.scene, {race.runs.begin() + 1, race.runs.end()}};
    how.order = schedule.order;
    how.preemptions = schedule.preemptions;
    how.planted = planted;
    how.notes = notes;
    end = save_scheduled(disk, how, contents_);
    Allowed allowed;
    bool all_saved = false;
    if (Judgement told = judge_told(race, end, allowed, all_saved); told.fault) return told;
    Judgement newest = judge_load(contents_, allowed, load_scheduled(disk, 1));
    if (newest.fault) return newest;
    if (Judgement latest = judge_latest(disk, allowed, contents_); latest.fault) return latest;
    if (Judgement next = judge_next(disk, race.scene, 1, contents_); next.fault) return next;
    newest.outcome = all_saved ? "whole, all saved" : "whole, others were refused";
    return newest;
  }

  int64_t seen_ = 0;
};

}  // namespace

std::unique_ptr<Suite> make_schedule_search(const SaverConfig& config) { return std::make_unique<ScheduleSearch>(config); }

}  // namespace lockstep::saver
