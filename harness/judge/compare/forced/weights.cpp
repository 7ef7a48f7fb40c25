#include "harness/judge/compare/forced/weights.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace lockstep {
namespace {

using Column = std::vector<double>;

double norm_from(const Column& column, std::size_t row) {
  double squares = 0;
  for (std::size_t i = row; i < column.size(); ++i) squares += column[i] * column[i];
  return std::sqrt(squares);
}

/// Householder reflections: R in the place of the columns. Of the first `pivots` the longest comes first each time; returns their order.
std::vector<std::size_t> triangulate(std::vector<Column>& columns, std::size_t pivots) {
  std::vector<std::size_t> order(pivots);
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t k = 0; k < std::min(columns.size(), columns.front().size()); ++k) {
    if (k < pivots) {
      std::size_t longest = k;
      for (std::size_t j = k + 1; j < pivots; ++j)
        if (norm_from(columns[j], k) > norm_from(columns[longest], k)) longest = j;
      std::swap(columns[k], columns[longest]);
      std::swap(order[k], order[longest]);
    }
    const double size = norm_from(columns[k], k);
    if (size == 0) continue;
    Column mirror(columns[k].begin() + static_cast<std::ptrdiff_t>(k), columns[k].end());
    mirror[0] += mirror[0] > 0 ? size : -size;
    const double squares = std::inner_product(mirror.begin(), mirror.end(), mirror.begin(), 0.0);
    for (std::size_t j = k; j < columns.size(); ++j) {
      double along = 0;
      for (std::size_t i = 0; i < mirror.size(); ++i) along += mirror[i] * columns[j][k + i];
      for (std::size_t i = 0; i < mirror.size(); ++i) columns[j][k + i] -= 2 * along / squares * mirror[i];
    }
  }
  return order;
}

/// R of all rows, the sum's column last. Rows are taken in blocks: what was before is kept as its own R, so that memory stays small.
std::vector<Column> triangle_of(const std::vector<WeighedTensor>& tensors, const std::vector<std::size_t>& parts) {
  constexpr std::size_t kBlock = 256;
  std::vector<Column> columns(parts.size() + 1);
  const auto fold = [&] {
    triangulate(columns, 0);
    for (std::size_t j = 0; j < columns.size(); ++j) {
      columns[j].resize(columns.size());
      std::fill(columns[j].begin() + static_cast<std::ptrdiff_t>(j) + 1, columns[j].end(), 0.0);
    }
  };
  for (const WeighedTensor& tensor : tensors) {
    for (std::size_t i = 0; i < tensor.sum->size(); ++i) {
      for (std::size_t p = 0; p < parts.size(); ++p) {
        const std::vector<double>* part = tensor.parts[parts[p]];
        columns[p].push_back(part ? (*part)[i] : 0);
      }
      columns.back().push_back((*tensor.sum)[i]);
      if (columns.back().size() >= kBlock + columns.size()) fold();
    }
  }
  if (columns.back().size() < columns.size())
    for (Column& column : columns) column.resize(columns.size());
  fold();
  return columns;
}

bool are_equal(const std::vector<WeighedTensor>& tensors, std::size_t a, std::size_t b) {
  return std::ranges::all_of(tensors, [&](const WeighedTensor& tensor) {
    const auto *x = tensor.parts[a], *y = tensor.parts[b];
    return x == y || (x && y && *x == *y);
  });
}

}  // namespace

bool Weights::all_known() const {
  return !of.empty() && std::ranges::none_of(of, [](double weight) { return std::isnan(weight); });
}

Weights weigh(const std::vector<WeighedTensor>& tensors, double epsilon) {
  Weights found;
  if (tensors.empty() || tensors.front().parts.empty()) return found;
  std::vector<std::size_t> distinct, column_of(tensors.front().parts.size());
  std::vector<double> sharing;
  for (std::size_t p = 0; p < column_of.size(); ++p) {
    const auto same = std::ranges::find_if(distinct, [&](std::size_t other) { return are_equal(tensors, other, p); });
    column_of[p] = static_cast<std::size_t>(same - distinct.begin());
    if (same == distinct.end()) distinct.push_back(p), sharing.push_back(0);
    ++sharing[column_of[p]];
  }
  std::vector<Column> triangle = triangle_of(tensors, distinct);
  const std::size_t count = distinct.size();
  std::vector<double> sizes;
  for (std::size_t p = 0; p < count; ++p) {
    sizes.push_back(norm_from(triangle[p], 0));
    for (double& value : triangle[p]) value /= sizes[p] > 0 ? sizes[p] : 1;
  }
  const std::vector<std::size_t> order = triangulate(triangle, count);
  constexpr double kRoundings = 64;
  std::size_t rank = 0;
  while (rank < count && std::abs(triangle[rank][rank]) > kRoundings * epsilon) ++rank;
  // Solved backwards, for the sum and for each part that the first `rank` of them make.
  const auto solved = [&](Column right) {
    for (std::size_t k = rank; k-- > 0;) {
      for (std::size_t j = k + 1; j < rank; ++j) right[k] -= triangle[j][k] * right[j];
      right[k] /= triangle[k][k];
    }
    return right;
  };
  std::vector<double> weights(count, std::numeric_limits<double>::quiet_NaN());
  const Column right = solved(triangle.back());
  for (std::size_t k = 0; k < rank; ++k) weights[order[k]] = right[k] / sizes[order[k]];
  for (std::size_t k = rank; k < count; ++k) {
    const Column depends = solved(triangle[k]);
    for (std::size_t j = 0; j < rank; ++j)
      if (std::abs(depends[j]) > std::sqrt(epsilon)) weights[order[j]] = std::numeric_limits<double>::quiet_NaN();
  }
  for (std::size_t p = 0; p < column_of.size(); ++p) found.of.push_back(weights[column_of[p]] / sharing[column_of[p]]);
  const double size = norm_from(triangle.back(), 0);
  found.residual = size > 0 ? norm_from(triangle.back(), rank) / size : 0;
  return found;
}

std::vector<WeighedTensor> weighed_tensors(const std::vector<NamedTensor>& sum, const std::vector<std::vector<NamedTensor>>& parts) {
  std::vector<WeighedTensor> tensors;
  for (const NamedTensor& each : sum) {
    WeighedTensor tensor{&each.values, {}};
    for (const std::vector<NamedTensor>& part : parts) {
      const NamedTensor* own = find_tensor(part, each.name);
      if (own && own->values.size() == each.values.size()) tensor.parts.push_back(&own->values);
    }
    if (tensor.parts.size() == parts.size()) tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace lockstep
