#include "harness/trainers/comm/ledger.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "harness/trainers/comm/comm.h"

namespace lockstep {
namespace {

CollectiveRecord record_of(const CollectiveCall& call) {
  CollectiveRecord record;
  record.op = call.op;
  record.reduction = call.reduction;
  record.group = "data";
  record.tag = call.tag;
  record.root = call.root;
  if (!call.tensor.defined()) return record;
  record.dtype = dtype_of(call.tensor);
  record.shape = call.tensor.sizes().vec();
  record.hash_in = tensor_hash(view_of(call.tensor));
  return record;
}

flight::Entry entry_of(const CollectiveCall& call) {
  flight::Entry entry;
  entry.group = "data";
  entry.op = call.op;
  entry.tag = call.tag;
  entry.root = call.root;
  if (!call.tensor.defined()) return entry;
  entry.dtype = c10::toString(call.tensor.scalar_type());
  entry.shape = call.tensor.sizes().vec();
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

class LedgerComm : public CommAround {
 public:
  LedgerComm(std::unique_ptr<Comm> inner, TraceWriter& trace, OperationHeartbeat heartbeat, CommunicationMeter* meter, CollectiveWatch* watch)
      : CommAround(std::move(inner)),
        trace_(trace),
        heartbeat_(std::move(heartbeat)),
        metering_(meter, world_size(), watch) {}

  std::unique_ptr<GradientReducer> reduce_gradients(const std::vector<at::Tensor>& parameters,
                                                    const std::vector<std::string>& names,
                                                    const ReducerOptions& options) override {
    return std::make_unique<LedgerReducer>(inner_->reduce_gradients(parameters, names, options), trace_,
                                           heartbeat_, parameters, metering_, options);
  }

 private:
  at::Tensor around(const CollectiveCall& call, const Run& run) override {
    // A watch reports by itself.
    if (!metering_.watched()) heartbeat_(std::string(call.op) + " " + std::string(call.tag));
    CollectiveRecord record;
    if (trace_.enabled()) record = record_of(call);
    metering_.enter(entry_of(call));
    at::Tensor out;
    metering_.time([&] { out = run(); });
    metering_.leave();
    if (trace_.enabled() && out.defined()) record.hash_out = tensor_hash(view_of(out));
    if (trace_.enabled()) trace_.collective(record);
    if (!out.defined()) return out;
    if (call.reduction == "sum") {
      metering_.summed(bytes_of(call.tensor));
    } else if (call.root < 0) {
      metering_.gathered(bytes_of(call.tensor));
    } else {
      metering_.received(rank() == call.root ? 0 : bytes_of(call.tensor));
    }
    return out;
  }

  TraceWriter& trace_;
  OperationHeartbeat heartbeat_;
  const Metering metering_;
};

}  // namespace

void CommAround::all_reduce_sum(at::Tensor tensor, std::string_view tag) {
  around({"all_reduce", "sum", tag, tensor}, [&] {
    inner_->all_reduce_sum(tensor, tag);
    return tensor;
  });
}

void CommAround::all_reduce_max(at::Tensor tensor, std::string_view tag) {
  around({"all_reduce", "max", tag, tensor}, [&] {
    inner_->all_reduce_max(tensor, tag);
    return tensor;
  });
}

at::Tensor CommAround::all_gather(const at::Tensor& tensor, std::string_view tag) {
  return around({"all_gather", "", tag, tensor}, [&] { return inner_->all_gather(tensor, tag); });
}

void CommAround::broadcast(at::Tensor tensor, int root, std::string_view tag) {
  around({"broadcast", "", tag, tensor, root}, [&] {
    inner_->broadcast(tensor, root, tag);
    return tensor;
  });
}

void CommAround::barrier(std::string_view tag) {
  around({"barrier", "", tag}, [&] {
    inner_->barrier(tag);
    return at::Tensor();
  });
}

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

namespace {

constexpr std::size_t kMostDimensions = 8;

/// What a rank is about to call. All bytes count, so that none may be left to chance.
struct Header {
  std::array<char, 24> op;
  std::array<char, 8> reduction;
  std::array<char, 16> dtype;
  std::array<char, 112> tag;
  std::array<int64_t, kMostDimensions> shape;
  int64_t step, sequence;
  int32_t root, dimensions;
  std::array<char, 8> unused;
};
static_assert(sizeof(Header) == 256);

template <std::size_t N>
void put(std::array<char, N>& place, std::string_view text) {
  std::copy_n(text.data(), std::min(text.size(), N - 1), place.data());
}

std::string in_words(const Header& header) {
  const std::string reduction(header.reduction.data());
  std::string text = header.op.data() + (reduction.empty() ? "" : " " + reduction) + " " + header.tag.data();
  if (header.dtype[0] != '\0')
    text += c10::str(" of ", header.dtype.data(), " ", at::IntArrayRef(header.shape.data(), static_cast<std::size_t>(header.dimensions)));
  if (header.root >= 0) text += c10::str(" from rank ", header.root);
  return text + c10::str(" (number ", header.sequence, ", step ", header.step, ")");
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

class CheckedReducer : public GradientReducer {
 public:
  CheckedReducer(std::unique_ptr<GradientReducer> inner, std::function<void()> check)
      : inner_(std::move(inner)), check_(std::move(check)) {}
  void before_forward() override { inner_->before_forward(); }
  void before_backward(const std::vector<at::Tensor>& outputs) override {
    check_();
    inner_->before_backward(outputs);
  }
  std::vector<GradientBucket> buckets() const override { return inner_->buckets(); }
  void after_backward(std::span<const uint64_t> local_hashes, std::span<const uint64_t> reduced_hashes) override {
    inner_->after_backward(local_hashes, reduced_hashes);
  }

 private:
  std::unique_ptr<GradientReducer> inner_;
  std::function<void()> check_;
};

class CheckedComm : public CommAround {
 public:
  CheckedComm(std::unique_ptr<Comm> inner, std::function<int64_t()> step)
      : CommAround(std::move(inner)), step_(std::move(step)) {}

  std::unique_ptr<GradientReducer> reduce_gradients(const std::vector<at::Tensor>& parameters,
                                                    const std::vector<std::string>& names,
                                                    const ReducerOptions& options) override {
    int64_t elements = 0;
    for (const at::Tensor& parameter : parameters) elements += parameter.numel();
    const auto check_pass = [this, elements, count = parameters.size()] {
      const std::string tag = c10::str(count, " parameters");
      Header mine = header({"reduce_gradients", "mean", tag});
      mine.shape[0] = elements;
      mine.dimensions = 1;
      check(mine);
    };
    return std::make_unique<CheckedReducer>(inner_->reduce_gradients(parameters, names, options), check_pass);
  }

 private:
  at::Tensor around(const CollectiveCall& call, const Run& run) override {
    check(header(call));
    return run();
  }

  Header header(const CollectiveCall& call) {
    Header made{};
    put(made.op, call.op);
    put(made.reduction, call.reduction);
    put(made.tag, call.tag);
    made.root = call.root;
    made.step = step_();
    made.sequence = ++sequence_;
    if (!call.tensor.defined()) return made;
    put(made.dtype, c10::toString(call.tensor.scalar_type()));
    made.dimensions = static_cast<int32_t>(std::min<int64_t>(call.tensor.dim(), kMostDimensions));
    std::copy_n(call.tensor.sizes().begin(), made.dimensions, made.shape.begin());
    return made;
  }

  void check(const Header& mine) {
    at::Tensor bytes = at::empty({static_cast<int64_t>(sizeof(Header))}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), &mine, sizeof(Header));
    const at::Tensor all = inner_->all_gather(bytes, "check");
    std::map<std::string, std::vector<int>> calls;  // by their bytes
    for (int rank = 0; rank < world_size(); ++rank) {
      const char* const begin = static_cast<const char*>(all.const_data_ptr()) + static_cast<std::size_t>(rank) * sizeof(Header);
      calls[std::string(begin, sizeof(Header))].push_back(rank);
    }
    if (calls.size() > 1) refuse(calls);
  }

  [[noreturn]] static void refuse(const std::map<std::string, std::vector<int>>& calls) {
    const auto most = std::max_element(calls.begin(), calls.end(), [](const auto& a, const auto& b) {
      return a.second.size() != b.second.size() ? a.second.size() < b.second.size() : a.second.front() > b.second.front();
    });
    const auto words = [](const std::string& bytes) {
      Header header{};
      std::memcpy(&header, bytes.data(), sizeof(Header));
      return in_words(header);
    };
    std::string text = "comm_check: ";
    for (auto call = calls.begin(); call != calls.end(); ++call) {
      if (call == most) continue;
      text += list_of(call->second) + (call->second.size() == 1 ? " calls " : " call ") + words(call->first) + "; ";
    }
    throw std::runtime_error(text + "but " + list_of(most->second) + (most->second.size() == 1 ? " calls " : " call ") +
                             words(most->first));
  }

  std::function<int64_t()> step_;
  int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<Comm> make_checked_comm(std::unique_ptr<Comm> inner, std::function<int64_t()> step) {
  return std::make_unique<CheckedComm>(std::move(inner), std::move(step));
}

// Header first, payload second: c10d accepts equal byte counts of different shape silently, and aborts on
// unequal ones.
namespace {

constexpr std::size_t kMaxTensors = 8;
constexpr int64_t kMaxDims = 6;
// rows, step, tag, number of tensors, then per tensor: type, dimensions beyond rows, their sizes.
constexpr int64_t kHeaderLength = 4 + static_cast<int64_t>(kMaxTensors) * (2 + kMaxDims);

int64_t tag_code(std::string_view tag) {
  uint64_t code = 1469598103934665603ULL;
  for (const char c : tag) {
    code = (code ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  return static_cast<int64_t>(code >> 1);
}

at::Tensor make_header(const std::vector<at::Tensor>& tensors, int64_t step, std::string_view tag) {
  at::Tensor header = at::zeros({kHeaderLength}, at::kLong);
  int64_t* h = header.mutable_data_ptr<int64_t>();
  h[0] = tensors.front().size(0);
  h[1] = step;
  h[2] = tag_code(tag);
  h[3] = static_cast<int64_t>(tensors.size());
  int64_t* at = h + 4;
  for (const at::Tensor& tensor : tensors) {
    at[0] = static_cast<int64_t>(tensor.scalar_type());
    at[1] = tensor.dim() - 1;
    std::copy(tensor.sizes().begin() + 1, tensor.sizes().end(), at + 2);
    at += 2 + kMaxDims;
  }
  return header;
}

std::string what_differs(const int64_t* mine, const int64_t* theirs) {
  if (mine[1] != theirs[1]) {
    return c10::str("is at step ", theirs[1], ", not ", mine[1]);
  }
  if (mine[2] != theirs[2]) {
    return "calls another collective";
  }
  if (mine[3] != theirs[3]) {
    return c10::str("sends ", theirs[3], " tensors, not ", mine[3]);
  }
  for (int64_t t = 0; t < mine[3]; ++t) {
    const int64_t* a = mine + 4 + t * (2 + kMaxDims);
    const int64_t* b = theirs + 4 + t * (2 + kMaxDims);
    if (a[0] != b[0]) {
      return c10::str("sends tensor ", t, " as ", static_cast<at::ScalarType>(b[0]), ", not ",
                      static_cast<at::ScalarType>(a[0]));
    }
    if (!std::equal(a + 1, a + 2 + kMaxDims, b + 1)) {
      return c10::str("sends tensor ", t, " with rows of shape ", at::IntArrayRef(b + 2, b[1]), ", not ",
                      at::IntArrayRef(a + 2, a[1]));
    }
  }
  return {};
}

}  // namespace

GatheredRows gather_rows(Comm& comm, const std::vector<at::Tensor>& tensors, int64_t step,
                         std::string_view tag) {
  if (tensors.empty() || tensors.size() > kMaxTensors) {
    throw std::invalid_argument(
        c10::str(tag, ": 1 to ", kMaxTensors, " tensors can be gathered, not ", tensors.size()));
  }
  const int64_t rows = tensors.front().size(0);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.dim() < 1 || tensor.dim() - 1 > kMaxDims || tensor.size(0) != rows) {
      throw std::invalid_argument(c10::str(tag, ": tensors to gather must share dimension 0"));
    }
  }
  const std::string name(tag);
  const at::Tensor headers = comm.all_gather(make_header(tensors, step, tag), name + ".header");
  const int64_t* mine = headers.const_data_ptr<int64_t>() + comm.rank() * kHeaderLength;
  GatheredRows gathered;
  int64_t most = 0;
  for (int r = 0; r < comm.world_size(); ++r) {
    const int64_t* theirs = headers.const_data_ptr<int64_t>() + r * kHeaderLength;
    if (const std::string difference = what_differs(mine, theirs); !difference.empty()) {
      throw std::runtime_error(
          c10::str(tag, ": rank ", r, " ", difference, " (seen from rank ", comm.rank(), ")"));
    }
    most = std::max(most, theirs[0]);
    gathered.total_rows += theirs[0];
  }
  gathered.offset = comm.rank() * most;
  gathered.valid = at::zeros({comm.world_size() * most}, at::kBool);
  for (int r = 0; r < comm.world_size(); ++r) {
    std::fill_n(gathered.valid.mutable_data_ptr<bool>() + r * most, headers.const_data_ptr<int64_t>()[r * kHeaderLength], true);
  }

  // One payload: each row's tensors side by side as bytes.
  std::vector<at::Tensor> bytes;
  for (const at::Tensor& tensor : tensors) {
    const int64_t row_elements =
        rows > 0 ? tensor.numel() / rows : c10::multiply_integers(tensor.sizes().slice(1));
    bytes.push_back(tensor.detach().contiguous().reshape({rows, row_elements}).view(at::kByte));
  }
  at::Tensor payload = at::cat(bytes, 1);
  if (rows < most) {
    payload = at::constant_pad_nd(payload, {0, 0, 0, most - rows});
  }
  const at::Tensor all =
      comm.all_gather(payload.contiguous(), name).reshape({comm.world_size() * most, payload.size(1)});
  int64_t column = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    std::vector<int64_t> shape = tensors[t].sizes().vec();
    shape[0] = comm.world_size() * most;
    gathered.columns.push_back(
        all.narrow(1, column, bytes[t].size(1)).contiguous().view(tensors[t].scalar_type()).reshape(shape));
    column += bytes[t].size(1);
  }
  return gathered;
}

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
