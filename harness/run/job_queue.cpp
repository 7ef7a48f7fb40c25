#include "harness/run/job_queue.h"

#include <algorithm>
#include <unordered_map>

#include "harness/base/errors.h"

namespace lockstep {

JobQueue::JobQueue(std::vector<Job> jobs, int slots)
    : jobs_(std::move(jobs)),
      shapes_(jobs_.size()),
      open_needs_(jobs_.size(), 0),
      states_(jobs_.size(), State::waiting),
      slots_(std::max(1, slots)),
      free_slots_(slots_),
      waiting_(jobs_.size()) {
  std::unordered_map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    LOCKSTEP_CHECK(index.emplace(jobs_[i].id, i).second, "two runs have the id " + jobs_[i].id);
  }
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    const Job& job = jobs_[i];
    shapes_[i].seconds = std::max(0.0, job.estimate_s);
    // A job that has all slots has the machine to itself.
    shapes_[i].slots = job.exclusive ? slots_ : std::clamp(job.slots, 1, slots_);
    for (const std::string& need : job.needs) {
      const auto found = index.find(need);
      if (found == index.end()) continue;
      shapes_[found->second].needed_by.push_back(i);
      ++shapes_[i].needs;
    }
    open_needs_[i] = shapes_[i].needs;
  }
  std::vector<std::size_t> order = job_order(shapes_, slots_), place(jobs_.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  ready_.emplace(std::move(order), std::move(place), slots_);
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    if (open_needs_[i] == 0) ready_->add(i, slots_of(i));
  }
}

std::optional<std::size_t> JobQueue::next() {
  if (stopped_) return std::nullopt;
  const std::optional<std::size_t> job = ready_->take(free_slots_);
  if (job) {
    states_[*job] = State::running;
    free_slots_ -= slots_of(*job);
    ++running_;
    --waiting_;
  }
  LOCKSTEP_CHECK(job || waiting_ == 0 || running_ > 0, "runs wait for runs that nobody will start");
  return job;
}

void JobQueue::leave(std::size_t job, State state) {
  LOCKSTEP_CHECK(states_[job] == State::running, "a run that was not going has ended: " + jobs_[job].id);
  states_[job] = state;
  free_slots_ += slots_of(job);
  --running_;
}

void JobQueue::finished(std::size_t job) {
  leave(job, State::finished);
  for (const std::size_t dependent : shapes_[job].needed_by) {
    if (--open_needs_[dependent] == 0 && states_[dependent] == State::waiting) {
      ready_->add(dependent, slots_of(dependent));
    }
  }
}

void JobQueue::again(std::size_t job) {
  leave(job, State::waiting);
  ++waiting_;
  ready_->add(job, slots_of(job));
}

std::vector<std::size_t> JobQueue::failed(std::size_t job) {
  leave(job, State::failed);
  std::vector<std::size_t> given_up, open{job};
  while (!open.empty()) {
    const std::size_t i = open.back();
    open.pop_back();
    for (const std::size_t dependent : shapes_[i].needed_by) {
      if (states_[dependent] != State::waiting) continue;
      states_[dependent] = State::failed;
      --waiting_;
      given_up.push_back(dependent);
      open.push_back(dependent);
    }
  }
  return given_up;
}

bool JobQueue::done() const { return running_ == 0 && (stopped_ || waiting_ == 0); }

}  // namespace lockstep
