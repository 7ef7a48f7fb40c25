#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
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

/// `a`: the reference's tensors, `b` the run's; `ranks` of each.
Relation relation_of(const Views& a, const Views& b, int ranks_a, int ranks_b);

/// Are all of these one tensor's?
bool are_alike(const Views& views);

std::string words_of(const Relation& of);

/// Of sums in float64, relative to `scale`.
bool are_close(double a, double b, double scale);

/// Is each of `some` one of `all`, of its own? Both sorted.
bool are_among(const std::vector<double>& some, const std::vector<double>& all);

/// Of all views, sorted: a row of each.
std::vector<double> sorted_rows(const Views& views);

}  // namespace lockstep
