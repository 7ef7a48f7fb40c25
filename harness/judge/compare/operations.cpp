#include "harness/judge/compare/operations.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/base/json.h"
#include "harness/base/files.h"
#include "harness/base/text.h"

namespace lockstep {
namespace {

constexpr double kOfSums = 1e-8;  // of sums in float64, relative to the largest of them

// Reading.

Projection read_projection(const nlohmann::json& json) {
  Projection made;
  const auto at = [&](std::size_t i) { return json.is_array() && i < json.size() ? json[i] : nlohmann::json(); };
  made.shape = json_as<std::vector<int64_t>>(at(0)).value_or(std::vector<int64_t>());
  made.whole = json_as<double>(at(1)).value_or(0);
  made.storage = json_as<uint64_t>(at(2)).value_or(0);
  made.rows = json_as<std::vector<double>>(at(3)).value_or(std::vector<double>());
  made.columns = json_as<std::vector<double>>(at(4)).value_or(std::vector<double>());
  made.sums = json_as<std::vector<double>>(at(5)).value_or(std::vector<double>());
  return made;
}

std::vector<Projection> read_projections(const nlohmann::json& json) {
  std::vector<Projection> made;
  for (const nlohmann::json& each : json.is_array() ? json : nlohmann::json::array()) made.push_back(read_projection(each));
  return made;
}

std::string base_of(const std::string& name) { return name.substr(0, name.find('.')); }

// One log: what each operation's inputs were made by.

constexpr int kNone = -1;

struct Flow {
  const Operations* of = nullptr;
  std::vector<std::vector<int>> makers;  ///< by operation and input
  std::vector<std::vector<bool>> kept;   ///< was it there before the step?
  std::vector<int> roots;                ///< where backward passes begin
};

/// What has an input's value made it; of what was changed in place, by a view of it, the last that made something there.
Flow flow_of(const Operations& operations) {
  Flow flow{&operations, {}, {}, {}};
  std::map<std::pair<std::vector<int64_t>, double>, int> by_value;
  std::map<uint64_t, int> by_storage;
  std::set<uint64_t> fresh;
  for (int i = 0; i < static_cast<int>(operations.all.size()); ++i) {
    const Operation& operation = operations.all[static_cast<std::size_t>(i)];
    std::vector<int>& makers = flow.makers.emplace_back();
    std::vector<bool>& kept = flow.kept.emplace_back();
    for (const Projection& in : operation.in) {
      const auto value = by_value.find({in.shape, in.whole});
      const auto storage = by_storage.find(in.storage);
      makers.push_back(value != by_value.end() ? value->second : storage != by_storage.end() ? storage->second : kNone);
      kept.push_back(value == by_value.end() && !fresh.contains(in.storage));
    }
    if (operation.name == "backward") flow.roots.push_back(i);
    const std::string base = base_of(operation.name);
    for (const Projection& out : operation.out) {
      by_value[{out.shape, out.whole}] = i;
      if (base.ends_with('_')) by_storage[out.storage] = i;  // changed in place
      if (std::ranges::none_of(operation.in, [&](const Projection& in) { return in.storage == out.storage; }))
        fresh.insert(out.storage);
    }
  }
  return flow;
}

/// A forward pass: what leads to one backward pass's loss.
struct Pass {
  const Flow* flow = nullptr;
  int root = kNone;
  std::set<int> all = {};
  std::map<std::pair<std::string, std::string>, std::vector<int>> by_place = {};  ///< name and place; in their order

  const Operation& at(int i) const { return flow->of->all[static_cast<std::size_t>(i)]; }
  const std::vector<int>& makers(int i) const { return flow->makers[static_cast<std::size_t>(i)]; }
};

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

// How the ranks' (and micro-steps') tensors are the reference's.

struct Relation {
  bool same = false;  ///< each is the reference's
  bool sum = false, mean = false;
  bool of_ranks = false;       ///< their sum over the number of ranks is the reference's: means over ranks of sums over micro-steps
  bool rows = false;           ///< they hold its rows, or columns, in any order
  bool fewer = false;          ///< they hold some of its rows, each once
  bool other_columns = false;  ///< they hold its rows, with columns in another order
  bool other_order = false;    ///< each holds all of its rows, not in its order
  bool place = false;          ///< each is how it begins
  double times = 0;            ///< each is so many times the reference's; 0: not so

