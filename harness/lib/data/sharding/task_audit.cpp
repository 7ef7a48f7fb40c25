#include "harness/lib/data/sharding/task_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/base/counted.h"

namespace lockstep::sharding {
namespace {

/// Every way to partition the shares, the dearest first, cut off where it cannot be faster than the best one so
/// far.
class Search {
 public:
  Search(std::vector<double> costs, const AssignOptions& options, double bound_s, double known_s,
         int64_t most_nodes)
      : costs_(std::move(costs)),
        options_(options),
        load_(static_cast<std::size_t>(options.ranks)),
        count_(load_.size()),
        bound_s_(bound_s),
        best_s_(known_s),
        nodes_left_(most_nodes) {}

  BestFinish run() {
    go(0, 0);
    return {nodes_left_ > 0 ? best_s_ : bound_s_, nodes_left_ > 0};
  }

 private:
  void go(std::size_t share, double end_s) {
    if (--nodes_left_ <= 0 || end_s >= best_s_ || best_s_ <= bound_s_) return;
    int64_t lacking = 0;
    for (const int count : count_) lacking += std::max(0, options_.least - count);
    if (lacking > static_cast<int64_t>(costs_.size() - share)) return;
    if (share == costs_.size()) {
      best_s_ = end_s;
      return;
    }
    std::set<std::tuple<double, double, int>> seen;  // Ranks that are alike need one of them.
    for (std::size_t rank = 0; rank < load_.size(); ++rank) {
      if (!seen.emplace(load_[rank], options_.speed_of(rank), std::min(count_[rank], options_.least)).second)
        continue;
      load_[rank] += costs_[share];
      ++count_[rank];
      go(share + 1, std::max(end_s, load_[rank] / options_.speed_of(rank)));
      --count_[rank];
      load_[rank] -= costs_[share];
    }
  }

  std::vector<double> costs_;
  const AssignOptions& options_;
  std::vector<double> load_;
  std::vector<int> count_;
  double bound_s_, best_s_;
  int64_t nodes_left_;
};

Finding counts(const TaskRound& round) {
  for (std::size_t rank = 0; rank < round.assigned.size(); ++rank) {
    if (round.assigned[rank].empty())
      return {"empty_rank",
              fmt::format(
                  "rank {} of {} has none of {}: it leaves the others waiting at the first collective", rank,
                  round.assigned.size(), counted(static_cast<int64_t>(round.tasks.size()), "task"))};
  }
  std::map<Share, int> doer;
  for (const TaskRound::Done& done : round.done) {
    const auto [at, added] = doer.emplace(done.share, done.rank);
    if (added) continue;
    return {"task_twice", fmt::format("{} was done twice, by rank {} and by rank {}",
                                      name_of(round.tasks, done.share), at->second, done.rank)};
  }
  // Every part of every task, as it was cut.
  std::map<Share, std::size_t> owner;
  for (std::size_t rank = 0; rank < round.assigned.size(); ++rank) {
    for (const Share& share : round.assigned[rank]) {
      const auto [at, added] = owner.emplace(share, rank);
      if (!added)
        return {"task_twice", fmt::format("{} was given to rank {} and to rank {}",
                                          name_of(round.tasks, share), at->second, rank)};
    }
  }
  std::vector<double> part(round.tasks.size());
  for (const auto& [share, rank] : owner) {
    part[static_cast<std::size_t>(share.task)] += 1 / static_cast<double>(share.parts);
    if (doer.contains(share)) continue;
    const bool died = std::ranges::find(round.dead, static_cast<int>(rank)) != round.dead.end();
    if (died)
      return {"dead_rank_lost", fmt::format("rank {} ended before it had done {}, and no other rank did it",
                                            rank, name_of(round.tasks, share))};
    return {"task_lost",
            fmt::format("{} was given to rank {}, and nobody did it", name_of(round.tasks, share), rank)};
  }
  for (std::size_t task = 0; task < part.size(); ++task) {
    if (part[task] < 1 - 1e-9)
      return {"task_lost", fmt::format("{} was given to no rank as a whole", round.tasks[task].name)};
  }
  return {};
}

}  // namespace

double allowed_factor(const AssignOptions& options) {
  const bool equal =
      std::ranges::all_of(options.speed, [&](double speed) { return speed == options.speed[0]; });
  return equal ? 4.0 / 3 : 5.0 / 3;
}

BestFinish best_finish(std::span<const Task> tasks, const AssignOptions& options, const Assignment& assigned,
                       int64_t most_nodes) {
  std::vector<double> costs;
  for (const auto& shares : assigned) {
    for (const Share& share : shares) costs.push_back(cost_of(tasks, share));
  }
  std::ranges::sort(costs, std::greater{});
  double fastest = 0, slowest = options.speed_of(0), cheapest = 0;
  for (std::size_t rank = 0; rank < assigned.size(); ++rank) {
    slowest = std::min(slowest, options.speed_of(rank));
    fastest = std::max(fastest, options.speed_of(rank));
  }
  // The slowest rank must have its least, too.
  for (std::size_t i = 0; i < std::min(costs.size(), static_cast<std::size_t>(options.least)); ++i)
    cheapest += costs[costs.size() - 1 - i];
  double bound_s =
      std::max({fluid_s(tasks, options), costs.empty() ? 0 : costs[0] / fastest, cheapest / slowest});
  // Of one share more than ranks, two of the dearest meet on one rank.
  if (costs.size() > assigned.size())
    bound_s = std::max(bound_s, (costs[assigned.size() - 1] + costs[assigned.size()]) / fastest);
  const double known_s = finish_s(tasks, options, assigned);
  if (known_s <= bound_s * (1 + 1e-12)) return {known_s, true};
  constexpr std::size_t kMostShares = 12;
  if (costs.size() > kMostShares) return {bound_s, false};
  return Search(std::move(costs), options, bound_s, known_s, most_nodes).run();
}

Finding audit_tasks(const TaskRound& round) {
  if (Finding finding = counts(round)) return finding;
  const double seconds = finish_s(round.tasks, round.options, round.assigned),
               factor = allowed_factor(round.options);
  const auto within = [&](double best_s) { return seconds <= factor * best_s * (1 + 1e-9); };
  if (within(fluid_s(round.tasks, round.options))) return {};
  const BestFinish best = best_finish(round.tasks, round.options, round.assigned);
  if (within(best.seconds)) return {};
  double possible_s = finish_s(round.tasks, round.options, assign_tasks(round.tasks, round.options));
  if (best.exact) possible_s = std::min(possible_s, best.seconds);
  if (within(possible_s))
    return {"balance_unknown", "neither the best assignment nor one that is good enough was found"};
  return {
      "unbalanced",
      fmt::format(
          "the last rank ends after {:.3g} s, and {:.3g} s are possible: {:.3g} times that, {:.3g} at most "
          "expected",
          seconds, possible_s, seconds / possible_s, factor)};
}

}  // namespace lockstep::sharding
