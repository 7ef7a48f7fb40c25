#include "harness/trainers/comm/gpu_plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <stdexcept>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "harness/trainers/comm/gloo.h"
#include "harness/trainers/comm/gpu_plugin_entry.h"

namespace lockstep {
namespace {

constexpr const char* kHowToBuild =
    "build it with `cmake --preset gpu && cmake --build build/gpu` against a CUDA build of LibTorch (CMAKE_PREFIX_PATH), or take "
    "backend: gloo, which needs none";

struct Entry {
  MakeGpuBackend make = nullptr;
  AskGpuProblem problem = nullptr;
};

/// Loaded once and never unloaded: LibTorch's CUDA part cannot be.
Entry entry_of(const std::string& plugin) {
  if (::access(plugin.c_str(), R_OK) != 0)
    throw std::runtime_error("collectives on GPUs need the plugin " + plugin + ", which is not there: " + kHowToBuild);
  void* const library = ::dlopen(plugin.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    throw std::runtime_error("the plugin " + plugin + " cannot be loaded: " + (why == nullptr ? "?" : why) + "; " + kHowToBuild);
  }
  const auto* const stamp = static_cast<const char* const*>(::dlsym(library, kGpuPluginStampName));
  void *const make = ::dlsym(library, kGpuBackendName), *const problem = ::dlsym(library, kGpuProblemName);
  const std::string found = stamp == nullptr || make == nullptr ? "no plugin of lockstep" : *stamp;
  if (found != kGpuPluginStamp || problem == nullptr) {
    throw std::runtime_error("the plugin " + plugin + " is " + found + ", and this program wants " + kGpuPluginStamp +
                             ": build both from one clone against one version of LibTorch");
  }
  return {reinterpret_cast<MakeGpuBackend>(make), reinterpret_cast<AskGpuProblem>(problem)};
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

std::string_view word_of(CertifiedBy by) { return by == CertifiedBy::bits ? "bits" : "band"; }

CertifiedBy certified_by(Transport transport, const std::string& nccl_algo, const std::string& nccl_proto) {
  if (transport != Transport::nccl) return CertifiedBy::bits;
  return nccl_algo == "Ring" && nccl_proto == "Simple" ? CertifiedBy::bits : CertifiedBy::band;
}

CertifiedBy certified_here_by(Transport transport) {
  const auto value = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  return certified_by(transport, value("NCCL_ALGO"), value("NCCL_PROTO"));
}

std::string gpu_plugin_path() {
  if (const char* chosen = std::getenv("LOCKSTEP_GPU_PLUGIN"); chosen != nullptr && *chosen != '\0') return chosen;
  std::array<char, PATH_MAX> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  const std::string program(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  return program.substr(0, program.rfind('/') + 1) + "lockstep-gpu.so";
}

std::string gpu_problem(Transport transport, int ranks, const std::string& plugin) {
  try {
    std::string problem;
    const Entry entry = entry_of(plugin);
    if (ranks > 0) entry.problem(transport, ranks, problem);
    return problem;
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

std::unique_ptr<Comm> make_gpu_comm(Transport transport, const GlooOptions& options, int local_rank, const std::string& plugin) {
  const MakeGpuBackend make = entry_of(plugin).make;
  GpuBackendRequest request;
  request.transport = transport;
  request.store = make_store(options);
  request.rank = options.rank;
  request.world_size = options.world_size;
  request.local_rank = local_rank;
  request.address = options.address;
  request.timeout_s = options.timeout_s;
  ProcessGroups groups;
  groups.timeout = std::chrono::milliseconds(static_cast<int64_t>(options.timeout_s * 1000));
  groups.data = group_of(make, request, "data");
  groups.gradients = group_of(make, request, "gradients");
  return make_process_group_comm(std::move(groups));
}

}  // namespace lockstep