  bool fits() const { return same || sum || mean || of_ranks || rows || other_columns || other_order || place || times != 0; }
  bool is_part() const { return (sum || mean || of_ranks) && !same; }
};

using Views = std::vector<const Projection*>;

bool close(double a, double b, double scale) { return std::abs(a - b) <= kOfSums * std::max(scale, 1e-300); }

bool close(const std::vector<double>& a, const std::vector<double>& b, double factor = 1) {
  double scale = 0;
  for (const double each : a) scale = std::max(scale, std::abs(each * factor));
  for (const double each : b) scale = std::max(scale, std::abs(each));
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [&](double x, double y) { return close(x * factor, y, scale); });
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

std::vector<double> wholes_of(const Views& views) {
  std::vector<double> all;
  for (const Projection* each : views) all.push_back(each->whole);
  std::ranges::sort(all);
  return all;
}

/// Each of `some` is one of `all` of its own; both sorted.
bool among(const std::vector<double>& some, const std::vector<double>& all) {
  const double scale = all.empty() ? 0 : std::max(std::abs(all.front()), std::abs(all.back()));
  std::size_t k = 0;
  for (const double each : all) k += k < some.size() && close(some[k], each, scale) ? 1 : 0;
  return k == some.size();
}

bool have(const Views& views, Along along, std::size_t dimension, int64_t& count) {
  count = 0;
  for (const Projection* each : views) {
    if (each->shape.size() <= dimension || (each->*along).size() != static_cast<std::size_t>(each->shape[dimension])) return false;
    count += each->shape[dimension];
  }
  return true;
}

void relate_along(const Views& a, const Views& b, Along along, std::size_t dimension, Relation& relation) {
  int64_t rows[2] = {0, 0};
  if (!have(a, along, dimension, rows[0]) || !have(b, along, dimension, rows[1])) return;
  const std::vector<double> all = sorted_along(a, along), parts = sorted_along(b, along);
  const bool row_wise =
      std::ranges::any_of(b, [&](const Projection* each) { return each->shape[dimension] != a[0]->shape[dimension]; }) ||
      b.size() == a.size();
  if (row_wise && rows[0] == rows[1]) relation.rows = relation.rows || close(all, parts);
  if (row_wise && rows[1] < rows[0] && rows[1] > 0) relation.fewer = relation.fewer || among(parts, all);
  const auto& first = a[0]->*along;
  relation.other_order = relation.other_order ||
                         (first.size() > 1 && std::ranges::all_of(b, [&](const Projection* each) {
                            return close(sorted_along({each}, along), sorted_along({a[0]}, along)) && !close(each->*along, first);
                          }));
  relation.place = relation.place || std::ranges::all_of(b, [&](const Projection* each) {
                     const auto& own = each->*along;
                     return own.size() < first.size() && own.size() > 1 &&
                            close(own, {first.begin(), first.begin() + static_cast<std::ptrdiff_t>(own.size())});
                   });
}

/// `a`: the reference's tensors, `b` the run's; `ranks` of each.
Relation relation_of(const Views& a, const Views& b, int ranks_a, int ranks_b) {
  Relation relation;
  const bool one_shape =
      std::ranges::all_of(
          b, [&](const Projection* each) { return each->shape == a[0]->shape && each->rows.size() == a[0]->rows.size(); }) &&
      std::ranges::all_of(
          a, [&](const Projection* each) { return each->shape == a[0]->shape && each->rows.size() == a[0]->rows.size(); });
  if (one_shape) {
    const std::vector<double> first = numbers_of(*a[0]), sums[2] = {added(a), added(b)};
    const auto are = [&](const Views& views, double factor) {
      return std::ranges::all_of(views, [&](const Projection* each) { return close(first, numbers_of(*each), factor); });
    };
    const bool alike = are(a, 1);
    relation.same =
        (alike && are(b, 1)) || (a.size() == b.size() && std::ranges::equal(a, b, [](const Projection* x, const Projection* y) {
                                   return close(numbers_of(*x), numbers_of(*y));
                                 }));
    relation.sum = close(sums[0], sums[1]);
    relation.mean = close(sums[0], sums[1], static_cast<double>(b.size()) / static_cast<double>(a.size()));
    relation.of_ranks = close(sums[0], sums[1], static_cast<double>(ranks_b) / ranks_a);
    const auto largest = std::ranges::max_element(first, {}, [](double x) { return std::abs(x); });
    if (!relation.fits() && alike && largest != first.end() && *largest != 0) {
      const double factor = numbers_of(*b[0])[static_cast<std::size_t>(largest - first.begin())] / *largest;
      if (factor != 0 && are(b, factor)) relation.times = factor;
    }
  }
  relate_along(a, b, &Projection::rows, 0, relation);
  relate_along(a, b, &Projection::columns, 1, relation);
  int64_t rows[2] = {0, 0};
  if (!relation.fits() && have(a, &Projection::sums, 0, rows[0]) && have(b, &Projection::sums, 0, rows[1]) && rows[0] == rows[1] &&
      a[0]->shape.back() == b[0]->shape.back())
    relation.other_columns = close(sorted_along(a, &Projection::sums), sorted_along(b, &Projection::sums));
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

// The walk.

/// An operation that both do, in all parts.
struct Met {
  std::vector<int> of_run;  ///< by pass of the run
  std::vector<int> of_reference;
  std::vector<Relation> in, out;
  bool fits() const { return std::ranges::all_of(out, &Relation::fits); }
};

const std::set<std::string, std::less<>> kDraws = {
    "rand",        "randn",        "randint",    "randperm", "rand_like",   "randn_like",     "randint_like",
    "normal",      "normal_",      "uniform_",   "uniform",  "random_",     "bernoulli",      "bernoulli_",
    "multinomial", "exponential_", "geometric_", "cauchy_",  "log_normal_", "native_dropout", "poisson"};

bool is_one_of(const std::string& name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, base_of(name)) != names.end();
}

class Walk {
 public:
  Walk(std::vector<Pass> a, std::vector<Pass> b, int ranks_a, int ranks_b, const std::vector<Operations>& run)
      : a_(std::move(a)), b_(std::move(b)), ranks_a_(ranks_a), ranks_b_(ranks_b), run_(run) {
    for (const auto& [key, places] : a_[0].by_place) meet(key, places);
  }

