#include "harness/trainers/comm/ledger.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

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

flight::Entry entry_of(const char* op, std::string_view tag, const at::Tensor& tensor, int root = -1) {
  flight::Entry entry;
  entry.group = "data";
  entry.op = op;
  entry.tag = tag;
  entry.dtype = c10::toString(tensor.scalar_type());
  entry.root = root;
  entry.shape = tensor.sizes().vec();
  return entry;
}

/// Adds what a collective costs to a meter, and tells a watch of it, as far as there are any.
class Metering {
 public:
  Metering(CommunicationMeter* meter, int world_size, CollectiveWatch* watch)
      : meter_(meter), world_size_(world_size), watch_(watch) {}

  void enter(const flight::Entry& what) const {
    if (watch_ != nullptr) watch_->enter(what);
  }
  void leave() const {
    if (watch_ != nullptr) watch_->leave();
  }
  bool watched() const { return watch_ != nullptr; }

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
  CollectiveWatch* watch_;
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

  void on_wait(std::function<void()> on_last, std::function<void()> on_end) {
    state_->on_last = std::move(on_last);
    state_->on_end = std::move(on_end);
  }
  /// The next backward pass is reduced.
  void expect() {
    state_->there = 0;
    state_->expected = true;
  }
  flight::Entry entry() const {
    flight::Entry entry;
    entry.group = "gradients";
    entry.op = "reduce_gradients";
    entry.shape = {static_cast<int64_t>(state_->bytes)};
    entry.dtype = "bytes";
    return entry;
  }

 private:
  struct State {
    Metering metering;
    std::size_t parameters = 0;
    double bytes = 0;
    std::size_t there = 0;  ///< gradients of the open pass
    bool expected = false;
    std::function<void()> on_last = {}, on_end = {};  ///< the last gradient is there, all reductions have ended; or none
  };

  static void gradient_is_there(const std::shared_ptr<State>& state) {
    if (!state->expected || ++state->there < state->parameters) {
      return;
    }
    state->expected = false;
    const auto last = std::chrono::steady_clock::now();
    if (state->on_last) state->on_last();
    torch::autograd::Engine::get_default_engine().queue_callback([state, last] {
      if (state->on_end) state->on_end();
      state->metering.waited(std::chrono::duration<double>(std::chrono::steady_clock::now() - last).count());
      state->metering.summed(state->bytes);
    });
  }

  const std::shared_ptr<State> state_;                                   ///< hooks may outlive this object
  std::vector<c10::intrusive_ptr<torch::autograd::Node>> accumulators_;  ///< that nothing else may keep alive
};

class LedgerReducer : public GradientReducer {
 public:
  LedgerReducer(std::unique_ptr<GradientReducer> inner, TraceWriter& trace, OperationHeartbeat heartbeat,
                const std::vector<at::Tensor>& parameters, const Metering& metering, const ReducerOptions& options)
      : inner_(std::move(inner)),
        trace_(trace),
        heartbeat_(std::move(heartbeat)),
        metering_(metering),
        finds_unused_(options.find_unused_parameters),
        recorded_as_(options.scatters ? "reduce_scatter" : "reduce_gradients"),
        wait_(parameters, metering) {
    // A parameter without a gradient never tells that it is the last one: then the whole pass counts as the wait.
    if (!finds_unused_ && metering_.watched())
      wait_.on_wait([this] { metering_.enter(wait_.entry()); }, [this] { metering_.leave(); });
  }

  ~LedgerReducer() override { wait_.on_wait(nullptr, nullptr); }  // its hooks may outlive it

  void before_forward() override { inner_->before_forward(); }
  void before_backward(const std::vector<at::Tensor>& outputs) override {
    const bool all = finds_unused_ || !metering_.watched();
    heartbeat_(all ? "reduce_gradients" : "backward");
    if (finds_unused_) metering_.enter(wait_.entry());
    reduces_ = true;
    wait_.expect();
    inner_->before_backward(outputs);
  }
  std::vector<GradientBucket> buckets() const override { return inner_->buckets(); }

