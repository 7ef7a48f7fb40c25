#include "harness/comm/ledger.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <chrono>
#include <memory>
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
  record.group = "data";
  record.tag = tag;
  record.dtype = dtype_of(tensor);
  record.shape = tensor.sizes().vec();
  return record;
}

/// Adds what a collective costs to a meter, if there is one.
class Metering {
 public:
  Metering(CommunicationMeter* meter, int world_size) : meter_(meter), world_size_(world_size) {}

  template <typename Run>
  void time(Run run) const {
    if (meter_ == nullptr) {
      run();
      return;
    }
    const auto began = std::chrono::steady_clock::now();
    run();
    meter_->seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  }
  void waited(double seconds) const {
    if (meter_ != nullptr) {
      meter_->seconds += seconds;
    }
  }
  /// A sum round a ring: every rank receives each chunk twice but for its own.
  void summed(double bytes) const { received(bytes * 2 * (world_size_ - 1) / world_size_); }
  void gathered(double bytes_of_each) const { received(bytes_of_each * (world_size_ - 1)); }
  void received(double bytes) const {
    if (meter_ != nullptr && world_size_ > 1) {
      meter_->received_bytes += bytes;
    }
  }

 private:
  CommunicationMeter* meter_;
  int world_size_;
};

double bytes_of(const at::Tensor& tensor) { return static_cast<double>(tensor.nbytes()); }

/// Meters the end of each backward pass that is reduced: from when the last parameter's gradient was there
/// and handed on, until the pass ends, which it does when all reductions have. Made after the reducer, so
/// that its hooks run behind those of the reducer, and its callback behind the one in which the reducer
/// waits.
class ReductionWait {
 public:
  ReductionWait(const std::vector<at::Tensor>& parameters, const Metering& metering)
      : state_(std::make_shared<State>(State{metering, parameters.size()})) {
    for (const at::Tensor& parameter : parameters) {
      state_->bytes += bytes_of(parameter);
      accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameter));
      accumulators_.back()->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [state = state_](const torch::autograd::variable_list& outputs,
                           const torch::autograd::variable_list&) {
            gradient_is_there(state);
            return outputs;
          }));
    }
  }

  /// The next backward pass is reduced.
  void expect() {
    state_->there = 0;
    state_->expected = true;
  }

 private:
  struct State {
    Metering metering;
    std::size_t parameters = 0;
    double bytes = 0;
    std::size_t there = 0;  ///< gradients of the open pass
    bool expected = false;
  };

  static void gradient_is_there(const std::shared_ptr<State>& state) {
    if (!state->expected || ++state->there < state->parameters) {
      return;
    }
    state->expected = false;
    const auto last = std::chrono::steady_clock::now();
    torch::autograd::Engine::get_default_engine().queue_callback([state, last] {
      state->metering.waited(std::chrono::duration<double>(std::chrono::steady_clock::now() - last).count());
      state->metering.summed(state->bytes);
    });
  }

  const std::shared_ptr<State> state_;                                   ///< hooks may outlive this object
  std::vector<c10::intrusive_ptr<torch::autograd::Node>> accumulators_;  ///< that nothing else may keep alive
};

class LedgerReducer : public GradientReducer {
 public:
  LedgerReducer(std::unique_ptr<GradientReducer> inner, TraceWriter& trace, Beat beat,
                const std::vector<at::Tensor>& parameters, const Metering& metering)
      : inner_(std::move(inner)), trace_(trace), beat_(std::move(beat)), wait_(parameters, metering) {}

  void before_forward() override { inner_->before_forward(); }
  void before_backward(const std::vector<at::Tensor>& outputs) override {
    beat_("reduce_gradients");
    reduces_ = true;
    wait_.expect();
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
  ReductionWait wait_;
  bool reduces_ = false;
};

class LedgerComm : public Comm {
 public:
  LedgerComm(std::unique_ptr<Comm> inner, TraceWriter& trace, Beat beat, CommunicationMeter* meter)
      : inner_(std::move(inner)),
        trace_(trace),
        beat_(std::move(beat)),
        metering_(meter, inner_->world_size()) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }

  void all_reduce_sum(at::Tensor tensor, std::string_view tag) override {
    in_place("all_reduce", "sum", -1, tensor, tag, [&] { inner_->all_reduce_sum(tensor, tag); });
    metering_.summed(bytes_of(tensor));
  }

  void all_reduce_max(at::Tensor tensor, std::string_view tag) override {
    in_place("all_reduce", "max", -1, tensor, tag, [&] { inner_->all_reduce_max(tensor, tag); });
    metering_.gathered(bytes_of(tensor));
  }

  at::Tensor all_gather(const at::Tensor& tensor, std::string_view tag) override {
    announce("all_gather", tag);
    at::Tensor gathered;
    metering_.time([&] { gathered = inner_->all_gather(tensor, tag); });
    metering_.gathered(bytes_of(tensor));
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
    metering_.received(rank() == root ? 0 : bytes_of(tensor));
  }

  void barrier(std::string_view tag) override {
    announce("barrier", tag);
    metering_.time([&] { inner_->barrier(tag); });
    if (trace_.enabled()) {
      CollectiveRecord record;
      record.op = "barrier";
      record.group = "data";
      record.tag = tag;
      trace_.collective(record);
    }
  }

  std::unique_ptr<GradientReducer> reduce_gradients(const std::vector<at::Tensor>& parameters,
                                                    const std::vector<std::string>& names,
                                                    const ReducerOptions& options) override {
    return std::make_unique<LedgerReducer>(inner_->reduce_gradients(parameters, names, options), trace_,
                                           beat_, parameters, metering_);
  }

 private:
  void announce(const char* op, std::string_view tag) { beat_(std::string(op) + " " + std::string(tag)); }

  template <typename Run>
  void in_place(const char* op, const char* reduction, int root, const at::Tensor& tensor,
                std::string_view tag, Run run) {
    announce(op, tag);
    if (!trace_.enabled()) {
      metering_.time(run);
      return;
    }
    CollectiveRecord record = describe(op, reduction, tag, tensor);
    record.root = root;
    record.hash_in = tensor_stats(view_of(tensor)).hash;
    metering_.time(run);
    record.hash_out = tensor_stats(view_of(tensor)).hash;
    trace_.collective(record);
  }

  std::unique_ptr<Comm> inner_;
  TraceWriter& trace_;
  Beat beat_;
  const Metering metering_;
};

}  // namespace

std::unique_ptr<Comm> make_ledger_comm(std::unique_ptr<Comm> inner, TraceWriter& trace, Beat beat,
                                       CommunicationMeter* meter) {
  return std::make_unique<LedgerComm>(std::move(inner), trace, std::move(beat), meter);
}

}  // namespace lockstep
