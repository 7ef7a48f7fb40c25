#include "harness/trainers/comm/gloo.h"

#include <sched.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/version.h>

#include <optional>

#include "harness/trainers/comm/process_groups.h"

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
  std::optional<StartsPatientThreads> patient;
  if (!options.as_pytorch) patient.emplace();
  auto prefixed = c10::make_intrusive<c10d::PrefixStore>(name, store);
  auto gloo_options = c10d::ProcessGroupGloo::Options::create(timeout);
  gloo_options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
  gloo_options->threads = options.as_pytorch ? 2 : 1;
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

}  // namespace lockstep
