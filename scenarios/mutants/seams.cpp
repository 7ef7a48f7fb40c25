#include "scenarios/mutants/seams.h"

#include <ATen/ATen.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// One collective as it was called, and what it delivered.
struct Call {
  std::string op, tag;
  int root = -1;
  at::Tensor in, out;
};

using Calls = std::vector<Call>;

at::Tensor kept(const at::Tensor& tensor) { return tensor.detach().clone(); }

/// Passes every call on and tells of it afterwards.
class TellingComm : public Comm {
 public:
  TellingComm(std::unique_ptr<Comm> inner, std::function<void()> begin, std::function<void(Call)> end)
      : inner_(std::move(inner)), begin_(std::move(begin)), end_(std::move(end)) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  void all_reduce_sum(at::Tensor tensor, std::string_view tag) override {
    in_place("sum", tag, -1, tensor, [&] { inner_->all_reduce_sum(tensor, tag); });
  }
  void all_reduce_max(at::Tensor tensor, std::string_view tag) override {
    in_place("max", tag, -1, tensor, [&] { inner_->all_reduce_max(tensor, tag); });
  }
  at::Tensor all_gather(const at::Tensor& tensor, std::string_view tag) override {
    Call call{"gather", std::string(tag), -1, kept(tensor), {}};
    begin_();
    const at::Tensor gathered = inner_->all_gather(tensor, tag);
    call.out = kept(gathered);
    end_(std::move(call));
    return gathered;
  }
  void broadcast(at::Tensor tensor, int root, std::string_view tag) override {
    in_place("broadcast", tag, root, tensor, [&] { inner_->broadcast(tensor, root, tag); });
  }
  void barrier(std::string_view tag) override {
    begin_();
    inner_->barrier(tag);
    end_({"barrier", std::string(tag), -1, {}, {}});
  }
  std::unique_ptr<GradientReducer> reduce_gradients(const std::vector<at::Tensor>& parameters,
                                                    const std::vector<std::string>& names,
                                                    const ReducerOptions& options) override {
    return inner_->reduce_gradients(parameters, names, options);
  }

 private:
  template <typename Run>
  void in_place(const char* op, std::string_view tag, int root, const at::Tensor& tensor, Run run) {
    Call call{op, std::string(tag), root, kept(tensor), {}};
    begin_();
    run();
    call.out = kept(tensor);
    end_(std::move(call));
  }

  std::unique_ptr<Comm> inner_;
  std::function<void()> begin_;
  std::function<void(Call)> end_;
};

bool same_call(const Call& a, const Call& b) {
  return a.op == b.op && a.tag == b.tag && a.root == b.root && same_bits(a.in, b.in) &&
         same_bits(a.out, b.out);
}

}  // namespace

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || a.is_same(b)) {
    return a.defined() == b.defined();
  }
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    return false;
  }
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

bool differs(const at::Tensor& before, const at::Tensor& after) {
  if (before.is_same(after)) {
    return false;
  }
  return before.requires_grad() || after.requires_grad() || !same_bits(before, after);
}

std::unique_ptr<Comm> watched_comm(std::unique_ptr<Comm> comm,
                                   const std::function<std::unique_ptr<Comm>(std::unique_ptr<Comm>)>& plant,
                                   std::function<void()> acted) {
  const auto arrived = std::make_shared<Calls>();
  auto inside = std::make_unique<TellingComm>(
      std::move(comm), [] {}, [arrived](Call call) { arrived->push_back(std::move(call)); });
  const Comm* const bare = inside.get();
  std::unique_ptr<Comm> planted = plant(std::move(inside));
  if (planted.get() == bare) {
    return planted;  // It calls nothing otherwise; what it keeps of the communicator stays alive.
  }
  return std::make_unique<TellingComm>(
      std::move(planted), [arrived] { arrived->clear(); },
      [arrived, acted = std::move(acted)](const Call& call) {
        if (arrived->size() != 1 || !same_call(arrived->front(), call)) {
          acted();
        }
      });
}

at::Tensor WatchedFlowRl::noted_tensor(const at::Tensor& before, at::Tensor after) {
  if (differs(before, after)) acted_();
  return after;
}

bool WatchedFlowRl::never_synchronised(int64_t step) {
  return inside_ != nullptr && noted(false, inside_->never_synchronised(step));
}
uint64_t WatchedFlowRl::noise_key(int64_t step, uint64_t key) {
  return inside_ == nullptr ? key : noted(key, inside_->noise_key(step, key));
}
at::Tensor WatchedFlowRl::trained_chains(int64_t step, at::Tensor chains) {
  return inside_ == nullptr ? chains : noted_tensor(chains, inside_->trained_chains(step, chains));
}
std::vector<double> WatchedFlowRl::schedule(int64_t step, std::vector<double> points) {
  return inside_ == nullptr ? points : noted(points, inside_->schedule(step, points));
}
std::vector<double> WatchedFlowRl::trained_sigmas(int64_t step, std::vector<double> sigmas) {
  return inside_ == nullptr ? sigmas : noted(sigmas, inside_->trained_sigmas(step, sigmas));
}
bool WatchedFlowRl::without_sigma(int64_t step) {
  return inside_ != nullptr && noted(false, inside_->without_sigma(step));
}
at::Tensor WatchedFlowRl::old_log_pi(int64_t step, at::Tensor log_pi) {
  return inside_ == nullptr ? log_pi : noted_tensor(log_pi, inside_->old_log_pi(step, log_pi));
}
at::Tensor WatchedFlowRl::log_pi(int64_t step, at::Tensor log_pi) {
  return inside_ == nullptr ? log_pi : noted_tensor(log_pi, inside_->log_pi(step, log_pi));
}
int WatchedFlowRl::reward_root(int64_t step, int root) {
  return inside_ == nullptr ? root : noted(root, inside_->reward_root(step, root));
}
at::Tensor WatchedFlowRl::scores(int64_t step, at::Tensor scores) {
  return inside_ == nullptr ? scores : noted_tensor(scores, inside_->scores(step, scores));
}
bool WatchedFlowRl::local_statistics(int64_t step) {
  return inside_ != nullptr && noted(false, inside_->local_statistics(step));
}
void WatchedFlowRl::score(int64_t step) {
  if (inside_ != nullptr) inside_->score(step);
}
std::vector<double> WatchedFlowRl::advantages(int64_t step, const AdvantageRows& rows, std::vector<double> right) {
  return inside_ == nullptr ? right : noted(right, inside_->advantages(step, rows, right));
}
double WatchedFlowRl::row_weight(int64_t step, const WeightCounts& counts, double right) {
  return inside_ == nullptr ? right : noted(right, inside_->row_weight(step, counts, right));
}
double WatchedFlowRl::kl_weight(int64_t step, double weight) {
  return inside_ == nullptr ? weight : noted(weight, inside_->kl_weight(step, weight));
}

