#pragma once
// Collectives on GPUs, by a shared library that is loaded only where somebody asks for it: neither the rank program nor anything
// that it links knows CUDA.

#include <memory>
#include <string>

#include "harness/comm/comm.h"
#include "harness/comm/gloo_options.h"
#include "harness/comm/gpu_carrier.h"

namespace lockstep {

/// What two runs over a carrier may be held to. bits: it adds in an order that is known | band: it publishes no order of adding
/// (NCCL), so that bits may agree, and where they do not another order of the same sums is the explanation that comes first.
enum class CertifiedBy { bits, band };

/// nccl: band, unless NCCL_ALGO=Ring and NCCL_PROTO=Simple pin algorithm and protocol; these are the values of the two variables, or
/// empty. gloo_cuda: bits, as the ring of Gloo.
CertifiedBy certified_by(GpuCarrier carrier, const std::string& nccl_algo, const std::string& nccl_proto);

/// The plugin: $LOCKSTEP_GPU_PLUGIN, else lockstep-gpu.so beside the running program.
std::string gpu_plugin_path();

/// Meets the other ranks. Their tensors stay in the memory of the host and are copied to GPU `device` (an index among those
/// visible) and back around each collective. To be called before the process asks LibTorch anything about CUDA. Throws
/// std::runtime_error: what is missing, and what to do (no plugin, one of another LibTorch, no GPU).
std::unique_ptr<Comm> make_gpu_comm(GpuCarrier carrier, const GlooOptions& options, int device,
                                    const std::string& plugin = gpu_plugin_path());

}  // namespace lockstep
