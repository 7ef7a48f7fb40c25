#include "harness/comm/ledger.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

#include "harness/comm/tensor_view.h"

namespace lockstep {
namespace {

CollectiveRecord describe(const char* op, const char* reduction, std::string_view tag,
                          const at::Tensor& tensor) {
  CollectiveRecord record;
  record.op = op;
  record.reduction = reduction;
  record.group = "loss";
  record.tag = tag;
  record.dtype = dtype_of(tensor);
  record.shape = tensor.sizes().vec();
  return record;
}

class LedgerReducer : public GradientReducer {
 public:
  LedgerReducer(std::unique_ptr<GradientReducer> inner, TraceWriter& trace, Beat beat)
      : inner_(std::move(inner)), trace_(trace), beat_(std::move(beat)) {}

  void before_forward() override { inner_->before_forward(); }
  void before_backward(const std::vector<at::Tensor>& outputs) override {
    beat_("reduce_gradients");
    reduces_ = true;
    inner_->before_backward(outputs);
  }
  std::vector<GradientBucket> buckets() const override { return inner_->buckets(); }

  void after_backward(std::span<const uint64_t> local_hashes,
                      std::span<const uint64_t> reduced_hashes) override {
    inner_->after_backward(local_hashes, reduced_hashes);
    if (!std::exchange(reduces_, false) || !trace_.enabled() || local_hashes.empty()) {
      return;  // A backward pass that went past the reducer has reduced nothing.
    }
    // A bucket's content is its parameters' gradients: their fingerprints, taken anyway, add up to the
    // bucket's.
    int number = 0;
    for (const GradientBucket& bucket : inner_->buckets()) {
      CollectiveRecord record;
      record.op = "reduce_gradients";
      record.reduction = "mean";
      record.group = "gradients";
      record.tag = "bucket " + std::to_string(number++);
      record.shape = {bucket.elements};
      for (const std::size_t parameter : bucket.parameters) {
        record.hash_in += local_hashes[parameter];
        record.hash_out += reduced_hashes[parameter];
      }
      trace_.collective(record);
    }
  }

 private:
  std::unique_ptr<GradientReducer> inner_;
  TraceWriter& trace_;
  Beat beat_;
  bool reduces_ = false;
};

class LedgerComm : public Comm {
 public:
  LedgerComm(std::unique_ptr<Comm> inner, TraceWriter& trace, Beat beat)
      : inner_(std::move(inner)), trace_(trace), beat_(std::move(beat)) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }

  void all_reduce_sum(at::Tensor tensor, std::string_view tag) override {
    in_place("all_reduce", "sum", -1, tensor, tag, [&] { inner_->all_reduce_sum(tensor, tag); });
  }

  void all_reduce_max(at::Tensor tensor, std::string_view tag) override {
    in_place("all_reduce", "max", -1, tensor, tag, [&] { inner_->all_reduce_max(tensor, tag); });
  }

  at::Tensor all_gather(const at::Tensor& tensor, std::string_view tag) override {
    announce("all_gather", tag);
    at::Tensor gathered = inner_->all_gather(tensor, tag);
    if (trace_.enabled()) {
      CollectiveRecord record = describe("all_gather", "", tag, tensor);
      record.hash_in = tensor_stats(view_of(tensor)).hash;
      record.hash_out = tensor_stats(view_of(gathered)).hash;
      trace_.collective(record);
    }
    return gathered;
  }

  void broadcast(at::Tensor tensor, int root, std::string_view tag) override {
    in_place("broadcast", "", root, tensor, tag, [&] { inner_->broadcast(tensor, root, tag); });
  }

  void barrier(std::string_view tag) override {
    announce("barrier", tag);
    inner_->barrier(tag);
    if (trace_.enabled()) {
      CollectiveRecord record;
      record.op = "barrier";
      record.group = "loss";
      record.tag = tag;
      trace_.collective(record);
    }
  }

  std::unique_ptr<GradientReducer> reduce_gradients(const std::vector<at::Tensor>& parameters,
                                                    const std::vector<std::string>& names,
                                                    const ReducerOptions& options) override {
    return std::make_unique<LedgerReducer>(inner_->reduce_gradients(parameters, names, options), trace_,
                                           beat_);
  }

 private:
  void announce(const char* op, std::string_view tag) { beat_(std::string(op) + " " + std::string(tag)); }

  template <typename Run>
  void in_place(const char* op, const char* reduction, int root, const at::Tensor& tensor,
                std::string_view tag, Run run) {
    announce(op, tag);
    if (!trace_.enabled()) {
      run();
      return;
    }
    CollectiveRecord record = describe(op, reduction, tag, tensor);
    record.root = root;
    record.hash_in = tensor_stats(view_of(tensor)).hash;
    run();
    record.hash_out = tensor_stats(view_of(tensor)).hash;
    trace_.collective(record);
  }

  std::unique_ptr<Comm> inner_;
  TraceWriter& trace_;
  Beat beat_;
};

}  // namespace

std::unique_ptr<Comm> make_ledger_comm(std::unique_ptr<Comm> inner, TraceWriter& trace, Beat beat) {
  return std::make_unique<LedgerComm>(std::move(inner), trace, std::move(beat));
}

}  // namespace lockstep
