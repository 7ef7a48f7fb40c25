// A bit of another rank's candidates is flipped on their way to a rank, at one step.

#include <ATen/ATen.h>

#include "scenarios/mutants/comm_fault.h"
#include "scenarios/mutants/mutants.h"

namespace lockstep {
namespace {

class MessageFlip : public CommFault {
 public:
  explicit MessageFlip(const Planting& planting) : CommFault(planting, Level::below) {}

  at::Tensor all_gather(Comm& inner, const at::Tensor& tensor, std::string_view tag) override {
    at::Tensor all = inner.all_gather(tensor, tag);
    if (strikes(step()) && tag == "loss.candidates" && inner.world_size() > 1) {
      at::Tensor message = all.select(0, (inner.rank() + 1) % inner.world_size());
      if (run().precision == Precision::float64) {
        message = message.view({-1}).view(at::kDouble);
      }
      flip_first_element(message, config().bit);
    }
    return all;
  }
};

}  // namespace

std::unique_ptr<Mutant> make_message_flip(const Planting& planting) {
  return std::make_unique<MessageFlip>(planting);
}

}  // namespace lockstep
