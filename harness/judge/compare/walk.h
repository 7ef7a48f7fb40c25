#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/judge/compare/operations.h"

// From the loss of a step back to the operations from which on two layouts do not agree.

namespace lockstep {

enum Side { kReference, kRun };
constexpr Side kSides[] = {kReference, kRun};

template <class Each>
using BySide = std::array<Each, 2>;

using Places = std::vector<int>;  ///< of one operation, by pass

/// An operation that both do, in all parts.
struct Met {
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
  const Operation& of_pass(const Met& met, Side side, std::size_t p) const {
    return passes_[side][p].at(met.of[side][p]);
  }

  // What both do.

  void meet(const std::pair<std::string, std::string>& key, const Places& places);
  void add(int i, Met met);
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
  std::optional<bool> are_paired(const Met& of, std::size_t input, const Met& other, std::size_t other_input) const;
  /// Is it so of an operation in all passes of both?
  template <class Is>
  bool everywhere(const Met& met, Is is) const {
    for (const Side side : kSides)
      for (std::size_t p = 0; p < passes_[side].size(); ++p)
        if (!is(passes_[side][p], met.of[side][p])) return false;
    return true;
  }

  /// What the passes of the run make of it, or take.
  template <class Of>
  bool alike_on_all(const Met& met, Of of) const {
    Views views;
    for (std::size_t p = 0; p < passes_[kRun].size(); ++p) {
      views.push_back(of(p, met.of[kRun][p]));
      if (views.back() == nullptr) return false;
    }
    return ranks_[kRun] > 1 && are_alike(views);
  }

  bool makes_one_on_all(const Met& met) const;
  bool takes_one_on_all(const Met& met, std::size_t input) const;

  // From the loss back.

  /// What made an input, by pass; empty where it is unknown, or of several kinds.
  Places makers_of(const Met& met, Side side, std::size_t input) const;

  /// Along what does not fit: the operations at which that begins.
  void find_culprits();

  /// What gives two operations that meet an input is met too if it is of one kind, at another place of the program.
  void meet_makers(const Met& by, std::size_t input, int maker);

  /// Does what does not fit go on behind it?
  bool leads_to_one(int i);

  /// What takes what an operation makes, on its way to the loss; itself first.
  std::vector<int> led_to(int from) const;

  /// The first that takes it and computes something of it, with another than constants.
  int user_of(int from) const;

  /// Do two sides make tensors of other lengths of it?
  bool is_of_rows(int i) const;

  /// Does it make a number for each row and each row that it is compared with?
  bool is_of_scores(const Met& met) const;

  BySide<std::vector<Pass>> passes_;
  BySide<int> ranks_;
  const std::vector<Operations>& run_;
  std::map<int, Met> met_;  ///< by operation of the reference's first pass
  std::map<int, bool> leads_;
  std::set<int> culprits_;
};

}  // namespace lockstep
