#include "harness/suites/engine/scheduler/scheduled_group.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::scheduler {

Meeting::Meeting(Scheduler& on, int first, int size)
    : scheduler(on),
      first_process(first),
      ranks(size),
      ended(static_cast<std::size_t>(size)),
      heard_s(static_cast<std::size_t>(size)),
      boxes_(static_cast<std::size_t>(size * size)) {}

std::deque<Meeting::Message>& Meeting::box(int from, int to) { return boxes_[static_cast<std::size_t>(from * ranks + to)]; }

int ScheduledGroup::size() const { return meeting_.ranks; }

void ScheduledGroup::progress() { meeting_.heard_s[static_cast<std::size_t>(rank_)] = meeting_.scheduler.now_s(); }

void ScheduledGroup::end() {
  meeting_.ended[static_cast<std::size_t>(rank_)] = true;
  if (broken_.empty()) broken_ = "this rank has ended";
}

std::string ScheduledGroup::leave(const std::string& problem) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_) meeting_.box(rank_, peer).push_back({true, "", problem});
  }
  broken_ = problem;
  meeting_.ended[static_cast<std::size_t>(rank_)] = true;
  return problem;
}

/// Why this gather cannot come to its end, or nothing.
std::string ScheduledGroup::problem_among(const std::string& label, double begun_s, double deadline_s) const {
  for (int peer = 0; peer < size(); ++peer) {
    const auto& box = meeting_.box(peer, rank_);
    if (peer == rank_) continue;
    if (!box.empty()) {
      if (box.front().leaving) return box.front().text;
      if (box.front().label != label)
        return fmt::format("rank {} is at '{}' and rank {} at '{}'", rank_, label, peer, box.front().label);
      continue;
    }
    if (meeting_.ended[static_cast<std::size_t>(peer)]) return fmt::format("rank {} ended (at '{}')", peer, label);
    const double heard_s = std::max(begun_s, meeting_.heard_s[static_cast<std::size_t>(peer)]);
    if (meeting_.scheduler.now_s() - heard_s >= deadline_s)
      return fmt::format("rank {} gave no sign of progress for {:g} s (at '{}')", peer, deadline_s, label);
  }
  return "";
}

checkpoint::Gathered ScheduledGroup::all_gather(const std::string& label, const std::string& mine, double deadline_s) {
  if (!broken_.empty()) return {{}, broken_};
  const double begun_s = meeting_.scheduler.now_s();
  progress();
  int told = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    if (others_before_end_ >= 0 && told++ >= others_before_end_) break;
    meeting_.box(rank_, peer).push_back({false, label, mine});
  }
  if (others_before_end_ >= 0) {
    end();
    return {{}, broken_};
  }
  const auto complete = [&] {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank_ && meeting_.box(peer, rank_).empty()) return false;
    }
    return true;
  };
  const auto decided = [&] { return complete() || !problem_among(label, begun_s, deadline_s).empty(); };
  const bool decided_in_time = meeting_.scheduler.wait(meeting_.first_process + rank_, decided);
  if (!broken_.empty()) return {{}, broken_};
  std::string problem = problem_among(label, begun_s, deadline_s);
  if (!decided_in_time && problem.empty()) {
    // Nobody on the scheduler can go on: in time the deadline would pass.
    int silent = 0;
    while (silent == rank_ || (silent < size() && !meeting_.box(silent, rank_).empty())) ++silent;
    problem = fmt::format("rank {} gave no sign of progress for {:g} s (at '{}')", silent, deadline_s, label);
  }
  if (!problem.empty()) return {{}, leave(problem)};
  checkpoint::Gathered all;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) {
      all.texts.push_back(mine);
      continue;
    }
    auto& box = meeting_.box(peer, rank_);
    all.texts.push_back(std::move(box.front().text));
    box.pop_front();
  }
  return all;
}

}  // namespace lockstep::scheduler
