#include "harness/run/job_queue.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <queue>
#include <random>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "harness/base/text.h"

namespace lockstep {
namespace {

/// A job of w slots and d seconds comes before others by d * w^power. The longest first stands first: of
/// orders that end at the same time the plainest is taken. 16 is the widest first, for all that matters.
constexpr std::array<double, 10> kPowers = {0, 1, 2, 4, 16, 0.5, 1.5, 3, 6, 8};
constexpr double kGoodEnough = 1.01;
constexpr std::size_t kMostTrials = 400;
constexpr std::size_t kMostJobsTried = 200'000;  ///< trials times jobs: some milliseconds

std::vector<std::size_t> order_by(const std::vector<double>& keys) {
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return keys[a] > keys[b]; });
  return order;
}

/// In [-1, 1): the same on every standard library.
double draw(std::mt19937_64& engine) { return static_cast<double>(engine() >> 11) * 0x1p-52 - 1; }

/// Every second trial shakes all keys a little, the others move a few jobs far.
std::vector<double> varied(std::vector<double> keys, std::size_t trial, std::mt19937_64& engine) {
  constexpr double kLittle = 0.5, kFar = 4;
  constexpr int kMoved = 8;
  if (trial % 2 == 1) {
    for (double& key : keys) key += kLittle * draw(engine);
  } else {
    for (int i = 0; i < kMoved; ++i) keys[engine() % keys.size()] += kFar * draw(engine);
  }
  return keys;
}

double critical_path(std::span<const JobShape> jobs) {
  double longest = 0;
  for (const double seconds : seconds_to_the_end(jobs)) longest = std::max(longest, seconds);
  return longest;
}

/// Seconds summed over jobs, each weighted by its width as a share of the slots.
template <typename Share>
double weighted_seconds(std::span<const JobShape> jobs, const Share& share) {
  double sum = 0;
  for (const JobShape& job : jobs) sum += share(job.slots) * job.seconds;
  return sum;
}

}  // namespace

std::vector<double> seconds_to_the_end(std::span<const JobShape> jobs) {
  std::vector<double> seconds(jobs.size(), 0);
  std::vector<std::size_t> open(jobs.size()), sorted;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    open[i] = jobs[i].needs;
    if (open[i] == 0) sorted.push_back(i);
  }
  for (std::size_t at = 0; at < sorted.size(); ++at) {
    for (const std::size_t next : jobs[sorted[at]].needed_by) {
      if (--open[next] == 0) sorted.push_back(next);
    }
  }
  LOCKSTEP_CHECK(sorted.size() == jobs.size(), "runs need each other in a circle");
  for (auto at = sorted.rbegin(); at != sorted.rend(); ++at) {
    for (const std::size_t next : jobs[*at].needed_by) seconds[*at] = std::max(seconds[*at], seconds[next]);
    seconds[*at] += jobs[*at].seconds;
  }
  return seconds;
}

double simulated_makespan(std::span<const JobShape> jobs, int slots, std::span<const std::size_t> order) {
  std::vector<std::size_t> place(jobs.size()), open(jobs.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  ReadyJobs ready({order.begin(), order.end()}, std::move(place), slots);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    open[i] = jobs[i].needs;
    if (open[i] == 0) ready.add(i, jobs[i].slots);
  }
  using End = std::pair<double, std::size_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> running;
  double now = 0;
  int free_slots = slots;
  for (;;) {
    while (const auto job = ready.take(free_slots)) {
      free_slots -= jobs[*job].slots;
      running.emplace(now + jobs[*job].seconds, *job);
    }
    if (running.empty()) return now;
    const auto [end, job] = running.top();
    running.pop();
    now = end;
    free_slots += jobs[job].slots;
    for (const std::size_t next : jobs[job].needed_by) {
      if (--open[next] == 0) ready.add(next, jobs[next].slots);
    }
  }
}

double makespan_bound(std::span<const JobShape> jobs, int slots) {
  const double all = slots;
  double bound = critical_path(jobs);
  bound = std::max(bound, weighted_seconds(jobs, [&](int w) { return w / all; }));
  for (int k = 1; k <= slots; ++k) {
    bound = std::max(bound, weighted_seconds(jobs, [&](int w) {
                       return (k + 1) * w % slots == 0 ? w / all : std::floor((k + 1) * w / all) / k;
                     }));
  }
  // Jobs of more than `slots - least` leave no room for any of at least `least`.
  for (int least = 1; 2 * least <= slots; ++least) {
    bound = std::max(bound, weighted_seconds(jobs, [&](int w) {
                       return w > slots - least ? 1.0 : w < least ? 0.0 : w / all;
                     }));
  }
  return bound;
}

