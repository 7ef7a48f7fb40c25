#include "harness/trainers/comm/gloo.h"

#include <ATen/ATen.h>
#include <sched.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stdexcept>

// The declarations in gloo_shim stand in for Gloo's headers, which the wheel does not carry. They were held
// against this version of ProcessGroupGloo.hpp; another one has to be looked at first.
static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 13,
              "harness/trainers/comm/gloo_shim was checked against LibTorch 2.13: compare ProcessGroupGloo.hpp, then "
              "widen this");

namespace lockstep {

namespace {

/// One for the process: rank 0's socket can be taken over once.
c10::intrusive_ptr<c10d::Store> tcp_store(const GlooOptions& options) {
  static const c10::intrusive_ptr<c10d::TCPStore> store = [&options] {
    c10d::TCPStoreOptions tcp;
    tcp.port = static_cast<uint16_t>(options.meet.port);
    tcp.isServer = options.rank == 0;
    tcp.waitWorkers = false;
    if (options.meet.listening >= 0) tcp.masterListenFd = options.meet.listening;
    tcp.timeout = std::chrono::milliseconds(static_cast<int64_t>(options.timeout_s * 1000));
    return c10::make_intrusive<c10d::TCPStore>(options.meet.host, tcp);
  }();
  return store;
}

/// While it lives, threads that this one starts do not take the processor from others when they wake. Gloo's loop thread finds its
/// pair locked while the rank's own thread sends, and polls until it is not: on few cores it must not stand in the sender's way.
/// Bits do not change; steps of 8 ranks on 2 cores take less than half as long. Where another policy was chosen it stays.
class StartsPatientThreads {
 public:
  StartsPatientThreads() : changes_(::sched_getscheduler(0) == SCHED_OTHER) { set(SCHED_BATCH); }
  ~StartsPatientThreads() { set(SCHED_OTHER); }
  StartsPatientThreads(const StartsPatientThreads&) = delete;
  StartsPatientThreads& operator=(const StartsPatientThreads&) = delete;

 private:
  void set(int policy) const {
    const sched_param none{};
    if (changes_) ::sched_setscheduler(0, policy, &none);
  }
  bool changes_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> make_store(const GlooOptions& options) {
  if (!options.meet.host.empty()) return c10::make_intrusive<c10d::PrefixStore>(options.store_path, tcp_store(options));
  auto store = c10::make_intrusive<c10d::FileStore>(options.store_path, options.world_size);
  store->setTimeout(std::chrono::milliseconds(static_cast<int64_t>(options.timeout_s * 1000)));
  return store;
}

c10::intrusive_ptr<c10d::ProcessGroup> make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const char* name, const GlooOptions& options) {
  const std::chrono::milliseconds timeout(static_cast<int64_t>(options.timeout_s * 1000));
  const StartsPatientThreads patient;
  auto prefixed = c10::make_intrusive<c10d::PrefixStore>(name, store);
  auto gloo_options = c10d::ProcessGroupGloo::Options::create(timeout);
  gloo_options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
  gloo_options->threads = 1;
  auto backend =
      c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed, options.rank, options.world_size, gloo_options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(prefixed, options.rank, options.world_size);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setGroupName(name);
  return group;
}

std::unique_ptr<Comm> make_gloo_comm(const GlooOptions& options) {
  const std::chrono::milliseconds timeout(static_cast<int64_t>(options.timeout_s * 1000));
  const auto store = make_store(options);
  ProcessGroups groups;
  groups.timeout = timeout;
  groups.by_root_bytes = int64_t{1} << 23;
  groups.data = make_gloo_group(store, "data", options);
  groups.gradients = make_gloo_group(store, "gradients", options);
  return make_process_group_comm(std::move(groups));
}

namespace {

using Clock = std::chrono::steady_clock;

/// Bytes of the first exchange: the length of the rank's text, and as much of the text as there is room for.
constexpr int64_t kHeadBytes = 512, kLengthBytes = sizeof(int64_t);
/// Of Gloo itself; how long we wait, the caller says.
constexpr std::chrono::hours kGlooTimeout{24 * 7};
constexpr std::chrono::milliseconds kLookEvery{50};

struct Completion {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

class GlooGroup final : public checkpoint::Group {
 public:
  GlooGroup(c10::intrusive_ptr<c10d::ProcessGroup> group, PeerSigns signs)
      : group_(std::move(group)), signs_(std::move(signs)), rank_(group_->getRank()), size_(group_->getSize()) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void progress() override { signs_.report(); }

