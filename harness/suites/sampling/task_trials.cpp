// Tasks: more ranks than tasks, one rank slow, one that ends within the round; and the best assignment beside
// ours.

#include <fmt/format.h>

#include <algorithm>

#include "harness/base/counted.h"
#include "harness/base/hashing.h"
#include "harness/lib/data/sharding/task_audit.h"
#include "harness/suites/sampling/trials.h"

namespace lockstep::sampling {
namespace {

using sharding::Assignment;
using sharding::AssignOptions;
using sharding::Share;
using sharding::Task;
using sharding::TaskRound;

constexpr double kSlow = 0.125;  // the slow rank's speed
constexpr int64_t kEpisodes = 32;

/// One round to be tried.
struct RoundCase {
  int tasks = 1, ranks = 1, least = 1;
  bool equal_costs = true, slow = false, dies = false;
  std::string words() const {
    return fmt::format("{} on {}, at least {} a rank, costs {}{}{}", counted(tasks, "task"),
                       counted(ranks, "rank"), least, equal_costs ? "equal" : "unequal",
                       slow ? ", one rank slow" : "", dies ? ", one rank ends" : "");
  }
};

std::vector<Task> tasks_of(const RoundCase& round, int64_t seed) {
  std::vector<Task> tasks;
  for (int i = 0; i < round.tasks; ++i) {
    const double draw = unit_interval(keyed(static_cast<uint64_t>(seed), 0x7461736bu, round.tasks, i));
    // From 1 s to 17 s, most of them short.
    tasks.push_back({fmt::format("task {}", i), round.equal_costs ? 1.0 : 1 + 16 * draw * draw, kEpisodes});
  }
  return tasks;
}

AssignOptions options_of(const RoundCase& round) {
  AssignOptions options{round.ranks, round.least, {}};
  if (round.slow) {
    options.speed.assign(static_cast<std::size_t>(round.ranks), 1);
    options.speed[static_cast<std::size_t>(round.ranks / 2)] = kSlow;
  }
  return options;
}

struct Wrong {
  bool by_modulo = false;        ///< task i to rank i mod ranks
  bool speed_ignored = false;    ///< the slow rank counts as the others
  bool none_taken_over = false;  ///< what the dead rank left is left
  bool done_forgotten = false;   ///< what the dead rank had done is done again
  bool given_twice = false;      ///< the last task goes to two ranks
};

/// The ranks do their shares in order; where one dies, at half of the round's time, the others take over what
/// it left.
TaskRound played(const RoundCase& round, std::vector<Task> tasks, const Wrong& wrong) {
  TaskRound seen{std::move(tasks), options_of(round), {}, {}, {}};
  AssignOptions known = seen.options;
  if (wrong.speed_ignored) known.speed.clear();
  if (wrong.by_modulo) {
    seen.assigned.resize(static_cast<std::size_t>(round.ranks));
    for (int task = 0; task < round.tasks; ++task)
      seen.assigned[static_cast<std::size_t>(task % round.ranks)].push_back({task, 0, 1});
  } else {
    seen.assigned = sharding::assign_tasks(seen.tasks, known);
  }
  if (wrong.given_twice) seen.assigned[0].push_back(seen.assigned.back().back());
  const double whole_s = sharding::finish_s(seen.tasks, seen.options, seen.assigned);
  std::vector<Share> done;
  const auto play = [&](const Assignment& shares, double until_s, int skipped) {
    for (std::size_t rank = 0; rank < shares.size(); ++rank) {
      double time_s = 0;
      for (const Share& share : shares[rank]) {
        time_s += sharding::cost_of(seen.tasks, share) /
                  (seen.options.speed.empty() ? 1 : seen.options.speed[rank]);
        if (time_s > until_s || static_cast<int>(rank) == skipped) break;
        seen.done.push_back({static_cast<int>(rank), share});
        done.push_back(share);
      }
    }
  };
  if (!round.dies) {
    play(seen.assigned, 2 * whole_s, -1);
    return seen;
  }
  const int dead = round.ranks - 1;
  play(seen.assigned, whole_s / 2, -1);
  seen.dead.push_back(dead);
  if (wrong.done_forgotten) {
    std::erase_if(done, [&](const Share& share) {
      return std::ranges::find(seen.assigned.back(), share) != seen.assigned.back().end();
    });
  }
  Assignment left = sharding::reassign_tasks(seen.tasks, known, seen.assigned, done, seen.dead);
  if (wrong.none_taken_over) {
    // Each of the living goes on with its own.
    for (std::size_t rank = 0; rank < left.size(); ++rank) {
      std::erase_if(left[rank], [&](const Share& share) {
        return std::ranges::find(seen.assigned[rank], share) == seen.assigned[rank].end();
      });
    }
  }
  play(left, 1e300, dead);
  return seen;
}

class TaskTrials final : public Suite {
 public:
  explicit TaskTrials(const SamplingConfig& config) : config_(config) {}

