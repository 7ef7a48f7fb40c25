#include "harness/judge/compare/forced/values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "harness/judge/compare/bits.h"

namespace lockstep {
namespace {

/// Half the digits that float64 has beyond what a sum of some thousand terms rounds away.
constexpr double kMeaning = 1e-12;
constexpr double kMeaningWhole = 1e-14;
constexpr double kMeaningOwn = 64;
constexpr double kEpsilon64 = std::numeric_limits<double>::epsilon();

/// Of a sum's size: who errs by so much has no digit left.
constexpr double kNoDigit = 1.0 / 8;
constexpr double kEpsilon32 = std::numeric_limits<float>::epsilon();

constexpr double kRatio = 16;
constexpr double kTerms = 8;
constexpr double kWhole = 4;
constexpr double kSingle = 4;

double difference(const std::optional<double>& a, const std::optional<double>& b) {
  const double found = a && b ? distance(*a, *b) : 0;
  return std::isfinite(found) ? found : 0;
}

/// |narrow - wide|; 0 where there is none of that name, or no number.
double own_error(const NamedTensor& wide, const NamedTensor* narrow) {
  const double found = narrow && narrow->values.size() == wide.values.size() ? distance(narrow->values, wide.values) : 0;
  return std::isfinite(found) ? found : 0;
}

}  // namespace

void add_errors(LargestErrors& errors, const ForcedValues& reference, const ForcedValues& twin) {
  for (const NamedTensor& wide : twin.gradients) {
    const double size = term_size(wide, twin);
    if (!(size > 0)) continue;
    double& largest = errors[wide.name];
    largest = std::max(largest, own_error(wide, find_tensor(reference.gradients, wide.name)) / size);
  }
}

TwinBounds::TwinBounds(TwinQuestion question, const ForcedValues& reference, const ForcedValues& twin, const LargestErrors& errors)
    : question_(question), epsilon_(reference.working_epsilon) {
  for (const NamedTensor& wide : twin.gradients) {
    const double size = term_size(wide, twin);
    const auto largest = errors.find(wide.name);
    const double at_worst = largest == errors.end() ? 0 : largest->second * size;
    const double own = std::max(own_error(wide, find_tensor(reference.gradients, wide.name)), at_worst);
    gradients_[wide.name] = {own, size, wide.values.size() == 1};
    whole_ = std::hypot(whole_, size);
  }
  for (const NamedTensor& wide : twin.parameters) {
    if (!is_buffer(wide.name)) continue;
    buffers_[wide.name] = {own_error(wide, find_tensor(reference.parameters, wide.name)), norm(wide.values),
                           wide.values.size() == 1};
  }
  if (reference.scores && twin.scores) scores_ = score_difference(*twin.scores, *reference.scores).largest;
  if (!std::isfinite(scores_)) scores_ = 0;
  loss_ = difference(reference.loss, twin.loss);
  gradient_norm_ = difference(reference.gradient_norm, twin.gradient_norm);
}

double TwinBounds::bound(const Value& value, double whole) const {
  if (question_ == TwinQuestion::meaning) {
    const double epsilon = value.own >= kNoDigit * value.size ? std::min(epsilon_, kEpsilon32) : epsilon_;
    return kMeaning * value.size + kMeaningWhole * whole + kMeaningOwn * kEpsilon64 / epsilon * value.own;
  }
  return kRatio * value.own + (value.single ? kSingle : 1) * epsilon_ * (kTerms * value.size + kWhole * whole);
}

double TwinBounds::of_gradient(const std::string& name) const {
  const auto found = gradients_.find(name);
  return found == gradients_.end() ? 0 : bound(found->second, whole_);
}

double TwinBounds::of_gradient_norm(double size) const {
  double whole = 0;
  for (const auto& [name, value] : gradients_) whole = std::hypot(whole, bound(value, whole_));
  return std::max(whole, bound({gradient_norm_, size, true}, 0));
}

double TwinBounds::of_buffer(const std::string& name, double size) const {
  const auto found = buffers_.find(name);
  Value value = found == buffers_.end() ? Value{} : found->second;
  value.size = size;
  return bound(value, 0);
}

std::optional<std::size_t> single_difference(const std::vector<double>& expected,
                                             const std::vector<double>& actual, double band) {
  if (expected.size() != actual.size() || expected.empty()) return std::nullopt;
  std::size_t worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (distance(expected[i], actual[i]) > distance(expected[worst], actual[worst])) worst = i;
  }
  if (!(distance(expected[worst], actual[worst]) > band)) return std::nullopt;
  double rest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (i != worst) rest = std::hypot(rest, distance(expected[i], actual[i]));
  }
  return rest <= band ? std::optional(worst) : std::nullopt;
}

