#include "harness/judge/compare/operations.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using Values = std::vector<double>;
using Rows = std::vector<Values>;

uint64_t next_storage = 1;

double weighed(const Values& values) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] * (1 + 0.37 * static_cast<double>(i));
  return sum;
}

Projection number(double value) { return {{}, value, next_storage++, {}, {}, {}}; }

Projection rows(const Values& values) {
  return {{std::ssize(values)}, weighed(values), next_storage++, values, {}, {}};
}

Projection matrix(const Rows& values) {
  Projection made{{std::ssize(values), std::ssize(values[0])}, 0, next_storage++, {}, {}, {}};
  for (const Values& row : values)
    made.rows.push_back(weighed(row)), made.sums.push_back(std::accumulate(row.begin(), row.end(), 0.0));
  for (std::size_t k = 0; k < values[0].size(); ++k) {
    Values column;
    for (const Values& row : values) column.push_back(row[k]);
    made.columns.push_back(weighed(column));
  }
  made.whole = weighed(made.rows);
  return made;
}

/// A rank's operations, in its order; each gives back what it makes.
struct Log {
  Operations made = {};
  /// Rows of data, or what weights make of them.
  Projection take(const Projection& values, bool of_weights = false, int line = 1) {
    const Projection kept = number(0.5);
    if (of_weights) made.weights.insert(kept.storage);
    return add("embedding", line, {kept}, values);
  }
  Projection add(const std::string& name, int line, const std::vector<Projection>& in, const Projection& out,
                 const Values& numbers = {}) {
    made.all.push_back({name, "train.py:" + std::to_string(line), false, numbers, in, {out}});
    return out;
  }
  Operations loss(const Projection& value) {
    made.all.push_back({"backward", "train.py:99", true, {}, {value}, {}});
    return made;
  }
};

