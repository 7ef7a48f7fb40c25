#include "harness/judge/compare/operations.h"

#include <cmath>
#include <functional>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

/// One from which on nothing fits.
struct Seen {
  int i;
  const Operation& operation;  ///< of the reference's first pass
  const Operation& own;        ///< of the run's first pass
  const Hit& met;
  std::vector<Relation> in = {};
  bool of_rows = false, of_parts = false;

  template <class Is>
  bool any(Is is) const {
    return std::ranges::any_of(in, is);
  }
};

class Kinds : public Walk {
 public:
  using Walk::Walk;

  std::optional<Parting> parting() {
    if (auto same = same_rows_on_all_ranks()) return same;
    find_culprits();
    std::optional<Parting> found;
    std::map<std::string, Parting> by_code;
    // What labels and masks are made of follows from how many candidates there are.
    for (const bool of_constants : {false, true})
      for (const int i : culprits_) {
        if (first().is_constant(i) != of_constants || (of_constants && !by_code.empty())) continue;
        const Parting one = judge(i);
        if (!found || (by_code.empty() && !one.code.empty())) found = one;
        if (!one.code.empty()) by_code.emplace(one.code, one);
      }
    if (by_code.size() == 2 && by_code.contains("duplicates-not-masked") && by_code.contains("label-offset"))
      found = by_code["label-offset"];
    else if (by_code.size() > 1)
      found->code.clear();
    if (!found || found->code.empty())
      if (auto alone = of_some_ranks()) return alone;
    return found;
  }

 private:
  // Kinds of operations, by what is found of one.

  struct Kind {
    const char* code;
    bool (Kinds::*is)(const Seen&) const;
    const char* text;
    std::string (Kinds::*says)(const Seen&) const = nullptr;  ///< instead of both; nothing where it is not so
  };

  static constexpr const char* kOtherRows = "other rows";
  static constexpr const char* kKept = "it takes a tensor that the program keeps, and that is another on each rank";

  Parting judge(int i) const {
    for (int behind = first_alike(i); behind != i; behind = first_alike(i)) i = first_apart(behind);
    const Parting found = kind_of(i);
    if (!found.code.empty() || found.other_rows) return found;
    const int unpaired = unpaired_before(i);
    return unpaired == kNone ? found : kind_of(first_apart(unpaired));
  }

  /// Back along what every rank has alike, as if its rows were the first: to what draws or counts it.
  int first_alike(int i) const {
    const Hit& met = met_.at(i);
    for (std::size_t k = 0; k < at(i).in.size(); ++k) {
      const int maker = first().makers(i)[k];
      if (maker == kNone || first().is_constant(maker) || !met_.contains(maker)) continue;
      const Relation in = relation_in(met.of, {k, k});
      const bool alike = in.place && !in.rows && !in.same && !in.is_part();
      if (alike || (draws(at(maker)) && !met_.at(maker).fits())) return first_alike(maker);
    }
    return i;
  }

  /// Back along what does not fit.
  int first_apart(int i) const {
    for (const int maker : first().makers(i))
      if (maker != kNone && met_.contains(maker) && !met_.at(maker).fits()) return first_apart(maker);
    return i;
  }

  /// Where an operation's rows meet others than in the reference: what has made the others of equal rows.
  int unpaired_before(int i) const {
    int found = kNone;
    const Hit& met = met_.at(i);
    for (std::size_t key = 0; key < at(i).in.size() && found == kNone; ++key)
      for (int next = unpaired_maker(met, key, met); next != kNone; next = unpaired_maker(met, key, met_.at(next)))
        found = next;
    return found;
  }

  /// What makes an input of `of` whose rows are not in the order of the rows `key`.
  int unpaired_maker(const Hit& met, std::size_t key, const Hit& of) const {
    const auto makers = first().makers(of.of[kReference][0]);
    for (std::size_t k = 0; k < makers.size(); ++k)
      if (makers[k] != kNone && met_.contains(makers[k]) && relation_in(of.of, {k, k}).fits() &&
          are_paired(met, key, of, k) == false)
        return makers[k];
    return kNone;
  }

