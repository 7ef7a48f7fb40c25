#include "harness/trainers/core/exact_rows.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "harness/base/errors.h"
#include "harness/base/hashing.h"
#include "harness/trainers/comm/tensor_view.h"

namespace lockstep {
namespace {

/// Most numbers that stand beside a row's loss.
constexpr int64_t kMostScalars = 32;
/// A rank's message before any sum: rows, the row that is not finite, then what describes the two sums.
enum Header { kRows, kPosition, kSample, kWhat, kHeader };

/// Each parameter begins at a block of its own, so that a block's numbers are of like size.
std::vector<int64_t> beginnings(const ParameterList& parameters) {
  constexpr int64_t kBlock = ExactSum::kBlock;
  std::vector<int64_t> first{0};
  for (const at::Tensor& parameter : parameters.tensors) {
    first.push_back(first.back() + (parameter.numel() + kBlock - 1) / kBlock * kBlock);
  }
  return first;
}

at::ScalarType type_of(const ParameterList& parameters) {
  return parameters.tensors.empty() ? at::kFloat : parameters.tensors.front().scalar_type();
}

}  // namespace

ExactRows::ExactRows(const ParameterList& parameters)
    : parameters_(parameters),
      first_(beginnings(parameters)),
      gradients_(first_.back(), type_of(parameters)),
      scalars_(1 + kMostScalars, at::kDouble),
      tensor_hashes_(parameters.tensors.size(), 0) {}

void ExactRows::begin_step() {
  gradients_.clear();
  scalars_.clear();
  row_hashes_.clear();
  std::fill(tensor_hashes_.begin(), tensor_hashes_.end(), 0);
  bad_ = {};
  rows_ = 0;
}

void ExactRows::note_bad(const RowName& row, int64_t what) {
  if (bad_.what < 0) bad_ = {row, what};
}

void ExactRows::name_scalars(const Scalars& scalars) {
  LOCKSTEP_CHECK(static_cast<int64_t>(scalars.size()) <= kMostScalars, "more numbers beside a loss than there are places");
  names_.clear();
  for (const auto& [name, value] : scalars) names_.push_back(name);
}

void ExactRows::add(const RowName& row, const std::vector<at::Tensor>& gradients, double loss,
                    const Scalars& scalars) {
  const auto parameters = static_cast<int64_t>(gradients.size());
  name_scalars(scalars);
  ++rows_;
  uint64_t of_row = 0;
  if (!std::isfinite(loss)) note_bad(row, parameters);
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    if (!gradients[p].defined()) continue;
    const at::Tensor gradient = gradients[p].contiguous();
    if (hashes_) {
      const uint64_t hash = tensor_hash(view_of(gradient));
      of_row = keyed(of_row, p, hash);
      tensor_hashes_[p] = static_cast<int64_t>(static_cast<uint64_t>(tensor_hashes_[p]) + keyed(hash, row.position));
    }
    if (!all_finite(gradient)) {
      note_bad(row, static_cast<int64_t>(p));
    } else {
      gradients_.add(first_[p], gradient);
    }
  }
  row_hashes_.push_back(static_cast<int64_t>(of_row));
  if (std::isfinite(loss)) scalars_.add(0, loss);
  for (std::size_t k = 0; k < scalars.size(); ++k) {
    if (std::isfinite(scalars[k].second)) {
      scalars_.add(static_cast<int64_t>(1 + k), scalars[k].second);
    } else {
      note_bad(row, parameters + 1 + static_cast<int64_t>(k));
    }
  }
}

std::vector<at::Tensor> ExactRows::gradients(double divisor) {
  at::Tensor all = at::empty({first_.back()}, type_of(parameters_));
  gradients_.round_to(0, all);
  all.div_(divisor);
  std::vector<at::Tensor> gradients;
  for (std::size_t p = 0; p < parameters_.tensors.size(); ++p) {
    const at::Tensor& parameter = parameters_.tensors[p];
    gradients.push_back(all.narrow(0, first_[p], parameter.numel()).view(parameter.sizes()));
  }
  return gradients;
}