double with_bit_turned(double value, int bit, bool wide) {
  if (wide) return std::bit_cast<double>(std::bit_cast<uint64_t>(value) ^ (uint64_t{1} << bit));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(value)) ^ (uint32_t{1} << bit));
}

/// The ranks' values of one element; empty if a rank lacks the tensor.
static std::vector<double> values_at(const WrongElement& it, const std::vector<std::vector<NamedTensor>>& local) {
  std::vector<double> values;
  for (const std::vector<NamedTensor>& rank : local) {
    const NamedTensor* tensor = find_tensor(rank, it.tensor);
    if (!tensor || it.element >= tensor->values.size()) return {};
    values.push_back(tensor->values[it.element]);
  }
  return values;
}

/// Every (rank, bit) of which `explains` holds.
template <class Explains>
static std::vector<FlippedBit> flips_that(const WrongElement& it, std::size_t ranks, Explains explains) {
  std::vector<FlippedBit> found;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (int bit = 0; bit < (it.wide ? 64 : 32); ++bit)
      if (explains(rank, bit)) found.push_back({static_cast<int>(rank), it.tensor, it.element, bit});
  return found;
}

std::vector<FlippedBit> flips_in_values(const WrongElement& it,
                                        const std::vector<std::vector<NamedTensor>>& local) {
  const std::vector<double> values = values_at(it, local);
  const auto ranks = static_cast<double>(values.size());
  return flips_that(it, values.size(), [&](std::size_t rank, int bit) {
    // A flip may have made the number huge: what it was is told by the others, not by taking the difference.
    double right = it.right * ranks;
    for (std::size_t other = 0; other < values.size(); ++other) right -= other == rank ? 0 : values[other];
    return std::abs(with_bit_turned(values[rank], bit, it.wide) - right) <= ranks * it.uncertain;
  });
}

std::vector<FlippedBit> flips_in_messages(const WrongElement& it,
                                          const std::vector<std::vector<NamedTensor>>& local) {
  const std::vector<double> values = values_at(it, local);
  const auto ranks = static_cast<double>(values.size());
  const double change = it.wrong - it.right;
  const double tolerance = it.uncertain + (ranks + 4) * it.epsilon * std::abs(change);
  return flips_that(it, values.size(), [&](std::size_t rank, int bit) {
    const double plain = (with_bit_turned(values[rank], bit, it.wide) - values[rank]) / ranks;
    const double divided = with_bit_turned(values[rank] / ranks, bit, it.wide) - values[rank] / ranks;
    if (!std::isfinite(change)) return !std::isfinite(plain) || !std::isfinite(divided);
    return std::abs(plain - change) <= tolerance || std::abs(divided - change) <= tolerance;
  });
}

