#include "harness/suites/checkpoint/saver/kill.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>

#include "harness/base/text.h"
#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/saver.h"
#include "harness/lib/checkpoint/storage.h"
#include "harness/plan/config/field.h"
#include "harness/suites/engine/suite.h"

namespace lockstep::saver {

/// `folder` is this call's own: it is emptied, and gets the scene's disk. SIGKILL comes before the point's operation. What
/// the ranks say at the end is judged as judge_save does.
static Judgement judge_process_kill(const std::string& folder, const checkpoint::MemoryStorage& before, const Scene& scene, int ranks,
                             const KillPoint& point, Contents& contents);
namespace {

constexpr Range kCount{0, 1e9}, kRanks{1, 16};

#define SAVER(member, ...)                                                                   \
  Field<SaverConfig> {                                                                       \
    {"saver." #member, __VA_ARGS__}, [](SaverConfig& c) -> FieldRef { return ref_to(c.member); } \
  }
const std::array kFields{
    SAVER(search, {}, "", "what saves are subjected to"),
    SAVER(world_sizes, kRanks, "ranks",
        "numbers of ranks that save; `schedules` and `corruption` have their own; default `[1, 2, 4, 8]`"),
    SAVER(points, kCount, "points",
        "most points of each scene and number of ranks, evenly spread; for `power` most moments of a save, for "
        "`corruption` most trials of each file and kind; 0: all"),
    SAVER(process_points, kCount, "points", "for `kill`: most points with ranks that are processes of their own; 0: all"),
    SAVER(planted, {}, "", "also plant the usual mistakes of savers, each of which must be found"),
};
#undef SAVER

}  // namespace

LOCKSTEP_WORDS(SearchKind, errors, "kill", "schedules", "power", "corruption", "errors")

static SaverConfig read_saver_config(const SuiteSource& source, Problems& problems) {
  SaverConfig config;
  read_fields<SaverConfig>(source, kFields, config, problems);
  if (source.find("saver.search") == nullptr)
    problems.add(source.place, "saver.search is missing: kill, schedules, power, corruption or errors");
  if (config.world_sizes.empty()) problems.add(source.place, "saver.world_sizes: at least one number of ranks expected");
  return config;
}

static nlohmann::ordered_json saver_schema() {
  const SaverConfig defaults;
  SchemaJson schema = object_schema();
  schema["required"] = {"search"};
  add_fields(schema, kFields, defaults);
  return schema;
}

const Mutant& mutant_named(std::string_view name) {
  static const auto kMutants = std::to_array<Mutant>({
      {"one_file_name", "all ranks write one file name", {.one_file_name = true}},
      {"shared_temporary_name", "every try has the same temporary name", {.shared_temporary_name = true}},
      {"no_lock", "nothing keeps a second process out", {.no_lock = true}},
      {"shared_name_no_lock", "one temporary name for all tries, and nothing keeps a second process out",
       {.shared_temporary_name = true, .no_lock = true}},
      {"rename_before_data", "the folder has its final name before its data", {.rename_before_data = true}},
      {"latest_before_commit", "latest is advanced before the commit", {.latest_before_commit = true}},
      {"delete_before_commit", "older ones go before the commit", {.delete_before_commit = true}},
      {"exists_per_rank", "each rank asks the disk by itself whether the step was saved", {.exists_per_rank = true}},
      {"no_data_sync", "no fsync of files", {.no_data_sync = true}},
      {"no_folder_sync", "no fsync of folders", {.no_folder_sync = true}},
      {"skipped_begin", "ranks do not wait for each other at 'begin'", {.skipped_gather = "begin"}},
      {"skipped_written", "ranks do not wait for each other at 'written'", {.skipped_gather = "written"}},
      {"skipped_renamed", "ranks do not wait for each other at 'renamed'", {.skipped_gather = "renamed"}},
      {"skipped_committed", "ranks do not wait for each other at 'committed'", {.skipped_gather = "committed"}},
      {"skipped_finished", "ranks do not wait for each other at 'finished'", {.skipped_gather = "finished"}},
  });
  const auto found = std::ranges::find(kMutants, name, &Mutant::name);
  LOCKSTEP_CHECK(found != kMutants.end(), "a mutant that is named stands in the table");
  return *found;
}

Trial mutant_trial(std::string_view name, std::string_view place, std::string_view harmless,
                     std::function<MutantFound()> search) {
  const Mutant& mutant = mutant_named(name);
  Trial planned{fmt::format("planted:{}", name), fmt::format("planted: {}", mutant.words), std::string(place), 1};
  planned.run = [&mutant, harmless = std::string(harmless), search = std::move(search)](Slot&) {
    MutantFound found = search();
    const std::string tried = with_commas(found.tried);
    CaseResult result;
    if (found.found && harmless.empty()) {
      result = {"planted, found: " + found.outcome, CaseVerdict::planted, 1,
                fmt::format("{}, as planted: found at number {} of those tried. {}", mutant.words, tried, found.sentence),
                std::move(found.timeline)};
    } else if (found.found) {
      result = {"planted, does harm", CaseVerdict::fault, 1,
                fmt::format("{}: it was to be harmless here ({}), and is not. {}", mutant.words, harmless, found.sentence),
                std::move(found.timeline)};
    } else if (harmless.empty()) {
      result = {"planted, not found", CaseVerdict::fault, 1,
                fmt::format("{}: planted, and none of {} shows it. The search is blind for it", mutant.words, tried), {}};
    } else {
      result = {"planted, harmless here", CaseVerdict::good, 1, "", {}};
    }
    return std::vector<CaseResult>{std::move(result)};
  };
  return planned;
}

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

// Kills: every operation, barrier and collective of a save, on every rank.
namespace {

/// One scene with one number of ranks.
struct Sweep {
  const Scene* scene = nullptr;
  int ranks = 1;
  std::unique_ptr<checkpoint::MemoryStorage> disk;
  std::vector<std::vector<OperationKind>> operations;  ///< by rank, of a save that nothing befalls
  std::vector<KillPoint> points, process_points;
};

CaseResult case_at(const Sweep& sweep, SaveCase how, const std::string& words, Contents& contents) {
  const Aftermath aftermath = judge_save(*sweep.disk, how, contents);
  CaseResult result = case_of(aftermath.judgement, words);
  if (aftermath.judgement.outcome == "not reached") result.verdict = CaseVerdict::undecided;
  if (!aftermath.judgement.fault) return result;
  how.notes = true;
  result.timeline = timeline_of(judge_save(*sweep.disk, how, contents).notes, rank_names(sweep.ranks));
  return result;
}

SaveCase case_of_point(const Sweep& sweep, const KillPoint& point) {
  SaveCase how;
  how.scene = sweep.scene;
  how.content = new_content(*sweep.scene);
  how.ranks = sweep.ranks;
  how.victim = point.rank;
  how.script = {.injected = point.injected, .at = point.at, .reach = point.reach};
  return how;
}

/// The victim before all others, and after them.
std::vector<std::vector<int>> orders_of(int ranks, int victim) {
  if (ranks == 1) return {{0}};
  std::vector<int> first{victim}, last;
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == victim) continue;
    first.push_back(rank);
    last.push_back(rank);
  }
  last.push_back(victim);
  return {first, last};
}

class KillSearch final : public Suite {
 public:
  explicit KillSearch(const SaverConfig& config) : config_(config) {}

