#include "harness/sharding/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/base/counted.h"
#include "harness/base/errors.h"

namespace lockstep::sharding {
namespace {

void check(std::span<const Task> tasks, const AssignOptions& options) {
  if (options.ranks < 1) throw ConfigError("tasks need at least one rank");
  if (tasks.empty())
    throw ConfigError(fmt::format("there are no tasks for {}", counted(options.ranks, "rank")));
  for (const Task& task : tasks) {
    if (!(task.cost_s > 0)) throw ConfigError(fmt::format("task {}: its cost must be above 0 s", task.name));
    if (task.episodes < 1)
      throw ConfigError(fmt::format("task {}: it needs at least one episode", task.name));
  }
  LOCKSTEP_CHECK(options.speed.empty() || options.speed.size() == static_cast<std::size_t>(options.ranks),
                 "each rank has a speed");
  for (const double speed : options.speed) {
    if (!(speed > 0)) throw ConfigError("a rank's speed must be above 0");
  }
}

/// Into how many parts each task is cut.
class Cuts {
 public:
  explicit Cuts(std::span<const Task> tasks) : tasks_(tasks), parts_(tasks.size(), 1) {}

  /// Cuts the dearest shares once more; false if no task has an episode left for that.
  bool cut() {
    std::size_t dearest = tasks_.size();
    for (std::size_t task = 0; task < tasks_.size(); ++task) {
      if (parts_[task] < tasks_[task].episodes && (dearest == tasks_.size() || cost(task) > cost(dearest)))
        dearest = task;
    }
    if (dearest == tasks_.size()) return false;
    ++parts_[dearest];
    return true;
  }

  int64_t count() const {
    int64_t shares = 0;
    for (const int64_t parts : parts_) shares += parts;
    return shares;
  }

  std::vector<Share> shares() const {
    std::vector<Share> shares;
    for (std::size_t task = 0; task < tasks_.size(); ++task) {
      for (int64_t part = 0; part < parts_[task]; ++part)
        shares.push_back({static_cast<int>(task), part, parts_[task]});
    }
    return shares;
  }

 private:
  double cost(std::size_t task) const { return tasks_[task].cost_s / static_cast<double>(parts_[task]); }

  std::span<const Task> tasks_;
  std::vector<int64_t> parts_;
};

void dearest_first(std::span<const Task> tasks, std::vector<Share>& shares) {
  std::ranges::stable_sort(
      shares, [&](const Share& a, const Share& b) { return cost_of(tasks, a) > cost_of(tasks, b); });
}

/// The dearest share first, to the rank that would have done it first; the last ones to ranks that have too
/// few.
Assignment dealt(std::span<const Task> tasks, const AssignOptions& options, std::vector<Share> shares) {
  dearest_first(tasks, shares);
  const auto ranks = static_cast<std::size_t>(options.ranks), least = static_cast<std::size_t>(options.least);
  Assignment assigned(ranks);
  std::vector<double> cost(ranks);
  std::size_t lacking = ranks * least;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const bool must_fill = shares.size() - i <= lacking;
    std::size_t to = ranks;
    double to_s = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (must_fill && assigned[rank].size() >= least) continue;
      const double end_s = (cost[rank] + cost_of(tasks, shares[i])) / options.speed_of(rank);
      if (to == ranks || end_s < to_s) to = rank, to_s = end_s;
    }
    if (assigned[to].size() < least) --lacking;
    assigned[to].push_back(shares[i]);
    cost[to] += cost_of(tasks, shares[i]);
  }
  return assigned;
}

}  // namespace

double cost_of(std::span<const Task> tasks, const Share& share) {
  return tasks[static_cast<std::size_t>(share.task)].cost_s / static_cast<double>(share.parts);
}

std::string name_of(std::span<const Task> tasks, const Share& share) {
  const std::string& name = tasks[static_cast<std::size_t>(share.task)].name;
  return share.parts == 1 ? name : fmt::format("{}, part {} of {}", name, share.part + 1, share.parts);
}

