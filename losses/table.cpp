#include <array>
#include <stdexcept>
#include <string>

#include "losses/loss.h"

namespace lockstep {
namespace {

constexpr std::array kLosses{
    LossEntry{"hard", &make_hard_loss},
    LossEntry{"infonce", &make_infonce_loss},
    LossEntry{"sigmoid", &make_sigmoid_loss},
    LossEntry{"symmetric", &make_symmetric_loss},
};

}  // namespace

std::span<const LossEntry> losses() { return kLosses; }

std::unique_ptr<Loss> make_loss(std::string_view name) {
  for (const LossEntry& entry : kLosses) {
    if (entry.name == name) {
      return entry.make();
    }
  }
  throw std::invalid_argument("no loss is called " + std::string(name));
}

}  // namespace lockstep