  Parting kind_of(int i) const {
    const Hit& met = met_.at(i);
    if (!everywhere(met, [](const Pass& pass, int own) { return !pass.at(own).out.empty(); })) return {};
    Seen seen{i, at(i), of_pass(met, kRun, 0), met};
    for (std::size_t k = 0; k < seen.operation.in.size(); ++k) seen.in.push_back(relation_in(met.of, {k, k}));
    seen.of_rows = seen.any([](const Relation& in) { return in.rows && !in.same; });
    seen.of_parts = !moves(seen.operation) && seen.any([](const Relation& in) { return in.is_part(); });
    static constexpr Kind kKinds[] = {
        {"", &Kinds::takes_gradients, "it takes gradients that are each rank's own"},
        {"stream-not-advanced", &Kinds::draws_again, "each rank draws what it has drawn before"},
        {kOtherRows, &Kinds::draws_rows, "it chooses rows by the rank: what it makes of the reference's is not seen"},
        {"same-stream-on-all-ranks", &Kinds::draws_alike,
         "all ranks draw the same numbers for their rows, and the reference others for each row"},
        {"stream-keyed-by-rank", &Kinds::draws_apart,
         "each rank draws from a stream of its own, and none the reference's numbers for its rows"},
        {"", &Kinds::draws_others, "what is drawn is not what the reference draws for these rows"},
        {"labelled-replicated-but-differs", &Kinds::is_kept_from_the_start, kKept},
        {"buffers-not-synchronised", &Kinds::is_kept_otherwise, kKept},
        {kOtherRows, &Kinds::chooses_rows,
         "it makes rows that each rank chooses by itself: what it makes of the reference's is not seen"},
        {"label-offset", &Kinds::has_labels_from_0,
         "on every rank its labels point at the first rows, as if there were no other rank's before them"},
        {"duplicates-not-masked", &Kinds::has_mask_from_0,
         "what it takes away of a row's candidates is not at the row's own places"},
        {"candidates-misordered", nullptr, nullptr, &Kinds::misordered},
        {"local-negatives", nullptr, nullptr, &Kinds::own_candidates},
        {"rows-left-out", &Kinds::leaves_out, "the ranks together take fewer rows than the reference"},
        {"temperature-applied-twice", nullptr, nullptr, &Kinds::scaled_twice},
        {"duplicates-not-masked", &Kinds::masks_less, "fewer candidates of a row are masked than in the reference"},
        {"duplicates-not-masked", &Kinds::lacks_mask, "the reference masks candidates before it, and the run none"},
        {"", nullptr, nullptr, &Kinds::of_one_side},
        {"batch-norm-local", &Kinds::is_norm, "its statistics are each rank's own"},
        {"auxiliary-loss-over-world", nullptr, nullptr, &Kinds::terms_of_kinds},
        {"", nullptr, nullptr, &Kinds::terms},
        {"accumulation-not-scaled", &Kinds::adds_micro_steps,
         "each micro-step's mean is added to the others', and nothing divides their sum"},
        {"micro-steps-weighted-alike", &Kinds::counts_by_micro_step, "each micro-step divides by a number of its own"},
        {"mean-of-means", &Kinds::counts_by_rank,
         "each rank divides by a number of its own, and not by that of all ranks"},
        {"local-statistics", nullptr, nullptr, &Kinds::own_number},
        {"average-of-weights-differs", nullptr, nullptr, &Kinds::other_average},
        {"loss-times-world", &Kinds::is_times_ranks, "the loss is multiplied by the number of ranks"},
        {"", nullptr, nullptr, &Kinds::other_number},
        {"local-statistics", &Kinds::is_own_statistic,
         "what it makes of rows is each rank's own, and not that of all rows"},
        {"mask-ignored", nullptr, nullptr, &Kinds::padding},
        {"", nullptr, nullptr, &Kinds::anything},
    };
    for (const Kind& kind : kKinds) {
      const std::string says = kind.says ? (this->*kind.says)(seen) : (this->*kind.is)(seen) ? kind.text : "";
      if (says.empty()) continue;
      const bool other_rows = kind.code == kOtherRows;
      return {other_rows ? "" : kind.code, fmt::format("They part in {}: {}.", where_of(seen.operation), says),
              seen.operation.place, other_rows};
    }
    return {};
  }

  static std::string where_of(const Operation& operation) {
    return fmt::format("{} at {}", base_of(operation.name), operation.place);
  }

  bool takes_gradients(const Seen& seen) const {
    return std::ranges::any_of(first().makers(seen.i),
                               [this](int maker) { return maker != kNone && at(maker).in_backward; });
  }

  // Draws.

  struct Drawn {
    std::size_t ranks = 0, apart = 0;  ///< of the run; how many draw other numbers
    bool before = true;                ///< each has drawn them before
  };

  Drawn drawn_by_ranks(const Seen& seen) const {
    std::set<double> earlier, apart;
    for (const Operations& rank : run_) earlier.insert(rank.drawn.begin(), rank.drawn.end());
    Drawn drawn;
    for (std::size_t p = 0; p < passes_[kRun].size(); ++p) {
      const double whole = of_pass(seen.met, kRun, p).out[0].whole;
      drawn.before = drawn.before && earlier.contains(whole);
      if (p % micro_steps() == 0) apart.insert(whole), ++drawn.ranks;
    }
    drawn.apart = apart.size();
    drawn.before = drawn.before && !earlier.contains(seen.operation.out[0].whole);
    return drawn;
  }

  bool draws_again(const Seen& seen) const { return draws(seen.operation) && drawn_by_ranks(seen).before; }