bool ChainedFlowRl::never_synchronised(int64_t step) {
  return through(false, [=](FlowRlFault& link, bool value) { return link.never_synchronised(step) || value; });
}
uint64_t ChainedFlowRl::noise_key(int64_t step, uint64_t key) {
  return through(key, [=](FlowRlFault& link, uint64_t value) { return link.noise_key(step, value); });
}
at::Tensor ChainedFlowRl::trained_chains(int64_t step, at::Tensor chains) {
  return through(std::move(chains), [=](FlowRlFault& link, auto value) { return link.trained_chains(step, value); });
}
std::vector<double> ChainedFlowRl::schedule(int64_t step, std::vector<double> points) {
  return through(std::move(points), [=](FlowRlFault& link, auto value) { return link.schedule(step, value); });
}
std::vector<double> ChainedFlowRl::trained_sigmas(int64_t step, std::vector<double> sigmas) {
  return through(std::move(sigmas), [=](FlowRlFault& link, auto value) { return link.trained_sigmas(step, value); });
}
bool ChainedFlowRl::without_sigma(int64_t step) {
  return through(false, [=](FlowRlFault& link, bool value) { return link.without_sigma(step) || value; });
}
at::Tensor ChainedFlowRl::old_log_pi(int64_t step, at::Tensor log_pi) {
  return through(std::move(log_pi), [=](FlowRlFault& link, auto value) { return link.old_log_pi(step, value); });
}
at::Tensor ChainedFlowRl::log_pi(int64_t step, at::Tensor log_pi) {
  return through(std::move(log_pi), [=](FlowRlFault& link, auto value) { return link.log_pi(step, value); });
}
int ChainedFlowRl::reward_root(int64_t step, int root) {
  return through(root, [=](FlowRlFault& link, int value) { return link.reward_root(step, value); });
}
at::Tensor ChainedFlowRl::scores(int64_t step, at::Tensor scores) {
  return through(std::move(scores), [=](FlowRlFault& link, auto value) { return link.scores(step, value); });
}
bool ChainedFlowRl::local_statistics(int64_t step) {
  return through(false, [=](FlowRlFault& link, bool value) { return link.local_statistics(step) || value; });
}
void ChainedFlowRl::score(int64_t step) {
  for (FlowRlFault* link : links_) link->score(step);
}
std::vector<double> ChainedFlowRl::advantages(int64_t step, const AdvantageRows& rows, std::vector<double> right) {
  const auto ask = [&](FlowRlFault& link, auto value) { return link.advantages(step, rows, std::move(value)); };
  return through(std::move(right), ask);
}
double ChainedFlowRl::row_weight(int64_t step, const WeightCounts& counts, double right) {
  return through(right, [&](FlowRlFault& link, double value) { return link.row_weight(step, counts, value); });
}
double ChainedFlowRl::kl_weight(int64_t step, double weight) {
  return through(weight, [=](FlowRlFault& link, double value) { return link.kl_weight(step, value); });
}

double WatchedClassify::loss_weight(int64_t step, double weight, const DenominatorCounts& counts) {
  if (inside_ == nullptr) return weight;
  const double after = inside_->loss_weight(step, weight, counts);
  if (after != weight) acted_();
  return after;
}
at::Tensor WatchedClassify::auxiliary(int64_t step, at::Tensor losses_B) {
  if (inside_ == nullptr) return losses_B;
  at::Tensor after = inside_->auxiliary(step, losses_B);
  if (differs(losses_B, after)) acted_();
  return after;
}
uint64_t WatchedClassify::recomputed_key(int64_t step, uint64_t key) {
  if (inside_ == nullptr) return key;
  const uint64_t after = inside_->recomputed_key(step, key);
  if (after != key) acted_();
  return after;
}

double ChainedClassify::loss_weight(int64_t step, double weight, const DenominatorCounts& counts) {
  for (ClassifyFault* link : links_) weight = link->loss_weight(step, weight, counts);
  return weight;
}
at::Tensor ChainedClassify::auxiliary(int64_t step, at::Tensor losses_B) {
  for (ClassifyFault* link : links_) losses_B = link->auxiliary(step, losses_B);
  return losses_B;
}
uint64_t ChainedClassify::recomputed_key(int64_t step, uint64_t key) {
  for (ClassifyFault* link : links_) key = link->recomputed_key(step, key);
  return key;
}

}  // namespace lockstep