  checkpoint::Gathered all_gather(const std::string& label, const std::string& mine, double deadline_s) override {
    if (!broken_.empty()) return {{}, broken_};
    signs_.report();
    const std::string text = label + '\n' + mine;
    const auto length = static_cast<int64_t>(text.size());
    at::Tensor head = at::zeros({kHeadBytes}, at::kByte);
    char* const bytes = static_cast<char*>(head.data_ptr());
    std::memcpy(bytes, &length, kLengthBytes);
    const auto first = static_cast<std::size_t>(std::min(length, kHeadBytes - kLengthBytes));
    std::memcpy(bytes + kLengthBytes, text.data(), first);
    const std::vector<at::Tensor> heads = exchange(head, label, deadline_s);
    if (heads.empty()) return {{}, broken_};
    int64_t longest = 0;
    for (const at::Tensor& each : heads) longest = std::max(longest, length_in(each));
    const int64_t rest = std::max<int64_t>(longest - (kHeadBytes - kLengthBytes), 0);
    std::vector<at::Tensor> tails;
    if (rest > 0) {
      at::Tensor tail = at::zeros({rest}, at::kByte);
      std::memcpy(tail.data_ptr(), text.data() + first, text.size() - first);
      tails = exchange(tail, label, deadline_s);
      if (tails.empty()) return {{}, broken_};
    }
    return gathered(label, heads, tails);
  }

 private:
  static int64_t length_in(const at::Tensor& head) {
    int64_t length = 0;
    std::memcpy(&length, head.const_data_ptr(), kLengthBytes);
    return length;
  }

  checkpoint::Gathered gathered(const std::string& label, const std::vector<at::Tensor>& heads,
                                const std::vector<at::Tensor>& tails) {
    checkpoint::Gathered all;
    for (std::size_t rank = 0; rank < heads.size(); ++rank) {
      const auto length = static_cast<std::size_t>(length_in(heads[rank]));
      const std::size_t first = std::min<std::size_t>(length, kHeadBytes - kLengthBytes);
      std::string text(static_cast<const char*>(heads[rank].const_data_ptr()) + kLengthBytes, first);
      if (length > first) text.append(static_cast<const char*>(tails[rank].const_data_ptr()), length - first);
      const std::size_t end = text.find('\n');
      if (end == std::string::npos || text.compare(0, end, label) != 0) {
        leave("rank " + std::to_string(rank_) + " is at '" + label + "' and rank " + std::to_string(rank) + " at '" +
              text.substr(0, end) + "'");
        return {{}, broken_};
      }
      all.texts.push_back(text.substr(end + 1));
    }
    return all;
  }

  /// The same number of bytes from every rank; nothing, and the group is at its end, if they do not come.
  std::vector<at::Tensor> exchange(const at::Tensor& mine, const std::string& label, double deadline_s) {
    const at::Tensor all = at::empty({size_, mine.numel()}, at::kByte);
    std::vector<std::vector<at::Tensor>> outputs{all.unbind(0)};
    std::vector<at::Tensor> inputs{mine};
    c10d::AllgatherOptions options;
    options.timeout = kGlooTimeout;
    try {
      const auto future = group_->allgather(outputs, inputs, options)->getFuture();
      if (!wait_for(*future, deadline_s)) {
        // Gloo still waits in its thread: the group stays where it is until the process ends.
        static std::vector<c10::intrusive_ptr<c10d::ProcessGroup>>& abandoned =
            *new std::vector<c10::intrusive_ptr<c10d::ProcessGroup>>;
        abandoned.push_back(std::move(group_));
        broken_ = "no other rank gave a sign of progress for " + std::to_string(deadline_s) + " s (at '" + label + "')";
        return {};
      }
      if (!future->hasError()) return outputs.front();
      leave("another rank ended (at '" + label + "'): " + future->tryRetrieveErrorMessage());
    } catch (const c10::Error& error) {
      leave("another rank ended (at '" + label + "'): " + error.what_without_backtrace());
    }
    return {};
  }

  bool wait_for(c10::ivalue::Future& future, double deadline_s) const {
    const auto completion = std::make_shared<Completion>();
    future.addCallback([completion](c10::ivalue::Future&) {
      const std::lock_guard lock(completion->mutex);
      completion->done = true;
      completion->changed.notify_all();
    });
    uint64_t seen = signs_.count();
    auto heard = Clock::now();
    std::unique_lock lock(completion->mutex);
    while (!completion->changed.wait_for(lock, kLookEvery, [&] { return completion->done; })) {
      if (const uint64_t now = signs_.count(); now != seen) {
        seen = now;
        heard = Clock::now();
      }
      if (std::chrono::duration<double>(Clock::now() - heard).count() >= deadline_s) return false;
    }
    return true;
  }

