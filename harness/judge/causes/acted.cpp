#include "harness/judge/causes/acted.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/forced/values.h"
#include "harness/judge/compare/step_pairs.h"

namespace lockstep {
namespace {

/// What a recomputation with one thing otherwise proves where it agrees: its name up to the value, the cause, and
/// words.
struct OtherColumn {
  std::string_view begins, code, words;
};
constexpr OtherColumn kOtherwise[] = {
    {"back", "stale-rollout-policy", "at the weights of update −{}"},
    {"start", "stale-rollout-policy", "at the weights that training began with"},
    {"schedule", "schedules-differ", "with a schedule of {} points"},
    {"sigma", "sigma-of-another-step", "with the deviation of transition +{}"},
    {"nosigma", "sigma-terms-missing", "without the terms of the deviations"},
    {"temperature", "rollout-temperature", "at another temperature {}"},
    {"bfloat16", "log-pi-in-low-precision", "in bfloat16"},
    {"float16", "log-pi-in-low-precision", "in float16"},
};
constexpr const char *kActed = "acted", *kRecomputed = "recomputed", *kFloat64 = "float64";
constexpr double kFloat32 = 0x1p-16;  ///< some 256 roundings of float32, as a sum over a vocabulary or a chain has

/// Of a column's name; where it is none of these, its code is the name.
OtherColumn otherwise_of(const std::string& name) {
  const std::string_view begins = std::string_view(name).substr(0, name.find('_'));
  const auto* const found = std::ranges::find(kOtherwise, begins, &OtherColumn::begins);
  return found == std::end(kOtherwise) ? OtherColumn{name, name, "as that column says"} : *found;
}

/// Half of the last digit of numbers that were written with few; whole numbers, zeros among them, are not.
double half_a_digit(const std::vector<double>& values) {
  for (double unit = 1; unit < 1e7; unit *= 10) {
    const auto fits = [unit](double value) {
      const double units = std::abs(value * unit);
      return std::abs(units - std::round(units)) <= 1e-6 * std::min(1.0, units);
    };
    if (std::ranges::all_of(values, fits)) return unit == 1 ? 0 : 0.5 / unit;
  }
  return 0;
}

/// How y follows x, by least squares.
struct Line {
  double slope = 0, level = 0, mean = 0, deviation = 0, slope_error = 0, most_off = 0;
};
Line line_of(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  double mean_x = 0, xx = 0, xy = 0, yy = 0, off = 0;
  Line line;
  for (std::size_t i = 0; i < x.size(); ++i) mean_x += x[i] / n, line.mean += y[i] / n;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - line.mean);
    yy += (y[i] - line.mean) * (y[i] - line.mean);
  }
  line.slope = xx > 0 ? xy / xx : 0;
  line.level = line.mean - line.slope * mean_x;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double gap = y[i] - line.level - line.slope * x[i];
    off += gap * gap;
    line.most_off = std::max(line.most_off, std::abs(gap));
  }
  line.deviation = std::sqrt(yy / std::max(n - 1, 1.0));
  line.slope_error = std::sqrt(off / std::max(n - 2, 1.0) / xx);
  return line;
}

using Places = std::vector<std::size_t>;

class ActedJudge {
 public:
  explicit ActedJudge(const ActedRecord& record) : record_(record), columns_(record.again) {
    for (const char* own : {kActed, kRecomputed}) columns_[own].clear();
    for (const ActedTransition& each : record.all) {
      columns_[kActed].push_back(each.acted);
      columns_[kRecomputed].push_back(each.recomputed);
      groups_[{each.step, each.rank}].push_back(columns_[kActed].size() - 1);
      steps_.insert(each.step);
    }
    for (auto& [name, values] : columns_) {
      digits_[name] = half_a_digit(values);
      values.resize(record.all.size(), kNaN);
    }
    for (const auto& [at, places] : groups_) {
      if (agree(kActed, kRecomputed, places)) continue;
      wrong_groups_.push_back(places);
      for (const std::size_t i : places) {
        const ActedTransition& each = record.all[i];
        wrong_.push_back(i);
        t_.push_back(static_cast<double>(each.t));
        acted_.push_back(each.acted);
        recomputed_.push_back(each.recomputed);
        gaps_.push_back(each.acted - each.recomputed);
      }
    }
  }