  Relation of_loss() const {
    Views views[2];
    for (const Pass& pass : a_) views[0].push_back(&pass.at(pass.root).in[0]);
    for (const Pass& pass : b_) views[1].push_back(&pass.at(pass.root).in[0]);
    return relation_of(views[0], views[1], ranks_a_, ranks_b_);
  }

  std::optional<Parting> parting() {
    find_culprits();
    std::optional<Parting> first;
    for (const int i : culprits_) {
      const Parting found = judge(i);
      if (!first || (first->code.empty() && !found.code.empty()))
        first = found;
      else if (!found.code.empty() && found.code != first->code)
        first->code.clear();
    }
    if (!first) first = of_some_ranks();
    return first;
  }

 private:
  const Operation& at(int i) const { return a_[0].at(i); }
  int micro_steps() const { return static_cast<int>(b_.size()) / ranks_b_; }

  void meet(const std::pair<std::string, std::string>& key, const std::vector<int>& places) {
    std::vector<const std::vector<int>*> others[2];
    for (int side = 0; side < 2; ++side)
      for (const Pass& pass : side == 0 ? a_ : b_) {
        const auto found = pass.by_place.find(key);
        if (found == pass.by_place.end() || found->second.size() != places.size()) return by_row(key);
        others[side].push_back(&found->second);
      }
    for (std::size_t k = 0; k < places.size(); ++k) {
      Met met;
      for (const auto* each : others[0]) met.of_reference.push_back((*each)[k]);
      for (const auto* each : others[1]) met.of_run.push_back((*each)[k]);
      relate(met);
      met_[places[k]] = std::move(met);
    }
  }

  void relate(Met& met) const {
    const std::size_t count = a_[0].at(met.of_reference[0]).out.size();
    bool as_many = true;
    for (std::size_t p = 0; p < b_.size(); ++p) as_many = as_many && b_[p].at(met.of_run[p]).out.size() == count;
    for (std::size_t n = 0; n < count && as_many; ++n) met.out.push_back(relation(met, n));
    if (kDraws.contains(base_of(a_[0].at(met.of_reference[0]).name)))
      for (Relation& out : met.out) out = {.same = out.same, .rows = out.rows};  // draws are each row's own, not each place's
    if (as_many) return;
    // Of each row a tensor.
    Views views[2];
    for (int side = 0; side < 2; ++side)
      for (std::size_t p = 0; p < (side == 0 ? a_ : b_).size(); ++p)
        for (const Projection& out : (side == 0 ? a_[p].at(met.of_reference[p]) : b_[p].at(met.of_run[p])).out)
          views[side].push_back(&out);
    met.out.push_back({.rows = close(wholes_of(views[0]), wholes_of(views[1]))});
  }

  /// What is done once for each row: draws of its own.
  void by_row(const std::pair<std::string, std::string>& key) {
    if (!kDraws.contains(base_of(key.first))) return;
    Views views[2];
    std::vector<int> first[2];
    for (int side = 0; side < 2; ++side)
      for (const Pass& pass : side == 0 ? a_ : b_) {
        const auto found = pass.by_place.find(key);
        if (found == pass.by_place.end()) return;
        first[side].push_back(found->second[0]);
        for (const int i : found->second)
          for (const Projection& out : pass.at(i).out) views[side].push_back(&out);
      }
    if (views[0].size() != views[1].size()) return;
    if (!close(wholes_of(views[0]), wholes_of(views[1]))) met_[first[0][0]] = Met{first[1], first[0], {}, {Relation{}}};
  }