Assignment assign_tasks(std::span<const Task> tasks, const AssignOptions& options) {
  check(tasks, options);
  Cuts cuts(tasks);
  while (cuts.count() < int64_t{options.ranks} * options.least) {
    if (cuts.cut()) continue;
    throw ConfigError(fmt::format(
        "{} of {} in all give {} no {} each", counted(static_cast<int64_t>(tasks.size()), "task"),
        counted(cuts.count(), "episode"), counted(options.ranks, "rank"), counted(options.least, "share")));
  }
  const double enough_s = 4.0 / 3 * fluid_s(tasks, options) * (1 + 1e-12);
  Assignment best = dealt(tasks, options, cuts.shares());
  while (finish_s(tasks, options, best) > enough_s && cuts.cut()) {
    Assignment next = dealt(tasks, options, cuts.shares());
    if (finish_s(tasks, options, next) < finish_s(tasks, options, best)) best = std::move(next);
  }
  return best;
}

Assignment reassign_tasks(std::span<const Task> tasks, const AssignOptions& options,
                          const Assignment& assigned, std::span<const Share> done,
                          std::span<const int> dead) {
  check(tasks, options);
  const auto is_dead = [&](std::size_t rank) {
    return std::ranges::find(dead, static_cast<int>(rank)) != dead.end();
  };
  Assignment left(assigned.size());
  std::vector<Share> orphans;
  std::vector<double> cost(assigned.size());
  bool lives = false;
  for (std::size_t rank = 0; rank < assigned.size(); ++rank) {
    lives = lives || !is_dead(rank);
    for (const Share& share : assigned[rank]) {
      if (std::ranges::find(done, share) != done.end()) continue;
      (is_dead(rank) ? orphans : left[rank]).push_back(share);
      if (!is_dead(rank)) cost[rank] += cost_of(tasks, share);
    }
  }
  if (!lives) throw ConfigError("no rank lives that could do the tasks");
  dearest_first(tasks, orphans);
  for (const Share& share : orphans) {
    std::size_t to = assigned.size();
    double to_s = 0;
    for (std::size_t rank = 0; rank < assigned.size(); ++rank) {
      const double end_s = (cost[rank] + cost_of(tasks, share)) / options.speed_of(rank);
      if (!is_dead(rank) && (to == assigned.size() || end_s < to_s)) to = rank, to_s = end_s;
    }
    left[to].push_back(share);
    cost[to] += cost_of(tasks, share);
  }
  return left;
}

double fluid_s(std::span<const Task> tasks, const AssignOptions& options) {
  double cost = 0, speed = 0;
  for (const Task& task : tasks) cost += task.cost_s;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(options.ranks); ++rank)
    speed += options.speed_of(rank);
  return cost / speed;
}

double finish_s(std::span<const Task> tasks, const AssignOptions& options, const Assignment& assigned) {
  double last_s = 0;
  for (std::size_t rank = 0; rank < assigned.size(); ++rank) {
    double cost = 0;
    for (const Share& share : assigned[rank]) cost += cost_of(tasks, share);
    last_s = std::max(last_s, cost / options.speed_of(rank));
  }
  return last_s;
}

std::vector<Task> with_measured_costs(std::span<const Task> tasks, std::span<const MeasuredShare> measured,
                                      std::span<const double> speed) {
  struct Sum {
    double seconds = 0, part = 0;
  };
  std::map<int, Sum> sums;
  for (const MeasuredShare& each : measured) {
    Sum& sum = sums[each.share.task];
    sum.seconds += each.seconds * (speed.empty() ? 1 : speed[static_cast<std::size_t>(each.rank)]);
    sum.part += 1 / static_cast<double>(each.share.parts);
  }
  std::vector<Task> with(tasks.begin(), tasks.end());
  for (const auto& [task, sum] : sums) with[static_cast<std::size_t>(task)].cost_s = sum.seconds / sum.part;
  return with;
}

}  // namespace lockstep::sharding