  std::string subject() const override { return "the saver library, a rank of it killed"; }

  std::vector<std::string> plan() const override {
    std::vector<std::string> lines;
    for (const Scene& scene : scenes()) lines.push_back(fmt::format("{}: a save {}", scene.name, scene.words));
    lines.emplace_back(
        "each rank ends before each operation on files and each collective, within each write, within each collective with "
        "some of the others told, and with the whole job; then the same and another number of ranks load, and the next save is "
        "made");
    lines.emplace_back("ranks end in place, on a disk in memory; and as processes by SIGKILL, on the machine's disk");
    return lines;
  }

  std::vector<Trial> trials(const SuiteRun& run) override {
    make_sweeps();
    std::vector<Trial> all;
    // They take longest, so they begin first.
    if (config_.planted) add_mutants(all);
    for (const auto& sweep : sweeps_) {
      for (const KillPoint& point : sweep->points) all.push_back(in_place(*sweep, point));
    }
    for (const auto& sweep : sweeps_) {
      for (const KillPoint& point : sweep->process_points) all.push_back(as_processes(*sweep, point, run.out_dir + "/work"));
    }
    run.say(fmt::format("{} trials", with_commas(static_cast<int64_t>(all.size()))));
    return all;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    std::vector<std::pair<std::string, std::string>> facts;
    int64_t points = 0, processes = 0;
    std::map<int, std::pair<int64_t, int64_t>> by_ranks;
    for (const auto& sweep : sweeps_) {
      points += static_cast<int64_t>(sweep->points.size());
      processes += static_cast<int64_t>(sweep->process_points.size());
      std::map<std::pair<int, int64_t>, bool> tried;
      for (const KillPoint& point : sweep->points) tried[{point.rank, point.at}] = true;
      for (const auto& kinds : sweep->operations) by_ranks[sweep->ranks].second += static_cast<int64_t>(kinds.size());
      by_ranks[sweep->ranks].first += static_cast<int64_t>(tried.size());
    }
    for (const auto& [ranks, count] : by_ranks) {
      facts.emplace_back(fmt::format("operations and collectives at which a rank of {} ends", ranks),
                         fmt::format("{} of {} seen, in {}", with_commas(count.first), with_commas(count.second),
                                     counted(static_cast<int64_t>(scenes().size()), "scene")));
    }
    facts.emplace_back("kill points in place, on a disk in memory",
                       fmt::format("{}, each with the victim first and last to go on: {} saves", with_commas(points),
                                   with_commas(m.count("cases"))));
    facts.emplace_back("kill points of processes, SIGKILL on the machine's disk", with_commas(processes));
    return facts;
  }