  Relation relation(const Met& met, std::size_t output) const {
    Views views[2];
    for (int side = 0; side < 2; ++side)
      for (std::size_t p = 0; p < (side == 0 ? a_ : b_).size(); ++p) {
        const Operation& operation = side == 0 ? a_[p].at(met.of_reference[p]) : b_[p].at(met.of_run[p]);
        if (operation.out.size() <= output) return {};
        views[side].push_back(&operation.out[output]);
      }
    return relation_of(views[0], views[1], ranks_a_, ranks_b_);
  }

  /// An operation's input as what made it gave it, with its rows; nothing: it has no such input.
  static const Projection* given(const Pass& pass, int i, std::size_t input) {
    if (i == kNone || pass.at(i).in.size() <= input) return nullptr;
    const Projection* given = &pass.at(i).in[input];
    if (const int maker = pass.makers(i)[input]; maker != kNone)
      for (const Projection& out : pass.at(maker).out)
        if (out.shape == given->shape && out.whole == given->whole) return &out;
    return given;
  }

  /// Of one side's input to the other's.
  Relation relation_in(const std::vector<int>& of_reference, std::size_t input_a, const std::vector<int>& of_run,
                       std::size_t input_b) const {
    Views views[2];
    for (int side = 0; side < 2; ++side)
      for (std::size_t p = 0; p < (side == 0 ? a_ : b_).size(); ++p) {
        const Projection* found = side == 0 ? given(a_[p], of_reference[p], input_a) : given(b_[p], of_run[p], input_b);
        if (found == nullptr) return {};
        views[side].push_back(found);
      }
    return relation_of(views[0], views[1], ranks_a_, ranks_b_);
  }

  /// Does an input come from before the step, on all ranks?
  bool is_kept(const Met& met, std::size_t input) const {
    const auto kept = [&](const Pass& pass, int i) {
      return pass.at(i).in.size() > input && pass.flow->kept[static_cast<std::size_t>(i)][input];
    };
    for (std::size_t p = 0; p < a_.size(); ++p)
      if (!kept(a_[p], met.of_reference[p])) return false;
    for (std::size_t p = 0; p < b_.size(); ++p)
      if (!kept(b_[p], met.of_run[p])) return false;
    return true;
  }

  /// What made an input, on each rank; empty where it is unknown, or of several kinds.
  std::vector<int> makers_of(const std::vector<Pass>& passes, const std::vector<int>& of, std::size_t input) const {
    std::vector<int> makers;
    for (std::size_t p = 0; p < passes.size(); ++p) {
      const int maker = passes[p].at(of[p]).in.size() > input ? passes[p].makers(of[p])[input] : kNone;
      if (maker == kNone || (p > 0 && passes[p].at(maker).name != passes[0].at(makers[0]).name)) return {};
      makers.push_back(maker);
    }
    return makers;
  }

  /// From the loss back along what does not fit: the operations at which that begins.
  void find_culprits() {
    std::set<int> seen;
    std::vector<int> open = a_[0].makers(a_[0].root);
    while (!open.empty()) {
      const int i = open.back();
      open.pop_back();
      if (i == kNone || !seen.insert(i).second) continue;
      const auto met = met_.find(i);
      std::vector<int> next;
      for (std::size_t k = 0; k < a_[0].makers(i).size(); ++k) {
        const int maker = a_[0].makers(i)[k];
        if (met != met_.end()) meet_makers(met->second, k, maker);
        const auto made = met_.find(maker);
        if (maker != kNone && (met == met_.end() || made == met_.end() || !made->second.fits())) next.push_back(maker);
      }
      if (met != met_.end() && met->second.fits()) continue;
      if (met != met_.end() && std::ranges::none_of(next, [&](int maker) { return leads_to_one(maker); })) culprits_.insert(i);
      open.insert(open.end(), next.begin(), next.end());
    }
  }

  /// What gives two operations that meet an input is met too if it is of one kind, at another place of the program.
  void meet_makers(const Met& by, std::size_t input, int maker) {
    if (maker == kNone || met_.contains(maker)) return;
    for (const Pass& pass : b_)
      if (pass.by_place.contains({at(maker).name, at(maker).place})) return;  // there otherwise often: once for each row
    Met met;
    for (int side = 0; side < 2; ++side)
      for (std::size_t p = 0; p < (side == 0 ? a_ : b_).size(); ++p) {
        const Pass& pass = side == 0 ? a_[p] : b_[p];
        const std::vector<int>& makers = pass.makers(side == 0 ? by.of_reference[p] : by.of_run[p]);
        if (input >= makers.size() || makers[input] == kNone || base_of(pass.at(makers[input]).name) != base_of(at(maker).name))
          return;
        (side == 0 ? met.of_reference : met.of_run).push_back(makers[input]);
      }
    relate(met);
    met_[maker] = std::move(met);
  }