namespace {

/// For a single number all four repeats can lie close by chance: for normal rounding the chance that another
/// draw is k times as far off as the farthest of them is about 1.2 / k^4, 3e-4 at k = 8 and 7e-8 at k = 64.
/// From two elements on it falls with k^8 or faster.
constexpr double kSingleElement = 8;

/// A tensor's errors may have one common source, so that its repeats are draws of one number too: how far the
/// other tensors' rounding may widen its band. By the same rule, 4 bands are exceeded by chance once in a
/// million.
constexpr double kCommonSource = 4;

/// How many roundings of half precision a gradient takes up, layer after layer.
constexpr double kCoarse = 16;

/// Sums over the tensors of a group.
struct GroupSums {
  std::string name;
  std::size_t elements = 0;
  double dot = 0, reference = 0, cell = 0, difference = 0, terms = 0;  // squares, but for dot
  bool terms_recorded = true;
  double twin_bound = 0;  // square
  std::vector<double> repeats = {};  // squared differences, by repeat
};

double square(double value) { return value * value; }

/// What one tensor adds to its group and to "all".
GroupSums sums_of(const NamedTensor& reference, const NamedTensor& cell, const ForcedValues& values,
                  const std::vector<const NamedTensor*>& repeats) {
  const NamedTensor* terms = find_tensor(values.term_sums, reference.name);
  GroupSums sums;
  sums.elements = reference.values.size();
  sums.dot = dot(reference.values, cell.values);
  sums.reference = dot(reference.values, reference.values);
  sums.cell = dot(cell.values, cell.values);
  sums.difference = square(distance(reference.values, cell.values));
  sums.terms = square(terms ? norm(terms->values) : term_size(reference, values));
  sums.terms_recorded = terms != nullptr;
  for (const NamedTensor* repeat : repeats)
    sums.repeats.push_back(square(distance(reference.values, repeat->values)));
  return sums;
}

void add(GroupSums& to, const GroupSums& from) {
  to.elements += from.elements;
  to.dot += from.dot;
  to.reference += from.reference;
  to.cell += from.cell;
  to.difference += from.difference;
  to.terms += from.terms;
  to.terms_recorded = to.terms_recorded && from.terms_recorded;
  to.twin_bound += from.twin_bound;
  to.repeats.resize(from.repeats.size());
  for (std::size_t k = 0; k < from.repeats.size(); ++k) to.repeats[k] += from.repeats[k];
}

/// What all tensors' bands share.
struct BandScale {
  const BandConfig& config;
  double whole_gradient = 0, epsilon = 0;
  double low_precision = 1;  ///< times the floor
  std::size_t elements = 0;  ///< of the whole gradient
  double pooled = 0;  ///< rounding of a typical tensor, by its size of terms
  bool by_twins = false;
};

/// How large the largest difference of the repeats is against the sum of |terms|: its upper quartile over the
/// tensors.
double pooled_rounding(const std::vector<GroupSums>& tensors) {
  std::vector<double> shares;
  for (const GroupSums& sums : tensors) {
    if (sums.terms == 0 || sums.repeats.empty()) continue;
    shares.push_back(std::sqrt(*std::ranges::max_element(sums.repeats) / sums.terms));
  }
  if (shares.empty()) return 0;
  const auto quartile = shares.begin() + static_cast<std::ptrdiff_t>(shares.size() * 3 / 4);
  std::nth_element(shares.begin(), quartile, shares.end());
  return *quartile;
}

double band_of(const GroupSums& sums, const BandScale& scale) {
  const BandConfig& config = scale.config;
  if (scale.by_twins) return std::sqrt(sums.twin_bound);
  if (config.exact > 0) return config.exact * std::sqrt(std::max(sums.reference, sums.terms));
  double terms = std::sqrt(sums.terms);
  // A gradient that nearly cancels is smaller than its terms, which no record tells: an element of the whole
  // gradient's usual size stands for them.
  if (!sums.terms_recorded && scale.elements > 0) {
    const double share = static_cast<double>(sums.elements) / static_cast<double>(scale.elements);
    terms = std::max(terms, scale.whole_gradient * std::sqrt(share));
  }
  const double floor = config.floor * scale.low_precision * scale.epsilon * terms;
  if (sums.repeats.empty()) return std::max(floor, rounding_bound(0, scale.epsilon) * scale.whole_gradient);
  const double factor = sums.elements == 1 ? kSingleElement * config.factor : config.factor;
  const double measured = std::sqrt(*std::ranges::max_element(sums.repeats));
  // A tensor whose few repeats all lie close by chance still rounds as the others do.
  const double as_others = config.factor * scale.pooled * std::sqrt(sums.terms);
  return std::max({floor, factor * measured, std::min(as_others, kCommonSource * factor * measured)});
}

/// c = <g, g_ref> / |g_ref|^2 and cosine are 0 where they would divide by 0, unless both gradients are 0.
GradientSignature signature_of(const GroupSums& sums, const BandScale& scale) {
  GradientSignature signature;
  signature.group = sums.name;
  signature.difference = std::sqrt(sums.difference);
  signature.band = band_of(sums, scale);
  if (sums.reference == 0 && sums.cell == 0) return signature;
  signature.ratio = sums.reference > 0 ? sums.dot / sums.reference : 0;
  const double norms = std::sqrt(sums.reference) * std::sqrt(sums.cell);
  signature.cosine = norms > 0 ? std::clamp(sums.dot / norms, -1.0, 1.0) : 0;
  if (sums.cell == 0) return signature;
  // |g - c g_ref|^2 = |g - g_ref|^2 - (1 - c)^2 |g_ref|^2: near agreement |g|^2 - c <g, g_ref> would lose
  // every digit.
  const double squares = sums.difference - square(1 - signature.ratio) * sums.reference;
  signature.residual = std::sqrt(std::max(0.0, squares)) / std::sqrt(sums.cell);
  return signature;
}

}  // namespace

