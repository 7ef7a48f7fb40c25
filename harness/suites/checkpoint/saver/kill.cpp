#include "harness/suites/checkpoint/saver/kill.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/lib/checkpoint/survey.h"

namespace lockstep::saver {
namespace {

using checkpoint::LoadOutcome;
using checkpoint::OperationKind;
using checkpoint::Saved;
using checkpoint::SaveOutcome;

constexpr int kNextWriter = 5;

/// Half as many, or twice as many as one.
int other_number(int ranks) { return ranks == 1 ? 2 : ranks / 2; }

Judgement in_turn(Judgement judgement, std::string_view who) {
  if (judgement.fault) judgement.found = fmt::format("{}: {}", who, judgement.found);
  return judgement;
}

}  // namespace

std::string name_of(const KillPoint& point) {
  switch (point.injected) {
    case scheduler::InjectedFault::end_all:
      return fmt::format("op-{}-all", point.at);
    case scheduler::InjectedFault::end_within:
      return point.kind == OperationKind::gather ? fmt::format("op-{}-within-{}", point.at, point.reach)
                                                 : fmt::format("op-{}-within", point.at);
    default:
      return fmt::format("op-{}", point.at);
  }
}

std::string in_words(const KillPoint& point) {
  const std::string at = fmt::format("operation {}, {}", point.at, checkpoint::name_of(point.kind));
  switch (point.injected) {
    case scheduler::InjectedFault::end_all:
      return fmt::format("all ranks are killed as rank {} comes to its {}", point.rank, at);
    case scheduler::InjectedFault::end_within:
      return fmt::format("rank {} is killed within its {}{}", point.rank, at,
                         point.kind == OperationKind::gather ? fmt::format(", when {} others have its text", point.reach) : "");
    default:
      return fmt::format("rank {} is killed before its {}", point.rank, at);
  }
}

Judgement judge_next(checkpoint::Storage& disk, const Scene& scene, int ranks, Contents& contents, std::string_view root) {
  Scene next = scene;
  next.async = next.best = false;
  next.step = scene.step + 2;
  SaveCase how;
  how.scene = &next;
  how.content = {.step = next.step, .writer = kNextWriter};
  how.ranks = ranks;
  how.writer = kNextWriter;
  how.root = root;
  how.unsynced = root != kRoot;
  const SaveEnd end = save_scheduled(disk, how, contents);
  for (const SaveOutcome& outcome : end.told) {
    if (!outcome) return {"save failed", true, "the next save fails: " + outcome.problem};
  }
  const Judgement loaded = judge_load(contents, {{how.content, ranks, true}}, false, load_scheduled(disk, 1, "", root));
  if (loaded.fault) return in_turn(loaded, "after the next save");
  const checkpoint::Survey left = checkpoint::survey(disk, std::string(root), true);
  if (left.entries.size() > static_cast<std::size_t>(scene.keep_last))
    return {"not cleaned", true, fmt::format("after the next save at most {} checkpoints expected, found {}", scene.keep_last,
                                             left.entries.size())};
  return loaded;
}

Judgement judge_best(checkpoint::Storage& disk, const Scene& scene, const std::vector<KnownSave>& known, int newest,
                     Contents& contents, std::string_view root) {
  if (!scene.best || newest < 0) return {};
  KnownSave best = newest == 0 ? known.front() : known.back();
  best.may = true;
  return in_turn(judge_load(contents, {best}, false, load_scheduled(disk, 1, std::string(checkpoint::kBest), root)),
                 "a load of best_model");
}

std::vector<KillPoint> kill_points(const std::vector<std::vector<OperationKind>>& operations) {
  std::vector<KillPoint> points;
  const int ranks = static_cast<int>(operations.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& kinds = operations[static_cast<std::size_t>(rank)];
    for (int64_t at = 0; at < static_cast<int64_t>(kinds.size()); ++at) {
      const OperationKind kind = kinds[static_cast<std::size_t>(at)];
      points.push_back({rank, at, scheduler::InjectedFault::end, 0, kind});
      if (ranks > 1) points.push_back({rank, at, scheduler::InjectedFault::end_all, 0, kind});
      if (kind == OperationKind::write) points.push_back({rank, at, scheduler::InjectedFault::end_within, 0, kind});
      for (int reach = 1; reach < ranks && kind == OperationKind::gather; ++reach)
        points.push_back({rank, at, scheduler::InjectedFault::end_within, reach, kind});
    }
  }
  return points;
}

std::vector<KnownSave> known_of(const Scene& scene, int ranks) {
  std::vector<KnownSave> known{{new_content(scene), ranks, true}};
  for (auto step = scene.before.rbegin(); step != scene.before.rend(); ++step)
    known.push_back({content_of(*step), ranks, step == scene.before.rbegin()});
  return known;
}

std::vector<KnownSave> allowed_after(const Scene& scene, int ranks, const std::vector<SaveOutcome>& told,
                                     const std::vector<bool>& ended, bool& none_may) {
  std::vector<KnownSave> known = known_of(scene, ranks);
  bool committed = false, failed = false;
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    committed = committed || (!ended[rank] && told[rank].saved == Saved::committed);
    failed = failed || (!ended[rank] && told[rank].saved == Saved::failed);
  }
  known.front().may = !failed;
  if (committed) {
    for (std::size_t i = 1; i < known.size(); ++i) known[i].may = false;
  }
  none_may = scene.before.empty() && !committed;
  return known;
}

