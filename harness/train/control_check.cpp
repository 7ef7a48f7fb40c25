#include "harness/train/control_check.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "harness/base/hashing.h"
#include "harness/comm/tensor_view.h"
#include "harness/sharding/control_guard.h"

namespace lockstep {
namespace {

constexpr const char* kTag = "control.guard";

/// The training's own collectives, which end within the run's timeout or throw.
class CommGroup final : public checkpoint::Group {
 public:
  explicit CommGroup(Comm& comm) : comm_(comm) {}
  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.world_size(); }

  checkpoint::Gathered all_gather(const std::string& /*label*/, const std::string& mine, double /*deadline_s*/) override {
    checkpoint::Gathered gathered;
    try {
      const at::Tensor lengths = comm_.all_gather(at::full({1}, static_cast<int64_t>(mine.size()), at::kLong), kTag);
      const auto longest = lengths.max().item<int64_t>();
      const at::Tensor own = at::zeros({std::max<int64_t>(longest, 1)}, at::kByte);
      std::memcpy(own.mutable_data_ptr(), mine.data(), mine.size());
      const at::Tensor all = comm_.all_gather(own, kTag);
      for (int r = 0; r < size(); ++r) {
        const at::Tensor text = all.select(0, r);
        gathered.texts.emplace_back(static_cast<const char*>(text.const_data_ptr()),
                                    static_cast<std::size_t>(lengths.select(0, r).item<int64_t>()));
      }
    } catch (const std::runtime_error& error) {
      return {{}, error.what()};
    }
    return gathered;
  }

 private:
  Comm& comm_;
};

}  // namespace

uint64_t parameters_hash(const ParameterList& parameters) {
  uint64_t hash = 0;
  for (const at::Tensor& parameter : parameters.tensors) {
    hash = keyed(hash, tensor_stats(view_of(parameter)).hash);
  }
  return hash;
}

void check_controls(const RankContext& context, int64_t step, const StepCounters& counters, double learning_rate,
                    bool stop) {
  if (context.comm->world_size() == 1) return;
  context.beat(step, "compare controls");
  sharding::Controls controls;
  controls.add("stop", stop);
  controls.add("sampler_step", counters.samples);
  controls.add("rate_step", counters.rate);
  controls.add("learning_rate", learning_rate);
  controls.add("random_offset", counters.draws);
  context.task->add_controls(step, controls);
  controls.add_hash("parameters", parameters_hash(context.task->parameters()));
  CommGroup group(*context.comm);
  const sharding::ControlVerdict verdict =
      sharding::ControlGuard(group, context.config->timeout_s).check(step, controls);
  if (!verdict) throw std::runtime_error(verdict.sentence);
}

}  // namespace lockstep
