#include "harness/base/machine.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {

double monotonic_s() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void parallel_for(std::size_t count, int jobs, const std::function<void(std::size_t)>& work) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<std::size_t> next{0};
  auto take = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  const std::size_t threads = std::min(count, static_cast<std::size_t>(std::max(jobs, 1)));
  {
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < threads; ++i) helpers.emplace_back(take);
    take();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

namespace {

thread_local Turns* own = nullptr;

}  // namespace

Turns::Taken::Taken(Turns& turns) : turns_(turns) {
  turns_.free_.acquire();
  own = &turns_;
}

Turns::Taken::~Taken() {
  own = nullptr;
  turns_.free_.release();
}

Turns::GivenUp::GivenUp() : turns_(std::exchange(own, nullptr)) {
  if (turns_ != nullptr) turns_->free_.release();
}

Turns::GivenUp::~GivenUp() {
  if (turns_ == nullptr) return;
  turns_->free_.acquire();
  own = turns_;
}

namespace {

constexpr int kMost = 4096;

int number_in(const std::string& text, std::size_t at, std::size_t end) {
  int value = 0;
  const char* const last = text.data() + end;
  const auto [stop, error] = std::from_chars(text.data() + at, last, value);
  return error == std::errc() && stop == last && value > 0 ? value : 0;
}

/// "2(x3),4" is 2 three times and 4: 10. 0 if it is no such list.
int sum_of_counts(const std::string& list) {
  int sum = 0;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    const std::size_t times = std::min(list.find("(x", at), comma);
    const int count = number_in(list, at, times);
    const int nodes = times == comma ? 1 : number_in(list, times + 2, comma - 1);
    if (count == 0 || nodes == 0) return 0;
    sum += count * nodes;
    at = comma + 1;
  }
  return sum;
}

}  // namespace

int room_for_ranks(const std::map<std::string, std::string>& environment, int cores) {
  const auto value_of = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  int room = 0;
  if (const std::string own = value_of("LOCKSTEP_ROOM"); !own.empty()) room = number_in(own, 0, own.size());
  if (room == 0 && !value_of("SLURM_JOB_ID").empty()) {
    const std::string tasks = value_of("SLURM_NTASKS");
    room = tasks.empty() ? sum_of_counts(value_of("SLURM_JOB_CPUS_PER_NODE")) : number_in(tasks, 0, tasks.size());
  }
  return std::clamp(room > 0 ? room : cores, 1, kMost);
}

int room_for_ranks() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int cores = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  std::map<std::string, std::string> environment;
  for (const char* name : {"LOCKSTEP_ROOM", "SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_JOB_CPUS_PER_NODE"})
    if (const char* value = std::getenv(name)) environment[name] = value;
  return room_for_ranks(environment, cores);
}

int emulated_turns() { return 2 * std::max(2, static_cast<int>(std::thread::hardware_concurrency())); }

}  // namespace lockstep