  /// Which rows of a data set.
  bool draws_rows(const Seen& seen) const {
    const int user = draws(seen.operation) ? user_of(seen.i) : kNone;
    return user != kNone && !first().is_of_weights(user) && is_one_of(at(user).name, {"index"}) &&
           drawn_by_ranks(seen).apart > 1;
  }

  /// A permutation of the rank's own rows is none of the reference's.
  static bool draws_numbers(const Operation& operation) {
    return draws(operation) && base_of(operation.name) != "randperm";
  }

  bool draws_alike(const Seen& seen) const {
    return draws_numbers(seen.operation) && ranks_[kRun] > 1 && drawn_by_ranks(seen).apart == 1;
  }

  bool draws_apart(const Seen& seen) const {
    const Drawn drawn = drawn_by_ranks(seen);
    return draws_numbers(seen.operation) && ranks_[kRun] > 1 && drawn.apart == drawn.ranks;
  }

  bool draws_others(const Seen& seen) const { return draws(seen.operation); }

  // Rows, and what is kept between steps.

  /// Of the rows that go into the model: each rank has the same.
  std::optional<Parting> same_rows_on_all_ranks() const {
    std::optional<Parting> found;
    for (const auto& [i, met] : met_) {
      const auto is_of_data = [](const Pass& pass, int at) { return !pass.is_of_weights(at) && !pass.is_constant(at); };
      if (!everywhere(met, is_of_data) || !is_of_rows(i) || !is_used_by_weights(i) || at(i).out[0].shape.empty() ||
          at(i).out[0].shape[0] < 2)
        continue;
      if (is_drawn(i) || !makes_one_on_all(met)) return std::nullopt;
      if (!found)
        found = Parting{"shards-identical",
                        fmt::format("They part in {}: every rank takes the same rows.", where_of(at(i))), at(i).place};
    }
    return found;
  }

  bool is_drawn(int of) const {
    const Pass before = pass_of(*first().flow, of);
    return draws(at(of)) || std::ranges::any_of(before.all, [this](int i) { return draws(at(i)); });
  }

  bool is_used_by_weights(int i) const {
    return std::ranges::any_of(first().all, [&](int each) {
      const auto& makers = first().makers(each);
      return first().is_of_weights(each) && std::ranges::find(makers, i) != makers.end();
    });
  }

  /// A tensor of the program's own: the same shape on all, other values.
  bool is_kept_otherwise(const Seen& seen) const {
    for (std::size_t k = 0; k < seen.in.size(); ++k) {
      const auto kept = [&](const Pass& pass, int i) {
        return pass.has(i, k) && pass.flow->kept[static_cast<std::size_t>(i)][k];
      };
      const std::vector<int64_t>& shape = seen.operation.in[k].shape;
      if (seen.in[k].same || shape.empty() || !everywhere(seen.met, kept)) continue;
      const bool one_shape =
          everywhere(seen.met, [&](const Pass& pass, int i) { return pass.at(i).in[k].shape == shape; });
      if (one_shape && ranks_[kRun] > 1 && !takes_one_on_all(seen.met, k)) return true;
    }
    return false;
  }

  bool is_kept_from_the_start(const Seen& seen) const { return run_[0].drawn.empty() && is_kept_otherwise(seen); }