  Mechanism judge() const {
    Mechanism result;
    if (record_.all.empty()) {
      result.sentence = "No transition has a log-probability as acted and as recomputed.";
      return result;
    }
    result.compared_steps = std::ssize(steps_);
    std::set<int> wrong_ranks;
    for (const std::size_t i : wrong_) wrong_ranks.insert(record_.all[i].rank);
    std::map<int, Places> by_rank;
    Places all;
    for (const auto& [at, places] : groups_) {
      by_rank[at.second].insert(by_rank[at.second].end(), places.begin(), places.end());
      all.insert(all.end(), places.begin(), places.end());
    }
    for (const auto& [rank, own] : by_rank) {
      const Mark mark = wrong_ranks.contains(rank) ? Mark::different : Mark::same;
      result.facts.push_back({mark, fmt::format("rank {}", rank), apart(kRecomputed, own)});
    }
    if (record_.again.contains(kFloat64))
      result.facts.push_back(
          {agree(kActed, kFloat64, all) ? Mark::same : Mark::different, kFloat64, apart(kFloat64, all)});
    if (wrong_.empty()) {
      const auto exactly = [](const ActedTransition& each) { return each.acted == each.recomputed; };
      result.verdict =
          std::ranges::all_of(record_.all, exactly) ? VerdictKind::identical : VerdictKind::within_envelope;
      result.sentence =
          fmt::format("As acted and as recomputed they agree: {} of {} and {}.", counted(std::ssize(all), "transition"),
                      counted(std::ssize(by_rank), "rank"), counted(result.compared_steps, "step"));
      return result;
    }
    result.verdict = VerdictKind::divergent;
    Divergence& first = result.first_divergence.emplace();
    first.step = record_.all[wrong_.front()].step;
    first.phase = "acted against recomputed";
    first.rank = wrong_ranks.size() == 1 ? *wrong_ranks.begin() : kAllRanks;
    first.kind = DivergenceKind::band;
    first.sentence = fmt::format("Log-probabilities as acted and as recomputed are {}", apart(kRecomputed, wrong_));
    result.sentence = fmt::format("{}. {}.", first.sentence, shape());
    Cause& cause = result.cause.emplace(name());
    if (cause.code == "unexplained") result.decide = what_would_decide();
    else cause.remedy = find_cause_page(cause.code)->remedy;
    return result;
  }

 private:
  bool agree(const std::string& a, const std::string& b, const Places& places) const {
    // Where lockstep has the trainer, all but what this computes natively is float64.
    const bool native = b == kRecomputed || a == kRecomputed || b.ends_with("float16");
    const double digits = digits_.at(a) + digits_.at(b);
    return std::ranges::all_of(places, [&](std::size_t i) {
      const double size = std::max(1.0, std::abs(columns_.at(a)[i]));
      return std::abs(columns_.at(a)[i] - columns_.at(b)[i]) <=
             (native ? kFloat32 : record_.acted_rounds) * size + digits;
    });
  }

  /// "0.3 apart at most, at step 3, rank 1, row 7, transition 12: acted -0.2, recomputed 0.1".
  std::string apart(const std::string& other, const Places& places) const {
    std::size_t at = places.front();
    const auto gap = [&](std::size_t i) { return std::abs(columns_.at(kActed)[i] - columns_.at(other)[i]); };
    for (const std::size_t i : places)
      if (gap(i) > gap(at) || (std::isnan(gap(i)) && !std::isnan(gap(at)))) at = i;
    const ActedTransition& most = record_.all[at];
    if (gap(at) == 0) return "0 apart";
    return fmt::format("{} apart at most, at step {}, rank {}{}, transition {}: {} and {}", short_number(gap(at)),
                       most.step, most.rank, most.row.empty() ? "" : ", row " + most.row, most.t,
                       short_number(most.acted), short_number(columns_.at(other)[at]));
  }

