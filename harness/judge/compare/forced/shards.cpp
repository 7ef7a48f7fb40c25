#include "harness/judge/compare/forced/shards.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// How far two tensors lie apart at the part's place, and the size of the first there; nothing where they are not that tensor.
struct RegionGap {
  double gap = 0, size = 0;
};
std::optional<RegionGap> region_gap(const NamedTensor* a, const NamedTensor* b, const Record& part) {
  const auto x = a ? values_at(*a, part) : std::nullopt, y = b ? values_at(*b, part) : std::nullopt;
  return x && y ? std::optional(RegionGap{distance(*x, *y), norm(*x)}) : std::nullopt;
}

bool kept_bits(const StepOfRun& step, const BeforeUpdate& before, std::size_t rank, const std::string& name) {
  const Record* now = find_part(step, rank, Phase::parameters, name);
  if (!now) return false;
  if (before.state && before.after) {
    const auto apart = region_gap(find_tensor(before.state->tensors, name), find_tensor(*before.after, name), *now);
    return apart && apart->gap == 0;
  }
  const Record* then = before.step && before.step->step == step.step - 1 ? find_part(*before.step, rank, Phase::parameters, name) : nullptr;
  return then && *now->placement == *then->placement && now->stats.hash == then->stats.hash;
}

/// A matrix in row-major order.
struct DenseMatrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values;
  double at(std::size_t i, std::size_t j) const { return values[i * columns + j]; }
};

DenseMatrix gram_of(const DenseMatrix& x) {
  DenseMatrix gram{x.rows, x.rows, std::vector<double>(x.rows * x.rows, 0)};
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < x.rows; ++j) {
      for (std::size_t k = 0; k < x.columns; ++k) gram.values[i * x.rows + j] += x.at(i, k) * x.at(j, k);
    }
  }
  return gram;
}

DenseMatrix product(const DenseMatrix& a, const DenseMatrix& b) {
  DenseMatrix x{a.rows, b.columns, std::vector<double>(a.rows * b.columns, 0)};
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t k = 0; k < a.columns; ++k) {
      for (std::size_t j = 0; j < b.columns; ++j) x.values[i * x.columns + j] += a.at(i, k) * b.at(k, j);
    }
  }
  return x;
}

/// An iteration of Newton and Schulz towards the orthogonal factor U V^T of M = U S V^T, from M over its norm: X <- a X + b X X^T X +
/// c (X X^T)^2 X. Optimizers of whole matrices take a few rounds of one.
struct Iteration {
  double a, b, c;
  int rounds;
};
constexpr Iteration kIterations[] = {{1.5, -0.5, 0, 48}, {3.4445, -4.7750, 2.0315, 5}, {1.5, -0.5, 0, 3}, {1.5, -0.5, 0, 4}, {1.5, -0.5, 0, 5},
                                     {1.5, -0.5, 0, 6},  {1.5, -0.5, 0, 8},            {1.5, -0.5, 0, 10}, {1.5, -0.5, 0, 12}};

DenseMatrix orthogonalised(DenseMatrix x, const Iteration& iteration) {
  const double size = norm(x.values);
  if (!(size > 0)) return x;
  for (double& value : x.values) value /= size;
  for (int round = 0; round < iteration.rounds; ++round) {
    const DenseMatrix gram = gram_of(x), cubed = product(gram, x), fifth = product(gram, cubed);
    for (std::size_t i = 0; i < x.values.size(); ++i)
      x.values[i] = iteration.a * x.values[i] + iteration.b * cubed.values[i] + iteration.c * fifth.values[i];
  }
  return x;
}

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  const double sizes = norm(a) * norm(b);
  return sizes > 0 ? dot(a, b) / sizes : 0;
}

/// What lies at a part's place in a matrix.
DenseMatrix cut(const DenseMatrix& whole, const Placement& placement, const std::vector<int64_t>& shape) {
  DenseMatrix part{static_cast<std::size_t>(shape[0]), static_cast<std::size_t>(shape[1]), {}};
  const auto row = static_cast<std::size_t>(placement.offset[0]), column = static_cast<std::size_t>(placement.offset[1]);
  for (std::size_t i = 0; i < part.rows; ++i) {
    for (std::size_t j = 0; j < part.columns; ++j) part.values.push_back(whole.at(row + i, column + j));
  }
  return part;
}

/// One parameter of two dimensions: its gradient and both runs' changes.
struct Moved {
  DenseMatrix gradient, expected, actual;
};

