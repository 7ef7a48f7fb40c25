#pragma once

namespace lockstep {

/// nccl: c10d's ProcessGroupNCCL, one GPU a rank | gloo_cuda: Gloo over tensors in GPU memory, any number of ranks on one GPU.
enum class GpuCarrier { nccl, gloo_cuda };

}  // namespace lockstep
