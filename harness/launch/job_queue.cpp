#include "harness/launch/job_queue.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "harness/plan/errors.h"

namespace lockstep {

JobQueue::JobQueue(std::vector<Job> jobs, int slots)
    : jobs_(std::move(jobs)),
      needed_by_(jobs_.size()),
      open_needs_(jobs_.size(), 0),
      states_(jobs_.size(), State::waiting),
      order_(jobs_.size()),
      slots_(std::max(1, slots)),
      free_slots_(slots_) {
  std::unordered_map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    LOCKSTEP_CHECK(index.emplace(jobs_[i].id, i).second, "two runs have the id " + jobs_[i].id);
  }
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    for (const std::string& need : jobs_[i].needs) {
      const auto found = index.find(need);
      if (found == index.end()) continue;
      needed_by_[found->second].push_back(i);
      ++open_needs_[i];
    }
  }
  std::vector<double> weights(jobs_.size(), -1);
  for (std::size_t i = 0; i < jobs_.size(); ++i) weight_of(i, weights);
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::stable_sort(order_.begin(), order_.end(),
                   [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
}

double JobQueue::weight_of(std::size_t i, std::vector<double>& known) const {
  constexpr double kBeingComputed = -2;
  LOCKSTEP_CHECK(known[i] != kBeingComputed, "runs need each other in a circle: " + jobs_[i].id);
  if (known[i] >= 0) return known[i];
  known[i] = kBeingComputed;
  double after = 0;
  for (const std::size_t dependent : needed_by_[i]) after = std::max(after, weight_of(dependent, known));
  known[i] = std::max(0.0, jobs_[i].estimate_s) + after;
  return known[i];
}

int JobQueue::slots_of(std::size_t i) const { return std::clamp(jobs_[i].slots, 1, slots_); }

std::optional<std::size_t> JobQueue::next() {
  if (stopped_ || free_slots_ == 0) return std::nullopt;
  for (auto at = order_.begin(); at != order_.end(); ++at) {
    const std::size_t i = *at;
    if (open_needs_[i] > 0 || slots_of(i) > free_slots_) continue;
    order_.erase(at);
    states_[i] = State::running;
    free_slots_ -= slots_of(i);
    ++running_;
    return i;
  }
  LOCKSTEP_CHECK(order_.empty() || running_ > 0, "runs wait for runs that nobody will start");
  return std::nullopt;
}

void JobQueue::finished(std::size_t job) {
  LOCKSTEP_CHECK(states_[job] == State::running, "a run that was not going has finished: " + jobs_[job].id);
  states_[job] = State::finished;
  free_slots_ += slots_of(job);
  --running_;
  for (const std::size_t dependent : needed_by_[job]) --open_needs_[dependent];
}

std::vector<std::size_t> JobQueue::failed(std::size_t job) {
  LOCKSTEP_CHECK(states_[job] == State::running, "a run that was not going has failed: " + jobs_[job].id);
  states_[job] = State::failed;
  free_slots_ += slots_of(job);
  --running_;
  std::vector<std::size_t> given_up, open{job};
  while (!open.empty()) {
    const std::size_t i = open.back();
    open.pop_back();
    for (const std::size_t dependent : needed_by_[i]) {
      if (states_[dependent] != State::waiting) continue;
      states_[dependent] = State::failed;
      given_up.push_back(dependent);
      open.push_back(dependent);
    }
  }
  std::erase_if(order_, [&](std::size_t i) { return states_[i] != State::waiting; });
  return given_up;
}

bool JobQueue::done() const { return running_ == 0 && (stopped_ || order_.empty()); }

}  // namespace lockstep
