#include "harness/comm/gpu_plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <stdexcept>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "harness/comm/gpu_plugin_entry.h"
#include "harness/comm/process_groups.h"

namespace lockstep {
namespace {

constexpr const char* kHowToBuild =
    "build it with `cmake --preset gpu && cmake --build build/gpu` against a CUDA build of LibTorch (CMAKE_PREFIX_PATH), or take "
    "Gloo, which needs none";

/// Loaded once and never unloaded: LibTorch's CUDA part cannot be.
MakeGpuBackend entry_of(const std::string& plugin) {
  if (::access(plugin.c_str(), R_OK) != 0)
    throw std::runtime_error("collectives on GPUs need the plugin " + plugin + ", which is not there: " + kHowToBuild);
  void* const library = ::dlopen(plugin.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    throw std::runtime_error("the plugin " + plugin + " cannot be loaded: " + (why == nullptr ? "?" : why) + "; " + kHowToBuild);
  }
  const auto* const stamp = static_cast<const char* const*>(::dlsym(library, kGpuPluginStampName));
  void* const entry = ::dlsym(library, kGpuBackendName);
  const std::string found = stamp == nullptr || entry == nullptr ? "no plugin of lockstep" : *stamp;
  if (found != kGpuPluginStamp) {
    throw std::runtime_error("the plugin " + plugin + " is " + found + ", and this program wants " + kGpuPluginStamp +
                             ": build both from one clone against one version of LibTorch");
  }
  return reinterpret_cast<MakeGpuBackend>(entry);
}

c10::intrusive_ptr<c10d::ProcessGroup> group_of(MakeGpuBackend make, GpuBackendRequest request, const char* name) {
  request.store = c10::make_intrusive<c10d::PrefixStore>(name, request.store);
  std::string problem;
  auto backend = make(request, problem);
  if (!backend) throw std::runtime_error(problem);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(request.store, request.rank, request.world_size);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  group->setGroupName(name);
  return group;
}

}  // namespace

CertifiedBy certified_by(GpuCarrier carrier, const std::string& nccl_algo, const std::string& nccl_proto) {
  if (carrier == GpuCarrier::gloo_cuda) return CertifiedBy::bits;
  return nccl_algo == "Ring" && nccl_proto == "Simple" ? CertifiedBy::bits : CertifiedBy::band;
}

std::string gpu_plugin_path() {
  if (const char* chosen = std::getenv("LOCKSTEP_GPU_PLUGIN"); chosen != nullptr && *chosen != '\0') return chosen;
  std::array<char, PATH_MAX> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  const std::string program(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  return program.substr(0, program.rfind('/') + 1) + "lockstep-gpu.so";
}

std::unique_ptr<Comm> make_gpu_comm(GpuCarrier carrier, const GlooOptions& options, int device, const std::string& plugin) {
  const MakeGpuBackend make = entry_of(plugin);
  GpuBackendRequest request;
  request.carrier = carrier;
  request.store = make_store(options);
  request.rank = options.rank;
  request.world_size = options.world_size;
  request.device = device;
  request.address = options.address;
  request.timeout_s = options.timeout_s;
  ProcessGroups groups;
  groups.timeout = std::chrono::milliseconds(static_cast<int64_t>(options.timeout_s * 1000));
  groups.data = group_of(make, request, "data");
  groups.gradients = group_of(make, request, "gradients");
  return make_process_group_comm(std::move(groups));
}

}  // namespace lockstep
