#pragma once
// Where a loss adds up what a row's gradient is made of.

#include <ATen/core/Tensor.h>

#include <functional>

namespace lockstep {

/// Marks values whose gradients are terms of a sum, such as logits of a row's candidates: gives the tensor to go on with, of the same
/// values. Who wants to know how large the terms are turns their signs at random (harness/trainers/core/forced.cpp). Empty: nobody does.
using TermMark = std::function<at::Tensor(const at::Tensor&)>;

inline at::Tensor marked(const TermMark& mark, const at::Tensor& values) { return mark ? mark(values) : values; }

}  // namespace lockstep