  std::vector<std::string> notes(const Measurements&) const override {
    return {
        "\"In place\": the rank stops at that operation, its files and lock are released, and the other ranks learn of it at "
        "once. The pages of a killed process stay with the system; `power` searches what a power loss takes."};
  }

 private:
  void make_sweeps() {
    for (const Scene& scene : scenes()) {
      for (const int64_t ranks : config_.world_sizes) {
        auto sweep = std::make_unique<Sweep>();
        sweep->scene = &scene;
        sweep->ranks = static_cast<int>(ranks);
        sweep->disk = disk_of(scene, sweep->ranks, contents_);
        SaveCase how;
        how.scene = &scene;
        how.content = new_content(scene);
        how.ranks = sweep->ranks;
        const Judgement whole = judge_save(*sweep->disk, how, contents_).judgement;
        if (whole.fault)
          throw ConfigError(fmt::format("a save {} by {} ranks fails without a failure: {}", scene.words, ranks, whole.found));
        checkpoint::MemoryStorage disk(*sweep->disk);
        sweep->operations = save_scheduled(disk, how, contents_).kinds;
        const std::vector<KillPoint> every = kill_points(sweep->operations);
        sweep->points = even_sample(every, static_cast<std::size_t>(config_.points));
        std::vector<KillPoint> before;
        for (const KillPoint& point : every) {
          if (point.injected == scheduler::InjectedFault::end) before.push_back(point);
        }
        sweep->process_points = even_sample(before, static_cast<std::size_t>(config_.process_points));
        sweeps_.push_back(std::move(sweep));
      }
    }
  }

