#include "harness/judge/compare/otherwise.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "harness/base/text.h"
#include "harness/judge/compare/forced/free.h"
#include "harness/judge/compare/forced/gradients.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/rank_result.h"

namespace lockstep {
namespace {

/// What the softmaxes of the run take, against the reference's.
struct ScoresSeen {
  bool alike = true;    ///< as many, of the same sizes; or none were seen
  bool fewer = false;   ///< of a row one rank's share
  double factor = 1;    ///< times the reference's, at the first step
  double masked[2] = {0, 0};  ///< of a row, where these differ: in the reference, in the run
};

using Widths = std::map<int64_t, std::vector<double>>;  // see ProbeReport::scores

/// False: they cannot be compared.
bool add_scores(const Widths& expected, const Widths& actual, int ranks, ScoresSeen& seen, bool first) {
  constexpr std::size_t kNumbers = 5;
  constexpr double kRounding = 1e-9;
  if (expected.size() != 1 || actual.size() != 1) return false;
  const auto& [width, a] = *expected.begin();
  const auto& [own_width, b] = *actual.begin();
  if (a.size() != kNumbers || b.size() != kNumbers || a[0] == 0 || b[0] == 0 || a[2] == 0) return false;
  seen.fewer = own_width * ranks == width;
  if (own_width != width) return seen.alike = false, seen.fewer;
  const double finite[2] = {a[1] / a[0], b[1] / b[0]};
  if (std::abs(finite[0] - finite[1]) > kRounding) {
    if (first) seen.masked[0] = static_cast<double>(width) - finite[0], seen.masked[1] = static_cast<double>(width) - finite[1];
    return seen.alike = false, true;
  }
  const double factor = b[2] / b[0] / (a[2] / a[0]), squared = b[3] / b[0] / (a[3] / a[0]);
  if (std::abs(factor - 1) > kRounding) seen.alike = false;
  if (std::abs(squared / (factor * factor) - 1) > kRounding) return false;
  // Similarities are at most 1, and so the temperature's inverse is as large as the largest score, or some more.
  constexpr double kSmall = 0.05;
  if (first) seen.factor = a[4] <= factor * (1 + kRounding) && a[4] >= kSmall * factor ? factor : 1;
  return true;
}

class Explains {
 public:
  explicit Explains(const OtherwiseInputs& inputs) : inputs_(inputs), pairs_(inputs.reference, inputs.run) {
    ranks_ = pairs_.b().world_size();
    const LedItem* different = inputs.found.different();
    item_ = different ? different->name : "";
    while (pairs_.next()) look(pairs_.step_a(), pairs_.step_b(), different && pairs_.step_a().step == different->first);
    read_scores();
  }

  std::optional<Otherwise> explain() {
    using Tried = OtherwiseInputs::Tried;
    if (inputs_.tried == Tried::first && item_ == "rate" && ranks_ > 1) return schedule();
    const bool of_values = item_ == "gradients" || item_ == "loss" || item_ == "buffers" || item_ == "clip";
    if (!of_values || ranks_ <= pairs_.a().world_size()) return std::nullopt;
    if (inputs_.tried == Tried::norm) return norm_ ? norm() : std::nullopt;
    if (pairs_.a().world_size() != 1) return std::nullopt;
    if (inputs_.tried == Tried::first)
      return gathers_ && !weighted_ && item_ != "buffers" && item_ != "loss" ? gradients() : std::nullopt;
    std::optional<Otherwise> found;
    if (item_ == "loss" && scores_.factor > 1) found = temperature();
    if (!found && gathers_ && item_ == "loss" && scores_.alike) found = order();
    if (!found && (item_ == "buffers" || !weighted_)) found = own_rows();
    if (!found && scores_.masked[0] > scores_.masked[1]) found = masked();
    return found;
  }

