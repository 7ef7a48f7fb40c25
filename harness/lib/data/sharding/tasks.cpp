#include "harness/lib/data/sharding/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "harness/base/text.h"

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
}

double cost_of(std::span<const Task> tasks, const Share& share) {
  return tasks[static_cast<std::size_t>(share.task)].cost_s / static_cast<double>(share.parts);
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

  /// Seconds of the dearest share, which some rank has.
  double dearest_s() const {
    double dearest = 0;
    for (std::size_t task = 0; task < tasks_.size(); ++task) dearest = std::max(dearest, cost(task));
    return dearest;
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

/// Ranks and what each has to do. Which one would end a share first is found in log2(ranks) looks.
class Loads {
 public:
  /// Nothing is assigned yet.
  explicit Loads(int ranks) : leaves_(std::bit_ceil(static_cast<std::size_t>(ranks))), least_(2 * leaves_, 0) {
    for (std::size_t rank = static_cast<std::size_t>(ranks); rank < leaves_; ++rank) leave(rank);
  }

  void set(std::size_t rank, double cost) {
    std::size_t at = leaves_ + rank;
    least_[at] = cost;
    while (at > 1) {
      at /= 2;
      least_[at] = std::min(least_[2 * at], least_[2 * at + 1]);
    }
  }
  /// Takes no part any more.
  void leave(std::size_t rank) { set(rank, std::numeric_limits<double>::infinity()); }

  /// Of several that end at once, the first one. At least one rank takes part.
  std::size_t first_to_end(double cost) const {
    // Loads that differ in their last bits may end at once.
    std::size_t at = 1;
    while (at < leaves_) {
      at *= 2;
      if (least_[at] != least_[1] && least_[at] + cost != least_[1] + cost) ++at;
    }
    return at - leaves_;
  }

 private:
  std::size_t leaves_;
  /// A tree: of node i the lesser of nodes 2i and 2i + 1; its second half are the ranks' loads.
  std::vector<double> least_;
};

/// The dearest share first, to the rank that would have done it first; the last ones to ranks that have too
/// few.
Assignment partitioned(std::span<const Task> tasks, const AssignOptions& options, std::vector<Share> shares) {
  dearest_first(tasks, shares);
  const auto ranks = static_cast<std::size_t>(options.ranks), least = static_cast<std::size_t>(options.least);
  Assignment assigned(ranks);
  std::vector<double> cost(ranks);
  Loads loads(options.ranks);
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

Assignment assign_tasks(std::span<const Task> tasks, const AssignOptions& options) {
  check(tasks, options);
  Cuts cuts(tasks);
  while (cuts.count() < int64_t{options.ranks} * options.least) {
    if (cuts.cut()) continue;
    throw ConfigError(fmt::format(
        "{} of {} in all give {} no {} each", counted(static_cast<int64_t>(tasks.size()), "task"),
        counted(cuts.count(), "episode"), counted(options.ranks, "rank"), counted(options.least, "share")));
  }
  double longest_episode = 0;
  for (const Task& task : tasks)
    longest_episode = std::max(longest_episode, task.cost_s / static_cast<double>(task.episodes));
  // However the tasks are cut, some rank has the longest episode.
  const double enough_s = std::max(4.0 / 3 * fluid_s(tasks, options) * (1 + 1e-12), longest_episode);
  Assignment best = partitioned(tasks, options, cuts.shares());
  double best_s = finish_s(tasks, best);
  while (best_s > enough_s && cuts.cut()) {
    if (cuts.dearest_s() >= best_s) continue;
    Assignment next = partitioned(tasks, options, cuts.shares());
    const double next_s = finish_s(tasks, next);
    if (next_s < best_s) best = std::move(next), best_s = next_s;
  }
  return best;
}

double fluid_s(std::span<const Task> tasks, const AssignOptions& options) {
  double cost = 0;
  for (const Task& task : tasks) cost += task.cost_s;
  return cost / options.ranks;
}

double finish_s(std::span<const Task> tasks, const Assignment& assigned) {
  double last_s = 0;
  for (const std::vector<Share>& shares : assigned) {
    double cost = 0;
    for (const Share& share : shares) cost += cost_of(tasks, share);
    last_s = std::max(last_s, cost);
  }
  return last_s;
}

}  // namespace lockstep::sharding