  bool all_finite() const {
    return std::ranges::all_of(gaps_, [](double gap) { return std::isfinite(gap); });
  }

  /// Of acted less recomputed, where they differ: its level, and whether it grows along a row.
  std::string shape() const {
    if (!all_finite()) return "Not all of them are finite";
    const Line line = line_of(t_, gaps_);
    constexpr double kSure = 4;  // standard errors
    const double length = std::ranges::max(t_) - std::ranges::min(t_);
    if (length > 0 && std::abs(line.slope) > kSure * line.slope_error && std::abs(line.slope) * length > kFloat32)
      return fmt::format("Acted less recomputed grows by {} a transition, from {} at transition 0: a slope",
                         short_number(line.slope), short_number(line.level));
    if (std::abs(line.mean) > kSure * line.deviation / std::sqrt(static_cast<double>(t_.size())))
      return fmt::format("Acted less recomputed is {} in the mean, flat, not growing: a bias per transition",
                         short_number(line.mean));
    return fmt::format("Acted less recomputed is 0 in the mean and scatters by {}: no bias",
                       short_number(line.deviation));
  }

  /// The recomputations of a cause of which one agrees with `side` wherever it is wrong; empty if somewhere none does.
  std::vector<std::string> agreeing(const std::string& side, std::string_view code) const {
    std::vector<std::string> everywhere, somewhere;
    std::set<std::size_t> explained;
    for (const auto& [name, values] : record_.again) {
      if (name == kFloat64 || otherwise_of(name).code != code) continue;
      std::size_t groups = 0;
      for (std::size_t g = 0; g < wrong_groups_.size(); ++g)
        if (agree(side, name, wrong_groups_[g])) explained.insert(g), ++groups;
      if (groups == wrong_groups_.size()) everywhere.push_back(name);
      if (groups > 0) somewhere.push_back(name);
    }
    return !everywhere.empty() ? everywhere : explained.size() == wrong_groups_.size() ? somewhere : everywhere;
  }

  Cause name() const {
    if (!all_finite()) return causes::made("unexplained", 0, "log-probabilities that are not finite");
    const auto right = [&](const char* side) {
      return record_.again.contains(kFloat64) && agree(side, kFloat64, wrong_);
    };
    const bool acted_right = right(kActed);
    const std::string side = acted_right ? kRecomputed : kActed;
    const char* const who = acted_right ? "the rollout is right, and the trainer computes"
                                        : "the rollout acted by what the trainer computes";
    constexpr const char *kStored = "old-log-pi-in-low-precision", *kComputed = "log-pi-in-low-precision";
    std::map<std::string, std::string> found;  // evidence by code
    for (const auto& [column, values] : record_.again) {
      const std::string code(otherwise_of(column).code);
      std::vector<std::string> words;
      for (const std::string& name : agreeing(side, code)) {
        const std::size_t value = std::min(name.find('_'), name.size() - 1) + 1;
        words.push_back(replaced(std::string(otherwise_of(name).words), "{}", name.substr(value)) + " (recomputed_" +
                        name + ")");
      }
      if (!words.empty()) found[code] = fmt::format("{} {}: these agree", who, join_words(words, "or"));
    }
    for (const auto& [bits, type] : {std::pair(7, "bfloat16"), std::pair(10, "float16")}) {
      if (is_rounded(kActed, kRecomputed, bits))
        found[kStored] = fmt::format("the rollout's are the trainer's rounded to {}", type);
      else if (is_rounded(kRecomputed, kActed, bits))
        found[record_.stored ? kStored : kComputed] =
            fmt::format("the trainer's are the rollout's rounded to {}", type);
    }
    if (found.empty() && acted_right && record_.again.size() == 1 && rounds_as_bfloat16())
      return causes::made(kComputed, causes::kFits,
                          "in float64 they agree, and the trainer's own precision is off without bias, within the "
                          "rounding of bfloat16");
    if (found.size() == 1 && find_cause_page(found.begin()->first) != nullptr)
      return causes::made(found.begin()->first, causes::kExact, found.begin()->second);
    std::vector<std::string> all;
    for (const auto& [code, evidence] : found) all.push_back(fmt::format("{}: {}", code, evidence));
    if (all.empty()) all.push_back("no known cause fits");
    if (acted_right) all.push_back("in float64 they agree: the trainer's are off");
    if (right(kRecomputed)) all.push_back("in float64 the trainer's are the same: the rollout's are off");
    return causes::made("unexplained", 0, "{}; {}", fmt::join(all, "; "), numbers_alone());
  }

