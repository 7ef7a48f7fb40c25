#include "harness/judge/compare/operations.h"

#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "harness/base/json.h"
#include "harness/base/files.h"

namespace lockstep {
namespace {

constexpr double kOfSums = 1e-8;  // of sums in float64, relative to the largest of them

// Reading.

template <class T>
std::vector<T> list_of(const nlohmann::json& json) {
  return json_as<std::vector<T>>(json).value_or(std::vector<T>());
}

Projection read_projection(const nlohmann::json& json) {
  Projection made;
  const auto at = [&](std::size_t i) { return json.is_array() && i < json.size() ? json[i] : nlohmann::json(); };
  made.shape = list_of<int64_t>(at(0));
  made.whole = json_as<double>(at(1)).value_or(0);
  made.storage = json_as<uint64_t>(at(2)).value_or(0);
  made.rows = list_of<double>(at(3));
  made.columns = list_of<double>(at(4));
  made.sums = list_of<double>(at(5));
  made.powers = list_of<double>(at(6));
  return made;
}

std::vector<Projection> read_projections(const nlohmann::json& json) {
  std::vector<Projection> made;
  for (const nlohmann::json& each : json.is_array() ? json : nlohmann::json::array())
    made.push_back(read_projection(each));
  return made;
}

// How ranks' tensors are the reference's.

bool close(const std::vector<double>& a, const std::vector<double>& b, double factor = 1) {
  double scale = 0;
  for (const double each : a) scale = std::max(scale, std::abs(each * factor));
  for (const double each : b) scale = std::max(scale, std::abs(each));
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [&](double x, double y) { return are_close(x * factor, y, scale); });
}

/// All numbers of it, one after the other.
std::vector<double> numbers_of(const Projection& of) {
  std::vector<double> all = {of.whole};
  all.insert(all.end(), of.rows.begin(), of.rows.end());
  all.insert(all.end(), of.columns.begin(), of.columns.end());
  return all;
}

std::vector<double> added(const Views& views) {
  std::vector<double> sum;
  for (const Projection* each : views) {
    const std::vector<double> numbers = numbers_of(*each);
    sum.resize(numbers.size());
    std::ranges::transform(numbers, sum, sum.begin(), std::plus());
  }
  return sum;
}

using Along = std::vector<double> Projection::*;

std::vector<double> sorted_along(const Views& views, Along along) {
  std::vector<double> all;
  for (const Projection* each : views) all.insert(all.end(), (each->*along).begin(), (each->*along).end());
  std::ranges::sort(all);
  return all;
}

/// Sums of the rows' first, second and fourth powers: the same whatever their order.
std::vector<double> powers_of(const Views& views) {
  std::vector<double> sums(3);
  for (const Projection* each : views) {
    for (const double row : each->rows) sums[0] += row, sums[1] += row * row, sums[2] += row * row * row * row;
    if (each->rows.empty() && each->powers.size() == sums.size())
      std::ranges::transform(each->powers, sums, sums.begin(), std::plus());
  }
  return sums;
}

/// Of tensors with more rows than are kept.
bool have_equal_rows(const Views& a, const Views& b) {
  int64_t rows[2] = {0, 0};
  for (const Views* views : {&a, &b})
    for (const Projection* each : *views) {
      if (each->shape.empty() || (each->rows.empty() && each->powers.empty())) return false;
      rows[views == &a ? 0 : 1] += each->shape[0];
    }
  const std::vector<double> all = powers_of(a), parts = powers_of(b);
  return rows[0] == rows[1] && are_close(all[0], parts[0], std::sqrt(all[1] * static_cast<double>(rows[0]))) &&
         are_close(all[1], parts[1], all[1]) && are_close(all[2], parts[2], all[2]);
}

bool have(const Views& views, Along along, std::size_t dimension, int64_t& count) {
  count = 0;
  for (const Projection* each : views) {
    if (each->shape.size() <= dimension || (each->*along).size() != static_cast<std::size_t>(each->shape[dimension]))
      return false;
    count += each->shape[dimension];
  }
  return true;
}

void relate_along(const Views& a, const Views& b, Along along, std::size_t dimension, Relation& relation) {
  int64_t rows[2] = {0, 0};
  if (!have(a, along, dimension, rows[0]) || !have(b, along, dimension, rows[1])) return;
  const std::vector<double> all = sorted_along(a, along), parts = sorted_along(b, along);
  const bool row_wise =
      std::ranges::any_of(b,
                          [&](const Projection* each) { return each->shape[dimension] != a[0]->shape[dimension]; }) ||
      b.size() == a.size();
  if (row_wise && rows[0] == rows[1]) relation.rows = relation.rows || close(all, parts);
  if (row_wise && rows[1] < rows[0] && rows[1] > 0) relation.fewer = relation.fewer || are_among(parts, all);
  const auto& first = a[0]->*along;
  relation.other_order =
      relation.other_order ||
      (first.size() > 1 && std::ranges::all_of(b, [&](const Projection* each) {
         return close(sorted_along({each}, along), sorted_along({a[0]}, along)) && !close(each->*along, first);
       }));
  relation.place = relation.place || std::ranges::all_of(b, [&](const Projection* each) {
                     const auto& own = each->*along;
                     return own.size() < first.size() && own.size() > 1 &&
                            close(own, {first.begin(), first.begin() + std::ssize(own)});
                   });
}

const std::set<std::string, std::less<>> kDraws = {
    "rand",        "randn",        "randint",    "randperm", "rand_like",   "randn_like",     "randint_like",
    "normal",      "normal_",      "uniform_",   "uniform",  "random_",     "bernoulli",      "bernoulli_",
    "multinomial", "exponential_", "geometric_", "cauchy_",  "log_normal_", "native_dropout", "poisson"};

const std::set<std::string, std::less<>> kMoves = {
    "stack", "cat", "index", "select", "slice", "view", "reshape", "_unsafe_view", "copy_", "_to_copy", "lift_fresh",
    "expand", "unbind", "split", "embedding", "gather", "t", "transpose", "permute", "diagonal", "repeat", "clone",
    "squeeze", "unsqueeze", "index_select", "split_with_sizes", "narrow", "masked_select", "flip", "roll"};

}  // namespace