Judgement judge_disk(checkpoint::Storage& disk, const Scene& scene, int ranks, const std::vector<KnownSave>& known,
                     bool none_may, Contents& contents, std::string_view root) {
  const Judgement first = judge_load(contents, known, none_may, load_scheduled(disk, ranks, "", root));
  if (first.fault) return in_turn(first, fmt::format("{} ranks load", ranks));
  const int others = other_number(ranks);
  const Judgement other = judge_load(contents, known, none_may, load_scheduled(disk, others, "", root));
  if (other.fault) return in_turn(other, fmt::format("{} ranks load", others));
  const bool pointed = !checkpoint::read_pointer(disk, std::string(root), checkpoint::kLatest).missing;
  if (pointed) {
    // It may be behind, and must name one that is whole.
    std::vector<KnownSave> any = known;
    for (KnownSave& save : any) save.may = true;
    const Judgement by_name = judge_load(contents, any, false, load_scheduled(disk, 1, "latest", root));
    if (by_name.fault) return in_turn(by_name, "a load of latest");
  }
  const Judgement next = judge_next(disk, scene, others, contents, root);
  if (next.fault) return next;
  const Judgement best = judge_best(disk, scene, known, first.save, contents, root);
  return best.fault ? best : first;
}

Aftermath judge_save(const checkpoint::MemoryStorage& before, const SaveCase& how, Contents& contents) {
  checkpoint::MemoryStorage disk(before);
  SaveEnd end = save_scheduled(disk, how, contents);
  Aftermath aftermath;
  aftermath.notes = std::move(end.notes);
  const bool disturbed = how.script.injected != scheduler::InjectedFault::nothing;
  if (disturbed && !end.acted) {
    aftermath.judgement = {"not reached", true, "the operation was not reached"};
    return aftermath;
  }
  if (end.stalled) {
    aftermath.judgement = {"hang", true, "a rank waited for the whole deadline for one that had ended or left"};
    return aftermath;
  }
  bool committed = false, failed = false;
  for (std::size_t rank = 0; rank < end.told.size(); ++rank) {
    const bool counts = !end.ended[rank];
    committed = committed || (counts && end.told[rank].saved == Saved::committed);
    failed = failed || (counts && end.told[rank].saved == Saved::failed);
    if (!disturbed && !end.told[rank]) {
      aftermath.judgement = {"save failed", true, "nothing was made to fail, and the save fails: " + end.told[rank].problem};
      return aftermath;
    }
  }
  if (committed && failed) {
    aftermath.judgement = {"mixed", true, "one rank was told that the save is committed, another one that it failed"};
    return aftermath;
  }
  bool none_may = false;
  const std::vector<KnownSave> known = allowed_after(*how.scene, how.ranks, end.told, end.ended, none_may);
  aftermath.judgement = judge_disk(disk, *how.scene, how.ranks, known, none_may, contents);
  return aftermath;
}

}  // namespace lockstep::saver