  /// Does what does not fit go on behind it?
  bool leads_to_one(int i) {
    const auto known = leads_.find(i);
    if (known != leads_.end()) return known->second;
    bool& leads = leads_[i] = false;
    const auto met = met_.find(i);
    if (met != met_.end()) return leads = !met->second.fits();
    bool found = false;
    for (const int maker : a_[0].makers(i)) found = found || (maker != kNone && leads_to_one(maker));
    return leads_[i] = found;
  }

  /// Does what an operation makes come to one of which `is` is true, on its way to the loss? Itself is one too.
  template <class Is>
  bool reaches(int from, Is is) const {
    std::set<int> reached = {from};
    if (is(from)) return true;
    for (auto i = a_[0].all.upper_bound(from); i != a_[0].all.end(); ++i) {
      if (std::ranges::none_of(a_[0].makers(*i), [&](int maker) { return reached.contains(maker); })) continue;
      reached.insert(*i);
      if (is(*i)) return true;
    }
    return false;
  }

  /// Do two sides make tensors of other lengths of it?
  bool is_of_rows(int i) const {
    const auto met = met_.find(i);
    if (met == met_.end()) return false;
    for (const Projection& out : at(i).out)
      for (const Projection& own : b_[0].at(met->second.of_run[0]).out)
        if (!out.shape.empty() && out.shape.size() == own.shape.size() && out.shape[0] != own.shape[0]) return true;
    return false;
  }

  /// Does it make a number for each row and each row that it is compared with?
  bool is_of_scores(const std::vector<int>& of_reference) const {
    int64_t rows = 0;
    for (std::size_t p = 0; p < a_.size(); ++p) {
      const Projection& out = a_[p].at(of_reference[p]).out[0];
      if (out.shape.size() != 2 || out.rows.empty()) return false;
      rows += out.shape[0];
    }
    return at(of_reference[0]).out[0].shape[1] == rows;
  }

  /// An operation before this one that one side alone does.
  std::optional<Parting> of_one_side(const Met& met, const std::string& where) const {
    for (std::size_t k = 0; k < met.in.size(); ++k) {
      if (met.in[k].fits()) continue;
      const std::vector<int> left_out = makers_of(a_, met.of_reference, k), added = makers_of(b_, met.of_run, k);
      if (!left_out.empty() && relation_in(left_out, 0, met.of_run, k).fits()) {
        const Operation& operation = at(left_out[0]);
        const bool masks = is_one_of(operation.name, {"masked_fill", "masked_fill_", "index_put_", "index_put", "where"});
        return Parting{masks && is_of_scores(left_out) ? "duplicates-not-masked" : "",
                       fmt::format("They part in {}: before it the reference has {} at {}, and the run nothing.", where,
                                   base_of(operation.name), operation.place),
                       operation.place};
      }
      if (!added.empty() && relation_in(met.of_reference, k, added, 0).fits()) {
        const Operation& operation = b_[0].at(added[0]);
        return Parting{"",
                       fmt::format("They part in {}: before it the run has {} at {}, and the reference nothing.", where,
                                   base_of(operation.name), operation.place),
                       operation.place};
      }
    }
    return std::nullopt;
  }