std::string base_of(const std::string& name) { return name.substr(0, name.find('.')); }

bool is_one_of(const std::string& name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, base_of(name)) != names.end();
}

bool draws(const Operation& operation) { return kDraws.contains(base_of(operation.name)); }

bool moves(const Operation& operation) { return kMoves.contains(base_of(operation.name)); }

bool masks(const Operation& operation) {
  return is_one_of(operation.name, {"masked_fill", "masked_fill_", "index_put_", "index_put", "where", "fill_",
                                    "bitwise_and", "logical_and"});
}

/// What has an input's value made it; of what was changed in place, by a view of it, the last that made something
/// there.
Flow flow_of(const Operations& operations) {
  Flow flow{&operations, {}, {}, {}, {}, {}};
  using Value = std::pair<std::vector<int64_t>, double>;
  std::map<Value, std::vector<int>> by_value;
  std::map<uint64_t, int> by_storage;
  std::set<uint64_t> fresh;
  for (int i = 0; i < static_cast<int>(operations.all.size()); ++i) {
    const Operation& operation = operations.all[static_cast<std::size_t>(i)];
    std::vector<int>& makers = flow.makers.emplace_back();
    std::vector<bool>& kept = flow.kept.emplace_back();
    bool of_weights = false, constant = !draws(operation) && operation.name != "backward";
    const bool lifts = base_of(operation.name) == "lift_fresh";  // a number of the program's
    for (const Projection& in : operation.in) {
      const Value value = {in.shape, in.whole};
      const auto equal = by_value.find(value);
      const auto storage = by_storage.find(in.storage);
      // Of several with one value: the last, and for equal inputs of one operation the last ones, in their order.
      const auto behind = static_cast<std::size_t>(
          std::count_if(operation.in.begin() + std::ssize(makers), operation.in.end(),
                        [&](const Projection& other) { return Value{other.shape, other.whole} == value; }));
      const int maker =
          equal != by_value.end()
              ? *(equal->second.end() - static_cast<std::ptrdiff_t>(std::min(behind, equal->second.size())))
          : storage != by_storage.end() ? storage->second
                                        : kNone;
      makers.push_back(maker);
      kept.push_back(equal == by_value.end() && !fresh.contains(in.storage));
      of_weights = of_weights || operations.weights.contains(in.storage) ||
                   (maker != kNone && flow.of_weights[static_cast<std::size_t>(maker)]);
      constant =
          constant && (lifts ? in.shape.empty() : maker != kNone && flow.constant[static_cast<std::size_t>(maker)]);
    }
    const bool like =
        is_one_of(operation.name, {"ones_like", "zeros_like", "full_like", "new_ones", "new_zeros", "new_full"});
    flow.of_weights.push_back(of_weights && !like);
    flow.constant.push_back(constant || like);
    if (operation.name == "backward") flow.roots.push_back(i);
    const std::string base = base_of(operation.name);
    for (const Projection& out : operation.out) {
      by_value[{out.shape, out.whole}].push_back(i);
      if (base.ends_with('_')) by_storage[out.storage] = i;  // changed in place
      if (std::ranges::none_of(operation.in, [&](const Projection& in) { return in.storage == out.storage; }))
        fresh.insert(out.storage);
    }
  }
  return flow;
}