  Trial in_place(const Sweep& sweep, const KillPoint& point) {
    Trial planned{fmt::format("{}:{}-ranks:rank-{}:{}", sweep.scene->name, sweep.ranks, point.rank, name_of(point)),
                  fmt::format("killed, {}", sweep.scene->words), std::string(checkpoint::name_of(point.kind)),
                  0.001 * sweep.ranks};
    planned.run = [this, &sweep, point](Slot&) {
      std::vector<CaseResult> cases;
      for (const std::vector<int>& order : orders_of(sweep.ranks, point.rank)) {
        SaveCase how = case_of_point(sweep, point);
        how.order = order;
        const std::string words =
            fmt::format("A save {} by {}: {}, {}", sweep.scene->words, counted(sweep.ranks, "rank"), in_words(point),
                        sweep.ranks == 1               ? "alone"
                        : order.front() == point.rank ? "ahead of the others"
                                                      : "behind the others");
        cases.push_back(case_at(sweep, how, words, contents_));
        measured().add("cases");
      }
      return cases;
    };
    return planned;
  }

  Trial as_processes(const Sweep& sweep, const KillPoint& point, const std::string& folder) {
    Trial planned{
        fmt::format("process:{}:{}-ranks:rank-{}:{}", sweep.scene->name, sweep.ranks, point.rank, name_of(point)),
        fmt::format("process killed, {}", sweep.scene->words), std::string(checkpoint::name_of(point.kind)),
        0.004 * sweep.ranks};
    planned.run = [this, &sweep, point, own = folder + "/" + planned.name](Slot&) {
      const Judgement judgement = judge_process_kill(own, *sweep.disk, *sweep.scene, sweep.ranks, point, contents_);
      // What a fault left stays for who looks into it.
      if (!judgement.fault) std::filesystem::remove_all(own);
      CaseResult result = case_of(judgement, fmt::format("A save {} by {} as processes: {}", sweep.scene->words,
                                                         counted(sweep.ranks, "rank"), in_words(point)));
      if (judgement.outcome == "not reached") result.verdict = CaseVerdict::undecided;
      return std::vector<CaseResult>{result};
    };
    return planned;
  }

  /// Every point of these scenes by two ranks, until one shows it.
  MutantFound search(std::string_view mutant, const std::vector<std::string_view>& among) {
    MutantFound found;
    for (const std::string_view name : among) {
      const Scene& scene = scene_named(name);
      Sweep sweep{.scene = &scene, .ranks = 2, .disk = disk_of(scene, 2, contents_), .operations = {}, .points = {},
                  .process_points = {}};
      SaveCase how = case_of_point(sweep, {});
      how.script = {};
      how.planted = mutant_named(mutant).planted;
      checkpoint::MemoryStorage disk(*sweep.disk);
      std::vector<KillPoint> points = kill_points(save_scheduled(disk, how, contents_).kinds);
      CaseResult result =
          case_at(sweep, how, fmt::format("A save {} by 2 ranks, nothing is killed", scene.words), contents_);
      for (std::size_t i = 0; result.verdict == CaseVerdict::good && i < points.size(); ++i) {
        how.victim = points[i].rank;
        how.script = case_of_point(sweep, points[i]).script;
        for (const std::vector<int>& order : orders_of(2, how.victim)) {
          how.order = order;
          ++found.tried;
          result = case_at(sweep, how, fmt::format("A save {} by 2 ranks: {}", scene.words, in_words(points[i])), contents_);
          if (result.verdict == CaseVerdict::undecided) result.verdict = CaseVerdict::good;
          if (result.verdict == CaseVerdict::fault) break;
        }
      }
      if (result.verdict == CaseVerdict::good) continue;
      found.found = true;
      ++found.tried;
      found.outcome = result.outcome;
      found.sentence = result.sentence;
      found.timeline = result.timeline;
      return found;
    }
    return found;
  }

  void add_mutants(std::vector<Trial>& all) {
    struct Row {
      std::string_view mutant, harmless;
      std::vector<std::string_view> among;
    };
    const std::vector<std::string_view> every{"over_older", "same_step", "retention", "leftovers"};
    const Row rows[] = {
        {"one_file_name", "", every},
        {"rename_before_data", "", every},
        {"latest_before_commit", "", every},
        {"delete_before_commit", "", {"retention"}},
        {"exists_per_rank", "", {"same_step"}},
        {"skipped_written", "", every},
        {"skipped_committed", "", every},
        {"no_data_sync", "a kill leaves the pages to the system; a power loss shows it", {"over_older"}},
        {"no_folder_sync", "a kill leaves the names to the system; a power loss shows it", {"over_older"}},
    };
    for (const Row& row : rows) {
      all.push_back(mutant_trial(row.mutant, "any operation", row.harmless,
                                 [this, mutant = row.mutant, among = row.among] { return search(mutant, among); }));
    }
  }