  std::vector<std::string> plan() const override {
    return {fmt::format(
        "tasks: 1 to 40 on 1 to {} ranks{}, one slow, one that ends, both; against the best assignment",
        config_.most_ranks,
        config_.has_many_ranks()
            ? fmt::format(", {} and {} on {} ranks", config_.ranks / 16, 3 * config_.ranks, config_.ranks)
            : "")};
  }

  std::vector<Trial> trials(const SuiteRun&) override {
    std::vector<Trial> all;
    for (const int ranks : config_.numbers_of_ranks()) {
      for (const bool slow : {false, true}) {
        for (const bool dies : {false, true}) {
          if (ranks > 1 || (!slow && !dies)) all.push_back(rounds(ranks, slow, dies));
        }
      }
    }
    if (!config_.tasks.empty()) all.push_back(job());
    if (config_.planted) add_planted(all);
    return all;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    std::vector<std::pair<std::string, std::string>> facts{
        {"rounds of tasks", with_commas(m.count("task rounds"))},
        {"longest round against the best, ranks of one speed",
         fmt::format("{:.3f} times, in {} rounds whose best is known", m.greatest("one speed"), with_commas(m.count("one speed")))},
        {"longest round against the best, one rank at an eighth of the speed",
         fmt::format("{:.3f} times, in {} rounds whose best is known", m.greatest("one slow"), with_commas(m.count("one slow")))}};
    for (const auto& [words, there] : m.entries("job")) facts.emplace_back("one's own tasks", words);
    return facts;
  }

 private:
  template <class Each>
  static void for_cases(int ranks, bool slow, bool dies, Each each) {
    if (ranks > kMostOfEach) {
      // Tasks that must be cut, and enough that none must.
      for (const int tasks : {ranks / 16, 3 * ranks}) {
        for (const bool equal : {true, false}) each(RoundCase{tasks, ranks, 1, equal, slow, dies});
      }
      return;
    }
    for (const int tasks : {1, 2, 3, 5, 7, 8, 9, 12, 16, 24, 40}) {
      for (const int least : {1, 2}) {
        for (const bool equal : {true, false}) each(RoundCase{tasks, ranks, least, equal, slow, dies});
      }
    }
  }

  void audit(const TaskRound& seen, const std::string& words, Cases& cases) {
    const sharding::Finding finding = sharding::audit_tasks(seen);
    if (finding.code == "balance_unknown")
      return cases.undecided("balance unknown", fmt::format("{}: {}", words, finding.sentence));
    judge_finding(cases, finding, words);
    const sharding::BestFinish best = sharding::best_finish(seen.tasks, seen.options, seen.assigned);
    const double factor = sharding::finish_s(seen.tasks, seen.options, seen.assigned) / best.seconds;
    measured().add("task rounds");
    if (!best.exact) return;
    const std::string kind = seen.options.speed.empty() ? "one speed" : "one slow";
    measured().at_least(kind, factor);
    measured().add(kind);
  }

