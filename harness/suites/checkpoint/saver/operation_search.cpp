// One failure at one operation of one rank of a save: its process is killed there, or the operation fails, is cut
// short, is interrupted, is slow or never returns.

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>

#include "harness/base/text.h"
#include "harness/suites/checkpoint/saver/search.h"

namespace lockstep::saver {
namespace {

using checkpoint::MemoryStorage;
using checkpoint::OperationKind;
using checkpoint::Saved;
using checkpoint::SaveOutcome;
using scheduler::InjectedFault;
using Notes = std::vector<scheduler::Note>;

std::vector<Point> kill_points(const Setting& setting) {
  std::vector<Point> points;
  const int ranks = setting.how.ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& kinds = setting.operations[static_cast<std::size_t>(rank)];
    for (int64_t at = 0; at < static_cast<int64_t>(kinds.size()); ++at) {
      const OperationKind kind = kinds[static_cast<std::size_t>(at)];
      const auto add = [&](InjectedFault injected, int reach = 0) {
        points.push_back({rank, kind, {.injected = injected, .at = at, .reach = reach}});
      };
      add(InjectedFault::end);
      if (ranks > 1) add(InjectedFault::end_all);
      if (kind == OperationKind::write) add(InjectedFault::end_within);
      const int others = kind == OperationKind::gather ? ranks : 0;
      for (int reach = 1; reach < others; ++reach) add(InjectedFault::end_within, reach);
    }
  }
  return points;
}

/// Before operations alone, as a process can be killed and stopped.
std::vector<Point> ends_before(std::vector<Point> points) {
  std::erase_if(points, [](const Point& point) { return point.script.injected != InjectedFault::end; });
  return points;
}

/// "op-12", "op-12-within", "op-30-within-2", "op-12-all".
std::string name_of(const Point& point) {
  const auto& [injected, at, error, reach, seconds] = point.script;
  const std::string name = fmt::format("op-{}", at);
  if (injected == InjectedFault::end_all) return name + "-all";
  if (injected != InjectedFault::end_within) return name;
  return name + (reach > 0 ? fmt::format("-within-{}", reach) : "-within");
}

/// "rank 1 is killed before its operation 12, rename".
std::string in_words(const Point& point) {
  const auto& [injected, number, error, reach, seconds] = point.script;
  const std::string at = fmt::format("operation {}, {}", number, checkpoint::name_of(point.kind));
  if (injected == InjectedFault::end_all) return fmt::format("all ranks are killed as rank {} comes to its {}", point.rank, at);
  const std::string_view when = injected == InjectedFault::end_within ? "within" : "before";
  const std::string others = reach > 0 ? fmt::format(", when {} others have its text", reach) : "";
  return fmt::format("rank {} is killed {} its {}{}", point.rank, when, at, others);
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

class OperationSearch : public Search {
 public:
  using Search::Search;

 protected:
  /// What ranks were told, what loads find, and whether the same savers can go on.
  Judgement judge_save(const Setting& setting, SaveCase how, bool must_succeed, Notes* notes = nullptr) {
    MemoryStorage disk(*setting.disk);
    how.notes = notes != nullptr;
    const SaveEnd end = save_scheduled(disk, how, contents_);
    if (notes != nullptr) *notes = end.notes;
    const bool waits = how.script.injected == InjectedFault::hang;
    if (how.script.injected != InjectedFault::nothing && !end.acted)
      return {"not reached", true, "the operation was not reached"};
    if (end.stalled && !waits) return {"hang", true, "a rank waited for the whole deadline for one that had ended or left"};
    const bool committed = end.any(Saved::committed), failed = end.any(Saved::failed), fails = failing(how);
    if (const Judgement told = fails ? judge_words(end, waits) : Judgement{}; told.fault) return told;
    for (const SaveOutcome& told : end.told) {
      if (must_succeed && !told) return {"save failed", true, "the save was to succeed, and fails: " + told.problem};
    }
    if (!fails && committed && failed)
      return {"mixed", true, "one rank was told that the save is committed, another one that it failed"};
    if (fails && !waits && how.script.injected != InjectedFault::slow) measured().add(end.told[0] ? "committed" : "failed");
    const Judgement judgement =
        judge_disk(disk, *how.scene, how.ranks, allowed_after(*how.scene, how, committed, failed), contents_);
    return judgement.fault || !fails || waits ? judgement : judge_then(setting, how, judgement);
  }

  Tried tried(const SettingPtr& setting, const SaveCase& how, bool must_succeed, const std::string& what) {
    const auto words = [setting, what] { return setting->in_words() + ": " + what; };
    const auto timeline = [this, setting, how, must_succeed] {
      Notes notes;
      judge_save(*setting, how, must_succeed, &notes);
      return timeline_of(notes, rank_names(how.ranks));
    };
    return {judge_save(*setting, how, must_succeed), words, timeline};
  }

  /// A rank is a process, which gets the signal there.
  Choice of_process(std::string name, std::string failure, double estimate_s, const SettingPtr& setting,
                    const Point& point, int signal, const SuiteRun& run) {
    const std::string own = fmt::format("{}/work/{}", run.out_dir, name);
    return {std::move(name), std::move(failure), std::string(checkpoint::name_of(point.kind)), estimate_s,
            [this, setting, point, signal, own](const Each& each) {
              const SaveCase& how = setting->how;
              if (signal == SIGSTOP) measured().add("stops");
              const Judgement judgement = judge_signal(own, *setting->disk, *how.scene, how.ranks, point, signal, contents_);
              // What a fault left stays for who looks into it.
              if (!judgement.fault) std::filesystem::remove_all(own);
              each({judgement, [&] {
                      return fmt::format("{} as processes: rank {} is {} before its operation {}", setting->in_words(), point.rank,
                                         signal == SIGSTOP ? "stopped" : "killed", point.script.at);
                    }});
            }};
  }

 private:
  /// Do operations fail or take their time, while all ranks live?
  static bool failing(const SaveCase& how) { return how.script.injected > InjectedFault::end_within; }

  static Judgement judge_words(const SaveEnd& end, bool waits) {
    std::vector<bool> untold = end.ended;
    // A rank that gave up on another around the commit cannot know whether rank 0 made it, and is told so.
    for (std::size_t rank = 0; waits && rank < untold.size(); ++rank)
      untold[rank] = untold[rank] || end.told[rank].saved == Saved::unknown;
    if (const std::string apart = told_problem(end.told, untold); !apart.empty()) return {"told apart", true, apart};
    for (std::size_t rank = 0; rank < end.told.size(); ++rank) {
      if (!end.ended[rank] && !end.told[rank] && end.told[rank].problem.empty())
        return {"silent", true, "the save fails without a word"};
    }
    return {};
  }

  /// Training goes on with the same savers: the next save must succeed.
  Judgement judge_then(const Setting& setting, SaveCase how, const Judgement& so_far) {
    if (how.scene->async) return so_far;
    MemoryStorage disk(*setting.disk);
    how.then = true;
    for (const SaveOutcome& then : save_scheduled(disk, how, contents_).then) {
      if (!then) return {"save failed", true, "training goes on, and the next save of the same ranks fails: " + then.problem};
    }
    const Judgement loaded = judge_load(contents_, {{{then_content(*how.scene), how.ranks, true}}}, load_scheduled(disk, 1));
    if (loaded.fault) return {loaded.outcome, true, "after the next save of the same ranks: " + loaded.found};
    return so_far;
  }
};

class KillSearch final : public OperationSearch {
 public:
  using OperationSearch::OperationSearch;

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

  Facts facts(const Measurements& m) const override {
    Facts facts;
    for (const auto& [ranks, count] : seen_) {
      facts.emplace_back(fmt::format("operations and collectives at which a rank of {} ends", ranks),
                         fmt::format("{} of {} seen, in {}", with_commas(count.first), with_commas(count.second),
                                     counted(static_cast<int64_t>(scenes().size()), "scene")));
    }
    facts.emplace_back("kill points in place, on a disk in memory",
                       fmt::format("{}, each with the victim first and last to go on: {} saves", with_commas(points_),
                                   with_commas(m.count("cases"))));
    facts.emplace_back("kill points of processes, SIGKILL on the machine's disk", with_commas(processes_));
    return facts;
  }

  std::vector<std::string> notes(const Measurements&) const override {
    return {
        "\"In place\": the rank stops at that operation, its files and lock are released, and the other ranks learn of it at "
        "once. The pages of a killed process stay with the system; `power` searches what a power loss takes."};
  }

 private:
  std::vector<Choice> choices(const SuiteRun& run) override {
    std::vector<Choice> all, of_processes;
    for (const Scene& scene : scenes()) {
      for (const int64_t ranks : config_.world_sizes) {
        const auto setting = setting_of(scene, static_cast<int>(ranks), {}, contents_);
        if (const Judgement whole = judge_save(*setting, setting->how, true); whole.fault)
          throw ConfigError(fmt::format("{} fails without a failure: {}", setting->in_words(), whole.found));
        const std::vector<Point> every = kill_points(*setting);
        std::set<std::pair<int, int64_t>> tried;
        for (const Point& point : even_sample(every, config_.points)) {
          all.push_back(killed(setting, point));
          tried.emplace(point.rank, point.script.at);
          ++points_;
        }
        auto& [ends, operations] = seen_[setting->how.ranks];
        ends += static_cast<int64_t>(tried.size());
        for (const auto& kinds : setting->operations) operations += static_cast<int64_t>(kinds.size());
        for (const Point& point : even_sample(ends_before(every), config_.process_points)) {
          const std::string name = fmt::format("process:{}:{}-ranks:rank-{}:{}", scene.name, ranks, point.rank, name_of(point));
          of_processes.push_back(of_process(name, fmt::format("process killed, {}", scene.words),
                                            0.004 * static_cast<double>(ranks), setting, point, SIGKILL, run));
          ++processes_;
        }
      }
    }
    all.insert(all.end(), of_processes.begin(), of_processes.end());
    return all;
  }

  /// First a save in which nothing is killed, then every point, by two ranks.
  std::vector<Choice> choices_of(const checkpoint::Planted& planted, const Names& among) override {
    std::vector<Choice> all;
    for (const std::string_view name : among) {
      const auto setting = setting_of(scene_named(name), 2, planted, contents_);
      all.push_back({.play = [this, setting](const Each& each) { each(tried(setting, setting->how, true, "nothing is killed")); }});
      for (const Point& point : kill_points(*setting)) all.push_back(killed(setting, point));
    }
    return all;
  }

  Choice killed(const SettingPtr& setting, const Point& point) {
    const Scene& scene = *setting->how.scene;
    const int ranks = setting->how.ranks;
    return {fmt::format("{}:{}-ranks:rank-{}:{}", scene.name, ranks, point.rank, name_of(point)),
            fmt::format("killed, {}", scene.words), std::string(checkpoint::name_of(point.kind)), 0.001 * ranks,
            [this, setting, point](const Each& each) {
              SaveCase how = setting->how;
              how.victim = point.rank;
              how.script = point.script;
              for (const std::vector<int>& order : orders_of(how.ranks, point.rank)) {
                how.order = order;
                measured().add("cases");
                const std::string_view turn = how.ranks == 1               ? "alone"
                                              : order.front() == point.rank ? "ahead of the others"
                                                                            : "behind the others";
                if (!each(tried(setting, how, false, fmt::format("{}, {}", in_words(point), turn)))) return;
              }
            }};
  }

  std::map<int, std::pair<int64_t, int64_t>> seen_;  ///< by ranks: operations at which one ends, and all
  int64_t points_ = 0, processes_ = 0;
};

constexpr std::string_view kErrorScenes[] = {"fresh", "over_older", "same_step", "retention", "best", "async"};
/// A slow file's operations take this share of the deadline each, some dozens of them in all.
constexpr double kSlow = 0.6;
/// A rank that is a process stops at each of so many operations.
constexpr int64_t kStops = 10;
/// Enough writes for each place of one.
constexpr std::size_t kErrorBlock_bytes = 512;

struct Failing {
  std::string_view name, words;
  InjectedFault injected;
  int error;
  bool mended;                       ///< the save must succeed all the same
  std::vector<OperationKind> kinds;  ///< at which it is tried; empty: at every one but collectives
  bool fits(OperationKind kind) const {
    return kinds.empty() ? kind != OperationKind::gather : std::ranges::find(kinds, kind) != kinds.end();
  }
};

const std::vector<Failing>& failings() {
  using enum OperationKind;
  const std::vector<OperationKind> room{create, write, sync, close, rename, make_folder};
  static const std::vector<Failing> kAll{
      {"ENOSPC", "fails with ENOSPC", InjectedFault::fail, ENOSPC, false, room},
      {"EDQUOT", "fails with EDQUOT", InjectedFault::fail, EDQUOT, false, room},
      {"EIO", "fails with EIO", InjectedFault::fail, EIO, false, {}},
      {"EACCES", "fails with EACCES", InjectedFault::fail, EACCES, false, {}},
      {"done-EIO", "is done, and fails with EIO", InjectedFault::fail_done, EIO, false,
       {sync, sync_folder, rename, close, unlink, make_folder, remove_folder}},
      {"full", "finds the disk full, as do all after it", InjectedFault::fail_onward, ENOSPC, false, {create, write, make_folder}},
      {"read-only", "finds the disk read-only, as do all after it", InjectedFault::fail_folder, EROFS, false,
       {create, write, rename, make_folder, unlink, remove_folder, lock}},
      {"short", "takes one byte of many", InjectedFault::shorten, 0, true, {write}},
      {"EINTR", "is interrupted", InjectedFault::fail, EINTR, true, {}},
  };
  return kAll;
}

class ErrorSearch final : public OperationSearch {
 public:
  using OperationSearch::OperationSearch;

  std::string subject() const override { return "the saver library, an operation failing"; }

  std::vector<std::string> plan() const override {
    std::vector<std::string> lines;
    for (const Failing& failing : failings()) lines.push_back(fmt::format("{}: an operation {}", failing.name, failing.words));
    lines.push_back(
        fmt::format("slow: each operation of a rank takes {:g} of the deadline; none may be mistaken for hung", kSlow));
    lines.emplace_back("hang: an operation never returns; the others must give up on that rank, with the same words");
    lines.emplace_back("stopped: the same with SIGSTOP and ranks that are processes");
    return lines;
  }

  Facts facts(const Measurements& m) const override {
    const int64_t stops = m.count("stops"), hangs = m.count("hangs") + stops;
    return {{"errors, one at a time", with_commas(m.count("errors"))},
            {"of these the save came to its end all the same", with_commas(m.count("committed"))},
            {"of these the save failed, with the same words on all ranks, and the next one of the same ranks succeeded",
             with_commas(m.count("failed"))},
            {"saves through slow files", with_commas(m.count("slow"))},
            {"operations that never returned",
             fmt::format("{}, {} of them of processes that stopped", with_commas(hangs), with_commas(stops))}};
  }

  std::vector<std::string> notes(const Measurements&) const override {
    return {fmt::format("Time is the scheduler's: a slow operation takes {:g} of the deadline without anybody's waiting for it. A "
                        "process that stops is given up on after 0.3 s of the machine's.",
                        kSlow)};
  }

 private:
  std::vector<Choice> choices(const SuiteRun& run) override {
    std::vector<Choice> all, stops;
    for (const std::string_view name : kErrorScenes) {
      for (const int64_t ranks : config_.world_sizes) {
        const Scene& scene = scene_named(name);
        const auto setting = setting_of(scene, static_cast<int>(ranks), {}, contents_, kErrorBlock_bytes);
        std::vector<Choice> here = failures(setting);
        if (ranks > 1) add_waiting(setting, here);
        for (Choice& choice : even_sample(here, config_.points)) all.push_back(std::move(choice));
        if (ranks != 2 || name != "over_older") continue;
        // Processes that stop: the sockets stay open, and nothing but the time tells.
        const auto of_processes = setting_of(scene, 2, {}, contents_);
        for (const Point& point : even_sample(ends_before(kill_points(*of_processes)), config_.points > 0 ? 2 : kStops))
          stops.push_back(of_process(fmt::format("stopped:{}:rank-{}:{}", name, point.rank, name_of(point)), "process stopped", 0.4,
                                     of_processes, point, SIGSTOP, run));
      }
    }
    all.insert(all.end(), stops.begin(), stops.end());
    return all;
  }

  std::vector<Choice> choices_of(const checkpoint::Planted& planted, const Names& among) override {
    return failures(setting_of(scene_named(among.front()), 2, planted, contents_, kErrorBlock_bytes));
  }

  /// `count`: of what is tried; of what fails one by one also how the save ended.
  Choice failed(std::string name, std::string_view failure, std::string_view place, const SettingPtr& setting,
                const Point& point, bool mended, std::string_view words, const std::string& count) {
    SaveCase how = setting->how;
    how.victim = point.rank;
    how.script = point.script;
    const std::string what =
        fmt::format("operation {} of rank {} ({}) {}", how.script.at, how.victim, checkpoint::name_of(point.kind), words);
    return {std::move(name), std::string(failure), std::string(place), 0.002 * how.ranks,
            [this, setting, how, mended, what, count](const Each& each) {
              measured().add(count);
              each(tried(setting, how, mended, what));
            }};
  }

  /// Every place of every error.
  std::vector<Choice> failures(const SettingPtr& setting) {
    std::vector<Choice> all;
    const auto& [scene, ranks] = std::pair(setting->how.scene->name, setting->how.ranks);
    for (const Failing& failing : failings()) {
      for (int rank = 0; rank < ranks; ++rank) {
        const auto& kinds = setting->operations[static_cast<std::size_t>(rank)];
        for (std::size_t at = 0; at < kinds.size(); ++at) {
          if (!failing.fits(kinds[at])) continue;
          const Point point{rank, kinds[at], {.injected = failing.injected, .at = static_cast<int64_t>(at),
                                              .error = {failing.error, std::generic_category()}}};
          const std::string name = fmt::format("{}:{}:{}-ranks:rank-{}:op-{}", failing.name, scene, ranks, rank, at);
          all.push_back(failed(name, failing.words, checkpoint::name_of(kinds[at]), setting, point, failing.mended,
                               failing.words, "errors"));
        }
      }
    }
    return all;
  }

  void add_waiting(const SettingPtr& setting, std::vector<Choice>& all) {
    const auto& [scene, ranks] = std::pair(setting->how.scene->name, setting->how.ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& kinds = setting->operations[static_cast<std::size_t>(rank)];
      const Point slow{rank, kinds[0], {.injected = InjectedFault::slow, .at = 0, .seconds = kSlow * kDeadline_s}};
      all.push_back(failed(fmt::format("slow:{}:{}-ranks:rank-{}", scene, ranks, rank), "slow", "every operation",
                           setting, slow, true, "and all after it are slow", "slow"));
      for (std::size_t at = 0; at < kinds.size(); ++at) {
        const Point hang{rank, kinds[at], {.injected = InjectedFault::hang, .at = static_cast<int64_t>(at)}};
        all.push_back(failed(fmt::format("hang:{}:{}-ranks:rank-{}:op-{}", scene, ranks, rank, at), "never returns",
                             checkpoint::name_of(kinds[at]), setting, hang, false, "never returns", "hangs"));
      }
    }
  }
};

}  // namespace

std::unique_ptr<Suite> make_kill_search(const SaverConfig& config) { return std::make_unique<KillSearch>(config); }
std::unique_ptr<Suite> make_error_search(const SaverConfig& config) { return std::make_unique<ErrorSearch>(config); }

}  // namespace lockstep::saver
