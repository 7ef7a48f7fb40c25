#include "harness/lib/data/sharding/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <set>
#include <utility>

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

  /// Seconds that no partition of these shares can heartbeat: some rank has the dearest one, and the slowest rank has one, too.
  double bound_s(double slowest, double fastest, int least) const {
    double dearest = 0, cheapest = cost(0);
    for (std::size_t task = 0; task < tasks_.size(); ++task) {
      dearest = std::max(dearest, cost(task));
      cheapest = std::min(cheapest, cost(task));
    }
    return std::max(dearest / fastest, least > 0 ? cheapest / slowest : 0);
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

/// Ranks and what each has to do. Which one would end a share first is found in log2(ranks) looks for each speed.
class Loads {
 public:
  /// Nobody has anything to do yet.
  explicit Loads(const AssignOptions& options) {
    std::map<double, std::size_t> of_speed;
    for (int rank = 0; rank < options.ranks; ++rank) {
      std::size_t group = 0;
      if (!options.speed.empty())
        group = of_speed.emplace(options.speed[static_cast<std::size_t>(rank)], of_speed.size()).first->second;
      if (group == groups_.size()) groups_.push_back({options.speed_of(static_cast<std::size_t>(rank)), {}, {}});
      places_.emplace_back(group, groups_[group].ranks.size());
      groups_[group].ranks.push_back(rank);
    }
    for (Group& group : groups_) {
      const std::size_t leaves = std::bit_ceil(group.ranks.size());
      group.least.assign(2 * leaves, 0);
      for (std::size_t at = leaves + group.ranks.size(); at < 2 * leaves; ++at) put(group.least, at, kNone);
    }
  }

  void set(std::size_t rank, double cost) {
    const auto [group, place] = places_[rank];
    std::vector<double>& least = groups_[group].least;
    put(least, place + least.size() / 2, cost);
  }
  /// Takes no part any more.
  void leave(std::size_t rank) { set(rank, kNone); }

  /// Of several that end at once, the first one. At least one rank takes part.
  std::size_t first_to_end(double cost) const {
    int first = -1;
    double first_s = kNone;
    for (const Group& group : groups_) {
      const auto end_s = [&](std::size_t at) { return (group.least[at] + cost) / group.speed; };
      if (end_s(1) > first_s || end_s(1) == kNone) continue;
      // Loads that differ in their last bits may end at once.
      std::size_t at = 1;
      while (2 * at < group.least.size()) {
        at *= 2;
        if (group.least[at] != group.least[1] && end_s(at) != end_s(1)) ++at;
      }
      const int rank = group.ranks[at - group.least.size() / 2];
      if (end_s(1) < first_s || rank < first) first = rank;
      first_s = end_s(1);
    }
    LOCKSTEP_CHECK(first >= 0, "a share goes to a rank that takes part");
    return static_cast<std::size_t>(first);
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  struct Group {
    double speed = 1;
    std::vector<int> ranks;
    /// A tree: of node i the lesser of nodes 2i and 2i + 1; its second half are the ranks' loads.
    std::vector<double> least;
  };
  static void put(std::vector<double>& least, std::size_t at, double cost) {
    least[at] = cost;
    while (at > 1) {
      at /= 2;
      least[at] = std::min(least[2 * at], least[2 * at + 1]);
    }
  }

  std::vector<Group> groups_;
  std::vector<std::pair<std::size_t, std::size_t>> places_;  ///< of a rank: its group and its place there
};

/// The dearest share first, to the rank that would have done it first; the last ones to ranks that have too
/// few.
Assignment partitioned(std::span<const Task> tasks, const AssignOptions& options, std::vector<Share> shares) {
  dearest_first(tasks, shares);
  const auto ranks = static_cast<std::size_t>(options.ranks), least = static_cast<std::size_t>(options.least);
  Assignment assigned(ranks);
  std::vector<double> cost(ranks);
  Loads loads(options);
  std::size_t lacking = ranks * least;
  bool fills = false;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (!fills && shares.size() - i <= lacking) {
      fills = true;  // To the end, as each share lessens both.
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        if (assigned[rank].size() >= least) loads.leave(rank);
      }
    }
    const double share_s = cost_of(tasks, shares[i]);
    const std::size_t to = loads.first_to_end(share_s);
    if (assigned[to].size() < least) --lacking;
    assigned[to].push_back(shares[i]);
    cost[to] += share_s;
    if (fills && assigned[to].size() >= least)
      loads.leave(to);
    else
      loads.set(to, cost[to]);
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
  double slowest = options.speed_of(0), fastest = slowest, longest_episode = 0;
  for (const double speed : options.speed) {
    slowest = std::min(slowest, speed);
    fastest = std::max(fastest, speed);
  }
  for (const Task& task : tasks)
    longest_episode = std::max(longest_episode, task.cost_s / static_cast<double>(task.episodes));
  // However the tasks are cut, some rank has the longest episode.
  const double enough_s =
      std::max(4.0 / 3 * fluid_s(tasks, options) * (1 + 1e-12), longest_episode / fastest);
  Assignment best = partitioned(tasks, options, cuts.shares());
  double best_s = finish_s(tasks, options, best);
  while (best_s > enough_s && cuts.cut()) {
    if (cuts.bound_s(slowest, fastest, options.least) >= best_s) continue;
    Assignment next = partitioned(tasks, options, cuts.shares());
    const double next_s = finish_s(tasks, options, next);
    if (next_s < best_s) best = std::move(next), best_s = next_s;
  }
  return best;
}

Assignment reassign_tasks(std::span<const Task> tasks, const AssignOptions& options,
                          const Assignment& assigned, std::span<const Share> done,
                          std::span<const int> dead) {
  check(tasks, options);
  std::vector<bool> is_dead(assigned.size());
  for (const int rank : dead) is_dead[static_cast<std::size_t>(rank)] = true;
  const std::set<Share> finished(done.begin(), done.end());
  Assignment left(assigned.size());
  std::vector<Share> orphans;
  std::vector<double> cost(assigned.size());
  Loads living(options);
  for (std::size_t rank = 0; rank < assigned.size(); ++rank) {
    for (const Share& share : assigned[rank]) {
      if (finished.contains(share)) continue;
      (is_dead[rank] ? orphans : left[rank]).push_back(share);
      if (!is_dead[rank]) cost[rank] += cost_of(tasks, share);
    }
    if (is_dead[rank])
      living.leave(rank);
    else
      living.set(rank, cost[rank]);
  }
  if (std::ranges::find(is_dead, false) == is_dead.end())
    throw ConfigError("no rank lives that could do the tasks");
  dearest_first(tasks, orphans);
  for (const Share& share : orphans) {
    const std::size_t to = living.first_to_end(cost_of(tasks, share));
    left[to].push_back(share);
    cost[to] += cost_of(tasks, share);
    living.set(to, cost[to]);
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

}  // namespace lockstep::sharding
