#include "harness/judge/compare/walk.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

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
    Met met;
    for (const Side side : kSides)
      for (const Places* each : others[side]) met.of[side].push_back((*each)[k]);
    add(places[k], std::move(met));
  }
}

void Walk::add(int i, Met met) {
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
  Met met;
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

std::optional<bool> Walk::are_paired(const Met& of, std::size_t input, const Met& other,
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

bool Walk::makes_one_on_all(const Met& met) const {
  return alike_on_all(met, [this](std::size_t p, int i) { return element(passes_[kRun][p].at(i).out, 0); });
}

bool Walk::takes_one_on_all(const Met& met, std::size_t input) const {
  return alike_on_all(met, [&](std::size_t p, int i) { return given(passes_[kRun][p], i, input); });
}

Places Walk::makers_of(const Met& met, Side side, std::size_t input) const {
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

void Walk::meet_makers(const Met& by, std::size_t input, int maker) {
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

bool Walk::is_of_scores(const Met& met) const {
  int64_t rows = 0;
  for (std::size_t p = 0; p < passes_[kReference].size(); ++p) {
    const Projection* out = element(of_pass(met, kReference, p).out, 0);
    if (out == nullptr || out->shape.size() != 2 || out->rows.empty()) return false;
    rows += out->shape[0];
  }
  return of_pass(met, kReference, 0).out[0].shape[1] >= rows;
}

}  // namespace lockstep