  Trial rounds(int ranks, bool slow, bool dies) {
    Trial planned;
    const std::string place = slow && dies ? "one rank slow, one ends"
                              : slow       ? "one rank slow"
                              : dies       ? "one rank ends"
                                           : "all ranks well";
    planned = {fmt::format("tasks:{}{}{}", ranks, slow ? "-slow" : "", dies ? "-dies" : ""), "tasks",
                     place, 0.2};
    planned.run = [this, ranks, slow, dies](Slot&) {
      Cases cases;
      for_cases(ranks, slow, dies, [&](const RoundCase& round) {
        audit(played(round, tasks_of(round, config_.seed), {}), round.words(), cases);
      });
      return cases.take();
    };
    return planned;
  }

  Trial job() {
    Trial planned;
    planned = {"job:tasks", "one's own job", "tasks", 0.1};
    planned.run = [this](Slot&) {
      Cases cases;
      const std::vector<Task> tasks = round_of(config_);
      RoundCase round{static_cast<int>(tasks.size()), static_cast<int>(config_.ranks)};
      for (const bool dies : {false, true}) {
        round.dies = dies && round.ranks > 1;
        const TaskRound seen = played(round, tasks, {});
        if (dies == round.dies) audit(seen, round.words(), cases);
        if (dies) continue;
        const double seconds = sharding::finish_s(tasks, seen.options, seen.assigned);
        measured().keep("job", fmt::format("{} on {}: the last rank ends after {:.3g} s; no partition takes less than {:.3g} s",
                        counted(round.tasks, "task"), counted(round.ranks, "rank"), seconds,
                        sharding::fluid_s(tasks, seen.options)));
      }
      return cases.take();
    };
    return planned;
  }

  /// Wherever `acts` says that the mistake must show.
  void plant(const Wrong& wrong, MutationCheck& check, bool slow, bool dies,
             bool (*acts)(const TaskRound& wrong, const TaskRound& good)) const {
    for (const int ranks : config_.numbers_of_ranks()) {
      if (ranks < 2) continue;
      for_cases(ranks, slow, dies, [&](const RoundCase& round) {
        const std::vector<Task> tasks = tasks_of(round, config_.seed);
        const TaskRound good = played(round, tasks, {}), seen = played(round, tasks, wrong);
        if (!acts(seen, good)) return;
        const sharding::Finding finding = sharding::audit_tasks(seen);
        check.saw(finding.code, fmt::format("{}: {}", round.words(), finding.sentence));
      });
    }
  }

  void add_planted(std::vector<Trial>& all) {
    const auto add = [&](std::string_view name, std::string_view words, std::string_view expected,
                         Wrong wrong, bool slow, bool dies,
                         bool (*acts)(const TaskRound&, const TaskRound&)) {
      all.push_back(planted_trial(
          name, words, "tasks", 0.3, {std::string(expected)},
          [this, wrong, slow, dies, acts](MutationCheck& check) { plant(wrong, check, slow, dies, acts); }));
    };
    const auto differs = [](const TaskRound& wrong, const TaskRound& good) {
      return wrong.done.size() != good.done.size();
    };
    add("tasks_by_modulo", "task i goes to rank i modulo their number", "empty_rank", {.by_modulo = true},
        false, false,
        [](const TaskRound& wrong, const TaskRound&) { return wrong.tasks.size() < wrong.assigned.size(); });
    add("task_given_twice", "two ranks get one task", "task_twice", {.given_twice = true}, false, false,
        differs);
    add("done_forgotten", "what a dead rank had done is done again", "task_twice", {.done_forgotten = true},
        false, true, differs);
    add("dead_rank_lost", "nobody takes over what a dead rank left", "dead_rank_lost",
        {.none_taken_over = true}, false, true, differs);
    // With three tasks a rank and more the slow one's equal part is far too much.
    add("slow_ignored", "the slow rank gets as much as the others", "unbalanced", {.speed_ignored = true},
        true, false, [](const TaskRound& wrong, const TaskRound&) {
          return wrong.tasks.size() >= 3 * wrong.assigned.size() && wrong.options.least == 1;
        });
  }

  const SamplingConfig config_;
};

}  // namespace

std::unique_ptr<Suite> make_task_trials(const SamplingConfig& config) {
  return std::make_unique<TaskTrials>(config);
}

}  // namespace lockstep::sampling