  const SaverConfig config_;
  Contents contents_;
  std::vector<std::unique_ptr<Sweep>> sweeps_;
};

}  // namespace

static std::unique_ptr<Suite> make_kill_search(const SaverConfig& config) {
  return std::make_unique<KillSearch>(config);
}

namespace {

namespace fs = std::filesystem;
using checkpoint::Intervention;
using checkpoint::Operation;
using checkpoint::State;

/// Of a group one of whose ranks stops.
constexpr double kStopDeadline_s = 0.3;
/// A rank that neither ends nor is killed for so long hangs.
constexpr unsigned kHang_s = 90;

void lay_out(const checkpoint::MemoryStorage& disk, const std::string& folder) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const std::string& path : disk.paths()) {
    const std::string relative = path.substr(std::min(path.size(), kParent.size()));
    if (relative.empty() || relative == "/") continue;
    if (path.ends_with('/')) {
      fs::create_directories(folder + relative);
      continue;
    }
    const auto bytes = disk.bytes(path);
    std::ofstream file(folder + relative, std::ios::binary);
    file.write(bytes->data(), static_cast<std::streamsize>(bytes->size()));
    if (!file.flush()) throw MachineError(folder + relative + ": cannot be written");
  }
}

class SignalledAt final : public checkpoint::Hook {
 public:
  SignalledAt(int64_t at, int signal) : at_(at), signal_(signal) {}
  Intervention before(const Operation& operation) override {
    if (operation.number == at_) ::kill(::getpid(), signal_);
    // A killed process leaves its pages to the system: no kill shows a sync.
    return {.left_out = is_sync(operation.kind)};
  }

 private:
  int64_t at_;
  int signal_;
};

struct Job {
  const std::string& root;
  const Scene& scene;
  const KillPoint& point;
  const std::vector<std::shared_ptr<const State>>& states;
  int signal;
};

[[noreturn]] void be_rank(const Job& job, int rank, checkpoint::SocketGroup& sockets) {
  ::alarm(kHang_s);
  SignalledAt hook(rank == job.point.rank ? job.point.at : -1, job.signal);
  checkpoint::Seam seam(hook);
  checkpoint::HookedStorage storage(checkpoint::posix_storage(), seam);
  checkpoint::HookedGroup group(sockets, seam);
  checkpoint::SaveOptions options = options_of(job.scene, 9, {}, job.root);
  if (job.signal == SIGSTOP) options.deadline_s = kStopDeadline_s;
  checkpoint::Saver saver(options, storage, group);
  const Content content = new_content(job.scene);
  const checkpoint::SaveRequest request{content.step / 10, content.step, job.scene.best};
  const State& state = *job.states[static_cast<std::size_t>(rank)];
  checkpoint::SaveOutcome outcome;
  if (job.scene.async) {
    saver.save_async(request, state);
    outcome = *saver.wait();
  } else {
    outcome = saver.save(request, state);
  }
  ::_exit(static_cast<int>(outcome.saved));
}

std::vector<pid_t> start(const Job& job, int ranks) {
  // A process that is forked meanwhile would hold the sockets of these open.
  static std::mutex forking;
  const std::lock_guard lock(forking);
  auto groups = checkpoint::make_socket_groups(ranks);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = ::fork();
    if (process < 0) {
      const int error = errno;
      for (const pid_t each : processes) {
        ::kill(each, SIGKILL);
        ::waitpid(each, nullptr, 0);
      }
      throw MachineError(fmt::format("cannot start a process: {}", std::strerror(error)));
    }
    if (process == 0) {
      for (int other = 0; other < ranks; ++other) {
        if (other != rank) groups[static_cast<std::size_t>(other)]->close();
      }
      be_rank(job, rank, *groups[static_cast<std::size_t>(rank)]);
    }
    processes.push_back(process);
  }
  for (auto& group : groups) group->close();
  return processes;
}