  Parting judge(int i) {
    Met& met = met_.at(i);
    const Operation& operation = at(i);
    bool of_gradients = false;
    for (std::size_t k = 0; k < operation.in.size(); ++k) {
      met.in.push_back(relation_in(met.of_reference, k, met.of_run, k));
      const int maker = a_[0].makers(i)[k];
      of_gradients = of_gradients || (maker != kNone && at(maker).in_backward);
    }
    const auto say = [&](const char* code, const std::string& text) { return said(operation, code, text); };
    if (of_gradients) return say("", "it takes gradients that are each rank's own");
    if (kDraws.contains(base_of(operation.name))) return drawn(met, say);
    const auto is_softmax = [this](int each) { return is_one_of(at(each).name, {"_log_softmax", "_softmax", "logsumexp"}); };
    const Projection& whole = operation.out[0];
    const Projection& part = b_[0].at(met.of_run[0]).out[0];
    const auto any = [&](auto is) { return std::ranges::any_of(met.in, is); };
    const bool of_rows = any([](const Relation& in) { return in.rows && !in.same; });
    for (std::size_t k = 0; k < met.in.size(); ++k)
      if (is_kept(met, k) && !met.in[k].same && !operation.in[k].shape.empty() && held_otherwise(met, k))
        return say(run_[0].drawn.empty() ? "labelled-replicated-but-differs" : "buffers-not-synchronised",
                   "it takes a tensor that the program keeps, and that is another on each rank");
    const std::size_t target = is_one_of(operation.name, {"nll_loss_forward", "nll_loss2d_forward", "gather"}) ? 1
                               : is_one_of(operation.name, {"index", "index_put_", "index_put"})               ? 2
                                                                                                               : 0;
    if (target > 0 && met.in.size() > target && met.in[target].place && !met.in[target].rows)
      return say("label-offset", "on every rank its labels point at the first rows, as if there were no other rank's before them");
    if (any([](const Relation& in) { return in.other_columns; }) &&
        (of_rows || is_one_of(operation.name, {"nll_loss_forward", "nll_loss2d_forward", "gather", "index", "index_put_", "diagonal"})))
      return say("candidates-misordered", "it takes candidates in another order, at places of the reference's");
    if (of_rows && any([](const Relation& in) { return in.other_order && !in.same; }))
      return say("candidates-misordered", "its rows are compared with candidates in another order than the reference's");
    if (whole.shape.size() == 2 && part.shape.size() == 2 && whole.shape[0] == whole.shape[1] && part.shape[0] == part.shape[1] &&
        part.shape[0] < whole.shape[0])
      return say("local-negatives", fmt::format("a row meets the {} of its own rank alone, of {}", part.shape[1], whole.shape[1]));
    if (std::ranges::any_of(met.out, &Relation::fewer))
      return say("rows-left-out", "the ranks together take fewer rows than the reference");
    for (const Relation& in : met.in)
      if (in.times > 1 && whole.shape.size() == 2 && has_number(in.times) && reaches(i, is_softmax))
        return say("temperature-applied-twice", fmt::format("it takes {:.4g} times the reference's scores", in.times));
    if (masks_less(operation, met))
      return say("duplicates-not-masked", "fewer candidates of a row are masked than in the reference");
    return of_rows_and_shares(i, met);
  }

  static std::string where_of(const Operation& operation) { return fmt::format("{} at {}", base_of(operation.name), operation.place); }

  static Parting said(const Operation& operation, const char* code, const std::string& text) {
    return {code, fmt::format("They part in {}: {}.", where_of(operation), text), operation.place};
  }

  /// What it makes of rows, and of shares of sums.
  Parting of_rows_and_shares(int i, const Met& met) const {
    const Operation& operation = at(i);
    const auto say = [&](const char* code, const std::string& text) { return said(operation, code, text); };
    const auto any = [&](auto is) { return std::ranges::any_of(met.in, is); };
    const bool of_rows = any([](const Relation& in) { return in.rows && !in.same; });
    if (auto left_out = of_one_side(met, where_of(operation))) return *left_out;
    if (is_one_of(operation.name, {"native_batch_norm", "batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm"}))
      return say("batch-norm-local", "its statistics are each rank's own");
    const bool is_scalar = operation.out[0].shape.empty();
    const bool shares = met.in.size() > 1 && met.in[0].is_part() && met.in[1].is_part();
    if (is_one_of(operation.name, {"add", "sub", "rsub"}) && is_scalar && shares) return terms(met, where_of(operation));
    const bool is_ratio =
        (is_one_of(operation.name, {"div", "mean", "nll_loss_forward", "nll_loss2d_forward", "reciprocal"}) &&
         (shares || is_one_of(operation.name, {"mean", "nll_loss_forward", "nll_loss2d_forward", "reciprocal"}))) ||
        (is_one_of(operation.name, {"mul"}) && is_scalar && shares);
    if (is_ratio && is_scalar && !reaches(i, [this](int each) { return is_of_rows(each); })) {
      const bool of_micro_steps = micro_steps() > 1 && within_rank_differs(met);
      return say(of_micro_steps ? "micro-steps-weighted-alike" : "mean-of-means",
                 of_micro_steps ? "each micro-step divides by a number of its own"
                                : "each rank divides by a number of its own, and not by that of all ranks");
    }
    if (is_one_of(operation.name, {"mul", "div"}) && met.in.size() == 1 && met.in[0].fits())
      return say("", fmt::format("by {}, in the reference by {}", fmt::join(b_[0].at(met.of_run[0]).numbers, ", "), fmt::join(operation.numbers, ", ")));
    const bool moves = is_one_of(operation.name, {"stack", "cat", "index", "select", "slice", "view", "reshape", "copy_",
                                                  "_to_copy", "lift_fresh", "expand", "unbind", "split", "embedding", "gather"});
    const bool of_statistics = !moves && any([](const Relation& in) { return in.is_part(); });
    if ((of_rows && of_statistics) || (is_ratio && of_statistics) ||
        (of_rows && is_one_of(operation.name, {"std", "var", "std_mean", "var_mean", "median", "amax", "amin", "max", "min", "mean",
                                               "logsumexp", "cumsum", "sort", "topk", "quantile"})) ||
        (of_statistics && (met.in.size() == 1 || !is_one_of(operation.name, {"add", "sub", "mul"}))))
      return say("local-statistics", "what it makes of rows is each rank's own, and not that of all rows");
    std::vector<std::string> takes;
    for (const Relation& in : met.in)
      if (std::ranges::find(takes, words_of(in)) == takes.end()) takes.push_back(words_of(in));
    for (std::size_t k = 0; k < met.in.size(); ++k)
      if (const Projection& own = b_[0].at(met.of_run[0]).in[k];
          met.in[k].rows && own.shape.size() > 1 && own.shape.size() == operation.in[k].shape.size() &&
          !std::equal(own.shape.begin() + 1, own.shape.end(), operation.in[k].shape.begin() + 1))
        return say("mask-ignored", fmt::format("it counts what pads rows, to {}, and to {} in the reference", fmt::join(own.shape, " x "),
                                               fmt::join(operation.in[k].shape, " x ")));
    return say("", fmt::format("of {} it makes other numbers", takes.empty() ? "nothing" : fmt::format("{}", fmt::join(takes, " and "))));
  }