  void after_backward(std::span<const uint64_t> local_hashes,
                      std::span<const uint64_t> reduced_hashes) override {
    inner_->after_backward(local_hashes, reduced_hashes);
    if (finds_unused_ && reduces_) metering_.leave();
    if (!std::exchange(reduces_, false) || !trace_.enabled() || local_hashes.empty()) {
      return;  // A backward pass that went past the reducer has reduced nothing.
    }
    // A bucket's content is its parameters' gradients: their fingerprints, taken anyway, add up to the
    // bucket's.
    int number = 0;
    for (const GradientBucket& bucket : inner_->buckets()) {
      CollectiveRecord record;
      record.op = recorded_as_;
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
  OperationHeartbeat heartbeat_;
  const Metering metering_;
  const bool finds_unused_;
  const char* const recorded_as_;
  ReductionWait wait_;
  bool reduces_ = false;
};

class LedgerComm : public Comm {
 public:
  LedgerComm(std::unique_ptr<Comm> inner, TraceWriter& trace, OperationHeartbeat heartbeat, CommunicationMeter* meter, CollectiveWatch* watch)
      : inner_(std::move(inner)),
        trace_(trace),
        heartbeat_(std::move(heartbeat)),
        metering_(meter, inner_->world_size(), watch) {}

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
    metering_.enter(entry_of("all_gather", tag, tensor));
    metering_.time([&] { gathered = inner_->all_gather(tensor, tag); });
    metering_.leave();
    metering_.gathered(bytes_of(tensor));
    if (trace_.enabled()) {
      CollectiveRecord record = describe("all_gather", "", tag, tensor);
      record.hash_in = tensor_hash(view_of(tensor));
      record.hash_out = tensor_hash(view_of(gathered));
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
    flight::Entry entry;
    entry.group = "data";
    entry.op = "barrier";
    entry.tag = tag;
    metering_.enter(entry);
    metering_.time([&] { inner_->barrier(tag); });
    metering_.leave();
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
                                           heartbeat_, parameters, metering_, options);
  }

 private:
  /// A watch reports by itself.
  void announce(const char* op, std::string_view tag) {
    if (!metering_.watched()) heartbeat_(std::string(op) + " " + std::string(tag));
  }

  template <typename Run>
  void in_place(const char* op, const char* reduction, int root, const at::Tensor& tensor,
                std::string_view tag, Run run) {
    announce(op, tag);
    if (!trace_.enabled()) {
      metering_.enter(entry_of(op, tag, tensor, root));
      metering_.time(run);
      metering_.leave();
      return;
    }
    CollectiveRecord record = describe(op, reduction, tag, tensor);
    record.root = root;
    record.hash_in = tensor_hash(view_of(tensor));
    metering_.enter(entry_of(op, tag, tensor, root));
    metering_.time(run);
    metering_.leave();
    record.hash_out = tensor_hash(view_of(tensor));
    trace_.collective(record);
  }

  std::unique_ptr<Comm> inner_;
  TraceWriter& trace_;
  OperationHeartbeat heartbeat_;
  const Metering metering_;
};

}  // namespace

std::unique_ptr<Comm> make_ledger_comm(std::unique_ptr<Comm> inner, TraceWriter& trace, OperationHeartbeat heartbeat,
                                       CommunicationMeter* meter, CollectiveWatch* watch) {
  return std::make_unique<LedgerComm>(std::move(inner), trace, std::move(heartbeat), meter, watch);
}

DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::float32;
    case at::kDouble:
      return DType::float64;
    case at::kLong:
      return DType::int64;
    case at::kHalf:
      return DType::float16;
    case at::kInt:
      return DType::int32;
    case at::kBFloat16:
      return DType::bfloat16;
    case at::kBool:
    case at::kByte:
      return DType::boolean;
    default:
      throw std::invalid_argument(std::string("traces do not know the type ") +
                                  c10::toString(tensor.scalar_type()));
  }
}

TensorView view_of(const at::Tensor& tensor, std::span<const int64_t> row_positions) {
  if (!tensor.is_contiguous()) {
    throw std::invalid_argument("only contiguous tensors can be traced");
  }
  return {tensor.const_data_ptr(),
          dtype_of(tensor),
          {tensor.sizes().data(), tensor.sizes().size()},
          row_positions};
}

}  // namespace lockstep