  /// Closes the connections, which the others notice at once.
  void leave(const std::string& problem) {
    broken_ = problem;
    group_.reset();
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  PeerSigns signs_;
  int rank_, size_;
  std::string broken_;
};

}  // namespace

std::vector<std::unique_ptr<checkpoint::Group>> make_gloo_groups(const GlooOptions& options,
                                                                 const std::vector<std::string>& names,
                                                                 const PeerSigns& signs) {
  const auto store = make_store(options);
  std::vector<std::unique_ptr<checkpoint::Group>> groups;
  for (const std::string& name : names)
    groups.push_back(std::make_unique<GlooGroup>(make_gloo_group(store, name.c_str(), options), signs));
  return groups;
}

namespace {

class ProcessGroupComm : public Comm {
 public:
  explicit ProcessGroupComm(ProcessGroups groups) : groups_(std::move(groups)) {}

  int rank() const override { return groups_.data->getRank(); }
  int world_size() const override { return groups_.data->getSize(); }

  void all_reduce_sum(at::Tensor tensor, std::string_view tag) override {
    if (tensor.scalar_type() == at::kLong && goes_by_root(tensor)) {
      const at::Tensor all = gather_at_root(tensor, "all_reduce", tag);
      if (rank() == 0) tensor.copy_(all.sum(0));
      broadcast_as("all_reduce", tensor, 0, tag);
      return;
    }
    std::vector<at::Tensor> tensors{tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::SUM;
    options.timeout = groups_.timeout;
    finish("all_reduce", tag, [&] { return groups_.data->allreduce(tensors, options); });
  }

  at::Tensor all_gather(const at::Tensor& tensor, std::string_view tag) override {
    if (goes_by_root(tensor)) {
      at::Tensor all = gather_at_root(tensor, "all_gather", tag);
      broadcast_as("all_gather", all, 0, tag);
      return all;
    }
    at::Tensor all = room_for_all(tensor);
    std::vector<std::vector<at::Tensor>> outputs{all.unbind(0)};
    std::vector<at::Tensor> inputs{tensor.detach()};
    c10d::AllgatherOptions options;
    options.timeout = groups_.timeout;
    finish("all_gather", tag, [&] { return groups_.data->allgather(outputs, inputs, options); });
    return all;
  }

  void broadcast(at::Tensor tensor, int root, std::string_view tag) override {
    broadcast_as("broadcast", tensor, root, tag);
  }

  void barrier(std::string_view tag) override {
    // A barrier that works on every backend: the sum of a 1 from each rank.
    all_reduce_sum(at::ones({1}, at::kLong), tag);
  }

  std::unique_ptr<GradientReducer> reduce_gradients(const std::vector<at::Tensor>& parameters,
                                                    const std::vector<std::string>& names,
                                                    const ReducerOptions& options) override {
    return make_c10d_reducer(groups_.gradients, parameters, names, options);
  }

 private:
  bool goes_by_root(const at::Tensor& tensor) const {
    return world_size() > 1 && static_cast<int64_t>(tensor.nbytes()) * world_size() <= groups_.by_root_bytes;
  }

  at::Tensor room_for_all(const at::Tensor& tensor) const {
    std::vector<int64_t> shape = tensor.sizes().vec();
    shape.insert(shape.begin(), world_size());
    return at::empty(shape, tensor.options());
  }

  /// [V, ...], filled on rank 0 alone. `operation`: whose part it is.
  at::Tensor gather_at_root(const at::Tensor& tensor, const char* operation, std::string_view tag) {
    at::Tensor all = room_for_all(tensor);
    std::vector<std::vector<at::Tensor>> outputs;
    if (rank() == 0) outputs.push_back(all.unbind(0));
    std::vector<at::Tensor> inputs{tensor.detach()};
    c10d::GatherOptions options;
    options.rootRank = 0;
    options.timeout = groups_.timeout;
    finish(operation, tag, [&] { return groups_.data->gather(outputs, inputs, options); });
    return all;
  }

  void broadcast_as(const char* operation, const at::Tensor& tensor, int root, std::string_view tag) {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.timeout = groups_.timeout;
    finish(operation, tag, [&] { return groups_.data->broadcast(tensors, options); });
  }

  template <typename Start>
  void finish(const char* operation, std::string_view tag, Start start) {
    try {
      start()->wait(groups_.timeout);
    } catch (const c10::Error& error) {
      fail(operation, tag, error.what_without_backtrace());
    } catch (const std::exception& error) {
      fail(operation, tag, error.what());
    }
  }

  [[noreturn]] void fail(const char* operation, std::string_view tag, const char* why) const {
    throw std::runtime_error(std::string(operation) + " " + std::string(tag) + " failed on rank " +
                             std::to_string(rank()) + ": " + why);
  }

  ProcessGroups groups_;
};

}  // namespace

void Comm::all_reduce_max(at::Tensor tensor, std::string_view tag) {
  tensor.copy_(all_gather(tensor, tag).amax(0));
}

std::unique_ptr<Comm> make_process_group_comm(ProcessGroups groups) {
  return std::make_unique<ProcessGroupComm>(std::move(groups));
}

}  // namespace lockstep