Pass pass_of(const Flow& flow, int root) {
  Pass pass{&flow, root};
  std::vector<int> open = {root};
  while (!open.empty()) {
    const int i = open.back();
    open.pop_back();
    for (const int maker : pass.makers(i))
      if (maker != kNone && pass.all.insert(maker).second) open.push_back(maker);
  }
  for (const int i : pass.all) pass.by_place[{pass.at(i).name, pass.at(i).place}].push_back(i);
  return pass;
}

bool are_close(double a, double b, double scale) { return std::abs(a - b) <= kOfSums * std::max(scale, 1e-300); }

bool are_among(const std::vector<double>& some, const std::vector<double>& all) {
  const double scale = all.empty() ? 0 : std::max(std::abs(all.front()), std::abs(all.back()));
  std::size_t k = 0;
  for (const double each : all) k += k < some.size() && are_close(some[k], each, scale) ? 1 : 0;
  return k == some.size();
}

std::vector<double> sorted_rows(const Views& views) { return sorted_along(views, &Projection::rows); }

bool Walk::are_alike(const Views& views) {
  return std::ranges::all_of(views,
                             [&](const Projection* each) { return close(numbers_of(*views[0]), numbers_of(*each)); });
}

Relation Walk::relation_of(const Views& a, const Views& b, int ranks_a, int ranks_b) {
  Relation relation;
  const auto has_shape = [&](const Projection* each) {
    return each->shape == a[0]->shape && each->rows.size() == a[0]->rows.size();
  };
  if (std::ranges::all_of(a, has_shape) && std::ranges::all_of(b, has_shape)) {
    const std::vector<double> first = numbers_of(*a[0]), sums[2] = {added(a), added(b)};
    const auto are = [&](const Views& views, double factor) {
      return std::ranges::all_of(views,
                                 [&](const Projection* each) { return close(first, numbers_of(*each), factor); });
    };
    const bool alike = are(a, 1);
    relation.same = (alike && are(b, 1)) ||
                    (a.size() == b.size() && std::ranges::equal(a, b, [](const Projection* x, const Projection* y) {
                       return close(numbers_of(*x), numbers_of(*y));
                     }));
    relation.sum = close(sums[0], sums[1]);
    relation.mean = close(sums[0], sums[1], static_cast<double>(b.size()) / static_cast<double>(a.size()));
    relation.of_ranks = close(sums[0], sums[1], static_cast<double>(ranks_b) / ranks_a);
    const auto largest = std::ranges::max_element(first, {}, [](double x) { return std::abs(x); });
    if (!relation.fits() && alike && first.size() > 1 && *largest != 0) {
      const double factor = numbers_of(*b[0])[static_cast<std::size_t>(largest - first.begin())] / *largest;
      if (factor != 0 && are(b, factor)) relation.times = factor;
    }
  }
  relate_along(a, b, &Projection::rows, 0, relation);
  relate_along(a, b, &Projection::columns, 1, relation);
  const bool many = std::ranges::any_of(a, [](const Projection* each) { return !each->powers.empty(); });
  relation.rows = relation.rows || (many && have_equal_rows(a, b));
  int64_t rows[2] = {0, 0};
  if (!relation.fits() && have(a, &Projection::sums, 0, rows[0]) && have(b, &Projection::sums, 0, rows[1]) &&
      rows[0] == rows[1] && rows[0] > 0 && a[0]->shape.back() == b[0]->shape.back())
    relation.other_columns = close(sorted_along(a, &Projection::sums), sorted_along(b, &Projection::sums)) &&
                             !close(a[0]->sums, std::vector<double>(a[0]->sums.size(), a[0]->sums[0]));
  if (!relation.fits() && !a[0]->rows.empty() && !b[0]->rows.empty()) {
    // Rows times one number.
    std::vector<double> all = sorted_along(a, &Projection::rows), parts = sorted_along(b, &Projection::rows);
    const double factor = all.size() == parts.size() && all.back() != 0 ? parts.back() / all.back() : 0;
    if (factor > 0 && close(all, parts, factor)) relation.times = factor;
  }
  return relation;
}

