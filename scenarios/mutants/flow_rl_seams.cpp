#include "scenarios/mutants/flow_rl_seams.h"

#include <ATen/ATen.h>

#include <utility>

#include "scenarios/mutants/witness_comm.h"

namespace lockstep {

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

}  // namespace lockstep
