#include "harness/trainers/comm/emulated.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <deque>
#include <functional>
#include <mutex>

#include "harness/base/turns.h"
#include "harness/trainers/comm/process_groups.h"
#include "harness/trainers/comm/ring_order.h"

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

}  // namespace lockstep