  /// Do they hold rows of one shape?
  static bool are_as_long(const Projection& a, const Projection& b) {
    return !a.shape.empty() && a.shape.size() == b.shape.size() &&
           std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1);
  }

  /// Data before any weight, of which a rank has others than the reference's.
  bool chooses_rows(const Seen& seen) const {
    const bool of_data =
        everywhere(seen.met, [](const Pass& pass, int i) { return !pass.is_of_weights(i) && !pass.is_constant(i); });
    if (!of_data || seen.in.empty() || seen.any([](const Relation& in) { return in.fits() && !in.same; })) return false;
    Views views;
    for (std::size_t p = 0; p < passes_[kReference].size(); ++p)
      views.push_back(element(of_pass(seen.met, kReference, p).out, 0));
    const std::vector<double> there = sorted_rows(views);
    const auto again = [&](double row) { return are_among({row}, there); };
    std::vector<double> here;
    bool others = false;  // are most of a rank's none of the reference's?
    for (std::size_t p = 0; p < passes_[kRun].size(); ++p) {
      const std::vector<double>& rows = of_pass(seen.met, kRun, p).out[0].rows;
      if (!are_as_long(of_pass(seen.met, kRun, p).out[0], *views[0])) return false;
      here.insert(here.end(), rows.begin(), rows.end());
      others = others || 2 * std::ranges::count_if(rows, again) < std::ssize(rows);
    }
    std::ranges::sort(here);
    return others && here.size() == there.size() && std::ranges::adjacent_find(here) == here.end();
  }

  // Scores of rows and candidates.

  /// What labels and masks are made of: the program's own numbers, which are no rows of the reference's.
  int constant_of(const Seen& seen) const {
    const auto constant = [](const Pass& pass, int i) { return pass.is_constant(i); };
    if (everywhere(seen.met, constant)) return seen.i;
    for (std::size_t k = 0; k < seen.in.size(); ++k) {
      const int maker = first().makers(seen.i)[k];
      const auto is = [&](const Pass& pass, int i) { return pass.has(i, k) && pass.is_constant(pass.makers(i)[k]); };
      if (!seen.in[k].same && !seen.in[k].rows && !seen.in[k].is_part() && everywhere(seen.met, is) &&
          takes_one_on_all(seen.met, k))
        return maker;
    }
    return kNone;
  }

  /// Of a part of the scores that every rank takes from the same columns.
  bool takes_same_columns(const Seen& seen) const {
    if (!is_one_of(seen.operation.name, {"slice", "select", "diagonal", "narrow"}) || seen.in.empty() ||
        !seen.in[0].rows)
      return false;
    const auto of_scores = [](const Pass& pass, int i) {
      return pass.is_of_weights(i) && pass.at(i).in[0].shape.size() == 2;
    };
    for (std::size_t p = 0; p < passes_[kRun].size(); ++p)
      if (of_pass(seen.met, kRun, p).numbers != seen.own.numbers) return false;
    return ranks_[kRun] > 1 && everywhere(seen.met, of_scores) &&
           seen.operation.in[0].shape[1] >= seen.operation.in[0].shape[0];
  }

  /// Does what is made of places take candidates away? Else it says which is the row's own.
  bool takes_away(int user, const Projection& of) const {
    if (user == kNone) return false;
    const bool is_mostly_one =
        !of.sums.empty() && of.shape.size() == 2 && of.sums[0] > static_cast<double>(of.shape[1]) / 2;
    return masks(at(user)) || is_one_of(at(user).name, {"sub", "rsub"}) ||
           (is_one_of(at(user).name, {"mul"}) && is_mostly_one);
  }

  static bool has_equal_sides(const Projection& of) { return of.shape.size() == 2 && of.shape[0] == of.shape[1]; }

  /// Has the run as many candidates there as rows? They may be the rank's own alone, the first of which is the first
  /// row's.
  bool has_own_alone(int i) const {
    const auto met = met_.find(i);
    if (met == met_.end()) return false;
    const Operation& own = of_pass(met->second, kRun, 0);
    const auto is_other = [](const Projection& in) { return in.shape.size() == 2 && !has_equal_sides(in); };
    return std::ranges::none_of(own.in, is_other) && std::ranges::any_of(own.out, has_equal_sides);
  }

  /// Nothing; or whether what does not point at the row's own column is a mask.
  std::optional<bool> from_0(const Seen& seen) const {
    const int constant = constant_of(seen);
    const bool same_columns = constant == kNone && takes_same_columns(seen);
    if (constant == kNone && !same_columns) return std::nullopt;
    const int user = user_of(constant == kNone ? seen.i : constant);
    if (user == kNone || !first().is_of_weights(user) || has_own_alone(user) || has_own_alone(constant))
      return std::nullopt;
    const bool mask = takes_away(user, at(same_columns ? seen.i : constant).out[0]);
    const auto points = [](const std::string& name) {
      return is_one_of(name, {"nll_loss_forward", "nll_loss2d_forward", "gather", "index", "index_put_", "index_put",
                              "scatter", "scatter_", "mul", "diagonal"});
    };
    if (!mask && !same_columns && !points(at(user).name)) return std::nullopt;
    return mask;
  }

  bool has_labels_from_0(const Seen& seen) const { return from_0(seen) == false; }
  bool has_mask_from_0(const Seen& seen) const { return from_0(seen) == true; }

  std::string misordered(const Seen& seen) const {
    const bool takes_places = is_one_of(
        seen.operation.name, {"nll_loss_forward", "nll_loss2d_forward", "gather", "index", "index_put_", "diagonal"});
    if (seen.any([](const Relation& in) { return in.other_columns; }) && (seen.of_rows || takes_places))
      return "it takes candidates in another order, at places of the reference's";
    const auto in_other_order = [](const Relation& in) { return in.other_order && !in.same; };
    const bool of_all = seen.in.size() > 1 && std::ranges::all_of(seen.in, in_other_order) && picks_alike(seen.i);
    return of_all || (seen.of_rows && seen.any(in_other_order))
               ? "its rows are compared with candidates in another order than the reference's"
               : "";
  }

  /// Does anything that it leads to take what lies at places of the program's own, which are the reference's?
  bool picks_alike(int from) const {
    return std::ranges::any_of(led_to(from), [&](int i) {
      if (!met_.contains(i)) return false;
      const auto& makers = first().makers(i);
      const bool at_places =
          is_one_of(at(i).name, {"index", "gather", "nll_loss_forward"}) && std::ranges::any_of(makers, [&](int maker) {
            const auto met = met_.find(maker);
            return first().is_constant(maker) && met != met_.end() && !met->second.out.empty() &&
                   met->second.out[0].same;
          });
      return at_places ||
             (is_one_of(at(i).name, {"diagonal"}) && of_pass(met_.at(i), kRun, 0).numbers == at(i).numbers);
    });
  }

  std::string own_candidates(const Seen& seen) const {
    const Projection &whole = seen.operation.out[0], &part = seen.own.out[0];
    // Labels of a part of the candidates do not say that there are no others.
    if (!has_equal_sides(whole) || !has_equal_sides(part) || part.shape[0] >= whole.shape[0] ||
        first().is_constant(seen.i))
      return "";
    return fmt::format("a row meets the {} of its own rank alone, of {}", part.shape[1], whole.shape[1]);
  }

  bool leaves_out(const Seen& seen) const { return std::ranges::any_of(seen.met.out, &Relation::fewer); }

  std::string scaled_twice(const Seen& seen) const {
    const auto is_softmax = [this](int i) { return is_one_of(at(i).name, {"_log_softmax", "_softmax", "logsumexp"}); };
    for (const std::vector<Relation>* relations : {&seen.in, &seen.met.out})
      for (std::size_t k = 0; k < relations->size(); ++k) {
        const Projection& scores = relations == &seen.in ? seen.operation.in[k] : seen.operation.out[k];
        if ((*relations)[k].times > 1 && scores.shape.size() == 2 && has_number((*relations)[k].times) &&
            std::ranges::any_of(led_to(seen.i), is_softmax))
          return fmt::format("{:.4g} times the reference's scores", (*relations)[k].times);
      }
    return "";
  }

  /// Is it among the numbers that lead to the loss, or 1 over one of them?
  bool has_number(double factor) const {
    const auto is = [&](double number) {
      return are_close(number, factor, factor) || are_close(number * factor, 1, 1);
    };
    return std::ranges::any_of(first().all, [&](int i) {
      return std::ranges::any_of(at(i).numbers, is) ||
             std::ranges::any_of(at(i).out, [&](const Projection& out) { return out.shape.empty() && is(out.whole); });
    });
  }

  bool masks_less(const Seen& seen) const {
    const bool takes = everywhere(seen.met, [](const Pass& pass, int i) { return pass.has(i, 0); });
    if (!takes || !masks(seen.operation) || !is_of_scores(seen.met)) return false;
    const std::size_t mask = is_one_of(seen.operation.name, {"where"}) ? 0 : 1;
    BySide<double> sums = {};
    for (const Side side : kSides)
      for (std::size_t p = 0; p < passes_[side].size(); ++p) {
        const Operation& own = of_pass(seen.met, side, p);
        const bool is_mask =
            own.name.starts_with("bitwise") || own.name.starts_with("logical") || !own.in[0].rows.empty();
        const Projection& of = !is_mask && own.in.size() > mask ? own.in[mask] : own.out[0];
        if (of.shape != own.out[0].shape || of.rows.empty()) return false;
        sums[side] = std::accumulate(of.rows.begin(), of.rows.end(), sums[side]);
      }
    return sums[kRun] < sums[kReference] && !are_close(sums[kRun], sums[kReference], sums[kReference]);
  }

  // What one side alone does.

  /// Before this one: the operation, and whose.
  std::optional<std::pair<Side, int>> alone_before(const Seen& seen) const {
    for (std::size_t k = 0; k < seen.in.size(); ++k)
      for (const Side side : kSides) {
        BySide<Places> of = seen.met.of;
        of[side] = seen.in[k].fits() ? Places() : makers_of(seen.met, side, k);
        BySide<std::size_t> input = {k, k};
        input[side] = 0;
        if (!of[side].empty() && relation_in(of, input).fits()) return std::pair(side, of[side][0]);
      }
    return std::nullopt;
  }

  bool lacks_mask(const Seen& seen) const {
    const auto alone = alone_before(seen);
    if (!alone || alone->first != kReference || !masks(at(alone->second))) return false;
    return met_.contains(alone->second) ? is_of_scores(met_.at(alone->second)) : is_square(at(alone->second).out[0]);
  }

  static bool is_square(const Projection& of) { return of.shape.size() == 2 && of.shape[1] >= of.shape[0]; }

  std::string of_one_side(const Seen& seen) const {
    const auto alone = alone_before(seen);
    if (!alone) return "";
    const Operation& operation = first(alone->first).at(alone->second);
    return fmt::format("before it the {} has {}, and the {} nothing", alone->first == kReference ? "reference" : "run",
                       where_of(operation), alone->first == kReference ? "run" : "reference");
  }

  // What is made of rows, and of shares of sums.

  bool is_norm(const Seen& seen) const {
    return is_one_of(seen.operation.name,
                     {"native_batch_norm", "batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm"});
  }

  bool adds_parts(const Seen& seen) const {
    return is_one_of(seen.operation.name, {"add", "sub", "rsub"}) && seen.operation.out[0].shape.empty() &&
           seen.in.size() > 1 && seen.in[0].is_part() && seen.in[1].is_part();
  }

  /// Two parts of a loss that are shares of different kinds.
  std::string terms(const Seen& seen) const {
    const auto words = [](const Relation& of) {
      return of.mean ? "mean" : of.of_ranks ? "sum over micro-steps, averaged over ranks," : "sum";
    };
    return !adds_parts(seen)
               ? ""
               : fmt::format(
                     "of one part of the loss the reference's is the {} of the ranks' values, of the other the {}",
                     words(seen.in[0]), words(seen.in[1]));
  }

  std::string terms_of_kinds(const Seen& seen) const {
    if (!adds_parts(seen) || micro_steps() > 1) return "";
    const Relation &x = seen.in[0], &y = seen.in[1];
    return (x.mean && y.sum && !y.mean) || (y.mean && x.sum && !x.mean) ? terms(seen) : "";
  }

  /// By which number an operation may divide.
  static std::vector<double> divisors(const Operation& operation) {
    std::vector<double> all(4);  // 0: no such
    if (is_one_of(operation.name, {"nll_loss_forward", "nll_loss2d_forward"}) && operation.out.size() > 1)
      all[0] = operation.out[1].whole;
    if (is_one_of(operation.name, {"div", "mul"}) && operation.in.size() > 1 && operation.in[1].shape.empty())
      all[1] = is_one_of(operation.name, {"div"}) ? operation.in[1].whole : 1 / operation.in[1].whole;
    if (is_one_of(operation.name, {"div", "mul"}) && operation.in.size() == 1 && !operation.numbers.empty())
      all[2] = is_one_of(operation.name, {"div"}) ? operation.numbers[0] : 1 / operation.numbers[0];
    if (!operation.in.empty() && !is_one_of(operation.name, {"div", "mul"}))
      all[3] = static_cast<double>(
          std::accumulate(operation.in[0].shape.begin(), operation.in[0].shape.end(), int64_t{1}, std::multiplies()));
    return all;
  }

  /// The numbers by which ranks and micro-steps divide, if the mean weighted by them is the reference's, and the plain
  /// mean is not.
  std::vector<double> own_counts(const Seen& seen) const {
    const auto is_linear = [&](int i) {
      return i == seen.i || moves(at(i)) ||
             is_one_of(at(i).name, {"add", "sub", "rsub", "mul", "mul_", "div", "div_", "neg", "sum", "mean"});
    };
    const std::vector<int> reached = led_to(seen.i);
    if (!seen.operation.out[0].shape.empty() || !std::ranges::all_of(reached, is_linear) ||
        std::ranges::any_of(reached, [this](int each) { return is_of_rows(each); }))
      return {};
    for (std::size_t kind = 0; kind < divisors(seen.operation).size(); ++kind) {
      BySide<double> sums = {}, counts = {};
      std::vector<double> own;
      for (const Side side : kSides)
        for (std::size_t p = 0; p < passes_[side].size(); ++p) {
          const Operation& operation = of_pass(seen.met, side, p);
          const double count = divisors(operation)[kind];
          sums[side] += count * operation.out[0].whole;
          counts[side] += count;
          if (side == kRun) own.push_back(count);
        }
      const bool apart = std::ranges::adjacent_find(own, std::not_equal_to()) != own.end();
      const double x = sums[kRun] / counts[kRun], y = sums[kReference] / counts[kReference];
      if (apart && std::ranges::all_of(own, [](double count) { return count > 0; }) && counts[kReference] > 0 &&
          are_close(x, y, std::abs(y)))
        return own;
    }
    return {};
  }

  bool counts_by_micro_step(const Seen& seen) const {
    const std::vector<double> counts = own_counts(seen);
    for (std::size_t p = 1; p < counts.size(); ++p)
      if (p % micro_steps() != 0 && counts[p] != counts[p - 1]) return true;
    return false;
  }

  /// Nothing divides what micro-steps make, in the loss or in what comes after the backward passes.
  bool adds_micro_steps(const Seen& seen) const {
    if (micro_steps() == 1 || !counts_by_micro_step(seen)) return false;
    const auto steps = static_cast<double>(micro_steps());
    for (std::size_t p = 0; p < passes_[kRun].size(); ++p) {
      const Pass& pass = passes_[kRun][p];
      const std::vector<Operation>& all = pass.flow->of->all;
      if (pass.at(pass.root).in[0].whole != of_pass(seen.met, kRun, p).out[0].whole) return false;
      for (auto after = all.begin() + pass.flow->roots.back(); after != all.end(); ++after)
        for (const double number : after->numbers)
          if (are_close(number, steps, steps) || are_close(number * steps, 1, 1)) return false;
    }
    return true;
  }

  bool counts_by_rank(const Seen& seen) const { return !own_counts(seen).empty(); }

  /// A number that the program has read from a tensor of rows.
  std::string own_number(const Seen& seen) const {
    if (!std::ranges::all_of(seen.in, &Relation::fits)) return "";
    for (std::size_t k = 0; k < seen.operation.numbers.size(); ++k) {
      const double number = seen.operation.numbers[k];
      for (const auto& [i, met] : met_of_numbers(number))
        if (everywhere(met, [&](const Pass& pass,
                                int j) { return !pass.at(j).out.empty() && pass.at(j).out[0].shape.empty(); }) &&
            reads(seen, k, met))
          return fmt::format("it takes a number that {} makes of each rank's own rows", where_of(at(i)));
    }
    return "";
  }

  /// Operations of any kind, on the way to the loss or not, whose result in the reference is this number.
  std::vector<std::pair<int, Hit>> met_of_numbers(double number) const {
    std::vector<std::pair<int, Hit>> found;
    const std::vector<Operation>& all = first().flow->of->all;
    for (int i = 0; i < first().root; ++i) {
      const Operation& operation = all[static_cast<std::size_t>(i)];
      if (operation.in.empty() || operation.out.size() != 1 || !operation.out[0].shape.empty() ||
          operation.out[0].whole != number)
        continue;
      Hit met;
      for (const Side side : kSides)
        for (const Pass& pass : passes_[side]) {
          int at = kNone;
          for (int j = 0; j < pass.root; ++j)
            if (pass.at(j).name == operation.name && pass.at(j).place == operation.place) at = j;
          met.of[side].push_back(at);
        }
      if (everywhere(met, [](const Pass&, int at) { return at != kNone; })) found.emplace_back(i, std::move(met));
    }
    return found;
  }

  /// And is it another than the reference's?
  bool reads(const Seen& seen, std::size_t number, const Hit& met) const {
    bool differs = false;
    for (std::size_t p = 0; p < passes_[kRun].size(); ++p) {
      const std::vector<double>& numbers = of_pass(seen.met, kRun, p).numbers;
      if (number >= numbers.size() || numbers[number] != of_pass(met, kRun, p).out[0].whole) return false;
      differs = differs || numbers[number] != seen.operation.numbers[number];
    }
    return differs;
  }

  /// It takes what fits times or over one number, which is another in the reference.
  static bool takes_other_number(const Seen& seen) {
    return is_one_of(seen.operation.name, {"mul", "div", "mul_", "div_", "lerp", "lerp_"}) && !seen.in.empty() &&
           std::ranges::all_of(seen.in, &Relation::fits) && seen.own.numbers.size() == 1 &&
           seen.operation.numbers.size() == 1 && seen.own.numbers != seen.operation.numbers;
  }

  std::string other_number(const Seen& seen) const {
    if (!takes_other_number(seen)) return "";
    return fmt::format("by {:.6g}, in the reference by {:.6g}", seen.own.numbers[0], seen.operation.numbers[0]);
  }

  /// The loss, whose mean over ranks is the reference's before it.
  bool is_times_ranks(const Seen& seen) const {
    const auto is_linear = [&](int i) {
      return moves(at(i)) || is_one_of(at(i).name, {"mul", "mul_", "div", "neg", "mean"});
    };
    return takes_other_number(seen) && is_one_of(seen.operation.name, {"mul", "mul_"}) && seen.in[0].mean &&
           !seen.in[0].sum && seen.operation.numbers[0] == ranks_[kReference] &&
           seen.own.numbers[0] == ranks_[kRun] && std::ranges::all_of(led_to(seen.i), is_linear);
  }

  /// Weights, of which what is kept takes a share, and what is trained the rest.
  std::string other_average(const Seen& seen) const {
    if (!takes_other_number(seen) || !seen.in[0].same || seen.operation.in[0].shape.empty()) return "";
    const bool interpolates = is_one_of(seen.operation.name, {"lerp", "lerp_"});
    const auto is_rest = [&](int i, Side side) {
      const double own = side == kRun ? seen.own.numbers[0] : seen.operation.numbers[0];
      const Operation& operation = first(side).at(i);
      return std::ranges::any_of(operation.numbers, [&](double number) { return are_close(number + own, 1, 1); });
    };
    const auto has_rest = [&](Side side) {
      const Pass& pass = first(side);
      return std::ranges::any_of(pass.all, [&](int i) {
        const auto& makers = pass.makers(i);
        const bool adds = is_one_of(pass.at(i).name, {"add", "add_"}) &&
                          std::ranges::find(makers, seen.met.of[side][0]) != makers.end();
        return adds && (is_rest(i, side) ||
                        std::ranges::any_of(makers, [&](int maker) { return maker != kNone && is_rest(maker, side); }));
      });
    };
    return interpolates || (has_rest(kReference) && has_rest(kRun))
               ? "an average of weights takes another share of them: " + other_number(seen)
               : "";
  }

  bool is_own_statistic(const Seen& seen) const {
    const bool of_many = is_one_of(seen.operation.name, {"std", "var", "std_mean", "var_mean", "median", "amax", "amin",
                                                         "max", "min", "mean", "logsumexp", "cumsum", "sort", "topk",
                                                         "quantile", "argsort", "_softmax", "_log_softmax"});
    const bool is_linear = is_one_of(seen.operation.name, {"add", "sub", "mul"});
    const auto counts_from_0 = [](const Relation& in) { return in.place && !in.rows; };
    const auto parts = std::ranges::count_if(seen.in, &Relation::is_part);
    return (seen.of_rows && (seen.of_parts || of_many || seen.any(counts_from_0))) ||
           (seen.of_parts &&
            (seen.in.size() == 1 || !is_linear || (parts > 1 && is_one_of(seen.operation.name, {"mul"}))));
  }

  std::string padding(const Seen& seen) const {
    if (is_one_of(seen.operation.name, {"nll_loss_forward", "nll_loss2d_forward"}) && seen.met.out.size() > 1) {
      BySide<double> counted = {};
      for (const Side side : kSides)
        for (std::size_t p = 0; p < passes_[side].size(); ++p) counted[side] += of_pass(seen.met, side, p).out[1].whole;
      if (counted[kRun] > counted[kReference] && std::floor(counted[kRun]) == counted[kRun])
        return fmt::format("it counts {} places, and {} in the reference", counted[kRun], counted[kReference]);
    }
    for (std::size_t k = 0; k < seen.in.size() && !moves(seen.operation); ++k) {
      const Projection &own = seen.own.in[k], &there = seen.operation.in[k];
      if (seen.in[k].rows && own.shape.size() > 1 && own.shape.size() == there.shape.size() && !are_as_long(own, there))
        return fmt::format("it counts what pads rows, to {}, and to {} in the reference", fmt::join(own.shape, " x "),
                           fmt::join(there.shape, " x "));
    }
    return "";
  }

  std::string anything(const Seen& seen) const {
    std::vector<std::string> takes;
    for (const Relation& in : seen.in)
      if (std::ranges::find(takes, words_of(in)) == takes.end()) takes.push_back(words_of(in));
    return fmt::format("of {} it makes other numbers",
                       takes.empty() ? "nothing" : fmt::format("{}", fmt::join(takes, " and ")));
  }

  /// A loss of 0, on some ranks and not on all.
  bool some_have_no_loss() const {
    const auto count =
        std::ranges::count_if(passes_[kRun], [](const Pass& pass) { return pass.at(pass.root).in[0].whole == 0; });
    return count > 0 && static_cast<std::size_t>(count) < passes_[kRun].size();
  }

  /// What leads to the loss on some ranks alone.
  std::optional<Parting> of_some_ranks() const {
    std::map<std::pair<std::string, std::string>, std::size_t> counts;
    for (const Pass& pass : passes_[kRun])
      for (const auto& [key, places] : pass.by_place) ++counts[key];
    for (const Pass& pass : passes_[kRun])
      for (const auto& [key, places] : pass.by_place) {
        const Operation& operation = pass.at(places[0]);
        if (counts[key] == passes_[kRun].size() || operation.out.empty() || !operation.out[0].shape.empty()) continue;
        const bool skips = (operation.out[0].whole == 0 && !first().by_place.contains(key)) || some_have_no_loss();
        return Parting{skips ? "skip-decided-alone" : "",
                       fmt::format("They part in {}, which {} of {} ranks do.", where_of(operation), counts[key],
                                   passes_[kRun].size()),
                       operation.place};
      }
    return std::nullopt;
  }
};

