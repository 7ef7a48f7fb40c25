#include "harness/base/turns.h"

#include <utility>

namespace lockstep {
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

}  // namespace lockstep
