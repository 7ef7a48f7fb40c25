#include "harness/jobs/abort_listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>

#include "harness/run/priority.h"

namespace lockstep {
namespace {

constexpr std::size_t kMost_bytes = 4096;

}  // namespace

AbortListener::AbortListener(int channel, double grace_s, std::function<void(const std::string& why)> leave)
    : channel_(channel), grace_s_(grace_s), leave_(std::move(leave)) {
  if (channel_ < 0) return;
  wake_ = ::eventfd(0, EFD_CLOEXEC);
  // Signals are the rank's own: the thread inherits a mask that leaves it none.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { listen(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

AbortListener::~AbortListener() {
  end_by_itself();
  if (thread_.joinable()) thread_.join();
  if (wake_ >= 0) ::close(wake_);
}

void AbortListener::listen() {
  const Urgent urgent;
  std::array<pollfd, 2> wait = {{{channel_, POLLIN, 0}, {wake_, POLLIN, 0}}};
  for (;;) {
    if (::poll(wait.data(), wait.size(), -1) < 0) continue;
    if (wait[1].revents != 0) return;
    std::array<char, kMost_bytes> packet{};
    const ssize_t n = ::recv(channel_, packet.data(), packet.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // the launcher is gone; the kernel ends its ranks
    return heed(std::string(packet.data(), static_cast<std::size_t>(n)));
  }
}

void AbortListener::heed(const std::string& why) {
  std::unique_lock lock(mutex_);
  why_ = why;
  changed_.notify_all();
  const bool ends = changed_.wait_for(lock, std::chrono::duration<double>(grace_s_), [this] { return ends_by_itself_; });
  if (ends) return;
  leaving_ = true;
  lock.unlock();
  leave_(why);
  std::fflush(nullptr);
  // Sockets close with the process: peers that wait for this one, in whatever group, notice.
  ::_exit(1);
}

std::string AbortListener::told(double wait_s) {
  std::unique_lock lock(mutex_);
  if (channel_ >= 0)
    changed_.wait_for(lock, std::chrono::duration<double>(wait_s), [this] { return !why_.empty(); });
  return why_;
}

void AbortListener::end_by_itself() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !leaving_; });  // for ever, where the thread has begun to leave
  ends_by_itself_ = true;
  changed_.notify_all();
  const uint64_t one = 1;
  if (wake_ >= 0 && ::write(wake_, &one, sizeof one) < 0) ::perror("a rank's side channel");
}

}  // namespace lockstep
