#pragma once
// Jobs drawn from a seed, and a clock that runs them through a queue.

#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "harness/run/job_queue.h"

namespace lockstep::support {

/// Widths 1 to 8, durations log-normal (sigma 1); every `chained`-th job (0: none) reads one drawn before it.
inline std::vector<Job> drawn_jobs(std::size_t count, uint64_t seed, std::size_t chained = 0) {
  std::mt19937_64 engine(seed);
  const auto uniform = [&] { return (static_cast<double>(engine() >> 11) + 0.5) * 0x1p-53; };
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < count; ++i) {
    const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
    Job job;
    job.id = "job " + std::to_string(i);
    job.estimate_s = std::exp(normal);
    job.slots = 1 + static_cast<int>(engine() % 8);
    if (chained > 0 && i > 0 && i % chained == 0) job.needs = {"job " + std::to_string(engine() % i)};
    jobs.push_back(std::move(job));
  }
  return jobs;
}

/// When the last job ends if each takes as long as `duration` says.
inline double run_through(JobQueue queue, const std::function<double(const Job&)>& duration) {
  using End = std::pair<double, std::size_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  double now = 0;
  while (!queue.done()) {
    while (const auto job = queue.next()) ends.emplace(now + duration(queue.job(*job)), *job);
    now = ends.top().first;
    queue.finished(ends.top().second);
    ends.pop();
  }
  return now;
}

/// The jobs as their order sees them.
inline std::vector<JobShape> shapes_of(const std::vector<Job>& jobs, int slots) {
  std::vector<JobShape> shapes;
  for (const Job& job : jobs) shapes.push_back({job.estimate_s, std::min(job.slots, slots), 0, {}});
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    for (const std::string& need : jobs[i].needs) {
      shapes[static_cast<std::size_t>(std::stoul(need.substr(4)))].needed_by.push_back(i);
      ++shapes[i].needs;
    }
  }
  return shapes;
}

}  // namespace lockstep::support