std::string words_of(const Relation& of) {
  return of.same                  ? "the reference's"
         : of.rows                ? "its rows"
         : of.other_columns       ? "its rows with columns in another order"
         : of.sum                 ? "shares of its sum"
         : of.mean || of.of_ranks ? "shares of its mean"
         : of.place               ? "its first rows on each rank"
         : of.other_order         ? "its rows in another order"
         : of.times != 0          ? fmt::format("{:.4g} times its own", of.times)
         : of.fewer               ? "some of its rows"
                                  : "other numbers";
}

Operations read_operations(const std::string& folder, int rank) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 29, kMostOperations = 1 << 16;
  Operations made;
  const FileText file = read_file(fmt::format("{}/rank-{}.operations.json", folder, rank), kMostBytes);
  const nlohmann::json json = file ? parse_json(file.text) : nlohmann::json();
  if (!json.is_object()) return made;
  const auto places = json_as<std::vector<std::string>>(json.value("places", nlohmann::json()));
  made.drawn = list_of<double>(json.value("drawn", nlohmann::json()));
  const auto weights = list_of<uint64_t>(json.value("weights", nlohmann::json()));
  made.weights = {weights.begin(), weights.end()};
  const nlohmann::json all = json.value("operations", nlohmann::json());
  if (!places || !all.is_array() || all.size() > kMostOperations) return made;
  for (const nlohmann::json& each : all) {
    if (!each.is_array() || each.size() != 6) return {};
    const auto name = json_as<std::string>(each[0]);
    const auto place = json_as<std::size_t>(each[1]), in_backward = json_as<std::size_t>(each[2]);
    const auto numbers = json_as<std::vector<double>>(each[3]);
    if (!name || !place || *place >= places->size() || !in_backward || !numbers) return {};
    Operation operation{*name,    (*places)[*place],         *in_backward != 0,
                        *numbers, read_projections(each[4]), read_projections(each[5])};
    if (operation.name == "backward" && operation.in.empty()) return {};
    made.all.push_back(std::move(operation));
  }
  return made;
}

Walk::Walk(BySide<std::vector<Pass>> passes, BySide<int> ranks, const std::vector<Operations>& run)
    : passes_(std::move(passes)), ranks_(ranks), run_(run) {
  for (const auto& [key, places] : first().by_place) meet(key, places);
}

bool Walk::fits() const {
  const Relation loss = relate([this](Side side, std::size_t p) {
    const Pass& pass = passes_[side][p];
    return &pass.at(pass.root).in[0];
  });
  return loss.mean || loss.of_ranks || loss.sum;
}

void Walk::meet(const std::pair<std::string, std::string>& key, const Places& places) {
  BySide<std::vector<const Places*>> others;
  for (const Side side : kSides)
    for (const Pass& pass : passes_[side]) {
      const auto found = pass.by_place.find(key);
      if (found == pass.by_place.end() || found->second.size() != places.size()) return by_row(key);
      others[side].push_back(&found->second);
    }
  for (std::size_t k = 0; k < places.size(); ++k) {
    Hit met;
    for (const Side side : kSides)
      for (const Places* each : others[side]) met.of[side].push_back((*each)[k]);
    add(places[k], std::move(met));
  }
}

