#include "harness/suites/engine/scheduler/fiber.h"

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "harness/base/errors.h"

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

}  // namespace lockstep::scheduler