/// Passes of all ranks in groups that belong together: all, or one after the other.
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

std::optional<Parting> find_parting(const std::vector<Operations>& reference, const std::vector<Operations>& run) {
  BySide<std::vector<Flow>> flows;
  BySide<std::size_t> roots = {};
  for (const Side side : kSides) {
    for (const Operations& each : side == kReference ? reference : run) flows[side].push_back(flow_of(each));
    roots[side] = flows[side].empty() ? 0 : flows[side][0].roots.size();
    if (roots[side] == 0) return std::nullopt;
  }
  // Of other counts at one place of the program, passes are micro-steps.
  std::set<std::string> places;
  for (const Side side : kSides)
    for (const int root : flows[side][0].roots)
      places.insert(flows[side][0].of->all[static_cast<std::size_t>(root)].place);
  const bool are_micro_steps = roots[kReference] != roots[kRun] && places.size() == 1 && !places.begin()->empty();
  const std::size_t groups = are_micro_steps ? 1 : std::gcd(roots[kReference], roots[kRun]);
  const auto a = grouped(flows[kReference], groups), b = grouped(flows[kRun], groups);
  if (a.empty() || b.empty()) return std::nullopt;
  for (std::size_t k = 0; k < groups; ++k) {
    Kinds walk({a[k], b[k]}, {static_cast<int>(reference.size()), static_cast<int>(run.size())}, run);
    if (!walk.fits()) return walk.parting();
  }
  return std::nullopt;
}

}  // namespace lockstep
