#pragma once
// Collectives on GPUs, by a shared library that is loaded only where somebody asks for it: neither the rank program nor anything
// that it links knows CUDA.

#include <memory>
#include <string>
#include <string_view>

#include "harness/plan/config/run_config.h"
#include "harness/trainers/comm/comm.h"
#include "harness/trainers/comm/gloo_options.h"

namespace lockstep {

/// What two runs over a transport may be held to. bits: it adds in an order that is known | band: it publishes no order of adding
/// (NCCL), so that bits may agree, and where they do not another order of the same sums is the explanation that comes first.
enum class CertifiedBy { bits, band };
std::string_view word_of(CertifiedBy by);

/// nccl: band, unless NCCL_ALGO=Ring and NCCL_PROTO=Simple pin algorithm and protocol; these are the values of the two variables, or
/// empty. The others: bits, as the ring of Gloo.
CertifiedBy certified_by(Transport transport, const std::string& nccl_algo, const std::string& nccl_proto);
/// The same by the two variables of this process.
CertifiedBy certified_here_by(Transport transport);

/// The plugin: $LOCKSTEP_GPU_PLUGIN, else lockstep-gpu.so beside the running program.
std::string gpu_plugin_path();

/// Why `ranks` of this host cannot meet over the transport (not gloo), and what to do: no plugin, one of another LibTorch, no GPU, too
/// few of them; empty: they can. 0 ranks: the plugin is looked at alone. To be asked by a process that ends soon: what CUDA began survives no fork.
std::string gpu_problem(Transport transport, int ranks, const std::string& plugin = gpu_plugin_path());

/// Meets the other ranks over nccl or gloo_cuda. Their tensors stay in the memory of the host and are copied to a GPU and back around
/// each collective: to that of the same index as `local_rank`, the rank's place on its host, among those visible; over gloo_cuda
/// ranks share them in turn. To be called before the process asks LibTorch anything about CUDA. Throws std::runtime_error: what is
/// missing, and what to do (see gpu_problem).
std::unique_ptr<Comm> make_gpu_comm(Transport transport, const GlooOptions& options, int local_rank,
                                    const std::string& plugin = gpu_plugin_path());

}  // namespace lockstep