double BandUse::used() const {
  if (difference == 0) return 0;
  if (std::isfinite(difference) && band > 0) return difference / band;
  return std::numeric_limits<double>::infinity();
}

const TensorUse* GradientJudgement::worst() const {
  const auto found = std::ranges::max_element(tensors, {}, [](const TensorUse& each) { return each.use.used(); });
  return found == tensors.end() ? nullptr : &*found;
}

std::string parameter_group(const std::string& name) { return name.substr(0, name.find('.')); }

GradientJudgement judge_gradients(const ForcedValues& reference, const ForcedValues& cell, const std::vector<ForcedValues>& repeats,
                                  const BandConfig& config, const TwinBounds* twins) {
  return judge_gradients(reference, {reference.gradients, cell.gradients}, repeats, config, twins);
}

GradientJudgement judge_gradients(const ForcedValues& reference, const GradientPair& gradients,
                                  const std::vector<ForcedValues>& repeats, const BandConfig& config,
                                  const TwinBounds* twins) {
  GradientJudgement judgement;
  std::vector<GroupSums> by_tensor, groups;
  GroupSums all{.name = "all"};
  // A flattened tensor that one of two optimizers holds is made of those that have names.
  const auto has_name = [](const NamedTensor& tensor) { return !tensor.name.starts_with("unnamed "); };
  for (const NamedTensor& expected : gradients.reference) {
    const NamedTensor* actual = find_tensor(gradients.cell, expected.name);
    if (!actual) {
      if (has_name(expected)) judgement.missing.push_back(expected.name);
      continue;
    }
    // A shard has its own shape in each layout, and is compared where shapes agree.
    if (actual->shape != expected.shape && actual->may_be_shard) continue;
    if (actual->shape != expected.shape) {
      judgement.misshapen.push_back(expected.name);
      continue;
    }
    std::vector<const NamedTensor*> repeated;
    for (const ForcedValues& repeat : repeats) {
      const NamedTensor* tensor = find_tensor(repeat.gradients, expected.name);
      if (!tensor || tensor->shape != expected.shape) {
        throw TraceError("a forced repeat lacks the gradient " + expected.name +
                         ", or has it in another shape");
      }
      repeated.push_back(tensor);
    }
    by_tensor.push_back(sums_of(expected, *actual, reference, repeated));
    by_tensor.back().name = expected.name;
    if (twins) by_tensor.back().twin_bound = square(twins->of_gradient(expected.name));
    const std::string group = parameter_group(expected.name);
    auto place = std::ranges::find(groups, group, &GroupSums::name);
    if (place == groups.end()) place = groups.insert(place, {.name = group});
    add(*place, by_tensor.back());
    add(all, by_tensor.back());
  }
  for (const NamedTensor& actual : gradients.cell) {
    if (has_name(actual) && !find_tensor(gradients.reference, actual.name)) judgement.missing.push_back(actual.name);
  }
  // Each rank rounds its own gradients, which permuted rows of one process do not show; and without term sums nobody
  // knows what was rounded.
  const bool coarse = reference.working_epsilon > reference.epsilon && reference.term_sums.empty();
  const BandScale scale{config, std::sqrt(all.reference), reference.working_epsilon, coarse ? kCoarse : 1, all.elements,
                        pooled_rounding(by_tensor), twins != nullptr};
  for (const GroupSums& sums : by_tensor) {
    judgement.tensors.push_back({sums.name,
                                 {std::sqrt(sums.difference), band_of(sums, scale)},
                                 std::sqrt(sums.reference),
                                 std::sqrt(sums.cell)});
  }
  groups.push_back(all);
  for (const GroupSums& sums : groups) judgement.groups.push_back(signature_of(sums, scale));
  return judgement;
}