  /// Are all of one side numbers of so many bits, next to the other's?
  bool is_rounded(const char* narrow, const char* wide, int bits) const {
    constexpr double kMiddle = 1 + 1.0 / 32;  // between two numbers the other side's own rounding decides
    constexpr std::size_t kNoAccident = 4;
    std::set<double> values;
    for (const std::size_t i : wrong_) {
      const double value = columns_.at(narrow)[i], gap = std::abs(value - columns_.at(wide)[i]);
      if (value != causes::rounded_to(value, bits) || gap > kMiddle * std::ldexp(std::abs(value), -bits - 1))
        return false;
      values.insert(value);
    }
    return values.size() >= kNoAccident;
  }
  bool rounds_as_bfloat16() const {
    constexpr std::size_t kNoAccident = 8;
    return gaps_.size() >= kNoAccident && largest_of(gaps_) <= std::max(1.0, largest_of(acted_)) * 0x1p-8 && shape().ends_with("no bias");
  }

  /// What the two columns show by themselves: an offset, a factor.
  std::string numbers_alone() const {
    std::map<double, std::vector<double>> by_t;
    for (std::size_t i = 0; i < t_.size(); ++i) by_t[t_[i]].push_back(gaps_[i]);
    const double digits = digits_.at(kActed) + digits_.at(kRecomputed);
    const double allowed = 2 * (kFloat32 * std::max(1.0, largest_of(acted_)) + digits);
    const auto alike = [&](const std::vector<double>& values) {
      return std::ranges::max(values) - std::ranges::min(values) <= allowed;
    };
    const Line line = line_of(recomputed_, acted_);
    if (gaps_.size() < 3) return "too few transitions differ to show more";
    if (alike(gaps_)) return fmt::format("acted is recomputed plus {}, a constant offset", short_number(gaps_.front()));
    if (by_t.size() < gaps_.size() && std::ranges::all_of(by_t, [&](const auto& each) { return alike(each.second); }))
      return "the offset depends on the transition alone";
    if (line.most_off > allowed) return "the numbers show neither an offset nor a factor";
    return fmt::format("acted is {} times recomputed{}, a factor", short_number(line.slope),
                       std::abs(line.level) <= allowed ? "" : " plus " + short_number(line.level));
  }

  /// Recomputations that were not given.
  std::string what_would_decide() const {
    constexpr std::string_view kAsked[] = {"float64", "back_1", "temperature_T", "schedule_N", "sigma_1"};
    std::vector<std::string> lacking;
    for (const std::string_view name : kAsked) {
      const auto begins = [&](const auto& each) { return each.first.starts_with(name.substr(0, name.find('_'))); };
      if (std::ranges::none_of(record_.again, begins)) lacking.push_back(fmt::format("recomputed_{}", name));
    }
    return lacking.empty() ? "" : "a column " + join_words(lacking, "or");
  }

  const ActedRecord& record_;
  std::map<std::string, std::vector<double>> columns_;
  std::map<std::string, double> digits_;
  std::set<int64_t> steps_;
  std::map<std::pair<int64_t, int>, Places> groups_;  ///< what one rank has in one step is right or wrong together
  std::vector<Places> wrong_groups_;
  Places wrong_;
  std::vector<double> t_, acted_, recomputed_, gaps_;  ///< of those
};

}  // namespace