  /// A tensor of the program's own: the same shape on all, other values.
  bool held_otherwise(const Met& met, std::size_t input) const {
    std::set<double> wholes;
    for (std::size_t p = 0; p < b_.size(); ++p) {
      const Projection& given = b_[p].at(met.of_run[p]).in[input];
      if (given.shape != at(met.of_reference[0]).in[input].shape) return false;
      wholes.insert(given.whole);
    }
    return ranks_b_ > 1 && wholes.size() > 1;
  }

  template <class Say>
  Parting drawn(const Met& met, Say say) const {
    std::vector<double> of_ranks;
    std::set<double> earlier;
    for (const Operations& rank : run_) earlier.insert(rank.drawn.begin(), rank.drawn.end());
    bool before = true;
    for (std::size_t p = 0; p < b_.size(); ++p) {
      const double whole = b_[p].at(met.of_run[p]).out[0].whole;
      if (p % static_cast<std::size_t>(micro_steps()) == 0) of_ranks.push_back(whole);
      before = before && earlier.contains(whole);
    }
    const std::set<double> apart(of_ranks.begin(), of_ranks.end());
    if (before && !earlier.contains(a_[0].at(met.of_reference[0]).out[0].whole))
      return say("stream-not-advanced", "each rank draws what it has drawn before");
    if (ranks_b_ > 1 && apart.size() == 1)
      return say("same-stream-on-all-ranks",
                 "all ranks draw the same numbers for their rows, and the reference others for each row");
    if (ranks_b_ > 1 && apart.size() == of_ranks.size())
      return say("stream-keyed-by-rank", "each rank draws from a stream of its own, and none the reference's numbers for its rows");
    return say("", "what is drawn is not what the reference draws for these rows");
  }

  /// Is it among the numbers that lead to the loss, or 1 over one of them?
  bool has_number(double factor) const {
    for (const int i : a_[0].all) {
      for (const double number : at(i).numbers)
        if (close(number, factor, factor) || close(number * factor, 1, 1)) return true;
      for (const Projection& out : at(i).out)
        if (out.shape.empty() && (close(out.whole, factor, factor) || close(out.whole * factor, 1, 1))) return true;
    }
    return false;
  }

  /// Of scores by row and candidate.
  bool masks_less(const Operation& operation, const Met& met) const {
    if (!is_one_of(operation.name,
                   {"masked_fill", "masked_fill_", "index_put_", "index_put", "where", "fill_", "bitwise_and", "logical_and"}) ||
        !is_of_scores(met.of_reference))
      return false;
    const std::size_t mask = is_one_of(operation.name, {"where"}) ? 0 : 1;
    double sums[2] = {0, 0};
    for (int side = 0; side < 2; ++side)
      for (std::size_t p = 0; p < (side == 0 ? a_ : b_).size(); ++p) {
        const Operation& own = side == 0 ? a_[p].at(met.of_reference[p]) : b_[p].at(met.of_run[p]);
        const Projection& of = own.name.starts_with("bitwise") || own.name.starts_with("logical") || !own.in[0].rows.empty()
                                   ? own.out[0]
                               : own.in.size() > mask ? own.in[mask]
                                                      : own.out[0];
        if (of.shape != own.out[0].shape || of.rows.empty()) return false;
        for (const double row : of.rows) sums[side] += row;
      }
    return sums[1] < sums[0] && !close(sums[1], sums[0], sums[0]);
  }

