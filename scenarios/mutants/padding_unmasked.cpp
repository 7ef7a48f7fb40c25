// Zeros that pad short ranks for the gather stay candidates.

#include <ATen/ATen.h>

#include "scenarios/mutants/mutants.h"
#include "scenarios/mutants/wrong_loss.h"

namespace lockstep {
namespace {

class PaddingUnmasked : public WrongLoss {
 public:
  using WrongLoss::WrongLoss;

  LossOutput forward(const LossInput& input) override {
    const at::Tensor ids = at::tensor(at::ArrayRef<int64_t>(input.ids.data(), input.ids.size()), at::kLong);
    const GatheredRows gathered =
        gather_rows(input.comm, {input.action_BA, ids}, input.step, "loss.candidates");
    const at::Tensor named = at::where(gathered.valid, gathered.columns[1], -1);
    const std::vector<int64_t> columns(named.const_data_ptr<int64_t>(),
                                       named.const_data_ptr<int64_t>() + named.numel());
    const EncodedRows rows = input.model.encode_context();
    const at::Tensor energies =
        input.model.energies(rows, input.model.encode_action(gathered.columns[0]), columns, 0);
    return row_loss(input, energies, targets(input, gathered.offset), columns);
  }
};

}  // namespace

std::unique_ptr<Mutant> make_padding_unmasked(const Planting& planting) {
  return std::make_unique<PaddingUnmasked>(planting);
}

}  // namespace lockstep
