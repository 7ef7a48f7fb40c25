#include "harness/trainers/comm/emulated.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <sys/stat.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <unordered_map>

#include "harness/base/machine.h"
#include "harness/trainers/comm/gloo.h"

namespace lockstep {
namespace {

void call_all(at::ScalarType dtype) {
  const at::Tensor x = at::full({2, 8, 8}, 0.5, at::kFloat).to(dtype);
  at::bmm(x, x);
  at::linear(x, x[0], x[0][0]);
  at::mv(x[0], x[0][0]);
  at::dot(x[0][0], x[0][0]);
  for (const auto& function :
       {&at::log, &at::log1p, &at::exp, &at::tanh, &at::sqrt, &at::silu, &at::log_sigmoid}) {
    function(x);
  }
  at::softmax(x, 1);
  at::logsumexp(x, 1);
  at::linalg_vector_norm(x);
}

/// Calls once, from this thread, the functions of MKL that models and losses call, so that its kernels are
/// chosen before threads share them (8 ms). To be called before a process starts threads that compute; a
/// second call does nothing.
///
/// MKL's vector mathematics (log, exp, tanh, sqrt, ...; mkl_vml_serv_cpu_detect in the MKL of LibTorch 2.13)
/// stores the processor's type as it was detected, and a few instructions later that type's row in its table
/// of kernels. A thread that calls between the two takes another kernel for that one call: on a processor
/// with AVX2 one whose last place differs, on one with AVX-512 one that is good to 4 digits. Two threads
/// whose first calls meet did so 58 times in 2 million.
void make_first_calls() {
  static std::once_flag once;
  std::call_once(once, [] {
    const c10::NoGradGuard no_grad;
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      call_all(dtype);
    }
  });
}

using Future = c10::ivalue::Future;

/// What one rank brings to a collective.
struct Contribution {
  std::vector<at::Tensor> inputs;   ///< all_reduce, broadcast: in place; all_gather: one
  std::vector<at::Tensor> outputs;  ///< all_gather: V
  c10::intrusive_ptr<Future> done;
};

/// The n-th collective of a group, until all ranks have come.
struct Meeting {
  std::string what;  ///< operation, type, elements and root: must agree
  int arrived = 0;
  std::vector<Contribution> ranks;
};

class EmulatedWork : public c10d::Work {
 public:
  EmulatedWork(int rank, c10d::OpType op, c10::intrusive_ptr<Future> done, std::vector<at::Tensor> outputs)
      : Work(rank, op), done_(std::move(done)), outputs_(std::move(outputs)) {}
  bool isCompleted() override { return done_->completed(); }
  bool isSuccess() const override { return done_->completed() && !done_->hasError(); }
  bool wait(std::chrono::milliseconds) override {
    // The other ranks live in this process: one that throws aborts the world, one that stalls is the
    // launcher's to end.
    done_->waitAndThrow();
    return true;
  }
  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<Future> getFuture() override { return done_; }

 private:
  c10::intrusive_ptr<Future> done_;
  std::vector<at::Tensor> outputs_;
};

template <typename T>
void sum_into_all(std::vector<Contribution>& ranks) {
  const std::size_t elements = static_cast<std::size_t>(ranks.front().inputs.front().numel());
  std::vector<const T*> inputs;
  for (const Contribution& rank : ranks) {
    inputs.push_back(rank.inputs.front().const_data_ptr<T>());
  }
  std::vector<T> sum(elements);
  ring_sum(inputs, elements, sum.data());
  for (Contribution& rank : ranks) {
    std::copy(sum.begin(), sum.end(), rank.inputs.front().mutable_data_ptr<T>());
  }
}

void all_reduce(std::vector<Contribution>& ranks) {
  switch (ranks.front().inputs.front().scalar_type()) {
    case at::kFloat:
      return sum_into_all<float>(ranks);
    case at::kDouble:
      return sum_into_all<double>(ranks);
    case at::kLong:
      return sum_into_all<int64_t>(ranks);
    case at::kInt:  // the Reducer's map of used parameters
      return sum_into_all<int32_t>(ranks);
    default:
      throw std::invalid_argument("emulated all_reduce: only float32, float64, int64 and int32 are known");
  }
}

/// Without a dispatch where that is a copy of bytes: of V ranks there are V * V small ones.
void copy(const at::Tensor& from, at::Tensor& to) {
  if (from.is_contiguous() && to.is_contiguous() && from.scalar_type() == to.scalar_type() && from.numel() == to.numel()) {
    std::copy_n(static_cast<const char*>(from.const_data_ptr()), from.nbytes(), static_cast<char*>(to.mutable_data_ptr()));
  } else {
    to.copy_(from);
  }
}

void all_gather(std::vector<Contribution>& ranks) {
  for (Contribution& receiver : ranks) {
    for (std::size_t r = 0; r < ranks.size(); ++r) copy(ranks[r].inputs.front(), receiver.outputs[r]);
  }
}

/// The meetings of one group of ranks.
class Group {
 public:
  explicit Group(int world_size) : next_(static_cast<std::size_t>(world_size), 0) {}

