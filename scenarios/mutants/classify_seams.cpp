#include "scenarios/mutants/classify_seams.h"

#include "scenarios/mutants/witness_comm.h"

namespace lockstep {

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
