#include "harness/trainers/core/nan_guard.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

enum Kind : int64_t { kNan, kPlus, kMinus };

double value_of(int64_t kind) {
  const double infinity = std::numeric_limits<double>::infinity();
  return kind == kNan ? std::numeric_limits<double>::quiet_NaN() : kind == kPlus ? infinity : -infinity;
}

int64_t kind_of(double value) { return std::isnan(value) ? kNan : value > 0 ? kPlus : kMinus; }

}  // namespace

void GradientGuard::begin() { own_.reset(); }

void GradientGuard::look(std::size_t tensor, const at::Tensor& gradient) {
  if (own_) return;
  // The sum is finite where all are, or may overflow: then each is looked at.
  if (std::isfinite(gradient.sum().item<double>())) return;
  const at::Tensor bad = gradient.contiguous().isfinite().logical_not().flatten();
  if (!bad.any().item<bool>()) return;
  const int64_t index = bad.to(at::kByte).argmax().item<int64_t>();
  own_ = NotFinite{0, tensor, index, gradient.contiguous().flatten()[index].item<double>()};
}

std::optional<NotFinite> GradientGuard::agree(Comm& comm) const {
  at::Tensor mine = at::zeros({4}, at::kLong);
  int64_t* const words = mine.mutable_data_ptr<int64_t>();
  if (own_) {
    words[0] = 1;
    words[1] = static_cast<int64_t>(own_->tensor);
    words[2] = own_->index;
    words[3] = kind_of(own_->value);
  }
  const at::Tensor all = comm.all_gather(mine, "nan_guard");
  std::optional<NotFinite> first;
  int ranks = 0;
  for (int rank = 0; rank < comm.world_size(); ++rank) {
    const int64_t* const theirs = all.const_data_ptr<int64_t>() + 4 * rank;
    if (theirs[0] == 0) continue;
    ++ranks;
    if (!first) first = NotFinite{rank, static_cast<std::size_t>(theirs[1]), theirs[2], value_of(theirs[3])};
  }
  if (first) first->ranks = ranks;
  return first;
}

std::string in_words(const NotFinite& found, const std::vector<std::string>& names, int64_t step) {
  const char* const value = std::isnan(found.value) ? "NaN" : found.value > 0 ? "infinity" : "-infinity";
  std::string text = c10::str("rank ", found.rank, ": the gradient of ", names.at(found.tensor), " is ", value, " at element ",
                              found.index, " (step ", step, ")");
  if (found.ranks > 1) text += c10::str("; ", found.ranks, " ranks have such a number");
  return text;
}

}  // namespace lockstep