/// How one of the processes ended; nothing if it has stopped.
std::optional<int> status_of(pid_t process, int flags) {
  int status = 0;
  while (::waitpid(process, &status, flags) < 0 && errno == EINTR) {
  }
  return WIFSTOPPED(status) ? std::nullopt : std::optional(status);
}

Judgement judge_signal(const std::string& folder, const checkpoint::MemoryStorage& before, const Scene& scene, int ranks,
                       const KillPoint& point, int signal, Contents& contents) {
  lay_out(before, folder);
  const std::string root = folder + std::string(kRoot.substr(kParent.size()));
  std::vector<std::shared_ptr<const State>> states;
  for (int rank = 0; rank < ranks; ++rank) states.push_back(contents.state(new_content(scene), rank, ranks));
  const std::vector<pid_t> processes = start({root, scene, point, states, signal}, ranks);
  const auto victim = static_cast<std::size_t>(point.rank);
  std::vector<int> status(processes.size());
  std::optional<int> of_victim = status_of(processes[victim], WUNTRACED);
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    if (rank != victim) status[rank] = *status_of(processes[rank], 0);
  }
  if (!of_victim) {
    ::kill(processes[victim], SIGKILL);
    of_victim = status_of(processes[victim], 0);
  }
  status[victim] = *of_victim;
  std::vector<checkpoint::SaveOutcome> told(processes.size());
  std::vector<bool> ended(processes.size());
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    ended[rank] = WIFSIGNALED(status[rank]) && WTERMSIG(status[rank]) == SIGKILL;
    if (WIFSIGNALED(status[rank]) && !ended[rank])
      return {"hang", true, fmt::format("rank {} did not come to its end within {} s", rank, kHang_s)};
    if (!ended[rank]) told[rank].saved = static_cast<Saved>(WEXITSTATUS(status[rank]));
  }
  if (!ended[victim]) return {"not reached", true, "the operation was not reached"};
  bool none_may = false;
  const std::vector<KnownSave> known = allowed_after(scene, ranks, told, ended, none_may);
  return judge_disk(checkpoint::posix_storage(), scene, ranks, known, none_may, contents, root);
}

}  // namespace

Judgement judge_process_kill(const std::string& folder, const checkpoint::MemoryStorage& before, const Scene& scene, int ranks,
                             const KillPoint& point, Contents& contents) {
  return judge_signal(folder, before, scene, ranks, point, SIGKILL, contents);
}

Judgement judge_process_stop(const std::string& folder, const checkpoint::MemoryStorage& before, const Scene& scene, int ranks,
                             const KillPoint& point, Contents& contents) {
  return judge_signal(folder, before, scene, ranks, point, SIGSTOP, contents);
}

}  // namespace lockstep::saver

namespace lockstep {
namespace saver {
namespace {

std::unique_ptr<Suite> make_search(const SaverConfig& config) {
  switch (config.search) {
    case SearchKind::kill:
      return make_kill_search(config);
    case SearchKind::schedules:
      return make_schedule_search(config);
    case SearchKind::power:
      return make_power_search(config);
    case SearchKind::corruption:
      return make_corruption_search(config);
    case SearchKind::errors:
      return make_error_search(config);
  }
  return nullptr;
}

std::unique_ptr<Suite> make(const SuiteSource& source, Problems& problems) {
  return make_search(read_saver_config(source, problems));
}

}  // namespace
}  // namespace saver

const SuiteKind& saver_suite() {
  static const SuiteKind kKind{
      "saver", "the library that saves and loads checkpoints, under kills, schedules, power losses, corruption and errors",
      &saver::make, &saver::saver_schema};
  return kKind;
}

}  // namespace lockstep