void Walk::add(int i, Hit met) {
  const std::size_t count = at(i).out.size();
  bool as_many = true;
  for (std::size_t p = 0; p < passes_[kRun].size(); ++p) as_many = as_many && of_pass(met, kRun, p).out.size() == count;
  for (std::size_t n = 0; n < count && as_many; ++n)
    met.out.push_back(relate([&](Side side, std::size_t p) { return element(of_pass(met, side, p).out, n); }));
  if (draws(at(i)))
    for (Relation& out : met.out)
      out = {.same = out.same, .rows = out.rows};  // draws are each row's own, not each place's
  if (!as_many) {
    // Of each row a tensor.
    BySide<std::vector<double>> wholes;
    for (const Side side : kSides)
      for (std::size_t p = 0; p < passes_[side].size(); ++p)
        for (const Projection& out : of_pass(met, side, p).out) wholes[side].push_back(out.whole);
    met.out.push_back({.rows = are_equal(std::move(wholes))});
  }
  met_[i] = std::move(met);
}

const Projection* Walk::element(const std::vector<Projection>& of, std::size_t n) {
  return n < of.size() ? &of[n] : nullptr;
}

bool Walk::are_equal(BySide<std::vector<double>> numbers) {
  for (const Side side : kSides) std::ranges::sort(numbers[side]);
  return numbers[0].size() == numbers[1].size() && are_among(numbers[1], numbers[0]);
}

void Walk::by_row(const std::pair<std::string, std::string>& key) {
  if (!draws(at(first().by_place.at(key)[0]))) return;
  BySide<std::vector<double>> wholes;
  Hit met;
  for (const Side side : kSides)
    for (const Pass& pass : passes_[side]) {
      const auto found = pass.by_place.find(key);
      if (found == pass.by_place.end()) return;
      met.of[side].push_back(found->second[0]);
      for (const int i : found->second)
        for (const Projection& out : pass.at(i).out) wholes[side].push_back(out.whole);
    }
  if (wholes[0].size() != wholes[1].size() || are_equal(std::move(wholes))) return;
  met.out = {Relation{}};
  met_[met.of[kReference][0]] = std::move(met);
}

const Projection* Walk::given(const Pass& pass, int i, std::size_t input) {
  if (!pass.has(i, input)) return nullptr;
  const Projection* given = &pass.at(i).in[input];
  if (const int maker = pass.makers(i)[input]; maker != kNone)
    for (const Projection& out : pass.at(maker).out)
      if (out.shape == given->shape && out.whole == given->whole) return &out;
  return given;
}

Relation Walk::relation_in(const BySide<Places>& of, BySide<std::size_t> input) const {
  return relate([&](Side side, std::size_t p) { return given(passes_[side][p], of[side][p], input[side]); });
}

std::optional<bool> Walk::are_paired(const Hit& of, std::size_t input, const Hit& other,
                                     std::size_t other_input) const {
  BySide<std::vector<std::pair<double, double>>> pairs;
  for (const Side side : kSides)
    for (std::size_t p = 0; p < passes_[side].size(); ++p) {
      const Projection *one = given(passes_[side][p], of.of[side][p], input),
                       *two = given(passes_[side][p], other.of[side][p], other_input);
      if (one == nullptr || two == nullptr || one->rows.empty() || one->rows.size() != two->rows.size())
        return std::nullopt;
      for (std::size_t k = 0; k < one->rows.size(); ++k) pairs[side].emplace_back(one->rows[k], two->rows[k]);
    }
  for (const Side side : kSides) std::ranges::sort(pairs[side]);
  using Pair = std::pair<double, double>;
  const auto scale = [&](double Pair::* of_pair) {
    double most = 0;
    for (const Pair& each : pairs[kReference]) most = std::max(most, std::abs(each.*of_pair));
    return most;
  };
  const double keys = scale(&Pair::first), values = scale(&Pair::second);
  bool paired = true;
  if (pairs[kReference].size() != pairs[kRun].size()) return std::nullopt;
  for (std::size_t k = 0; k < pairs[kRun].size(); ++k) {
    const auto &there = pairs[kReference][k], &here = pairs[kRun][k];
    const bool again = k > 0 && are_close(pairs[kReference][k - 1].first, there.first, keys);
    if (again || !are_close(there.first, here.first, keys)) return std::nullopt;
    paired = paired && are_close(there.second, here.second, values);
  }
  return paired;
}

