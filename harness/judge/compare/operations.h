#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The operations of a step that a rank has written down, and how those of several ranks are another layout's.

namespace lockstep {

/// Of a tensor: numbers that are linear in its values (`operations.py`).
struct Projection {
  std::vector<int64_t> shape;
  double whole = 0;
  uint64_t storage = 0;
  std::vector<double> rows, columns;  ///< by index of the first and of the second dimension; empty: not kept
  std::vector<double> sums;           ///< of rows; the same whatever the order of columns
  std::vector<double> powers = {};    ///< of more rows than are kept: the sums of their first, second and fourth powers
};

struct Operation {
  std::string name;   ///< aten's, "div.Tensor"; "backward": a backward pass begins with what it takes
  std::string place;  ///< "train.py:59"
  bool in_backward = false;
  std::vector<double> numbers;  ///< among its arguments
  std::vector<Projection> in, out;
};

struct Operations {
  std::vector<Operation> all;
  std::vector<double> drawn;        ///< projections of what was drawn before the step
  std::set<uint64_t> weights = {};  ///< storages of what the optimizer updates
};

/// A rank's; empty where there are none, or none that can be read.
Operations read_operations(const std::string& folder, int rank);

/// "div" of "div.Tensor".
std::string base_of(const std::string& name);
bool is_one_of(const std::string& name, std::initializer_list<std::string_view> names);
bool draws(const Operation& operation);
bool moves(const Operation& operation);  ///< it computes nothing
bool masks(const Operation& operation);

constexpr int kNone = -1;

/// Of one log: what each operation's inputs were made by.
struct Flow {
  const Operations* of = nullptr;
  std::vector<std::vector<int>> makers;  ///< by operation and input
  std::vector<std::vector<bool>> kept;   ///< was it there before the step?
  std::vector<bool> of_weights;          ///< do weights lead to it?
  std::vector<bool> constant;            ///< is it made of nothing but the program's own numbers?
  std::vector<int> roots;                ///< where backward passes begin
};

Flow flow_of(const Operations& operations);

/// A forward pass: what leads to one backward pass's loss.
struct Pass {
  const Flow* flow = nullptr;
  int root = kNone;
  std::set<int> all = {};
  std::map<std::pair<std::string, std::string>, std::vector<int>> by_place = {};  ///< name and place; in their order

  const Operation& at(int i) const { return flow->of->all[static_cast<std::size_t>(i)]; }
  const std::vector<int>& makers(int i) const { return flow->makers[static_cast<std::size_t>(i)]; }
  bool is_constant(int i) const { return i != kNone && flow->constant[static_cast<std::size_t>(i)]; }
  bool is_of_weights(int i) const { return i != kNone && flow->of_weights[static_cast<std::size_t>(i)]; }
  bool has(int i, std::size_t input) const { return i != kNone && at(i).in.size() > input; }
};

Pass pass_of(const Flow& flow, int root);

/// How the tensors of ranks and micro-steps are the reference's.
struct Relation {
  bool same = false;  ///< each is the reference's
  bool sum = false, mean = false;
  bool of_ranks =
      false;  ///< their sum over the number of ranks is the reference's: means over ranks of sums over micro-steps
  bool rows = false;           ///< they hold its rows, or columns, in any order
  bool fewer = false;          ///< they hold some of its rows, each once
  bool other_columns = false;  ///< they hold its rows, with columns in another order
  bool other_order = false;    ///< each holds all of its rows, not in its order
  bool place = false;          ///< each is how it begins
  double times = 0;            ///< each is so many times the reference's; 0: not so

  bool fits() const {
    return same || sum || mean || of_ranks || rows || other_columns || other_order || place;
  }
  bool is_part() const { return (sum || mean || of_ranks) && !same; }
};

using Views = std::vector<const Projection*>;

std::string words_of(const Relation& of);

/// Of sums in float64, relative to `scale`.
bool are_close(double a, double b, double scale);

/// Is each of `some` one of `all`, of its own? Both sorted.
bool are_among(const std::vector<double>& some, const std::vector<double>& all);

/// Of all views, sorted: a row of each.
std::vector<double> sorted_rows(const Views& views);

// From the loss of a step back to the operations from which on two layouts do not agree.

enum Side { kReference, kRun };
constexpr Side kSides[] = {kReference, kRun};

template <class Each>
using BySide = std::array<Each, 2>;

using Places = std::vector<int>;  ///< of one operation, by pass

/// An operation that both do, in all parts.
struct Hit {
  BySide<Places> of;
  std::vector<Relation> out = {};
  bool fits() const { return std::ranges::all_of(out, &Relation::fits); }
};

class Walk {
 public:
  Walk(BySide<std::vector<Pass>> passes, BySide<int> ranks, const std::vector<Operations>& run);