ActedRecord read_acted(const std::string& path) {
  ActedRecord record;
  std::vector<ConfigProblem> problems;
  const FileText file = read_file_or_pipe(path, kMostFileBytes);
  if (!file) problems.push_back({path, 0, 0, file.problem, ""});
  int number = 0;
  constexpr std::size_t kMostProblems = 20;
  for (std::size_t begin = 0, end = 0; begin < file.text.size() && problems.size() < kMostProblems; begin = end + 1) {
    end = std::min(file.text.find('\n', begin), file.text.size());
    const std::string_view words = std::string_view(file.text).substr(begin, end - begin);
    ++number;
    if (words.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    JsonProblem problem;
    nlohmann::json line = parse_json(words, &problem);
    if (!line.is_object()) line = nlohmann::json::object();
    std::map<std::string, double> values;
    for (const auto& [key, value] : line.items())
      if (const auto given = number_in_json(value)) values[key] = *given;
    if (!values.contains(kActed) || !values.contains(kRecomputed)) {
      const bool read = problem.message.empty();
      problems.push_back(
          {path, number, 1, read ? "a line needs the numbers acted and recomputed" : problem.message, ""});
      continue;
    }
    const auto whole = [&](const char* key) {
      const double given = values.contains(key) ? values[key] : line.contains(key) ? kNaN : 0;
      const bool is_whole = given >= 0 && given <= 1e9 && given == std::floor(given);
      if (!is_whole) problems.push_back({path, number, 1, std::string(key) + " must be a whole number from 0 on", ""});
      return is_whole ? static_cast<int64_t>(given) : 0;
    };
    record.all.push_back({whole(line.contains("step") ? "step" : "update"), whole("t"),
                          static_cast<int>(whole("rank")), line.contains("row") ? line["row"].dump() : "",
                          values[kActed], values[kRecomputed]});
    for (const auto& [key, value] : values) {
      constexpr std::string_view kAgain = "recomputed_";
      if (!key.starts_with(kAgain) || key == "recomputed_acted" || key == "recomputed_recomputed") continue;
      std::vector<double>& column = record.again[key.substr(kAgain.size())];
      column.resize(record.all.size() - 1, kNaN);
      column.push_back(value);
    }
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
  return record;
}

Mechanism judge_acted(const ActedRecord& record) { return ActedJudge(record).judge(); }

Mechanism judge_acted_run(const std::string& run_dir) {
  RunReader run(run_dir);
  const TrainerSpec* const trainer = trainer_of(run, run);
  const auto name_of_column = trainer != nullptr ? causes::trainer_rules(trainer->name).acted_column : nullptr;
  ActedRecord records[2];  // what the loss has as the old one, and what it trains by
  while (const std::optional<StepOfRun> step = run.next()) {
    if (step->step < 0) continue;
    const std::optional<Scores> scores = forced_values(*step, run_dir, scores_of(trainer)).scores;
    if (!scores || name_of_column == nullptr)
      throw TraceError(fmt::format("{}: step {}: no log-probabilities as acted", run_dir, step->step));
    for (const ScoreRow& row : scores->rows) {
      std::map<int64_t, std::map<std::string, double>> by_t;
      for (std::size_t i = 0; i < row.values.size(); ++i) {
        const auto [name, t] = name_of_column(scores->columns[static_cast<std::size_t>(row.rank)][i]);
        if (!name.empty()) by_t[t][std::string(name)] = row.values[i];
      }
      for (auto& [t, values] : by_t) {
        if (values[kActed] == 0 && values[kRecomputed] == 0) continue;  // behind the row's end
        for (const bool trained : {false, true}) {
          ActedRecord& record = records[trained];
          record.acted_rounds = 1e-9;
          record.stored = !trained;
          const double recomputed = values[trained ? kRecomputed : "old"];
          record.all.push_back({step->step, t, row.rank, std::to_string(row.row_id), values[kActed], recomputed});
          for (const auto& [name, value] : values) {
            if (name == kActed || name == kRecomputed || name == "old") continue;
            record.again[name].resize(record.all.size() - 1, kNaN);
            record.again[name].push_back(value);
          }
        }
      }
    }
  }
  Mechanism old = judge_acted(records[0]);
  return old.verdict == VerdictKind::divergent ? old : judge_acted(records[1]);
}

}  // namespace lockstep