 private:
  void look(const StepOfRun& a, const StepOfRun& b, bool differs) {
    for (const Record& record : a.ranks[0].records) norm_ = norm_ || record.name.ends_with("running_mean");
    for (const Record& record : b.ranks[0].records)
      gathers_ = gathers_ || (record.phase == Phase::collective && record.collective.op == "all_gather");
    if (!differs || !keeps_gradients(a) || !keeps_gradients(b)) return;
    const ForcedValues of_a = forced_values(a, inputs_.reference, scores_of(nullptr)), of_b = forced_values(b, inputs_.run, scores_of(nullptr));
    const std::vector<WeighedTensor> tensors = weighed_tensors(of_a.gradients, of_b.local);
    constexpr double kNone = 1e-8;
    weighted_ = !of_b.local.empty() && tensors.size() == of_a.gradients.size() && weigh(tensors, of_b.epsilon).residual < kNone;
  }

  void read_scores() {
    const ProbeReport reference = read_probe_report(inputs_.reference, 0);
    scored_ = !reference.scores.empty();
    std::vector<ProbeReport> of_ranks;
    for (int rank = 0; rank < ranks_; ++rank) of_ranks.push_back(read_probe_report(inputs_.run, rank));
    for (const auto& [step, expected] : reference.scores) {
      Widths all;  // of all ranks together
      for (const ProbeReport& rank : of_ranks) {
        if (!rank.scores.contains(step)) continue;
        for (const auto& [width, numbers] : rank.scores.at(step)) {
          std::vector<double>& sum = all[width];
          sum.resize(numbers.size());
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = i == 4 ? std::max(sum[i], numbers[i]) : sum[i] + numbers[i];
        }
      }
      scored_ = scored_ && add_scores(expected, all, ranks_, scores_, step == reference.scores.begin()->first);
    }
    if (!scored_) scores_ = {};
  }

  /// Does the run agree with the reference if these variables are set for one of them?
  std::optional<Otherwise> agrees(const OtherRun& other) {
    const std::optional<std::string> made = inputs_.make(other);
    if (!made) return std::nullopt;
    last_ = *made;
    LedFindings found = other.of_reference ? judge_led(*made, inputs_.run) : judge_led(inputs_.reference, *made);
    if (found.different() || found.undecided() || found.steps.size() != inputs_.found.steps.size()) return std::nullopt;
    return Otherwise{"", "", std::move(found)};
  }

  static std::optional<Otherwise> named(std::optional<Otherwise> found, const std::string& code, const std::string& because) {
    if (found) found->code = code, found->because = because;
    return found;
  }

  std::optional<Otherwise> norm() {
    return named(agrees({"reference-by-ranks", true, fmt::format("NORM_PARTS={}", ranks_ / pairs_.a().world_size())}), "batch-norm-local",
                 fmt::format("The whole difference is each rank's own BatchNorm statistics: all else is the same (the "
                             "reference with statistics by {}' rows agrees).",
                             counted(ranks_, "rank")));
  }

  std::optional<Otherwise> gradients() {
    auto found = agrees({"run-gather-gradients", false, "GATHER=gradients"});
    if (!found) return found;
    const std::vector<std::string> seen = read_probe_report(last_, 0).gathers;
    constexpr std::pair<const char*, const char*> kCodes[] = {
        {"detached", "candidates-detached"},    {"put back", "gather-own-slice"},   {"without", "gather-without-gradient"},
        {"sliced", "gather-backward-sliced"}, {"averaged", "gather-averaged"}, {"other", "gather-backward-sliced"}};
    for (const auto& [kind, code] : kCodes)
      if (std::ranges::find(seen, kind) != seen.end())
        return named(std::move(found), code,
                     "The whole difference is the gradient of what is gathered: with gathers whose backward pass sums over "
                     "ranks the run agrees.");
    return std::nullopt;
  }