double sum_of(const Values& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

const Values kAll = {1, 2.5, 4, 7}, kFirst = {1, 2.5}, kLast = {4, 7};

std::string code_of(const std::vector<Operations>& reference, const std::vector<Operations>& run) {
  const auto found = find_parting(reference, run);
  return found ? found->code + " " + found->place : "";
}

/// The sum of rows over a number.
Operations mean_over(const Values& values, double count, double factor = 1, bool in_place = false) {
  Log log;
  const Projection x = log.take(rows(values)), sum = log.add("sum", 2, {x}, number(sum_of(values)));
  const Projection n = log.add("clamp", 3, {}, number(count));
  const Projection mean = log.add("div.Tensor", 4, {sum, n}, number(factor * sum_of(values) / count));
  return log.loss(in_place ? log.add("mul_.Tensor", 5, {mean}, number(factor * sum_of(values) / count), {1}) : mean);
}

TEST(Parting, IsTheDivisionByARanksOwnCount) {
  const Operations all = mean_over(kAll, 4);
  EXPECT_EQ(code_of({all}, {mean_over({1}, 1), mean_over({2.5, 4, 7}, 3)}), "mean-of-means train.py:4");
  EXPECT_EQ(code_of({mean_over(kAll, 4, 1, true)}, {mean_over({1}, 1), mean_over({2.5, 4, 7}, 3)}),
            "mean-of-means train.py:4");
  EXPECT_EQ(code_of({all}, {mean_over(kFirst, 4, 2), mean_over(kLast, 4, 2)}), "") << "times the ranks over the whole count";
  EXPECT_EQ(code_of({all}, {mean_over(kFirst, 2), mean_over(kLast, 2)}), "") << "equal counts";
}

/// Rows less their mean, squared, averaged.
Operations centred(const Values& values, double mean) {
  Log log;
  const Projection x = log.take(rows(values)), m = log.add("mean", 2, {x}, number(mean));
  Values less;
  for (const double value : values) less.push_back(value - mean);
  const Projection y = log.add("sub.Tensor", 3, {x, m}, rows(less));
  Values squares;
  for (const double value : less) squares.push_back(value * value);
  const Projection z = log.add("pow", 4, {y}, rows(squares));
  return log.loss(log.add("mean", 5, {z}, number(sum_of(squares) / static_cast<double>(squares.size()))));
}

TEST(Parting, IsWhereARanksOwnStatisticIsUsed) {
  const double mean = sum_of(kAll) / 4;
  EXPECT_EQ(code_of({centred(kAll, mean)}, {centred(kFirst, sum_of(kFirst) / 2), centred(kLast, sum_of(kLast) / 2)}),
            "local-statistics train.py:3");
  EXPECT_EQ(code_of({centred(kAll, mean)}, {centred(kFirst, mean), centred(kLast, mean)}), "") << "the mean of all";
}

/// Rows times noise.
Operations drawing(const Values& values, const Values& noise, const Values& before = {}) {
  Log log;
  log.made.drawn = before;
  const Projection x = log.take(rows(values)), drawn = log.add("randn", 2, {}, rows(noise));
  Values made;
  for (std::size_t i = 0; i < values.size(); ++i) made.push_back(values[i] * noise[i]);
  const Projection y = log.add("mul", 3, {x, drawn}, rows(made));
  return log.loss(log.add("mean", 4, {y}, number(sum_of(made) / static_cast<double>(made.size()))));
}

TEST(Parting, IsTheDrawOfOtherNumbers) {
  const Values noise = {0.3, -0.4, 1.1, 0.7};
  const Operations all = drawing(kAll, noise);
  EXPECT_EQ(code_of({all}, {drawing(kFirst, {0.3, -0.4}), drawing(kLast, {0.3, -0.4})}), "same-stream-on-all-ranks train.py:2");
  EXPECT_EQ(code_of({all}, {drawing(kFirst, {0.3, -0.4}), drawing(kLast, {3, 5})}), "stream-keyed-by-rank train.py:2");
  const Values before = {weighed({8, 9}), weighed({3, 5})};
  EXPECT_EQ(code_of({all}, {drawing(kFirst, {8, 9}, before), drawing(kLast, {3, 5}, before)}), "stream-not-advanced train.py:2");
  EXPECT_EQ(code_of({all}, {drawing(kLast, {1.1, 0.7}), drawing(kFirst, {0.3, -0.4})}), "") << "keyed by rows";
}

/// Scores of rows against all, in the order of `candidates`; a row's own has the label.
Operations contrasted(const Values& own, const Values& candidates, const Values& labels) {
  Log log;
  const Projection x = log.take(rows(own), true), all = log.take(rows(candidates), true, 2);
  Rows scores;
  for (const double a : own) {
    scores.emplace_back();
    for (const double b : candidates) scores.back().push_back(a * b + a * a);
  }
  const Projection s = log.add("mm", 3, {x, all}, matrix(scores)), target = log.add("arange", 4, {}, rows(labels));
  double loss = 0;
  for (std::size_t i = 0; i < own.size(); ++i)
    for (std::size_t k = 0; k < candidates.size(); ++k)
      loss += (static_cast<double>(k) == labels[i] ? 3 : 1) * scores[i][k] / static_cast<double>(own.size());
  return log.loss(log.add("nll_loss_forward", 5, {s, target}, number(loss)));
}

TEST(Parting, IsWhereCandidatesOrLabelsAreOthers) {
  const Operations all = contrasted(kAll, kAll, {0, 1, 2, 3});
  EXPECT_EQ(code_of({all}, {contrasted(kFirst, kAll, {0, 1}), contrasted(kLast, kAll, {0, 1})}), "label-offset train.py:5");
  const Values interleaved = {1, 4, 2.5, 7};
  EXPECT_EQ(code_of({all}, {contrasted(kFirst, interleaved, {0, 1}), contrasted(kLast, interleaved, {2, 3})}),
            "candidates-misordered train.py:5");
  EXPECT_EQ(code_of({all}, {contrasted(kFirst, interleaved, {0, 2}), contrasted(kLast, interleaved, {1, 3})}), "")
      << "and labels in that order";
  EXPECT_EQ(code_of({all}, {contrasted(kFirst, kFirst, {0, 1}), contrasted(kLast, kLast, {0, 1})}), "local-negatives train.py:3");
  EXPECT_EQ(code_of({all}, {contrasted(kFirst, kAll, {0, 1}), contrasted(kLast, kAll, {2, 3})}), "");
}

/// A loss over signed pairs that takes a rank's own candidates first, and those of another rank that a ring brings.
Operations by_ring(const Values& own, const Values& brought) {
  Log log;
  const Projection x = log.take(rows(own), true);
  std::vector<Projection> terms;
  double sum = 0;
  for (const Values& candidates : {own, brought}) {
    if (candidates.empty()) continue;
    const bool is_own = candidates == own;
    Rows scores, signs, made;
    double loss = 0;
    for (std::size_t i = 0; i < own.size(); ++i) {
      scores.emplace_back(), signs.emplace_back(), made.emplace_back();
      for (std::size_t k = 0; k < candidates.size(); ++k) {
        scores[i].push_back(own[i] * candidates[k]);
        signs[i].push_back(is_own && i == k ? 1 : -1);
        made[i].push_back(scores[i][k] * signs[i][k]);
        loss += made[i][k] / static_cast<double>(own.size());
      }
    }
    const Projection all = is_own ? x : log.take(rows(candidates), true, 2);
    const Projection s = log.add("mm", 3, {x, all}, matrix(scores)), labels = log.add(is_own ? "add" : "full", is_own ? 4 : 8, {}, matrix(signs));
    terms.push_back(log.add("sum", 6, {log.add("mul", 5, {labels, s}, matrix(made))}, number(loss)));
    sum += loss;
  }
  return log.loss(terms.size() == 1 ? terms[0] : log.add("add.Tensor", 7, terms, number(sum)));
}

TEST(Parting, IsNotWhereARingHasLabelsOfItsOwnCandidates) {
  const Operations all = by_ring(kAll, {});
  EXPECT_EQ(code_of({all}, {by_ring(kFirst, {kLast[0]}), by_ring(kLast, {kFirst[0]})}), " train.py:4");
  EXPECT_EQ(code_of({all}, {by_ring(kFirst, {}), by_ring(kLast, {})}), "local-negatives train.py:3");
}

Operations of_two_terms(double main, double second) {
  Log log;
  const Projection x = log.add("mul", 1, {}, number(main)), y = log.add("div", 2, {}, number(second));
  return log.loss(log.add("add.Tensor", 3, {x, y}, number(main + second)));
}

/// Of each row's score with itself, taken out of the sum of all; the mask is of ones but for a place a row.
Operations masked(const Values& own, std::size_t first, const Values& at, int64_t from) {
  Log log;
  const Projection x = log.take(rows(own), true), all = log.take(rows(kAll), true, 2);
  Rows scores, mask, kept;
  double loss = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    scores.emplace_back(), mask.emplace_back(), kept.emplace_back();
    for (std::size_t k = 0; k < kAll.size(); ++k) {
      scores[i].push_back(own[i] * kAll[k] + 0.1 * static_cast<double>(i + first));
      mask[i].push_back(static_cast<double>(k) == at[i] ? 0 : 1);
      kept[i].push_back(scores[i][k] * mask[i][k]);
      loss += kept[i][k] * kept[i][k] / static_cast<double>(own.size());
    }
  }
  const Projection s = log.add("mm", 3, {x, all}, matrix(scores));
  const Projection places = log.add("arange", 4, {}, rows(at), {static_cast<double>(from)});
  const Projection m = log.add("scatter_", 5, {places}, matrix(mask));
  return log.loss(log.add("mean", 7, {log.add("mul", 6, {s, m}, matrix(kept))}, number(loss)));
}