  bool within_rank_differs(const Met& met) const {
    for (std::size_t p = 1; p < b_.size(); ++p) {
      if (p % static_cast<std::size_t>(micro_steps()) == 0) continue;
      const Operation &one = b_[p - 1].at(met.of_run[p - 1]), &other = b_[p].at(met.of_run[p]);
      const auto by = [](const Operation& each) {
        return each.in.size() > 1                            ? each.in.back().whole
               : each.out.size() > 1                         ? each.out[1].whole
               : each.in.empty() || each.in[0].shape.empty() ? 0.0
                                                             : static_cast<double>(each.in[0].shape[0]);
      };
      if (by(one) != by(other)) return true;
    }
    return false;
  }

  /// Of two parts of a loss that are shares of different kinds.
  Parting terms(const Met& met, const std::string& where) const {
    const Relation &x = met.in[0], &y = met.in[1];
    Parting parting{"", "", at(met.of_reference[0]).place};
    const auto words = [&](const Relation& of) {
      return of.mean ? "mean" : of.of_ranks ? "sum over micro-steps, averaged over ranks," : "sum";
    };
    parting.because =
        fmt::format("They part in {}: of one part of the loss the reference's is the {} of the ranks' values, of the other the {}.",
                    where, words(x), words(y));
    if (micro_steps() == 1 && ((x.mean && y.sum && !y.mean) || (y.mean && x.sum && !x.mean)))
      parting.code = "auxiliary-loss-over-world";
    return parting;
  }

  /// What leads to the loss on some ranks alone.
  std::optional<Parting> of_some_ranks() const {
    std::map<std::pair<std::string, std::string>, std::size_t> counts;
    for (const Pass& pass : b_)
      for (const auto& [key, places] : pass.by_place) ++counts[key];
    for (const Pass& pass : b_)
      for (const auto& [key, places] : pass.by_place)
        if (counts[key] < b_.size() && !a_[0].by_place.contains(key) && !pass.at(places[0]).out.empty() &&
            pass.at(places[0]).out[0].shape.empty())
          return Parting{pass.at(places[0]).out[0].whole == 0 ? "skip-decided-alone" : "",
                         fmt::format("They part in {} at {}, which {} of {} ranks do.", base_of(key.first), key.second, counts[key],
                                     b_.size()),
                         key.second};
    return std::nullopt;
  }

  std::vector<Pass> a_, b_;
  int ranks_a_, ranks_b_;
  const std::vector<Operations>& run_;
  std::map<int, Met> met_;  ///< by operation of the reference's first pass
  std::map<int, bool> leads_;
  std::set<int> culprits_;
};

/// Passes of all ranks in groups that belong together: those whose backward passes begin at one place, or one after the other.
std::vector<std::vector<Pass>> grouped(const std::vector<Flow>& flows, std::size_t groups) {
  std::vector<std::vector<Pass>> made(groups);
  for (const Flow& flow : flows) {
    if (flow.roots.size() % groups != 0) return {};
    const std::size_t each = flow.roots.size() / groups;
    for (std::size_t k = 0; k < flow.roots.size(); ++k) made[k / each].push_back(pass_of(flow, flow.roots[k]));
  }
  return made;
}

}  // namespace

Operations read_operations(const std::string& folder, int rank) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 29, kMostOperations = 1 << 16;
  Operations made;
  const FileText file = read_file(fmt::format("{}/rank-{}.operations.json", folder, rank), kMostBytes);
  const nlohmann::json json = file ? parse_json(file.text) : nlohmann::json();
  if (!json.is_object()) return made;
  const auto places = json_as<std::vector<std::string>>(json.value("places", nlohmann::json()));
  made.drawn = json_as<std::vector<double>>(json.value("drawn", nlohmann::json())).value_or(std::vector<double>());
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

std::optional<Parting> find_parting(const std::vector<Operations>& reference, const std::vector<Operations>& run) {
  std::vector<Flow> flows[2];
  for (int side = 0; side < 2; ++side)
    for (const Operations& each : side == 0 ? reference : run) flows[side].push_back(flow_of(each));
  const std::size_t of_a = flows[0].empty() ? 0 : flows[0][0].roots.size(), of_b = flows[1].empty() ? 0 : flows[1][0].roots.size();
  if (of_a == 0 || of_b == 0) return std::nullopt;
  const std::size_t groups = std::gcd(of_a, of_b);
  const auto a = grouped(flows[0], groups), b = grouped(flows[1], groups);
  if (a.empty() || b.empty()) return std::nullopt;
  for (std::size_t k = 0; k < groups; ++k) {
    Walk walk(a[k], b[k], static_cast<int>(reference.size()), static_cast<int>(run.size()), run);
    const Relation loss = walk.of_loss();
    if (!loss.mean && !loss.of_ranks && !loss.sum) return walk.parting();
  }
  return std::nullopt;
}

}  // namespace lockstep
