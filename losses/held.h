#pragma once
// What an autograd Function hands from its forward to its backward beside tensors.

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <array>
#include <memory>
#include <utility>

namespace lockstep {

/// A tensor of no elements that owns `object`: all that a Function saves can be counted if it saves only
/// tensors.
template <typename T>
at::Tensor holder_of(std::shared_ptr<T> object) {
  T* const raw = object.get();
  constexpr std::array<int64_t, 1> kNone{0};
  return at::from_blob(raw, kNone, [object = std::move(object)](void*) {}, at::kByte);
}

/// The object that `holder` owns.
template <typename T>
T& held_by(const at::Tensor& holder) {
  return *static_cast<T*>(holder.storage().mutable_data());
}

}  // namespace lockstep
