#include "harness/saver/duel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "harness/base/errors.h"
#include "harness/checkpoint/hooked_storage.h"
#include "harness/checkpoint/saver.h"
#include "harness/checkpoint/survey.h"
#include "harness/saver/kill.h"

namespace lockstep::saver {
namespace {

using checkpoint::SaveOutcome;

constexpr int kFirstWriter = 20;
constexpr std::string_view kRefusal = "another process saves into this folder now";

/// What the actors of one schedule share.
class DuelOnStage {
 public:
  DuelOnStage(const Duel& duel, const stage::Schedule& schedule, bool notes)
      : duel_(duel),
        stage_(duel.actors(), schedule.order),
        play_{.stage = stage_, .preemptions = schedule.preemptions, .notes_wanted = notes} {
    play_.preempted.resize(schedule.preemptions.size());
    for (const DuelRun& run : duel.runs) {
      const int first = static_cast<int>(actors_.size());
      meetings_.push_back(std::make_unique<stage::Meeting>(stage_, first, run.ranks));
      for (int rank = 0; rank < run.ranks; ++rank) {
        groups_.push_back(std::make_unique<stage::StageGroup>(*meetings_.back(), rank));
        run_of_.push_back(meetings_.size() - 1);
        actors_.push_back(std::make_unique<stage::Actor>(play_, first + rank, groups_.back().get()));
      }
    }
    told_.resize(actors_.size());
  }

  void run(checkpoint::Storage& disk, const checkpoint::Planted& planted, Contents& contents) {
    stage_.run([&](int actor) {
      const auto at = static_cast<std::size_t>(actor);
      const DuelRun& run = duel_.runs[run_of_[at]];
      checkpoint::Seam seam(*actors_[at]);
      checkpoint::HookedStorage storage(disk, seam);
      checkpoint::HookedGroup group(*groups_[at], seam);
      const int writer = kFirstWriter + static_cast<int>(run_of_[at]);
      checkpoint::Saver saver(options_of(duel_.scene, writer, planted), storage, group);
      told_[at] = saver.save({run.content.step / 10, run.content.step, false},
                             *contents.state(run.content, groups_[at]->rank(), run.ranks));
      groups_[at]->end();
    });
  }

  /// What a load must find after what was told; or what is wrong with what was told.
  Judgement judge_told(std::vector<KnownSave>& known, bool& all_saved) const {
    if (stage_.stalled()) return {"hang", true, "a writer waited for the whole deadline"};
    std::vector<bool> committed(duel_.runs.size());
    all_saved = true;
    for (std::size_t actor = 0; actor < told_.size(); ++actor) {
      const std::size_t run = run_of_[actor];
      const bool first_rank = actor == 0 || run_of_[actor - 1] != run;
      if (first_rank) committed[run] = static_cast<bool>(told_[actor]);
      if (static_cast<bool>(told_[actor]) != committed[run])
        return {"mixed", true, fmt::format("one rank of a run was told that its save is committed, another one that it is not: {}",
                                           told_[actor].problem)};
      if (told_[actor]) continue;
      all_saved = false;
      if (told_[actor].problem.find(kRefusal) == std::string::npos)
        return {"save failed", true, "nothing was made to fail, and a save fails: " + told_[actor].problem};
    }
    std::size_t last = duel_.runs.size();
    for (const int actor : play_.committed) {
      const std::size_t run = run_of_[static_cast<std::size_t>(actor)];
      if (committed[run]) last = run;
    }
    for (std::size_t run = 0; run < committed.size() && last == duel_.runs.size(); ++run) {
      if (committed[run]) last = run;
    }
    if (last == duel_.runs.size()) return {"save failed", true, "every run was refused, and none of them saved"};
    for (std::size_t run = 0; run < duel_.runs.size(); ++run)
      known.push_back({duel_.runs[run].content, duel_.runs[run].ranks, run == last});
    for (const int64_t step : duel_.scene.before) known.push_back({content_of(step), 1, false});
    return {};
  }