std::optional<Moved> moved(const ForcedEvidence& evidence, const std::string& name) {
  if (!evidence.state || !evidence.reference_state) return std::nullopt;
  const NamedTensor *before_a = find_tensor(evidence.reference_state->tensors, name), *before_b = find_tensor(evidence.state->tensors, name),
                    *after_a = find_tensor(evidence.reference.parameters, name), *after_b = find_tensor(evidence.cell.parameters, name);
  const NamedTensor* gradient = find_tensor(evidence.reference.applied.empty() ? evidence.reference.gradients : evidence.reference.applied, name);
  for (const NamedTensor* each : {before_a, before_b, after_a, after_b}) {
    if (!each || !gradient || each->values.size() != gradient->values.size()) return std::nullopt;
  }
  const std::size_t rows = gradient->shape.size() == 2 ? static_cast<std::size_t>(gradient->shape[0]) : 1;
  Moved it;
  it.gradient = it.expected = it.actual = {rows, gradient->values.size() / std::max<std::size_t>(rows, 1), gradient->values};
  for (std::size_t i = 0; i < gradient->values.size(); ++i) {
    it.expected.values[i] = after_a->values[i] - before_a->values[i];
    it.actual.values[i] = after_b->values[i] - before_b->values[i];
  }
  return it;
}

/// Where each part of the parameter lies.
std::vector<const Record*> parts_of_parameter(const StepOfRun& step, const std::string& name) {
  std::map<std::vector<int64_t>, const Record*> places;
  for (std::size_t rank = 0; rank < step.parts.size(); ++rank) {
    if (const Record* part = find_part(step, rank, Phase::parameters, name)) places.emplace(part->placement->offset, part);
  }
  std::vector<const Record*> parts;
  for (const auto& [offset, part] : places) parts.push_back(part);
  return parts;
}

/// Of a parameter that every rank holds whole: equal parts along a dimension, as an optimizer may share them out by itself.
std::vector<Record> even_parts(const NamedTensor& whole, std::size_t dimension, std::size_t ranks) {
  std::vector<Record> parts;
  const auto count = static_cast<int64_t>(ranks);
  if (count < 2 || whole.shape[dimension] % count != 0) return parts;
  for (int64_t rank = 0; rank < count; ++rank) {
    Record part;
    part.shape = whole.shape;
    part.shape[dimension] /= count;
    Placement placement{true, whole.shape, {0, 0}};
    placement.offset[dimension] = rank * part.shape[dimension];
    part.placement = std::make_shared<const Placement>(std::move(placement));
    parts.push_back(std::move(part));
  }
  return parts;
}

/// The change of each part as a multiple of the reference's change there; empty where one is not one.
std::vector<double> factors_by_part(const Moved& it, const std::vector<const Record*>& parts) {
  constexpr double kSameDirection = 1e-5;
  std::vector<double> factors;
  for (const Record* part : parts) {
    const DenseMatrix expected = cut(it.expected, *part->placement, part->shape), actual = cut(it.actual, *part->placement, part->shape);
    if (1 - cosine(expected.values, actual.values) > kSameDirection) return {};
    factors.push_back(norm(actual.values) / norm(expected.values));
  }
  return factors;
}

/// Does the reference move along what an iteration makes of its whole gradient, and each part of the cell along what it makes of its own?
bool orthogonalised_by_part(const Moved& it, const std::vector<const Record*>& parts) {
  constexpr double kSame = 1e-3;
  return std::ranges::any_of(kIterations, [&](const Iteration& iteration) {
    const DenseMatrix whole = orthogonalised(it.gradient, iteration);
    if (1 + cosine(whole.values, it.expected.values) > kSame) return false;
    bool other = false;
    for (const Record* part : parts) {
      const DenseMatrix gradient = cut(it.gradient, *part->placement, part->shape), actual = cut(it.actual, *part->placement, part->shape);
      if (1 + cosine(orthogonalised(gradient, iteration).values, actual.values) > kSame) return false;
      other = other || 1 + cosine(cut(whole, *part->placement, part->shape).values, actual.values) > 4 * kSame;
    }
    return other;
  });
}

}  // namespace

std::optional<std::vector<double>> values_at(const NamedTensor& whole, const Record& part) {
  const std::vector<int64_t>&extents = part.placement->whole, &offset = part.placement->offset;
  if (whole.shape != extents) return std::nullopt;
  std::vector<double> values;
  for (std::size_t i = 0; i < whole.values.size(); ++i) {
    std::size_t rest = i;
    bool inside = true;
    for (std::size_t d = extents.size(); d-- > 0;) {
      const auto at = static_cast<int64_t>(rest % static_cast<std::size_t>(extents[d]));
      rest /= static_cast<std::size_t>(extents[d]);
      inside = inside && at >= offset[d] && at < offset[d] + part.shape[d];
    }
    if (inside) values.push_back(whole.values[i]);
  }
  return values;
}