TEST(Parting, IsAMaskThatIsNotAtTheRowsOwnPlaces) {
  const Operations all = masked(kAll, 0, {0, 1, 2, 3}, 0);
  EXPECT_EQ(code_of({all}, {masked(kFirst, 0, {0, 1}, 0), masked(kLast, 2, {0, 1}, 0)}), "duplicates-not-masked train.py:6");
  EXPECT_EQ(code_of({all}, {masked(kFirst, 0, {0, 1}, 0), masked(kLast, 2, {2, 3}, 2)}), "");
}

/// Rows up to a number that the program has read from a tensor.
Operations clamped(const Values& values, double most, const std::string& of = "amax", double more = 0) {
  Log log;
  const Projection x = log.take(rows(values), true);
  log.add(of, 2, {x}, number(most));
  Values made;
  for (const double value : values) made.push_back(std::min(value, most) + more);
  const Projection y = log.add("clamp", 3, {x}, rows(made), {most});
  return log.loss(log.add("mean", 4, {y}, number(sum_of(made) / static_cast<double>(made.size()))));
}

TEST(Parting, IsWhereANumberIsReadFromARanksOwnRows) {
  EXPECT_EQ(code_of({clamped(kAll, 3)}, {clamped(kFirst, 2), clamped(kLast, 5)}), "local-statistics train.py:3");
  EXPECT_EQ(code_of({clamped(kAll, 3)}, {clamped(kFirst, 3), clamped(kLast, 3)}), "");
  EXPECT_EQ(code_of({clamped(kAll, 3)}, {clamped(kFirst, 3, "amax", 1), clamped(kLast, 3, "amax", 2)}), " train.py:3")
      << "the reference's number";
}

