#pragma once
// A communicator around a planted fault and one inside of it: what is called outside must arrive inside, and
// what is delivered inside must come out.

#include <functional>
#include <memory>

#include "harness/trainers/comm/comm.h"

namespace lockstep {

/// `plant` puts the fault's communicator around the one that it is given, or returns that one itself. Calls
/// `acted` whenever a call is left out, added or changed between the two.
std::unique_ptr<Comm> watched_comm(std::unique_ptr<Comm> comm,
                                   const std::function<std::unique_ptr<Comm>(std::unique_ptr<Comm>)>& plant,
                                   std::function<void()> acted);

/// Equal type, shape and bits; two undefined tensors too.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

/// Of other bits. In a graph, equal numbers may have other gradients: there any other tensor counts as different.
bool differs(const at::Tensor& before, const at::Tensor& after);

}  // namespace lockstep