bool shard_stood_still(const StepOfRun& step, const BeforeUpdate& before, std::size_t rank, const std::string& name) {
  const Record* gradient = find_part(step, rank, Phase::reduced_gradients, name);
  const Record* part = find_part(step, rank, Phase::parameters, name);
  if (!part || std::ranges::any_of(part->shape, [](int64_t extent) { return extent == 0; })) return false;
  if (!gradient || !gradient->has_stats || !(gradient->stats.norm > 0) || !kept_bits(step, before, rank, name)) return false;
  if (before.reference_state && before.reference_after) {
    constexpr double kRoundings = 64;
    const NamedTensor* then = find_tensor(before.reference_state->tensors, name);
    const auto moved_there = region_gap(then, find_tensor(*before.reference_after, name), *part);
    if (moved_there && !(moved_there->gap > kRoundings * then->epsilon * moved_there->size)) return false;
  }
  for (std::size_t other = 0; other < step.parts.size(); ++other) {
    if (other != rank && find_part(step, other, Phase::parameters, name) && !kept_bits(step, before, other, name)) return true;
  }
  return false;
}

std::optional<UnlikeUpdate> unlike_update(const ForcedEvidence& evidence) {
  constexpr double kTelling = 1e-3, kBands = 64, kShare = 0.05, kRoundings = 16;
  std::optional<UnlikeUpdate> worst;
  for (const NamedTensor& gradient : evidence.cell.gradients) {
    const auto it = moved(evidence, gradient.name);
    if (!it) continue;
    const auto use = std::ranges::find(evidence.reduced.tensors, gradient.name, &TensorUse::name);
    if (use == evidence.reduced.tensors.end()) continue;
    const double least = std::max(kTelling * largest_of(it->gradient.values), kBands * std::max(use->use.band, use->use.difference));
    const NamedTensor* before = find_tensor(evidence.state->tensors, gradient.name);
    UnlikeUpdate found{gradient.name};
    double size = 0;
    for (std::size_t i = 0; i < it->gradient.values.size(); ++i) {
      if (!(std::abs(it->gradient.values[i]) > least)) continue;
      found.expected = std::hypot(found.expected, it->expected.values[i]);
      found.actual = std::hypot(found.actual, it->actual.values[i]);
      found.gap = std::hypot(found.gap, it->expected.values[i] - it->actual.values[i]);
      size = std::hypot(size, before->values[i]);
    }
    if (found.gap <= kShare * std::max(found.expected, found.actual) + kRoundings * before->epsilon * size) continue;
    if (!worst || found.gap * worst->expected > worst->gap * found.expected) worst = found;
  }
  return worst;
}

ShardUpdates updates_by_shard(const ForcedEvidence& evidence, const StepOfRun& cell) {
  ShardUpdates found;
  for (const NamedTensor& gradient : evidence.cell.gradients) {
    const std::vector<const Record*> parts = parts_of_parameter(cell, gradient.name);
    const auto it = gradient.shape.size() == 2 ? moved(evidence, gradient.name) : std::nullopt;
    if (!it || distance(it->expected.values, it->actual.values) <= 0.01 * norm(it->expected.values)) continue;
    const auto by_even_parts = [&](std::size_t dimension) {
      const std::vector<Record> made = even_parts(gradient, dimension, cell.ranks.size());
      std::vector<const Record*> even;
      for (const Record& part : made) even.push_back(&part);
      return !even.empty() && orthogonalised_by_part(*it, even);
    };
    const std::vector<double> factors = parts.size() > 1 ? factors_by_part(*it, parts) : std::vector<double>();
    const bool unequal = !factors.empty() && *std::ranges::max_element(factors) > 1.01 * *std::ranges::min_element(factors);
    if (unequal) {
      found.how = fmt::format("{} moved by {:.4g} times the reference's change, part by part", gradient.name, fmt::join(factors, ", "));
    } else if (parts.size() > 1 ? orthogonalised_by_part(*it, parts) : by_even_parts(0) || by_even_parts(1)) {
      found.how = fmt::format("each part of {} moved along the orthogonal factor of its own gradient, and the reference's along that of the whole", gradient.name);
    } else {
      return {};
    }
    found.exact = true;
    found.tensors.push_back(gradient.name);
  }
  return found;
}

}  // namespace lockstep
