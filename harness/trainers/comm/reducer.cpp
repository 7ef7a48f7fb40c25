#include <algorithm>
#include <limits>
#include <unordered_map>

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "harness/trainers/comm/process_groups.h"

namespace lockstep {
namespace {

constexpr int64_t kDefaultFirstBucketBytes = 1024 * 1024;
constexpr int64_t kDefaultBucketBytes = 25 * 1024 * 1024;

class C10dReducer : public GradientReducer {
 public:
  C10dReducer(c10::intrusive_ptr<c10d::ProcessGroup> group, const std::vector<at::Tensor>& parameters,
              const std::vector<std::string>& names, const ReducerOptions& options)
      : find_unused_(options.find_unused_parameters) {
    const bool capped = options.bucket_cap_bytes > 0;
    const int64_t first_cap = capped ? options.bucket_cap_bytes : kDefaultFirstBucketBytes;
    const int64_t cap = capped ? options.bucket_cap_bytes : kDefaultBucketBytes;
    std::unordered_map<size_t, std::string> names_by_index;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      index_of_[parameters[i].unsafeGetTensorImpl()] = i;
      names_by_index.emplace(i, names[i]);
    }
    const std::vector<bool> sparse(parameters.size(), false);
    // DistributedDataParallel begins with one bucket, unless unused parameters are to be found: those never
    // rebuild.
    std::vector<size_t> caps{std::numeric_limits<size_t>::max()};
    if (find_unused_) {
      caps = first_cap < cap ? std::vector<size_t>{static_cast<size_t>(first_cap), static_cast<size_t>(cap)}
                             : std::vector<size_t>{static_cast<size_t>(cap)};
    }
    auto [indices, sizes] = c10d::compute_bucket_assignment_by_size(parameters, caps, sparse);
    // The last layers' gradients are ready first.
    std::reverse(indices.begin(), indices.end());
    reducer_ = std::make_shared<c10d::Reducer>(parameters, std::move(indices), std::move(group), sparse, cap,
                                               find_unused_, options.gradient_as_bucket_view,
                                               std::move(names_by_index), first_cap, false, false,
                                               std::vector<int64_t>{});
  }

  void before_forward() override {
    reducer_->prepare_for_forward();
    // The C++ Reducer does not rebuild by itself; DistributedDataParallel asks it to before every forward
    // pass.
    if (reducer_->rebuild_buckets()) {
      buckets_.clear();
    }
  }

  void before_backward(const std::vector<at::Tensor>& outputs) override {
    reducer_->prepare_for_backward(find_unused_ ? outputs : std::vector<at::Tensor>{});
  }

  std::vector<GradientBucket> buckets() const override {
    if (!buckets_.empty()) {
      return buckets_;
    }
    for (const c10d::GradBucket& bucket : reducer_->get_grad_buckets()) {
      GradientBucket described;
      for (const at::Tensor& parameter : bucket.getParameters()) {
        described.parameters.push_back(index_of_.at(parameter.unsafeGetTensorImpl()));
        described.elements += parameter.numel();
      }
      buckets_.push_back(std::move(described));
    }
    return buckets_;
  }

  void after_backward(std::span<const uint64_t>, std::span<const uint64_t>) override {}

 private:
  bool find_unused_;
  mutable std::vector<GradientBucket> buckets_;  // asked of the Reducer once a layout: it allocates to answer
  std::unordered_map<const void*, std::size_t> index_of_;
  std::shared_ptr<c10d::Reducer> reducer_;
};

}  // namespace

std::unique_ptr<GradientReducer> make_c10d_reducer(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                   const std::vector<at::Tensor>& parameters,
                                                   const std::vector<std::string>& names,
                                                   const ReducerOptions& options) {
  return std::make_unique<C10dReducer>(std::move(group), parameters, names, options);
}

}  // namespace lockstep
