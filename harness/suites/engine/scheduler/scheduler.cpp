#include "harness/suites/engine/scheduler/scheduler.h"

#include <fmt/format.h>
#include <ucontext.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <semaphore>
#include <thread>
#include <vector>

#include "harness/base/text.h"

namespace lockstep::scheduler {
namespace {

constexpr std::size_t kStack_bytes = std::size_t{1} << 19;
using Stack = std::unique_ptr<std::byte[]>;

/// Stacks of this thread that are not used now.
std::vector<Stack>& free_stacks() {
  thread_local std::vector<Stack> stacks;
  return stacks;
}

Stack take_stack() {
  std::vector<Stack>& stacks = free_stacks();
  if (stacks.empty()) return Stack(new std::byte[kStack_bytes]);
  Stack stack = std::move(stacks.back());
  stacks.pop_back();
  return stack;
}

}  // namespace

struct Fiber::Context {
  std::function<void()> body;
  Stack stack = take_stack();
  ucontext_t own = {}, caller = {};
  bool ended = false;
};

// makecontext hands on integers alone.
void Fiber::enter(unsigned high, unsigned low) {
  const auto address = (static_cast<std::uintptr_t>(high) << 32) | low;
  Context& context = *reinterpret_cast<Context*>(address);
  context.body();
  context.ended = true;
}

Fiber::Fiber(std::function<void()> body) : context_(std::make_unique<Context>()) {
  context_->body = std::move(body);
  LOCKSTEP_CHECK(::getcontext(&context_->own) == 0, "the machine has contexts");
  context_->own.uc_stack.ss_sp = context_->stack.get();
  context_->own.uc_stack.ss_size = kStack_bytes;
  context_->own.uc_link = &context_->caller;
  const auto address = reinterpret_cast<std::uintptr_t>(context_.get());
  ::makecontext(&context_->own, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(address >> 32),
                static_cast<unsigned>(address & 0xffffffffU));
}

Fiber::~Fiber() {
  LOCKSTEP_CHECK(context_->ended, "a fiber comes to its end before it goes");
  free_stacks().push_back(std::move(context_->stack));
}

void Fiber::resume() { ::swapcontext(&context_->caller, &context_->own); }

void Fiber::suspend() { ::swapcontext(&context_->own, &context_->caller); }

static std::vector<int> in_turn(int processes) {
  std::vector<int> order(static_cast<std::size_t>(processes));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<Family> families_of(int processes) {
  std::vector<Family> all;
  std::vector<int> order = in_turn(processes);
  const bool two = processes == 2;
  do {
    all.push_back({order, order[0], order[1], false, two});
    if (two) continue;
    all.push_back({order, order[0], order[1], true, false});
    all.push_back({order, order[1], order[2], false, false});
  } while (std::ranges::next_permutation(order).found);
  return all;
}

struct Scheduler::Seat {
  std::unique_ptr<Fiber> fiber;
  std::binary_semaphore turn{0};  ///< of a thread
  std::exception_ptr error;
  std::function<bool()> ready;  ///< empty: it does not wait
  bool ended = false, gives_up = false, hung = false;
};

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

namespace {

using checkpoint::Intervention;
using checkpoint::Operation;
using checkpoint::OperationKind;

std::error_code gone() { return {EIO, std::generic_category()}; }

bool takes_room(OperationKind kind) {
  return kind == OperationKind::create || kind == OperationKind::write || kind == OperationKind::make_folder;
}

bool changes(OperationKind kind) {
  switch (kind) {
    case OperationKind::list:
    case OperationKind::open:
    case OperationKind::read:
    case OperationKind::stat:
    case OperationKind::close:
    case OperationKind::gather:
    case OperationKind::sync:
    case OperationKind::sync_folder:
      return false;
    default:
      return true;
  }
}

}  // namespace

/// "ENOSPC".
static std::string_view name_of(std::error_code error) {
  constexpr std::pair<int, std::string_view> kNames[] = {{ENOSPC, "ENOSPC"}, {EDQUOT, "EDQUOT"}, {EIO, "EIO"},
                                                         {EINTR, "EINTR"},   {EROFS, "EROFS"},   {EACCES, "EACCES"}};
  const auto* const found = std::ranges::find(kNames, error.value(), &std::pair<int, std::string_view>::first);
  return found == std::end(kNames) ? "an error" : found->second;
}

void ScheduledProcess::end() {
  ended_ = true;
  if (group_ != nullptr) group_->end();
}

void ScheduledProcess::note(const Operation& operation, std::error_code error, std::string mark) {
  if (!play_.notes_wanted) return;
  Note& note = play_.notes.emplace_back(Note{index_, operation, operation.bytes.size(), "", error, std::move(mark)});
  if (play_.bytes_wanted) note.bytes = operation.bytes;
  note.operation.bytes = {};
}

Intervention ScheduledProcess::before(const Operation& operation) {
  if (ended_) return {.error = gone()};
  for (std::size_t i = 0; i < play_.preemptions.size(); ++i) {
    const Preemption& preemption = play_.preemptions[i];
    if (preemption.process != index_ || preemption.at != operation.number || play_.preempted[i]) continue;
    play_.preempted[i] = true;
    note(operation, {}, fmt::format("held before it; process {} goes on", preemption.to));
    play_.scheduler.give_way(index_, preemption.to, preemption.soon);
    if (ended_) return {.error = gone()};
  }
  count_ = operation.number + 1;
  if (kinds_.size() < static_cast<std::size_t>(count_)) kinds_.resize(static_cast<std::size_t>(count_));
  kinds_[static_cast<std::size_t>(operation.number)] = operation.kind;
  if (script_.injected == InjectedFault::nothing || operation.number < script_.at)
    return {.left_out = play_.syncs_left_out && is_sync(operation.kind)};
  return injected(operation);
}

Intervention ScheduledProcess::injected(const Operation& operation) {
  const bool here = operation.number == script_.at;
  if (here) acted_ = true;
  switch (script_.injected) {
    case InjectedFault::nothing:
      return {};
    case InjectedFault::end:
    case InjectedFault::end_all:
      note(operation, {}, "killed before it");
      if (script_.injected == InjectedFault::end) end();
      for (ScheduledProcess* each : job_) each->end();
      return {.error = gone()};
    case InjectedFault::end_within:
      if (!here) return {};
      if (operation.kind == OperationKind::gather && group_ != nullptr) {
        mark_ = fmt::format("killed within: {} others have its text", script_.reach);
        note(operation, {}, mark_);
        group_->end_within(script_.reach);
        ended_ = true;
        return {};
      }
      ends_after_ = true;
      mark_ = "killed within: half of it is done";
      return {.most_bytes = operation.bytes.size() / 2};
    case InjectedFault::fail:
    case InjectedFault::fail_done:
      if (!here) return {};
      mark_ = fmt::format("fails with {}{}", name_of(script_.error),
                          script_.injected == InjectedFault::fail_done ? ", and was done" : "");
      return {.error = script_.error, .performed = script_.injected == InjectedFault::fail_done};
    case InjectedFault::fail_onward:
      if (!takes_room(operation.kind)) return {};
      mark_ = fmt::format("fails with {}", name_of(script_.error));
      return {.error = script_.error};
    case InjectedFault::fail_folder:
      if (!changes(operation.kind)) return {};
      mark_ = fmt::format("fails with {}", name_of(script_.error));
      return {.error = script_.error};
    case InjectedFault::shorten:
      if (!here) return {};
      mark_ = "takes one byte";
      return {.most_bytes = 1};
    case InjectedFault::slow:
      if (operation.kind == OperationKind::gather) return {};
      mark_ = fmt::format("takes {:g} s", script_.seconds);
      play_.scheduler.advance(index_, script_.seconds);
      return {};
    case InjectedFault::hang:
      if (!here) return {};
      note(operation, {}, "never returns");
      play_.scheduler.hang(index_);
      end();
      return {.error = gone()};
  }
  return {};
}

void ScheduledProcess::after(const Operation& operation, std::error_code error) {
  if (ended_) return;
  if (operation.kind == OperationKind::gather && operation.path == "committed" && !error) play_.committed.push_back(index_);
  note(operation, error, std::move(mark_));
  mark_.clear();
  if (!ends_after_) return;
  end();
}

std::vector<TimelineStep> timeline_of(const std::vector<Note>& notes, const std::vector<std::string>& processes) {
  std::vector<TimelineStep> steps;
  for (const Note& note : notes) {
    checkpoint::Operation operation = note.operation;
    std::string words = in_words(operation);
    if (operation.kind == checkpoint::OperationKind::write)
      words = fmt::format("write {} bytes at {} of {}", note.size, operation.offset, operation.path);
    std::string mark = note.mark;
    if (mark.empty() && note.error) mark = note.error.message();
    steps.push_back({processes.at(static_cast<std::size_t>(note.process)), words, mark});
  }
  return steps;
}

Meeting::Meeting(Scheduler& on, int first, int size)
    : scheduler(on),
      first_process(first),
      ranks(size),
      ended(static_cast<std::size_t>(size)),
      heard_s(static_cast<std::size_t>(size)),
      boxes_(static_cast<std::size_t>(size * size)) {}

std::deque<Meeting::Message>& Meeting::box(int from, int to) { return boxes_[static_cast<std::size_t>(from * ranks + to)]; }

int ScheduledGroup::size() const { return meeting_.ranks; }

void ScheduledGroup::progress() { meeting_.heard_s[static_cast<std::size_t>(rank_)] = meeting_.scheduler.now_s(); }

void ScheduledGroup::end() {
  meeting_.ended[static_cast<std::size_t>(rank_)] = true;
  if (broken_.empty()) broken_ = "this rank has ended";
}

std::string ScheduledGroup::leave(const std::string& problem) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_) meeting_.box(rank_, peer).push_back({true, "", problem});
  }
  broken_ = problem;
  meeting_.ended[static_cast<std::size_t>(rank_)] = true;
  return problem;
}