  c10::intrusive_ptr<Future> join(int rank, std::string what, std::vector<at::Tensor> inputs,
                                  std::vector<at::Tensor> outputs,
                                  const std::function<void(std::vector<Contribution>&)>& run) {
    auto done = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
    Meeting full;
    {
      const std::lock_guard lock(mutex_);
      if (!aborted_.empty()) {
        throw std::runtime_error(aborted_);
      }
      const int64_t number = next_[static_cast<std::size_t>(rank)]++;
      while (first_ + static_cast<int64_t>(meetings_.size()) <= number) {
        meetings_.push_back({});
        meetings_.back().ranks.resize(next_.size());
      }
      Meeting& meeting = meetings_[static_cast<std::size_t>(number - first_)];
      if (meeting.arrived == 0) {
        meeting.what = what;
      } else if (meeting.what != what) {
        const std::string reason =
            "rank " + std::to_string(rank) + " calls " + what + " where others call " + meeting.what;
        abort_locked(reason);
        throw std::runtime_error(reason);
      }
      meeting.ranks[static_cast<std::size_t>(rank)] = {std::move(inputs), std::move(outputs), done};
      if (++meeting.arrived < static_cast<int>(next_.size())) {
        return done;
      }
      // Everyone has come; collectives complete in order, so this is the front one.
      full = std::move(meeting);
      meetings_.pop_front();
      ++first_;
    }
    c10::NoGradGuard no_grad;
    try {
      run(full.ranks);
    } catch (...) {
      for (Contribution& contribution : full.ranks) {
        contribution.done->setError(std::current_exception());  // else they would wait for ever
      }
      throw;
    }
    for (Contribution& contribution : full.ranks) {
      contribution.done->markCompleted(
          c10::IValue(contribution.outputs.empty() ? contribution.inputs : contribution.outputs));
    }
    return done;
  }

  void abort(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    abort_locked(reason);
  }

 private:
  void abort_locked(const std::string& reason) {
    if (!aborted_.empty()) {
      return;
    }
    aborted_ = reason;
    for (Meeting& meeting : meetings_) {
      for (Contribution& contribution : meeting.ranks) {
        if (contribution.done) {
          contribution.done->setError(std::make_exception_ptr(std::runtime_error(reason)));
        }
      }
    }
    meetings_.clear();
  }

  std::mutex mutex_;
  std::vector<int64_t> next_;  // number of the next collective of each rank
  int64_t first_ = 0;          // number of the first meeting in the queue
  std::deque<Meeting> meetings_;
  std::string aborted_;
};

class EmulatedBackend : public c10d::Backend {
 public:
  EmulatedBackend(Group& group, int rank, int size) : Backend(rank, size), group_(group) {}

  const std::string getBackendName() const override { return "emulated"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    TORCH_CHECK(tensors.size() == 1 && options.reduceOp == c10d::ReduceOp::SUM,
                "emulated all_reduce sums one tensor");
    return join("all_reduce", c10d::OpType::ALLREDUCE, tensors.front(), {}, &all_reduce);
  }

  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions&) override {
    TORCH_CHECK(inputs.size() == 1 && outputs.size() == 1, "emulated all_gather takes one tensor");
    return join("all_gather", c10d::OpType::ALLGATHER, inputs.front(), outputs.front(), &all_gather);
  }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    TORCH_CHECK(tensors.size() == 1, "emulated broadcast takes one tensor");
    const auto root = static_cast<std::size_t>(options.rootRank);
    return join("broadcast from " + std::to_string(root), c10d::OpType::BROADCAST, tensors.front(), {},
                [root](std::vector<Contribution>& ranks) {
                  for (std::size_t r = 0; r < ranks.size(); ++r) {
                    if (r != root) {
                      ranks[r].inputs.front().copy_(ranks[root].inputs.front());
                    }
                  }
                });
  }

 private:
  c10::intrusive_ptr<c10d::Work> join(const std::string& operation, c10d::OpType op, const at::Tensor& tensor,
                                      const std::vector<at::Tensor>& outputs,
                                      const std::function<void(std::vector<Contribution>&)>& run) {
    const std::string what =
        operation + " of " + std::to_string(tensor.numel()) + " " + c10::toString(tensor.scalar_type());
    std::vector<at::Tensor> result = outputs.empty() ? std::vector<at::Tensor>{tensor} : outputs;
    auto done = group_.join(getRank(), what, {tensor}, outputs, run);
    // Waited for here: the Reducer would wait where nobody can take its rank's turn.
    if (!done->completed()) {
      const Turns::GivenUp waits;
      done->wait();
    }
    return c10::make_intrusive<EmulatedWork>(getRank(), op, std::move(done), std::move(result));
  }

  Group& group_;
};

}  // namespace