std::vector<double> reduction_allowance(const ForcedValues& values, const NamedTensor& tensor) {
  const auto ranks = static_cast<double>(values.local.size());
  const double divisor = values.reduced_by_sum ? 1 : ranks;
  // Below the smallest normal number rounding is absolute: softmax of a model that explodes gives such gradients in float64, too.
  const double least = tensor.epsilon < 1e-10 ? std::numeric_limits<double>::denorm_min() : std::numeric_limits<float>::denorm_min();
  std::vector<double> allowance(tensor.values.size(), least * ranks);
  for (const std::vector<NamedTensor>& rank : values.local) {
    const NamedTensor* own = find_tensor(rank, tensor.name);
    if (!own || own->values.size() != allowance.size()) continue;
    // Each micro-step's may be reduced and added to the sum so far: terms that cancel are as large as elements of the tensor are.
    const auto additions = static_cast<double>(values.micro_steps - 1);
    const double usual = additions > 0 ? norm(own->values) / std::sqrt(static_cast<double>(std::max<std::size_t>(1, own->values.size()))) : 0;
    for (std::size_t i = 0; i < allowance.size(); ++i) {
      const double size = std::abs(own->values[i]);
      allowance[i] += tensor.epsilon * ((ranks + 4) * size + additions * std::max(size, usual)) / divisor;
    }
  }
  return allowance;
}

std::vector<ReductionUse> judge_reduction(const ForcedValues& cell) {
  std::vector<ReductionUse> uses;
  if (cell.local.empty()) return uses;
  const std::vector<NamedTensor> means = mean_of_local(cell);
  for (const NamedTensor& reduced : cell.gradients) {
    const NamedTensor* mean = find_tensor(means, reduced.name);
    if (!mean || mean->shape != reduced.shape) continue;
    if (!std::ranges::all_of(mean->values, [](double x) { return std::isfinite(x); })) continue;
    const std::vector<double> allowance = reduction_allowance(cell, reduced);
    ReductionUse use{reduced.name, 0};
    for (std::size_t i = 0; i < allowance.size(); ++i) {
      const double gap = distance(mean->values[i], reduced.values[i]);
      if (gap > 0) use.used = std::max(use.used, gap / allowance[i]);
    }
    uses.push_back(use);
  }
  return uses;
}

std::string bucket_of(const StepRecords& rank0, const std::string& tensor) {
  std::vector<const Record*> buckets = records_of(rank0, Phase::collective);
  std::erase_if(buckets, [](const Record* call) { return call->collective.op != "reduce_gradients"; });
  // Buckets hold tensors that stand side by side, in the order of the parameters or in that of their
  // gradients.
  const auto found_in = [&](const std::vector<const Record*>& order) -> std::string {
    for (const Record* bucket : buckets) {
      for (std::size_t first = 0; first < order.size(); ++first) {
        uint64_t sum = 0;
        bool holds = false;
        for (std::size_t last = first; last < order.size(); ++last) {
          sum += order[last]->stats.hash;
          holds = holds || order[last]->name == tensor;
          if (holds && sum == bucket->collective.hash_in) return bucket->collective.tag;
        }
      }
    }
    return "";
  };
  const std::string by_readiness = found_in(records_of(rank0, Phase::local_gradients));
  if (!by_readiness.empty()) return by_readiness;
  std::vector<const Record*> by_parameter;
  for (const Record* reduced : records_of(rank0, Phase::reduced_gradients))
    if (const Record* local = find_record(rank0, Phase::local_gradients, reduced->name)) by_parameter.push_back(local);
  return found_in(by_parameter);
}

namespace {

using Column = std::vector<double>;

double norm_from(const Column& column, std::size_t row) {
  double squares = 0;
  for (std::size_t i = row; i < column.size(); ++i) squares += column[i] * column[i];
  return std::sqrt(squares);
}

/// Householder reflections: R in the place of the columns. Of the first `pivots` the longest comes first each time;
/// returns their order.
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
    const double squares = dot(mirror, mirror);
    for (std::size_t j = k; j < columns.size(); ++j) {
      double along = 0;
      for (std::size_t i = 0; i < mirror.size(); ++i) along += mirror[i] * columns[j][k + i];
      for (std::size_t i = 0; i < mirror.size(); ++i) columns[j][k + i] -= 2 * along / squares * mirror[i];
    }
  }
  return order;
}

/// R of all rows, the sum's column last. Rows are taken in blocks: what was before is kept as its own R, so that memory
/// stays small.
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

std::vector<WeighedTensor> weighed_tensors(const std::vector<NamedTensor>& sum,
                                           const std::vector<std::vector<NamedTensor>>& parts) {
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
