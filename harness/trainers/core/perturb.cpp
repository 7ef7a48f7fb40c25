#include "harness/trainers/core/perturb.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "harness/verdict/config/stream_keys.h"

namespace lockstep {
namespace {

constexpr uint64_t kRowOrder = 0x726f776f72646572;  // "roworder"
constexpr uint64_t kUnitSigns = 0x756e6974;         // "unit"

/// Another order of rows [begin, end): sorted by keyed numbers, turned by one if that changes nothing.
void reorder(std::vector<int64_t>& rows, std::size_t begin, std::size_t end, uint64_t key) {
  std::vector<std::pair<uint64_t, int64_t>> drawn;
  for (std::size_t row = begin; row < end; ++row) {
    drawn.emplace_back(mix_key(key ^ static_cast<uint64_t>(row)), rows[row]);
  }
  const bool same = std::is_sorted(drawn.begin(), drawn.end());
  std::sort(drawn.begin(), drawn.end());
  if (same && drawn.size() > 1) {
    std::rotate(drawn.begin(), drawn.begin() + 1, drawn.end());
  }
  for (std::size_t row = begin; row < end; ++row) {
    rows[row] = drawn[row - begin].second;
  }
}

template <typename T>
void move_elements(const at::Tensor& tensor, uint64_t key) {
  T* values = tensor.mutable_data_ptr<T>();
  const auto elements = static_cast<std::size_t>(tensor.numel());
  for (std::size_t i = 0; i < elements; ++i) {
    const bool up = (mix_key(key ^ static_cast<uint64_t>(i)) & 1) != 0;
    const T toward = up ? std::numeric_limits<T>::infinity() : -std::numeric_limits<T>::infinity();
    values[i] = std::nextafter(values[i], toward);
  }
}

}  // namespace

RowsOf perturbed(RowsOf rows_of, const RunConfig& config) {
  if (config.perturb != Perturbation::row_order) {
    return rows_of;
  }
  return [rows_of = std::move(rows_of), key = mix_key(static_cast<uint64_t>(config.seed) ^ kRowOrder),
          micro_steps = static_cast<std::size_t>(config.accumulation)](int64_t step, int rank) {
    std::vector<int64_t> rows = rows_of(step, rank);
    const std::size_t all = rows.size();
    const uint64_t of_rank =
        mix_key(mix_key(key ^ static_cast<uint64_t>(step)) ^ static_cast<uint64_t>(rank));
    for (std::size_t micro = 0; micro < micro_steps; ++micro) {
      reorder(rows, micro * all / micro_steps, (micro + 1) * all / micro_steps, of_rank);
    }
    return rows;
  };
}

void move_by_one_unit(ParameterList& parameters, int64_t seed) {
  const uint64_t key = mix_key(static_cast<uint64_t>(seed) ^ kUnitSigns);
  for (std::size_t i = 0; i < parameters.tensors.size(); ++i) {
    const at::Tensor tensor = parameters.tensors[i].detach();
    const uint64_t of_tensor = mix_key(key ^ static_cast<uint64_t>(i));
    if (tensor.scalar_type() == at::kDouble) {
      move_elements<double>(tensor, of_tensor);
    } else {
      move_elements<float>(tensor, of_tensor);
    }
  }
}

}  // namespace lockstep