bool Walk::makes_one_on_all(const Hit& met) const {
  return alike_on_all(met, [this](std::size_t p, int i) { return element(passes_[kRun][p].at(i).out, 0); });
}

bool Walk::takes_one_on_all(const Hit& met, std::size_t input) const {
  return alike_on_all(met, [&](std::size_t p, int i) { return given(passes_[kRun][p], i, input); });
}

Places Walk::makers_of(const Hit& met, Side side, std::size_t input) const {
  Places makers;
  for (std::size_t p = 0; p < passes_[side].size(); ++p) {
    const Pass& pass = passes_[side][p];
    const int maker = pass.has(met.of[side][p], input) ? pass.makers(met.of[side][p])[input] : kNone;
    if (maker == kNone || (p > 0 && pass.at(maker).name != first(side).at(makers[0]).name)) return {};
    makers.push_back(maker);
  }
  return makers;
}

void Walk::find_culprits() {
  std::set<int> seen;
  std::vector<int> open = first().makers(first().root);
  while (!open.empty()) {
    const int i = open.back();
    open.pop_back();
    if (i == kNone || !seen.insert(i).second) continue;
    const auto met = met_.find(i);
    std::vector<int> next;
    for (std::size_t k = 0; k < first().makers(i).size(); ++k) {
      const int maker = first().makers(i)[k];
      if (met != met_.end()) meet_makers(met->second, k, maker);
      const auto made = met_.find(maker);
      if (maker != kNone && (met == met_.end() || made == met_.end() || !made->second.fits())) next.push_back(maker);
    }
    if (met != met_.end() && met->second.fits()) continue;
    if (met != met_.end() && std::ranges::none_of(next, [&](int maker) { return leads_to_one(maker); }))
      culprits_.insert(i);
    open.insert(open.end(), next.begin(), next.end());
  }
}

void Walk::meet_makers(const Hit& by, std::size_t input, int maker) {
  if (maker == kNone || met_.contains(maker)) return;
  for (const Pass& pass : passes_[kRun])
    if (pass.by_place.contains({at(maker).name, at(maker).place})) return;  // there otherwise often: once for each row
  const BySide<Places> makers = {makers_of(by, kReference, input), makers_of(by, kRun, input)};
  if (makers[kReference].empty() || makers[kRun].empty()) return;
  if (base_of(first(kRun).at(makers[kRun][0]).name) == base_of(at(maker).name)) add(maker, {makers});
}

bool Walk::leads_to_one(int i) {
  const auto known = leads_.find(i);
  if (known != leads_.end()) return known->second;
  bool& leads = leads_[i] = false;
  const auto met = met_.find(i);
  if (met != met_.end()) return leads = !met->second.fits();
  bool found = false;
  for (const int maker : first().makers(i)) found = found || (maker != kNone && leads_to_one(maker));
  return leads_[i] = found;
}

std::vector<int> Walk::led_to(int from) const {
  std::vector<int> reached = {from};
  for (auto i = first().all.upper_bound(from); i != first().all.end(); ++i)
    if (std::ranges::any_of(first().makers(*i),
                            [&](int maker) { return std::ranges::find(reached, maker) != reached.end(); }))
      reached.push_back(*i);
  return reached;
}

int Walk::user_of(int from) const {
  for (const int i : led_to(from))
    if (i != from && !first().is_constant(i) && (!moves(at(i)) || is_one_of(at(i).name, {"gather", "index"}))) return i;
  return kNone;
}

bool Walk::is_of_rows(int i) const {
  const auto met = met_.find(i);
  if (met == met_.end()) return false;
  for (const Projection& out : at(i).out)
    for (const Projection& own : of_pass(met->second, kRun, 0).out)
      if (!out.shape.empty() && out.shape.size() == own.shape.size() && out.shape[0] != own.shape[0]) return true;
  return false;
}

bool Walk::is_of_scores(const Hit& met) const {
  int64_t rows = 0;
  for (std::size_t p = 0; p < passes_[kReference].size(); ++p) {
    const Projection* out = element(of_pass(met, kReference, p).out, 0);
    if (out == nullptr || out->shape.size() != 2 || out->rows.empty()) return false;
    rows += out->shape[0];
  }
  return of_pass(met, kReference, 0).out[0].shape[1] >= rows;
}

}  // namespace lockstep
