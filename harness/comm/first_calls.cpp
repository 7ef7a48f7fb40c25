#include "harness/comm/first_calls.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <mutex>

namespace lockstep {
namespace {

void call_all(at::ScalarType dtype) {
  const at::Tensor x = at::full({2, 8, 8}, 0.5, at::kFloat).to(dtype);
  at::bmm(x, x);
  at::linear(x, x[0], x[0][0]);
  at::mv(x[0], x[0][0]);
  at::dot(x[0][0], x[0][0]);
  for (const auto& function :
       {&at::log, &at::log1p, &at::exp, &at::tanh, &at::sqrt, &at::silu, &at::log_sigmoid}) {
    function(x);
  }
  at::softmax(x, 1);
  at::logsumexp(x, 1);
  at::linalg_vector_norm(x);
}

}  // namespace

void make_first_calls() {
  static std::once_flag once;
  std::call_once(once, [] {
    const c10::NoGradGuard no_grad;
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      call_all(dtype);
    }
  });
}

}  // namespace lockstep