/// Rows times what is made of them by counting on.
Operations counted_on(const Values& values, const Values& ones, const Values& counts) {
  Log log;
  const Projection x = log.take(rows(values), true), o = log.take(rows(ones), true, 2);
  const Projection c = log.add("cumsum", 3, {o}, rows(counts)), k = log.add("le", 4, {c}, rows({counts[0] > 1 ? 0.0 : 1, counts[1] > 1 ? 0.0 : 1}));
  return log.loss(log.add("sum", 6, {log.add("mul", 5, {x, k}, rows(values))}, number(counts[0] > 1 ? 0 : values[0])));
}

TEST(Parting, IsWhatHasMadeTheOthersThatRowsMeet) {
  Log log;
  const Projection x = log.take(rows(kAll), true), o = log.take(rows({1, 2, 3, 4}), true, 2);
  const Projection c = log.add("cumsum", 3, {o}, rows({1, 3, 6, 10})), k = log.add("le", 4, {c}, rows({1, 1, 0, 0}));
  const Operations all = log.loss(log.add("sum", 6, {log.add("mul", 5, {x, k}, rows({1, 2.5, 0, 0}))}, number(3.5)));
  EXPECT_EQ(code_of({all}, {counted_on(kFirst, {1, 2}, {1, 3}), counted_on(kLast, {3, 4}, {1, 7})}), "local-statistics train.py:3");
}

/// The mean of rows times a number.
Operations scaled(const Values& values, double by, double loss) {
  Log log;
  const Projection x = log.take(rows(values)), mean = log.add("mean", 2, {x}, number(sum_of(values) / static_cast<double>(values.size())));
  return log.loss(log.add("mul", 3, {mean}, number(loss), {by}));
}

TEST(Parting, IsTheNumberOfRanksInTheLoss) {
  const Operations times = scaled(kAll, 1, 3.625);
  EXPECT_EQ(code_of({times}, {scaled(kFirst, 2, 3.5), scaled(kLast, 2, 11)}), "loss-times-world train.py:3");
  EXPECT_EQ(code_of({times}, {scaled(kFirst, 3, 5.25), scaled(kLast, 3, 16.5)}), " train.py:3") << "another number";
  EXPECT_EQ(code_of({times}, {scaled(kFirst, 1, 1.75), scaled(kLast, 1, 5.5)}), "");
}

/// What is kept, moved by a share towards the weights.
Operations averaged(double share) {
  Log log;
  const Projection kept = log.take(rows({1, 2})), weights = log.take(rows({3, 5}), true, 2);
  const Projection y = log.add("lerp", 3, {kept, weights}, rows({1 + 2 * share, 2 + 3 * share}), {share});
  return log.loss(log.add("mean", 4, {y}, number(1.5 + 2.5 * share)));
}

TEST(Parting, IsTheShareThatAnAverageOfWeightsTakes) {
  EXPECT_EQ(code_of({averaged(0.1)}, {averaged(0.2), averaged(0.2)}), "average-of-weights-differs train.py:3");
  EXPECT_EQ(code_of({averaged(0.1)}, {averaged(0.1), averaged(0.1)}), "");
}

/// Each row with each, of which those off by one are taken, or all.
Operations all_with_all(const Values& order, bool picks) {
  Log log;
  const Projection x = log.take(rows(order), true), y = log.take(rows(order), true, 2);
  Rows scores;
  Values next;
  for (const double a : order) {
    scores.emplace_back();
    for (const double b : order) scores.back().push_back(a * b);
  }
  for (std::size_t i = 0; i + 1 < order.size(); ++i) next.push_back(scores[i][i + 1]);
  const Projection s = log.add("mul", 3, {x, y}, matrix(scores));
  if (!picks) return log.loss(log.add("sum", 4, {s}, number(sum_of(order) * sum_of(order))));
  return log.loss(log.add("mean", 5, {log.add("diagonal", 4, {s}, rows(next), {1})}, number(sum_of(next) / 3)));
}

TEST(Parting, IsAnotherOrderWherePlacesArePicked) {
  const Values interleaved = {1, 4, 2.5, 7};
  const Operations all = all_with_all(kAll, true), other = all_with_all(interleaved, true), sum = all_with_all(interleaved, false);
  EXPECT_EQ(code_of({all}, {other, other}), "candidates-misordered train.py:3");
  EXPECT_EQ(code_of({all_with_all(kAll, false)}, {sum, sum}), "") << "nothing picks";
}

