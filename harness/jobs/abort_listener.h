#pragma once
// How a rank leaves when it is told that a peer is gone or hangs. A thread waits on the side channel, since the rank itself
// may wait in a collective that will never end, and that no other thread can take it out of.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep {

class AbortListener {
 public:
  /// `channel`: RankTask::notices, or -1: nobody will say anything. On the first packet the thread waits `grace_s` for the
  /// rank to end by itself, then calls `leave` with what it was told, and ends the process with status 1.
  AbortListener(int channel, double grace_s, std::function<void(const std::string& why)> leave);
  /// Ends the thread; the process goes on.
  ~AbortListener();
  AbortListener(const AbortListener&) = delete;
  AbortListener& operator=(const AbortListener&) = delete;

  /// What was told so far; waits `wait_s` for something. Empty: nothing.
  std::string told(double wait_s = 0);
  /// The rank is about to say how it ended: from now on the thread does not. Does not return where the thread has begun to.
  void end_by_itself();

 private:
  void listen();
  void heed(const std::string& why);

  const int channel_;
  const double grace_s_;
  const std::function<void(const std::string& why)> leave_;
  int wake_ = -1;  ///< an eventfd: the rank ends by itself
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string why_;
  bool ends_by_itself_ = false, leaving_ = false;
  std::thread thread_;
};

}  // namespace lockstep
