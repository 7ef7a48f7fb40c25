#include "harness/trainers/comm/solo.h"

namespace lockstep {
namespace {

class SoloReducer : public GradientReducer {
 public:
  void before_forward() override {}
  void before_backward(const std::vector<at::Tensor>&) override {}
  std::vector<GradientBucket> buckets() const override { return {}; }
  void after_backward(std::span<const uint64_t>, std::span<const uint64_t>) override {}
};

class SoloComm : public Comm {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  void all_reduce_sum(at::Tensor, std::string_view) override {}
  at::Tensor all_gather(const at::Tensor& tensor, std::string_view) override {
    return tensor.detach().unsqueeze(0);
  }
  void broadcast(at::Tensor, int, std::string_view) override {}
  void barrier(std::string_view) override {}
  std::unique_ptr<GradientReducer> reduce_gradients(const std::vector<at::Tensor>&,
                                                    const std::vector<std::string>&,
                                                    const ReducerOptions&) override {
    return std::make_unique<SoloReducer>();
  }
};

}  // namespace

std::unique_ptr<Comm> make_solo_comm() { return std::make_unique<SoloComm>(); }

}  // namespace lockstep
