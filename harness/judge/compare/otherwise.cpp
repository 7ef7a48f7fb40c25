#include "harness/judge/compare/otherwise.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "harness/base/text.h"
#include "harness/judge/compare/forced/free.h"
#include "harness/judge/compare/forced/gradients.h"
#include "harness/judge/compare/parting.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/rank_result.h"

namespace lockstep {
namespace {

class Explains {
 public:
  explicit Explains(const OtherwiseInputs& inputs) : inputs_(inputs), pairs_(inputs.reference, inputs.run) {
    ranks_ = pairs_.b().world_size();
    const LedItem* different = inputs.found.different();
    item_ = different ? different->name : "";
    step_ = different ? different->first : 0;
    while (pairs_.next()) look(pairs_.step_a(), pairs_.step_b(), different && pairs_.step_a().step == step_);
  }

  std::optional<Otherwise> explain() {
    using Tried = OtherwiseInputs::Tried;
    if (inputs_.tried == Tried::first && item_ == "rate" && ranks_ > 1) return schedule();
    const bool of_values = item_ == "gradients" || item_ == "loss" || item_ == "buffers" || item_ == "clip";
    if (!of_values) return std::nullopt;
    if (inputs_.tried == Tried::norm) return norm_ && ranks_ > pairs_.a().world_size() ? norm() : std::nullopt;
    if (inputs_.tried == Tried::first && item_ == "loss") return operations();
    if (inputs_.tried == Tried::first)
      return gathers_ && !weighted_ && item_ != "buffers" && pairs_.a().world_size() == 1 ? gradients() : std::nullopt;
    return item_ == "loss" ? std::nullopt : operations();
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

  /// The operation at which the two part.
  std::optional<Otherwise> operations() {
    std::vector<Operations> of[2];
    for (const bool of_reference : {true, false}) {
      const auto made = inputs_.make({of_reference ? "reference-operations" : "run-operations", of_reference, fmt::format("OPERATIONS={}", step_)});
      if (!made) return std::nullopt;
      for (int rank = 0; rank < (of_reference ? pairs_.a().world_size() : ranks_); ++rank) of[of_reference ? 0 : 1].push_back(read_operations(*made, rank));
    }
    const std::optional<Parting> found = find_parting(of[0], of[1]);
    if (!found) return std::nullopt;
    return Otherwise{found->code, found->because, {}, found->other_rows};
  }

  const OtherwiseInputs& inputs_;
  StepPairs pairs_;
  std::string item_, last_;
  int ranks_ = 1;
  int64_t step_ = 0;
  bool norm_ = false, gathers_ = false;
  bool weighted_ = false;  ///< the reference's gradient is a weighted sum of the ranks' own: rows are not coupled
};

}  // namespace

std::optional<Otherwise> explain_otherwise(const OtherwiseInputs& inputs) { return Explains(inputs).explain(); }

}  // namespace lockstep