  /// Are the losses' mean or sum the reference's?
  bool fits() const;

 protected:
  const Pass& first(Side side = kReference) const { return passes_[side][0]; }
  const Operation& at(int i) const { return first().at(i); }
  std::size_t micro_steps() const { return passes_[kRun].size() / static_cast<std::size_t>(ranks_[kRun]); }
  const Operation& of_pass(const Hit& met, Side side, std::size_t p) const {
    return passes_[side][p].at(met.of[side][p]);
  }

  /// `a`: the reference's tensors, `b` the run's; `ranks` of each.
  static Relation relation_of(const Views& a, const Views& b, int ranks_a, int ranks_b);
  /// Are all of these one tensor's?
  static bool are_alike(const Views& views);

  // What both do.

  void meet(const std::pair<std::string, std::string>& key, const Places& places);
  void add(int i, Hit met);
  static const Projection* element(const std::vector<Projection>& of, std::size_t n);
  static bool are_equal(BySide<std::vector<double>> numbers);

  /// What is done once for each row: draws of its own.
  void by_row(const std::pair<std::string, std::string>& key);

  /// How what `of` gives of each pass of the run is what it gives of the reference's; it gives nothing: not at all.
  template <class Of>
  Relation relate(Of of) const {
    BySide<Views> views;
    for (const Side side : kSides)
      for (std::size_t p = 0; p < passes_[side].size(); ++p) {
        const Projection* found = of(side, p);
        if (found == nullptr) return {};
        views[side].push_back(found);
      }
    return relation_of(views[kReference], views[kRun], ranks_[kReference], ranks_[kRun]);
  }

  /// An operation's input as what made it gave it, with its rows; nothing: it has no such input.
  static const Projection* given(const Pass& pass, int i, std::size_t input);

  /// Of one side's input to the other's.
  Relation relation_in(const BySide<Places>& of, BySide<std::size_t> input) const;

  /// Do the rows of one input come in the order of another's, in the run as in the reference? Nothing: that is not to
  /// be seen.
  std::optional<bool> are_paired(const Hit& of, std::size_t input, const Hit& other, std::size_t other_input) const;
  /// Is it so of an operation in all passes of both?
  template <class Is>
  bool everywhere(const Hit& met, Is is) const {
    for (const Side side : kSides)
      for (std::size_t p = 0; p < passes_[side].size(); ++p)
        if (!is(passes_[side][p], met.of[side][p])) return false;
    return true;
  }

  /// What the passes of the run make of it, or take.
  template <class Of>
  bool alike_on_all(const Hit& met, Of of) const {
    Views views;
    for (std::size_t p = 0; p < passes_[kRun].size(); ++p) {
      views.push_back(of(p, met.of[kRun][p]));
      if (views.back() == nullptr) return false;
    }
    return ranks_[kRun] > 1 && are_alike(views);
  }

  bool makes_one_on_all(const Hit& met) const;
  bool takes_one_on_all(const Hit& met, std::size_t input) const;

  // From the loss back.

  /// What made an input, by pass; empty where it is unknown, or of several kinds.
  Places makers_of(const Hit& met, Side side, std::size_t input) const;

  /// Along what does not fit: the operations at which that begins.
  void find_culprits();

  /// What gives two operations that meet an input is met too if it is of one kind, at another place of the program.
  void meet_makers(const Hit& by, std::size_t input, int maker);

  /// Does what does not fit go on behind it?
  bool leads_to_one(int i);

  /// What takes what an operation makes, on its way to the loss; itself first.
  std::vector<int> led_to(int from) const;

  /// The first that takes it and computes something of it, with another than constants.
  int user_of(int from) const;

  /// Do two sides make tensors of other lengths of it?
  bool is_of_rows(int i) const;

  /// Does it make a number for each row and each row that it is compared with?
  bool is_of_scores(const Hit& met) const;

  BySide<std::vector<Pass>> passes_;
  BySide<int> ranks_;
  const std::vector<Operations>& run_;
  std::map<int, Hit> met_;  ///< by operation of the reference's first pass
  std::map<int, bool> leads_;
  std::set<int> culprits_;
};

// Where two layouts of a program part: the first operation of a step whose result is not the other layout's rows, sum or mean.

struct Parting {
  std::string code;         ///< empty: none is clear from this
  std::string because;      ///< with the place
  std::string place;        ///< "train.py:59"
  bool other_rows = false;  ///< the program has chosen rows by itself, and none of the reference's
};

/// The operation from which on the losses of these ranks, of a run that begins the step as the reference does and has
/// its rows, are not the reference's. Nothing: the losses' mean or sum is the reference's, or what parts them is not
/// among what both do.
std::optional<Parting> find_parting(const std::vector<Operations>& reference, const std::vector<Operations>& run);

}  // namespace lockstep