void ExactRows::replace(std::size_t parameter, const at::Tensor& gradient) {
  if (!all_finite(gradient)) {
    throw std::runtime_error(c10::str("a rank sends NaN or infinity as its gradient of ", parameters_.names[parameter],
                                      ": exact arithmetic adds numbers alone"));
  }
  gradients_.zero(first_[parameter], first_[parameter + 1]);
  gradients_.add(first_[parameter], gradient.contiguous());
}

ExactRows::Scalars ExactRows::scalar_means() {
  Scalars means;
  for (std::size_t k = 0; k < names_.size(); ++k) {
    const double sum = scalars_.rounded(static_cast<int64_t>(1 + k));
    means.emplace_back(names_[k], rows_ > 0 ? sum / static_cast<double>(rows_) : 0.0);
  }
  return means;
}

void ExactRows::require_finite(const std::vector<const int64_t*>& headers) const {
  const int64_t* worst = nullptr;
  std::size_t rank = 0;
  for (std::size_t r = 0; r < headers.size(); ++r) {
    if (headers[r][kWhat] < 0 || (worst != nullptr && worst[kPosition] <= headers[r][kPosition])) continue;
    worst = headers[r];
    rank = r;
  }
  if (worst == nullptr) return;
  const auto parameters = static_cast<int64_t>(parameters_.names.size());
  const int64_t what = worst[kWhat];
  std::string where = "its loss";
  if (what < parameters) where = "its gradient of " + parameters_.names[static_cast<std::size_t>(what)];
  if (what > parameters) {
    const auto scalar = static_cast<std::size_t>(what - parameters - 1);
    where = scalar < names_.size() ? names_[scalar] : "a number beside its loss";
  }
  throw std::runtime_error(c10::str("row ", worst[kPosition], " of the step's batch (sample ", worst[kSample], ", rank ", rank,
                                    ") has NaN or infinity in ", where,
                                    ": exact arithmetic adds numbers alone, and nothing was summed"));
}

void ExactRows::exchange(Comm& comm, int64_t step, bool gradients) {
  const at::Tensor begin = at::empty({kHeader}, at::kLong);
  auto* header = begin.mutable_data_ptr<int64_t>();
  header[kRows] = rows_;
  header[kPosition] = bad_.row.position;
  header[kSample] = bad_.row.sample_id;
  header[kWhat] = bad_.what;
  const at::Tensor of_gradients = gradients_.description();
  const at::Tensor own = at::cat({begin, of_gradients, scalars_.description()});
  const at::Tensor gathered = comm.all_gather(own, "exact.header");
  std::vector<const int64_t*> headers, gradient_sums, scalar_sums;
  for (int r = 0; r < comm.world_size(); ++r) {
    headers.push_back(gathered.const_data_ptr<int64_t>() + r * own.numel());
    gradient_sums.push_back(headers.back() + kHeader);
    scalar_sums.push_back(gradient_sums.back() + of_gradients.numel());
  }
  try {
    require_finite(headers);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(c10::str("step ", step, ": ", error.what()));
  }
  rows_ = 0;
  for (const int64_t* of_rank : headers) rows_ += of_rank[kRows];
  if (comm.world_size() == 1) return;
  const ExactForm form = ExactSum::form_of(gradient_sums, gradients_.elements());
  const ExactForm scalar_form = ExactSum::form_of(scalar_sums, scalars_.elements());
  const int64_t size = gradients ? ExactSum::size_of(form, gradients_.elements()) : 0;
  const int64_t scalar_size = ExactSum::size_of(scalar_form, scalars_.elements());
  const at::Tensor sums = at::empty({size + scalar_size}, at::kLong);
  if (gradients) gradients_.write(form, sums.mutable_data_ptr<int64_t>());
  scalars_.write(scalar_form, sums.mutable_data_ptr<int64_t>() + size);
  if (sums.numel() > 0) comm.all_reduce_sum(sums, "exact.sums");
  if (gradients) gradients_.read(form, sums.narrow(0, 0, size));
  scalars_.read(scalar_form, sums.narrow(0, size, scalar_size));
}

}  // namespace lockstep
