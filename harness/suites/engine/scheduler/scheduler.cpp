#include "harness/suites/engine/scheduler/scheduler.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <semaphore>
#include <thread>

#include "harness/suites/engine/scheduler/fiber.h"

namespace lockstep::scheduler {

struct Scheduler::Seat {
  std::unique_ptr<Fiber> fiber;
  std::binary_semaphore turn{0};  ///< of a thread
  std::exception_ptr error;
  std::function<bool()> ready;  ///< empty: it does not wait
  bool ended = false, gives_up = false, hung = false;
};

namespace {

std::vector<int> in_turn(int processes) {
  std::vector<int> order(static_cast<std::size_t>(processes));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

Scheduler::Scheduler(int processes, std::vector<int> order, Engine engine)
    : order_(std::move(order)), engine_(kFibersAreSeen ? engine : Engine::threads) {
  for (int process = 0; process < processes; ++process) seats_.push_back(std::make_unique<Seat>());
}

Scheduler::Scheduler(int processes) : Scheduler(processes, in_turn(processes)) {}

Scheduler::~Scheduler() = default;

bool Scheduler::can_go(int process) const {
  const Seat& seat = *seats_[static_cast<std::size_t>(process)];
  return !seat.ended && (!seat.ready || seat.ready());
}

/// Who has the turn next; -1: all have ended.
int Scheduler::next() {
  for (const int process : order_) {
    if (can_go(process)) return process;
  }
  for (const int process : order_) {
    Seat& seat = *seats_[static_cast<std::size_t>(process)];
    if (seat.ended || seat.hung) continue;
    stalled_ = true;
    seat.gives_up = true;
    return process;
  }
  return -1;
}

void Scheduler::pass(int from) {
  const int to = next();
  turn_ = to;
  if (to == from) return;
  Seat& own = *seats_[static_cast<std::size_t>(from)];
  if (engine_ == Engine::fibers) {
    if (!own.ended) own.fiber->suspend();
    return;
  }
  const bool ended = own.ended;
  if (to >= 0) seats_[static_cast<std::size_t>(to)]->turn.release();
  if (!ended) own.turn.acquire();
}

void Scheduler::run(const std::function<void(int)>& play) {
  if (seats_.size() == 1) {
    play(0);
    return;
  }
  const auto whole = [&](int process) {
    Seat& seat = *seats_[static_cast<std::size_t>(process)];
    try {
      play(process);
    } catch (...) {
      seat.error = std::current_exception();
    }
    seat.ended = true;
    pass(process);
  };
  if (engine_ == Engine::fibers)
    run_fibers(whole);
  else
    run_threads(whole);
  for (const auto& seat : seats_) {
    if (seat->error) std::rethrow_exception(seat->error);
  }
}

void Scheduler::run_fibers(const std::function<void(int)>& play) {
  for (std::size_t process = 0; process < seats_.size(); ++process) {
    seats_[process]->fiber = std::make_unique<Fiber>([&play, process] { play(static_cast<int>(process)); });
  }
  turn_ = order_.front();
  while (turn_ >= 0) seats_[static_cast<std::size_t>(turn_)]->fiber->resume();
}

void Scheduler::run_threads(const std::function<void(int)>& play) {
  std::vector<std::jthread> threads;
  for (std::size_t process = 0; process < seats_.size(); ++process) {
    threads.emplace_back([&, process] {
      seats_[process]->turn.acquire();
      play(static_cast<int>(process));
    });
  }
  seats_[static_cast<std::size_t>(order_.front())]->turn.release();
}

void Scheduler::give_way(int process, int to, bool soon) {
  std::erase(order_, to);
  std::erase(order_, process);
  order_.insert(order_.begin(), to);
  order_.insert(soon ? order_.begin() + 1 : order_.end(), process);
  pass(process);
}

bool Scheduler::wait(int process, std::function<bool()> ready) {
  if (ready()) return true;
  Seat& seat = *seats_[static_cast<std::size_t>(process)];
  seat.gives_up = false;
  seat.ready = std::move(ready);
  pass(process);
  seat.ready = nullptr;
  return !seat.gives_up;
}

void Scheduler::hang(int process) {
  seats_[static_cast<std::size_t>(process)]->hung = true;
  wait(process, [this] {
    return std::ranges::all_of(seats_, [](const auto& seat) { return seat->ended || seat->hung; });
  });
}

void Scheduler::advance(int process, double seconds) {
  now_s_ += seconds;
  for (const int other : order_) {
    const Seat& seat = *seats_[static_cast<std::size_t>(other)];
    if (other == process || !seat.ready || !can_go(other)) continue;
    give_way(process, other, false);
    return;
  }
}

}  // namespace lockstep::scheduler