  std::optional<Otherwise> schedule() {
    auto found = agrees({"run-schedule-once", false, "SCHEDULE=once"});
    if (!found) return found;
    std::vector<std::string> seen = read_probe_report(last_, 0).gathers;
    std::erase_if(seen, [](const std::string& each) { return !each.ends_with(" a step"); });
    // As many micro-steps as ranks: it may follow either.
    const bool by_ranks = seen == std::vector{fmt::format("{} a step", ranks_)} && inputs_.found.micro_steps != ranks_;
    return named(std::move(found), by_ranks ? "scheduler-stepped-per-rank" : "rate-differs",
                 fmt::format("The whole difference is that the schedule is stepped more than once an update ({}): "
                             "stepped once, the run agrees.",
                             join_words(seen)));
  }

  std::optional<Otherwise> temperature() const {
    return Otherwise{"temperature-applied-twice",
                     fmt::format("What the run's softmax takes is {} times one process's, in all steps alike.", short_number(scores_.factor)), {}};
  }

  std::optional<Otherwise> masked() const {
    return Otherwise{"duplicates-not-masked",
                     fmt::format("Of a row's candidates one process masks {:.3g}, and each rank {:.3g}.", scores_.masked[0], scores_.masked[1]), {}};
  }

  /// Rows of gathers in another order than labels, or than those of another gather.
  std::optional<Otherwise> order() {
    auto found = named(agrees({"run-gather-own-first", false, "GATHER=own-first"}), "label-offset",
                       "The whole difference is where labels point: if each rank's own rows come first in what it gathers, the run agrees.");
    const int64_t gathers = last_.empty() ? 0 : std::min<int64_t>(4, read_probe_report(last_, 0).gathers_of_step);
    for (int64_t k = gathers; k >= 1 && !found; --k)
      for (const char* kind : {"dealt", "gathered", "next", "last"})
        if (!found)
          found = named(agrees({fmt::format("run-gather-{}-{}", kind, k), false, fmt::format("GATHER={}:{}", kind, k)}), "candidates-misordered",
                        fmt::format("The whole difference is the order of rows in gather {} of a step: in another one the run agrees.", k));
    return found;
  }

  /// Is a rank's gradient, or what it makes of a buffer, what one process makes of that rank's rows alone?
  std::optional<Otherwise> own_rows() {
    const int rank = item_ == "buffers" ? 0 : ranks_ - 1;
    const auto made = inputs_.make({fmt::format("reference-of-rank-{}", rank), true, fmt::format("PART={}/{}", rank, ranks_)});
    if (!made || !computes_as(*made, inputs_.run, rank, item_ == "buffers")) return std::nullopt;
    const std::string of = fmt::format("Rank {} computes what one process does that has its rows alone", rank);
    if (item_ == "buffers") return Otherwise{"buffers-not-synchronised", of + ": what buffers are made of ends at the rank.", {}};
    // Where one process makes something else of its rows in another order, draws or places are what differs.
    const auto reversed = inputs_.make({"reference-reversed", true, "PART=reversed"});
    const auto in_order = reversed ? led_steps(inputs_.reference, *reversed) : std::vector<LedStep>();
    if (in_order.empty() || !(in_order.front().gradients <= LedBounds{}.same)) return std::nullopt;
    return Otherwise{scored_ && scores_.fewer ? "local-negatives" : "local-statistics",
                     of + ", and all ranks together not what one has of all rows: what couples rows ends at the rank.", {}};
  }

  const OtherwiseInputs& inputs_;
  StepPairs pairs_;
  std::string item_, last_;
  int ranks_ = 1;
  bool norm_ = false, gathers_ = false, scored_ = false;
  bool weighted_ = false;  ///< the reference's gradient is a weighted sum of the ranks' own: rows are not coupled
  ScoresSeen scores_;
};

}  // namespace

std::optional<Otherwise> explain_otherwise(const OtherwiseInputs& inputs) { return Explains(inputs).explain(); }

}  // namespace lockstep