std::vector<std::size_t> job_order(std::span<const JobShape> jobs, int slots) {
  if (jobs.empty()) return {};
  const std::vector<double> weights = seconds_to_the_end(jobs);
  std::vector<double> best_keys;
  std::vector<std::size_t> best;
  double best_end = 0;
  const auto consider = [&](std::vector<double> keys) {
    std::vector<std::size_t> order = order_by(keys);
    const double end = simulated_makespan(jobs, slots, order);
    if (!best.empty() && end >= best_end * (1 - 1e-9)) return;
    best = std::move(order);
    best_keys = std::move(keys);
    best_end = end;
  };
  for (const double power : kPowers) {
    std::vector<double> keys;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      keys.push_back(std::log(std::max(weights[i], 1e-9)) + power * std::log(jobs[i].slots));
    }
    consider(std::move(keys));
  }
  const double enough = makespan_bound(jobs, slots) * kGoodEnough;
  const std::size_t trials = std::min(kMostTrials, kMostJobsTried / jobs.size());
  std::mt19937_64 engine(1);
  for (std::size_t trial = 0; trial < trials && best_end > enough; ++trial) {
    consider(varied(best_keys, trial, engine));
  }
  return best;
}

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

namespace {

/// The value; empty: not set.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string chosen_name() {
  const std::string chosen = variable("LOCKSTEP_HOST"), node = variable("SLURMD_NODENAME");
  return chosen == "%n" && !node.empty() ? node : chosen;
}

std::string own_name() {
  const std::string chosen = chosen_name();
  return chosen.empty() ? host_name() : chosen;
}

std::string own_address() {
  if (const std::string chosen = variable("LOCKSTEP_ADDRESS"); !chosen.empty()) return chosen;
  const std::string wanted = variable("GLOO_SOCKET_IFNAME");
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "127.0.0.1";
  std::string found;
  for (const ifaddrs* each = all; each != nullptr && found.empty(); each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET || (each->ifa_flags & IFF_UP) == 0) continue;
    if (wanted.empty() ? (each->ifa_flags & IFF_LOOPBACK) != 0 : wanted != each->ifa_name) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
    found = text.data();
  }
  ::freeifaddrs(all);
  return found.empty() ? "127.0.0.1" : found;
}

std::string own_machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string machine;
  if (!std::getline(file, machine) || machine.empty()) return "";
  for (const char* space : {"pid", "net"}) {
    std::error_code error;
    const auto number = std::filesystem::read_symlink(std::string("/proc/self/ns/") + space, error);
    if (error) return "";
    machine += " " + number.string();
  }
  const std::string chosen = chosen_name();
  return chosen.empty() ? machine : machine + " " + chosen;
}

}  // namespace

std::string problem_of_surroundings() {
  std::error_code error;
  (void)std::filesystem::current_path(error);
  if (error) return "the current folder has been deleted: cd to a folder that exists, and start again";
  if (::access("/proc/self/exe", F_OK) != 0)
    return "/proc is not mounted, and ranks are started and watched through it: mount -t proc proc /proc, or give the container one";
  return "";
}

void require_surroundings() {
  if (const std::string problem = problem_of_surroundings(); !problem.empty()) throw MachineError(problem);
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

HostIdentity this_host() { return {own_name(), own_address(), own_machine()}; }

bool same_host(const HostIdentity& a, const HostIdentity& b) {
  if (a.machine.empty() && b.machine.empty()) return a.host == b.host;
  return a.machine == b.machine && (a.host == b.host || a.address == b.address);
}

namespace {

constexpr int kNice = -10;
constexpr int kOrdinary = 100;  // no niceness

thread_local int before = kOrdinary;  ///< of a thread that is urgent

}  // namespace

Urgent::Urgent() {
  errno = 0;
  const int now = ::getpriority(PRIO_PROCESS, 0);  // of the calling thread; -1 is a niceness too
  if (errno != 0 || now <= kNice) return;
  raised_ = ::setpriority(PRIO_PROCESS, 0, kNice) == 0;
  if (raised_) before = now;
}

Urgent::~Urgent() {
  if (!raised_) return;
  be_ordinary();
  before = kOrdinary;
}

void Urgent::be_ordinary() {
  if (before != kOrdinary) ::setpriority(PRIO_PROCESS, 0, before);
}

}  // namespace lockstep