struct EmulatedWorld::Impl {
  Impl(int size, double timeout) : world_size(size), timeout_s(timeout), data(size), gradients(size) {}

  c10::intrusive_ptr<c10d::ProcessGroup> group(Group& meetings, const char* name, int rank) {
    auto group =
        c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), rank, world_size);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                      c10::make_intrusive<EmulatedBackend>(meetings, rank, world_size));
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
    group->setGroupName(name);
    return group;
  }

  int world_size;
  double timeout_s;
  Group data, gradients;
};

EmulatedWorld::EmulatedWorld(int world_size, double timeout_s)
    : impl_(std::make_unique<Impl>(world_size, timeout_s)) {
  make_first_calls();
}
EmulatedWorld::~EmulatedWorld() = default;

std::unique_ptr<Comm> EmulatedWorld::comm(int rank) {
  ProcessGroups groups;
  groups.timeout = std::chrono::milliseconds(static_cast<int64_t>(impl_->timeout_s * 1000));
  groups.data = impl_->group(impl_->data, "data", rank);
  groups.gradients = impl_->group(impl_->gradients, "gradients", rank);
  return make_process_group_comm(std::move(groups));
}

void EmulatedWorld::abort(const std::string& reason) {
  impl_->data.abort(reason);
  impl_->gradients.abort(reason);
}

namespace {

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

template <typename T>
void ring_sum(const std::vector<const T*>& inputs, std::size_t elements, T* output) {
  constexpr std::size_t kLargestSegment = 1024 * 1024;
  const std::size_t ranks = inputs.size();
  const std::size_t bytes = elements * sizeof(T);
  const std::size_t segments =
      round_up(std::max((bytes + kLargestSegment - 1) / kLargestSegment, 2 * ranks), ranks);
  const std::size_t segment_bytes = round_up((bytes + segments - 1) / segments, sizeof(T));
  const std::size_t chunk_elements = segments / ranks * segment_bytes / sizeof(T);
  for (std::size_t chunk = 0; chunk < ranks; ++chunk) {
    const std::size_t begin = std::min(elements, chunk * chunk_elements);
    const std::size_t end = std::min(elements, begin + chunk_elements);
    const T* last = inputs[(chunk + ranks - 1) % ranks];
    std::copy(last + begin, last + end, output + begin);
    for (std::size_t back = 2; back <= ranks; ++back) {
      const T* next = inputs[(chunk + ranks - back) % ranks];
      for (std::size_t i = begin; i < end; ++i) {
        output[i] = next[i] + output[i];
      }
    }
  }
}

template void ring_sum(const std::vector<const float*>&, std::size_t, float*);
template void ring_sum(const std::vector<const double*>&, std::size_t, double*);
template void ring_sum(const std::vector<const int64_t*>&, std::size_t, int64_t*);
template void ring_sum(const std::vector<const int32_t*>&, std::size_t, int32_t*);

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

namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

double wall_clock_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// A line a fact: its name, a tabulator, its value.
std::vector<uint8_t> bytes_of(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += name + "\t" + value + "\n";
  return {text.begin(), text.end()};
}

Facts facts_in(const std::vector<uint8_t>& bytes) {
  Facts facts;
  std::istringstream lines(std::string(bytes.begin(), bytes.end()));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t tab = line.find('\t');
    facts.emplace_back(line.substr(0, tab), line.substr(tab + 1));
  }
  return facts;
}