/// Why this gather cannot come to its end, or nothing.
std::string ScheduledGroup::problem_among(const std::string& label, double begun_s, double deadline_s) const {
  for (int peer = 0; peer < size(); ++peer) {
    const auto& box = meeting_.box(peer, rank_);
    if (peer == rank_) continue;
    if (!box.empty()) {
      if (box.front().leaving) return box.front().text;
      if (box.front().label != label)
        return fmt::format("rank {} is at '{}' and rank {} at '{}'", rank_, label, peer, box.front().label);
      continue;
    }
    if (meeting_.ended[static_cast<std::size_t>(peer)]) return fmt::format("rank {} ended (at '{}')", peer, label);
    const double heard_s = std::max(begun_s, meeting_.heard_s[static_cast<std::size_t>(peer)]);
    if (meeting_.scheduler.now_s() - heard_s >= deadline_s)
      return fmt::format("rank {} gave no sign of progress for {:g} s (at '{}')", peer, deadline_s, label);
  }
  return "";
}

checkpoint::Gathered ScheduledGroup::all_gather(const std::string& label, const std::string& mine, double deadline_s) {
  if (!broken_.empty()) return {{}, broken_};
  const double begun_s = meeting_.scheduler.now_s();
  progress();
  int told = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    if (others_before_end_ >= 0 && told++ >= others_before_end_) break;
    meeting_.box(rank_, peer).push_back({false, label, mine});
  }
  if (others_before_end_ >= 0) {
    end();
    return {{}, broken_};
  }
  const auto complete = [&] {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank_ && meeting_.box(peer, rank_).empty()) return false;
    }
    return true;
  };
  const auto decided = [&] { return complete() || !problem_among(label, begun_s, deadline_s).empty(); };
  const bool decided_in_time = meeting_.scheduler.wait(meeting_.first_process + rank_, decided);
  if (!broken_.empty()) return {{}, broken_};
  std::string problem = problem_among(label, begun_s, deadline_s);
  if (!decided_in_time && problem.empty()) {
    // Nobody on the scheduler can go on: in time the deadline would pass.
    int silent = 0;
    while (silent == rank_ || (silent < size() && !meeting_.box(silent, rank_).empty())) ++silent;
    problem = fmt::format("rank {} gave no sign of progress for {:g} s (at '{}')", silent, deadline_s, label);
  }
  if (!problem.empty()) return {{}, leave(problem)};
  checkpoint::Gathered all;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_) {
      all.texts.push_back(mine);
      continue;
    }
    auto& box = meeting_.box(peer, rank_);
    all.texts.push_back(std::move(box.front().text));
    box.pop_front();
  }
  return all;
}

}  // namespace lockstep::scheduler
