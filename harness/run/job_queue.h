#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <vector>


// The jobs that could start now, by how many slots they take.

namespace lockstep {

/// One heap for each width: the first ready job that fits is found by a look at the top of each heap.
class ReadyJobs {
 public:
  /// `place[job]`: where the job stands in the order.
  ReadyJobs(std::vector<std::size_t> order, std::vector<std::size_t> place, int slots)
      : order_(std::move(order)), place_(std::move(place)), by_slots_(static_cast<std::size_t>(slots) + 1) {}

  void add(std::size_t job, int slots) { by_slots_[static_cast<std::size_t>(slots)].push(place_[job]); }

  /// The first in the order that takes at most `free_slots`; it is then no longer among them.
  std::optional<std::size_t> take(int free_slots) {
    Places* best = nullptr;
    for (std::size_t slots = 1; slots <= static_cast<std::size_t>(free_slots); ++slots) {
      Places& places = by_slots_[slots];
      if (!places.empty() && (best == nullptr || places.top() < best->top())) best = &places;
    }
    if (best == nullptr) return std::nullopt;
    const std::size_t job = order_[best->top()];
    best->pop();
    return job;
  }

 private:
  using Places = std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>>;
  std::vector<std::size_t> order_, place_;
  std::vector<Places> by_slots_;
};

// In which order jobs of several widths are taken, so that the last of them ends early.

/// A job as its order sees it.
struct JobShape {
  double seconds = 0;
  int slots = 1;                       ///< from 1 to all
  std::size_t needs = 0;               ///< how many jobs must have finished
  std::vector<std::size_t> needed_by;  ///< which jobs count it in their `needs`
};

/// For each job: seconds from its start to the end of all that waits for it, if nothing else held it up.
/// Needs must be free of circles.
std::vector<double> seconds_to_the_end(std::span<const JobShape> jobs);

/// The jobs in the order in which they should be tried: whichever comes first and fits into the free slots
/// starts. Tries several rules (the longest first; width weighted against length), takes the one that ends
/// earliest by the estimates, and improves it by seeded trials while it is more than 1 % above the bound. The
/// same jobs give the same order.
std::vector<std::size_t> job_order(std::span<const JobShape> jobs, int slots);

/// When the last job ends if they are taken in this order and take as long as estimated.
double simulated_makespan(std::span<const JobShape> jobs, int slots, std::span<const std::size_t> order);

/// No order ends earlier: slots times seconds over the slots, the longest chain, and how often jobs of one
/// width fit beside each other (dual feasible functions, Fekete and Schepers 2001).
double makespan_bound(std::span<const JobShape> jobs, int slots);

// Which run starts next, so that the whole ends early by the estimates: small runs go into the gaps.

struct Job {
  std::string id;
  std::vector<std::string> needs;  ///< ids of jobs that must have finished; ids of no job count as finished
  double estimate_s = 0;
  int slots = 1;           ///< taken while it runs; more than there are counts as all of them
  bool exclusive = false;  ///< runs while nothing else does
};

/// Only decides; starts nothing.
class JobQueue {
 public:
  JobQueue(std::vector<Job> jobs, int slots);

  /// The index of the job to start now, which then counts as running; nothing if none can start now.
  std::optional<std::size_t> next();
  void finished(std::size_t job);
  /// A job that was running waits once more.
  void again(std::size_t job);
  /// Returns the jobs that needed it, directly or through others, and will never start.
  std::vector<std::size_t> failed(std::size_t job);
  /// Starts nothing more.
  void stop() { stopped_ = true; }

  bool done() const;  ///< nothing runs and nothing will
  int running() const { return running_; }
  const Job& job(std::size_t i) const { return jobs_[i]; }
  int slots_of(std::size_t i) const { return shapes_[i].slots; }

 private:
  enum class State { waiting, running, finished, failed };
  void leave(std::size_t job, State state);

  std::vector<Job> jobs_;
  std::vector<JobShape> shapes_;
  std::vector<std::size_t> open_needs_;  ///< how many needs have not finished
  std::vector<State> states_;
  std::optional<ReadyJobs> ready_;
  int slots_, free_slots_;
  std::size_t waiting_;
  int running_ = 0;
  bool stopped_ = false;
};

// Which host is this, and are two processes on one?

/// What a process says of its host.
struct HostIdentity {
  std::string host;     ///< $LOCKSTEP_HOST ("%n": Slurm's name of the node), else the host's name
  std::string address;  ///< $LOCKSTEP_ADDRESS, else the first IPv4 of $GLOO_SOCKET_IFNAME or of any interface that is up
  /// The kernel's boot and the process's namespaces of processes and of the network, with $LOCKSTEP_HOST where it is set. Empty: /proc
  /// does not say.
  std::string machine;

  template <class Self, class Visit>
  static void members(Self& self, Visit visit) {
    visit("host", self.host);
    visit("address", self.address);
    visit("machine", self.machine);
  }
};

HostIdentity this_host();
/// As the kernel has it; "unknown" where it does not say.
std::string host_name();

/// Why ranks cannot run from here, and what to do: the current folder has been deleted (LibTorch's mathematics library ends a process that
/// has none), or /proc is not mounted (ranks are started and watched through it). Empty: nothing is in the way.
std::string problem_of_surroundings();
/// Throws MachineError if there is one.
void require_surroundings();

/// Do two processes see each other's processes, memory-mapped files and 127.0.0.1? Containers of one name, or of one kernel, are two
/// hosts. One host may have two names; then an address tells it from a copy of it that was begun from the same image of its memory.
bool same_host(const HostIdentity& a, const HostIdentity& b);

// Whoever watches must have a core when it wakes: on a busy machine its own delay would be added to every alarm.

/// Puts the calling thread before ordinary ones while the object lives (nice -10), where the system allows it; else does nothing.
/// Processes that the thread forks meanwhile inherit it, and give it up by be_ordinary() before they become anything else.
class Urgent {
 public:
  Urgent();
  ~Urgent();
  Urgent(const Urgent&) = delete;
  Urgent& operator=(const Urgent&) = delete;
  /// For a child that was forked by this thread, whether or not there is such an object: the niceness from before. Safe between fork and exec.
  static void be_ordinary();

 private:
  bool raised_ = false;
};

}  // namespace lockstep