/// "0.5", "2": without the zeros of std::to_string.
std::string in_short(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

std::string key_of(int rank) { return "preflight/" + std::to_string(rank); }

/// The value that most ranks have; of equally many that of the lowest rank.
std::string most_common(const std::vector<std::string>& values) {
  std::string best = values.front();
  for (const std::string& value : values) {
    if (std::ranges::count(values, value) > std::ranges::count(values, best)) best = value;
  }
  return best;
}

class Preflight {
 public:
  Preflight(const GlooOptions& options, const PreflightOptions& check)
      : options_(options), check_(check), path_(preflight_path(options)) {
    store_ = c10::make_intrusive<c10d::FileStore>(path_, -1);
    store_->setTimeout(std::chrono::milliseconds(static_cast<int64_t>(check.wait_s * 1000)));
  }

  void answer(const Identity& identity) {
    Facts facts = identity.facts;
    facts.insert(facts.begin(), {"world size", std::to_string(options_.world_size)});
    const int64_t times = store_->add("preflight/count/" + std::to_string(options_.rank), 1);
    facts.emplace_back("clock", std::to_string((identity.clock ? identity.clock() : wall_clock_s()) - written_s()));
    if (times > 1) {
      const std::string problem = "rank " + std::to_string(options_.rank) + " joined twice";
      store_->set("preflight/problem", std::vector<uint8_t>(problem.begin(), problem.end()));
      throw std::runtime_error("preflight check: " + problem);
    }
    store_->set(key_of(options_.rank), bytes_of(facts));
  }

  void compare() {
    std::vector<Facts> all;
    for (int rank = 0; rank < options_.world_size; ++rank) all.push_back(facts_of(rank));
    for (std::size_t fact = 0; fact < all.front().size(); ++fact) {
      std::vector<std::string> values;
      for (const Facts& facts : all) values.push_back(fact < facts.size() ? facts[fact].second : "");
      const std::string& name = all.front()[fact].first;
      name == "clock" ? compare_clocks(values) : compare_values(name, values);
    }
  }

 private:
  /// When the store's file was written last, by the clock of who holds the file.
  double written_s() const {
    struct stat status {};
    if (::stat(path_.c_str(), &status) != 0) return wall_clock_s();
    return static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
  }

  /// Looks for word of a rank that joined twice while it waits: the one that should have come in its place never will.
  Facts facts_of(int rank) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(check_.wait_s);
    while (!store_->check({key_of(rank)})) {
      if (store_->check({"preflight/problem"})) {
        const std::vector<uint8_t> problem = store_->get("preflight/problem");
        throw std::runtime_error("preflight check: " + std::string(problem.begin(), problem.end()));
      }
      refuse_other_world(rank);
      if (std::chrono::steady_clock::now() > until)
        throw std::runtime_error("preflight check: rank " + std::to_string(rank) + " did not join within " + in_short(check_.wait_s) + " s");
      try {
        store_->wait({key_of(rank)}, std::chrono::milliseconds(20));
      } catch (const std::exception&) {
        continue;  // not there yet
      }
    }
    return facts_in(store_->get(key_of(rank)));
  }

  /// Names a rank that has come and counts other ranks than most do: `missing` may be one that only it waits for.
  void refuse_other_world(int missing) {
    std::map<std::string, std::vector<int>> worlds;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      if (rank == missing || !store_->check({key_of(rank)})) continue;
      worlds[facts_in(store_->get(key_of(rank))).front().second].push_back(rank);
    }
    if (worlds.size() < 2) return;
    const auto size = [](const auto& world) { return world.second.size(); };
    const auto fewest = std::ranges::min_element(worlds, {}, size), most = std::ranges::max_element(worlds, {}, size);
    if (size(*fewest) < size(*most)) refuse(fewest->second.front(), "world size", fewest->first, most->first);
  }

  [[noreturn]] void refuse(int rank, const std::string& name, const std::string& value, const std::string& expected) const {
    throw std::runtime_error("preflight check: rank " + std::to_string(rank) + " has " + name + " " + value + " where most have " + expected);
  }

  void compare_values(const std::string& name, const std::vector<std::string>& values) const {
    const std::string expected = most_common(values);
    for (std::size_t rank = 0; rank < values.size(); ++rank) {
      if (values[rank] != expected) refuse(static_cast<int>(rank), name, values[rank], expected);
    }
  }

  /// Each says how far its clock is from the one by which the file was written.
  void compare_clocks(const std::vector<std::string>& values) const {
    std::vector<double> offsets;
    for (const std::string& value : values) offsets.push_back(std::stod(value));
    std::vector<double> sorted = offsets;
    std::ranges::sort(sorted);
    const double middle = sorted[sorted.size() / 2];
    for (std::size_t rank = 0; rank < offsets.size(); ++rank) {
      if (std::abs(offsets[rank] - middle) <= check_.most_skew_s) continue;
      throw std::runtime_error("preflight check: rank " + std::to_string(rank) + " has a clock that is " +
                               in_short(offsets[rank] - middle) + " s from the others'");
    }
  }

  const GlooOptions& options_;
  const PreflightOptions& check_;
  const std::string path_;
  c10::intrusive_ptr<c10d::FileStore> store_;
};

}  // namespace

std::string preflight_path(const GlooOptions& options) { return options.store_path + "-preflight"; }

void run_preflight_check(const GlooOptions& options, const Identity& identity, const PreflightOptions& check) {
  Preflight preflight(options, check);
  preflight.answer(identity);
  preflight.compare();
}

}  // namespace lockstep