/// The mean of what weights make of rows of data.
Operations taking(const Values& data) {
  Log log;
  const Projection d = log.take(rows(data)), x = log.take(rows(data), true, 2), y = log.add("mul", 3, {x, d}, rows(data));
  return log.loss(log.add("mean", 4, {y}, number(sum_of(data) / static_cast<double>(data.size()))));
}

TEST(Parting, IsInTheRowsThatRanksTake) {
  EXPECT_EQ(code_of({taking(kAll)}, {taking(kFirst), taking(kFirst)}), "shards-identical train.py:1");
  EXPECT_EQ(code_of({taking(kAll)}, {taking(kFirst), taking(kLast)}), "");
  const auto others = find_parting({taking(kAll)}, {taking({11, 12}), taking({13, 15})});
  ASSERT_TRUE(others.has_value());
  EXPECT_TRUE(others->other_rows && others->code.empty());
  EXPECT_FALSE(find_parting({taking(kAll)}, {taking({1, 4}), taking({4, 15})})->other_rows) << "a row twice";
}

TEST(Parting, IsWhereTermsAreOfDifferentKinds) {
  EXPECT_EQ(code_of({of_two_terms(3, 5)}, {of_two_terms(2, 2), of_two_terms(4, 3)}), "auxiliary-loss-over-world train.py:3");
  EXPECT_EQ(code_of({of_two_terms(3, 5)}, {of_two_terms(2, 4), of_two_terms(4, 6)}), "");
}

TEST(Parting, SaysWhatSomeRanksAloneDo) {
  const Operations all = mean_over(kAll, 4), first = mean_over(kFirst, 2);
  Log skips;
  const Projection x = skips.take(rows(kLast)), sum = skips.add("sum", 2, {x}, number(sum_of(kLast)));
  const Projection n = skips.add("clamp", 3, {}, number(2)), mean = skips.add("div.Tensor", 4, {sum, n}, number(sum_of(kLast) / 2));
  EXPECT_EQ(code_of({all}, {first, skips.loss(skips.add("mul.Tensor", 5, {mean}, number(0)))}), "skip-decided-alone train.py:5");
}

TEST(Parting, OfWhatItDoesNotKnowIsAPlaceAlone) {
  const auto with = [](const Values& values, double own) {
    Log log;
    const Projection x = log.take(rows(values));
    Values made;
    for (const double value : values) made.push_back(value * own);
    const Projection y = log.add("unfold", 2, {x}, rows(made));
    return log.loss(log.add("mean", 3, {y}, number(sum_of(made) / static_cast<double>(made.size()))));
  };
  EXPECT_EQ(code_of({with(kAll, 1)}, {with(kFirst, 3), with(kLast, 5)}), " train.py:2");
  EXPECT_EQ(code_of({{}}, {{}}), "");
}

TEST(Operations, ThatOthersWroteAreReadWithinBounds) {
  const TempFolder folder;
  const auto read = [&](const std::string& text) {
    std::ofstream(folder.path() + "/rank-0.operations.json") << text;
    return read_operations(folder.path(), 0);
  };
  const Operations made = read(
      R"({"step": 0, "places": ["a.py:1"], "drawn": [2.5], "operations": [["mean", 0, 0, [3], [[[2], 1.5, 7]], [[[], 0.5, 8, [], []]]]]})");
  ASSERT_EQ(made.all.size(), 1U);
  EXPECT_EQ(made.all[0].place, "a.py:1");
  EXPECT_EQ(made.all[0].in[0].shape, std::vector<int64_t>{2});
  EXPECT_EQ(made.drawn, Values{2.5});
  EXPECT_TRUE(read(R"({"places": ["a.py:1"], "operations": [["mean", 1, 0, [], [], []]]})").all.empty()) << "no such place";
  EXPECT_TRUE(read(R"({"places": [], "operations": [[1]]})").all.empty());
  EXPECT_TRUE(read(R"({"places": ["a"], "operations": [["backward", 0, 1, [], [], []]]})").all.empty()) << "of nothing";
  EXPECT_TRUE(read("[").all.empty());
  EXPECT_TRUE(read_operations(folder.path(), 1).all.empty());
}

}  // namespace
}  // namespace lockstep
