#include "harness/stage/stage.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <semaphore>
#include <thread>

#include "harness/stage/fiber.h"

namespace lockstep::stage {

struct Stage::Seat {
  std::unique_ptr<Fiber> fiber;
  std::binary_semaphore turn{0};  ///< of a thread
  std::exception_ptr error;
  std::function<bool()> ready;  ///< empty: it does not wait
  bool ended = false, gives_up = false, hung = false;
};

namespace {

std::vector<int> in_turn(int actors) {
  std::vector<int> order(static_cast<std::size_t>(actors));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

Stage::Stage(int actors, std::vector<int> order, Engine engine)
    : order_(std::move(order)), engine_(kFibersAreSeen ? engine : Engine::threads) {
  for (int actor = 0; actor < actors; ++actor) seats_.push_back(std::make_unique<Seat>());
}

Stage::Stage(int actors) : Stage(actors, in_turn(actors)) {}

Stage::~Stage() = default;

bool Stage::can_go(int actor) const {
  const Seat& seat = *seats_[static_cast<std::size_t>(actor)];
  return !seat.ended && (!seat.ready || seat.ready());
}

/// Who has the turn next; -1: all have ended.
int Stage::next() {
  for (const int actor : order_) {
    if (can_go(actor)) return actor;
  }
  for (const int actor : order_) {
    Seat& seat = *seats_[static_cast<std::size_t>(actor)];
    if (seat.ended || seat.hung) continue;
    stalled_ = true;
    seat.gives_up = true;
    return actor;
  }
  return -1;
}

void Stage::pass(int from) {
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

void Stage::run(const std::function<void(int)>& play) {
  if (seats_.size() == 1) {
    play(0);
    return;
  }
  const auto whole = [&](int actor) {
    Seat& seat = *seats_[static_cast<std::size_t>(actor)];
    try {
      play(actor);
    } catch (...) {
      seat.error = std::current_exception();
    }
    seat.ended = true;
    pass(actor);
  };
  if (engine_ == Engine::fibers)
    run_fibers(whole);
  else
    run_threads(whole);
  for (const auto& seat : seats_) {
    if (seat->error) std::rethrow_exception(seat->error);
  }
}

void Stage::run_fibers(const std::function<void(int)>& play) {
  for (std::size_t actor = 0; actor < seats_.size(); ++actor) {
    seats_[actor]->fiber = std::make_unique<Fiber>([&play, actor] { play(static_cast<int>(actor)); });
  }
  turn_ = order_.front();
  while (turn_ >= 0) seats_[static_cast<std::size_t>(turn_)]->fiber->resume();
}

void Stage::run_threads(const std::function<void(int)>& play) {
  std::vector<std::jthread> threads;
  for (std::size_t actor = 0; actor < seats_.size(); ++actor) {
    threads.emplace_back([&, actor] {
      seats_[actor]->turn.acquire();
      play(static_cast<int>(actor));
    });
  }
  seats_[static_cast<std::size_t>(order_.front())]->turn.release();
}

void Stage::give_way(int actor, int to, bool soon) {
  std::erase(order_, to);
  std::erase(order_, actor);
  order_.insert(order_.begin(), to);
  order_.insert(soon ? order_.begin() + 1 : order_.end(), actor);
  pass(actor);
}

bool Stage::wait(int actor, std::function<bool()> ready) {
  if (ready()) return true;
  Seat& seat = *seats_[static_cast<std::size_t>(actor)];
  seat.gives_up = false;
  seat.ready = std::move(ready);
  pass(actor);
  seat.ready = nullptr;
  return !seat.gives_up;
}

void Stage::hang(int actor) {
  seats_[static_cast<std::size_t>(actor)]->hung = true;
  wait(actor, [this] {
    return std::ranges::all_of(seats_, [](const auto& seat) { return seat->ended || seat->hung; });
  });
}

void Stage::advance(int actor, double seconds) {
  now_s_ += seconds;
  for (const int other : order_) {
    const Seat& seat = *seats_[static_cast<std::size_t>(other)];
    if (other == actor || !seat.ready || !can_go(other)) continue;
    give_way(actor, other, false);
    return;
  }
}

}  // namespace lockstep::stage