  std::vector<std::vector<checkpoint::OperationKind>> kinds() const {
    std::vector<std::vector<checkpoint::OperationKind>> all;
    for (const auto& actor : actors_) all.push_back(actor->kinds());
    return all;
  }
  stage::Play& play() { return play_; }

 private:
  const Duel& duel_;
  stage::Stage stage_;
  stage::Play play_;
  std::vector<std::unique_ptr<stage::Meeting>> meetings_;
  std::vector<std::unique_ptr<stage::StageGroup>> groups_;
  std::vector<std::unique_ptr<stage::Actor>> actors_;
  std::vector<std::size_t> run_of_;
  std::vector<SaveOutcome> told_;
};

Judgement judge_left(checkpoint::MemoryStorage& disk, const Duel& duel, std::vector<KnownSave> known, bool all_saved,
                     Contents& contents) {
  Judgement newest = judge_load(contents, known, false, load_on_stage(disk, 1));
  if (newest.fault) return newest;
  for (KnownSave& save : known) save.may = true;
  const Judgement pointed = judge_load(contents, known, false, load_on_stage(disk, 1, "latest"));
  if (pointed.fault) return {pointed.outcome, true, "a load of latest: " + pointed.found};
  const Judgement next = judge_next(disk, duel.scene, 1, contents);
  if (next.fault) return next;
  newest.outcome = all_saved ? "whole, all saved" : "whole, others were refused";
  return newest;
}

}  // namespace

int Duel::actors() const {
  int count = 0;
  for (const DuelRun& run : runs) count += run.ranks;
  return count;
}

std::vector<std::string> Duel::names() const {
  std::vector<std::string> names;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const char letter = static_cast<char>('A' + run);
    for (int rank = 0; rank < runs[run].ranks; ++rank)
      names.push_back(runs[run].ranks == 1 ? fmt::format("run {}", letter) : fmt::format("run {}, rank {}", letter, rank));
  }
  return names;
}

std::span<const Duel> duels() {
  const auto scene = [](std::vector<int64_t> before, int keep_last, bool no_root = false) {
    // The next save, after all, is two steps on.
    return Scene{.name = "duel", .words = "", .before = std::move(before), .step = 12, .keep_last = keep_last, .no_root = no_root};
  };
  const auto by = [](int64_t step, int writer) { return Content{.step = step, .writer = writer}; };
  static const auto kDuels = std::to_array<Duel>({
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
  return kDuels;
}

const Duel& duel_named(std::string_view name) {
  const auto found = std::ranges::find(duels(), name, &Duel::name);
  LOCKSTEP_CHECK(found != duels().end(), "a duel that is named stands in the table");
  return *found;
}

std::string in_words(const Duel& duel, const stage::Schedule& schedule) {
  const std::vector<std::string> names = duel.names();
  std::string text = names[static_cast<std::size_t>(schedule.order.front())] + " begins";
  for (const stage::Preemption& preemption : schedule.preemptions) {
    text += fmt::format("; {} stops before its operation {}, and {} goes on{}", names[static_cast<std::size_t>(preemption.actor)],
                        preemption.at, names[static_cast<std::size_t>(preemption.to)],
                        preemption.soon ? ", alone until it ends" : "");
  }
  return text;
}

DuelEnd judge_duel(const checkpoint::MemoryStorage& before, const Duel& duel, const stage::Schedule& schedule,
                   const checkpoint::Planted& planted, bool notes, Contents& contents) {
  checkpoint::MemoryStorage disk(before);
  DuelOnStage on_stage(duel, schedule, notes);
  on_stage.run(disk, planted, contents);
  DuelEnd end;
  std::vector<KnownSave> known;
  bool all_saved = false;
  end.judgement = on_stage.judge_told(known, all_saved);
  if (!end.judgement.fault) end.judgement = judge_left(disk, duel, std::move(known), all_saved, contents);
  end.preempted = on_stage.play().preempted;
  end.kinds = on_stage.kinds();
  end.notes = std::move(on_stage.play().notes);
  return end;
}

}  // namespace lockstep::saver
