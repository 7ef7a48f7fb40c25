#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <semaphore>
#include <string>

// Time that only goes forward.

namespace lockstep {

/// Seconds of CLOCK_MONOTONIC, which all processes of a machine share.
double monotonic_s();

// Independent pieces of work on a few threads.

/// Calls work(0) … work(count - 1) on at most `jobs` threads. If some throw, the exception of the smallest
/// index is thrown once all have ended.
void parallel_for(std::size_t count, int jobs, const std::function<void(std::size_t)>& work);

// Threads that stand for ranks: they compute in turns, a few at once, so that what a thousand of them keep while they compute is
// never all there together. Who waits for another gives its turn up meanwhile.

class Turns {
 public:
  explicit Turns(int at_once) : free_(at_once) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  /// For as long as it lives the calling thread has a turn, but while it has given it up. One a thread.
  class Taken {
   public:
    explicit Taken(Turns& turns);
    ~Taken();
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;

   private:
    Turns& turns_;
  };

  /// To be made around a wait, and before a lock is taken that others need in their turns. Of a thread without a turn: nothing.
  class GivenUp {
   public:
    GivenUp();
    ~GivenUp();
    GivenUp(const GivenUp&) = delete;
    GivenUp& operator=(const GivenUp&) = delete;

   private:
    Turns* const turns_;
  };

 private:
  std::counting_semaphore<> free_;
};

// For how many ranks at once there is room.

/// $LOCKSTEP_ROOM; inside a Slurm job its tasks, else its processors; else the cores that this process may use.
int room_for_ranks();

/// The same of an environment and a number of cores.
int room_for_ranks(const std::map<std::string, std::string>& environment, int cores);

/// Of emulated ranks, how many compute at once. More than there are cores: a rank that stands still in its turn shall keep no other
/// from the collective in which it is missed.
int emulated_turns();

}  // namespace lockstep
