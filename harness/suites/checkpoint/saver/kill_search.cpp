// Kills: every operation, barrier and collective of a save, on every rank.

#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "harness/base/counted.h"
#include "harness/base/errors.h"
#include "harness/suites/checkpoint/saver/kill.h"
#include "harness/suites/checkpoint/saver/process_kill.h"
#include "harness/suites/checkpoint/saver/search.h"

namespace lockstep::saver {
namespace {

using checkpoint::OperationKind;

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
        "once. The pages of a killed process stay with the system; checkpoint_power searches what a power loss takes."};
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
    Trial planned;
    planned = {fmt::format("{}:{}-ranks:rank-{}:{}", sweep.scene->name, sweep.ranks, point.rank, name_of(point)),
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
    Trial planned;
    planned = {fmt::format("process:{}:{}-ranks:rank-{}:{}", sweep.scene->name, sweep.ranks, point.rank, name_of(point)),
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

std::unique_ptr<Suite> make_kill_search(const SaverConfig& config) { return std::make_unique<KillSearch>(config); }

}  // namespace lockstep::saver
