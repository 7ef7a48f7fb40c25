// What results.json says of a cell: how it computes, what it learns, why it failed.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "harness/answer/results/results_codec.h"

// The member's own spelling is its key.
#define KEY(member, ...) {#member, &S::member __VA_OPT__(, ) __VA_ARGS__}

namespace lockstep::results_format {
namespace {

/// A seed and its difference: two lists of an outcome side by side.
struct SeedDifference {
  int64_t seed = 0;
  double difference = 0;
};

std::vector<SeedDifference> pairs_of(const Outcome& o) {
  std::vector<SeedDifference> pairs;
  for (std::size_t i = 0; i < o.seeds.size(); ++i) pairs.push_back({o.seeds[i], o.differences.at(i)});
  return pairs;
}

void set_pairs(Outcome& o, const std::vector<SeedDifference>& pairs) {
  for (const SeedDifference& pair : pairs) {
    o.seeds.push_back(pair.seed);
    o.differences.push_back(pair.difference);
  }
}

std::optional<bool> direction_of(const MetricDifference& d) {
  return d.has_direction ? std::optional(d.higher_is_better) : std::nullopt;
}

void set_direction(MetricDifference& d, std::optional<bool> higher_is_better) {
  d.has_direction = higher_is_better.has_value();
  d.higher_is_better = higher_is_better.value_or(true);
}

// First divergence and cause stand in the cell itself, the cause whether of a divergence or of a failure.
std::optional<Divergence> divergence_of(const CellResult& c) {
  return c.mechanism ? c.mechanism->first_divergence : std::nullopt;
}

void set_divergence(CellResult& c, std::optional<Divergence> divergence) {
  if (c.mechanism) c.mechanism->first_divergence = std::move(divergence);
}

std::optional<Cause> cause_of(const CellResult& c) {
  return c.cause || !c.mechanism ? c.cause : c.mechanism->cause;
}

void set_cause(CellResult& c, std::optional<Cause> cause) {
  if (c.failure)
    c.cause = std::move(cause);
  else if (c.mechanism)
    c.mechanism->cause = std::move(cause);
}

std::string_view value_in(const std::vector<Row>& config, std::string_view key) {
  const auto found = std::ranges::find(config, key, &Row::first);
  return found == config.end() ? std::string_view() : std::string_view(found->second);
}

/// "VxB" of the config's rows.
std::optional<Layout> layout_in(const std::vector<Row>& config) {
  const std::string_view text = value_in(config, "layout");
  const char* const end = text.data() + text.size();
  Layout layout;
  const auto [rest, error] = std::from_chars(text.data(), end, layout.world_size);
  if (error != std::errc() || rest == end || *rest != 'x') return std::nullopt;
  if (std::from_chars(rest + 1, end, layout.rows_per_rank).ec != std::errc()) return std::nullopt;
  return layout;
}

/// Documents from before "layout" was a key say these facts in the config's rows alone.
void take_facts_of_config(CellResult& c) {
  if (c.layout) return;
  c.layout = layout_in(c.config);
  c.real_ranks = value_in(c.config, "ranks") == "real";
  const std::string_view negatives = value_in(c.config, "negatives");
  c.no_negatives = c.layout && ((negatives == "local" && c.layout->rows_per_rank == 1) ||
                                (negatives == "global" && c.layout->global_batch() == 1));
}

template <class Curve>
void check_lengths(const Curve& curve, const std::vector<double>& middle, const char* what) {
  const std::size_t size = curve.steps.size();
  if (middle.size() != size || curve.low.size() != size || curve.high.size() != size)
    throw Unreadable(fmt::format("{} {} has lists of unequal length", what, curve.metric));
}

}  // namespace

template <>
Object<SeedDifference> describe() {
  using S = SeedDifference;
  return {"", "",
          {KEY(seed), KEY(difference, exact())}};
}

template <>
Object<Row> describe() {
  using S = Row;
  return {"row", "",
          {{"key", &S::first},
           {"value", &S::second}}};
}

template <>
Object<Layout> describe() {
  using S = Layout;
  return {"layout", "",
          {KEY(world_size), KEY(rows_per_rank)}};
}

template <>
Object<Interval> describe() {
  using S = Interval;
  return {"interval", "",
          {KEY(low, exact()), KEY(high, exact()), KEY(level, finite())}};
}

template <>
Object<Divergence> describe() {
  using S = Divergence;
  return {"divergence", "The first point at which a run and its reference part.",
          {KEY(step), KEY(phase),
           KEY(rank, "-1: all ranks; -2: one or several, and nothing tells which"),
           KEY(where, "Tensor, stream, control value or collective."),
           KEY(kind, words<DivergenceKind>(kDivergenceKindWords, "kind"), "How they part."),
           KEY(expected), KEY(actual), KEY(sentence),
           KEY(parted, "Told by float64 twins: meaning, or arithmetic (in float64 the runs agree); else empty."),
           KEY(row, if_any(usual<int64_t>()), "In exact arithmetic: of the step's whole batch."),
           KEY(sample, if_any(usual<int64_t>()), "That row's sample id.")}};
}

template <>
Object<Cause> describe() {
  using S = Cause;
  return {"cause", "",
          {KEY(code), KEY(confidence, number()), KEY(evidence), KEY(remedy),
           KEY(rank, if_any(usual<int>()), "The one rank whose mistake the evidence proves.")}};
}

template <>
Object<GradientSignature> describe() {
  using S = GradientSignature;
  return {"signature",
          "Gradient of a parameter group against the reference's: c = <g, g_ref> / |g_ref|^2, cosine, |g - "
          "c g_ref| / |g|.",
          {KEY(group), KEY(ratio, exact()), KEY(cosine, exact()), KEY(residual, exact()),
           KEY(difference, exact()), KEY(band, exact())}};
}

template <>
Object<ForcedStep> describe() {
  using S = ForcedStep;
  return {"", "",
          {KEY(step), KEY(band_used, exact()), KEY(worst_tensor), KEY(meaning_used, exact()),
           KEY(arithmetic_used, exact()),
           KEY(chosen_otherwise, "A row whose hardest candidates float64 chooses otherwise; -1: none. Where there is one "
                                 "gradients are compared with the size of their terms."),
           KEY(groups)}};
}

template <>
Object<Fact> describe() {
  using S = Fact;
  return {"fact", "One thing that was compared.", {KEY(mark, words<Mark>(kMarkWords, "mark")), KEY(name), KEY(text)}};
}

template <>
Object<Mechanism> describe() {
  using S = Mechanism;
  return {"mechanism", "Are the same numbers computed?",
          {KEY(verdict), KEY(sentence), KEY(band_used, exact()),
           KEY(band_measured, "false: bound, not measured"),
           KEY(twins, "Float64 twins judged: the band is a bound of meaning, and one of rounding."),
           KEY(compared_steps, at_least(0)), KEY(forced),
           KEY(facts, if_any(usual<std::vector<Fact>>()), "What was compared, in the order of a step."),
           KEY(decide, added(usual<std::string>()), "The command that would decide what is open."),
           KEY(tables, if_any(usual<std::vector<SuiteTable>>()), "Only where rewards are recorded."),
           KEY(charts, if_any(usual<std::vector<SuiteChart>>()), "Only where rewards are recorded.")}};
}

template <>
Object<MetricDifference> describe() {
  using S = MetricDifference;
  return {"metric_difference", "Paired difference, cell minus reference.",
          {KEY(metric), KEY(reference_mean, exact()), KEY(cell_mean, exact()), KEY(mean, exact()),
           KEY(sd, exact()), KEY(interval),
           {"higher_is_better", nullable(flag()), direction_of, set_direction,
            "null: the metric has no direction", &S::higher_is_better, &S::has_direction}}};
}

template <>
Object<Estimate> describe() {
  using S = Estimate;
  return {"estimate", "Where the middle of the paired differences lies.",
          {KEY(what, "mean, median or interquartile mean"),
           KEY(method), KEY(value, exact()), KEY(interval)}};
}

template <>
Object<CurveDifference> describe() {
  using S = CurveDifference;
  return {"curve_difference",
          "Paired differences over the steps, with a band that holds at all of them at once.",
          {KEY(metric), KEY(margin, exact()), KEY(steps), KEY(mean, list(number())),
           KEY(low, list(number())), KEY(high, list(number())),
           KEY(first_leaves, "First step at which the band is not wholly inside the margin; -1: none"),
           KEY(first_beyond, "First step at which it lies wholly beyond; -1: none"),
           KEY(note, "How steps of unequal batches were matched.")},
          [](S& c) { check_lengths(c, c.mean, "the difference of the curves of"); }};
}

template <>
Object<TargetReach> describe() {
  using S = TargetReach;
  return {"target_reach",
          "Steps until the primary metric reached its target; runs that never did have no value.",
          {KEY(target, exact()), KEY(n), KEY(cell_reached), KEY(reference_reached),
           KEY(cell_median, number()), KEY(reference_median, number()),
           KEY(sooner, "Pairs in which the cell was first."),
           KEY(later),
           KEY(tied, "Both at once, or neither."),
           KEY(p, exact()),
           KEY(cell_interval, added(usual<Interval>()),
               "Of the median, between two order statistics; level 0: not taken."),
           KEY(reference_interval, added(usual<Interval>())),
           KEY(ratio, added(number()),
               "Samples of the cell over its reference's, median over pairs of which one at least got there."),
           KEY(ratio_n, added(whole<int>(0)), "Those pairs."),
           KEY(ratio_interval, added(usual<Interval>()))}};
}

template <>
Object<Look> describe() {
  using S = Look;
  return {"", "",
          {KEY(n, at_least(2)),
           KEY(information, finite(), "n over the most seeds."),
           KEY(alpha_spent, exact()), KEY(alpha_here, exact()), KEY(verdict)}};
}

template <>
Object<Sequential> describe() {
  using S = Sequential;
  return {"sequential",
          "The looks of `seeds: auto`; intervals of the outcome are at the last one's nominal level.",
          {KEY(most, at_least(2), "Seeds at the last look that was allowed."),
           KEY(ended),
           KEY(looks)}};
}

template <>
Object<RoundingShift> describe() {
  using S = RoundingShift;
  return {"rounding_shift",
          "What rounding alone does to an outcome, by A/A pairs: one seed trained twice with another rounding.",
          {KEY(pairs, "Names of the A/A pairs."),
           KEY(n, at_least(2), "Seeds of each."),
           KEY(sd, exact(), "Of their paired differences."),
           KEY(shift, exact(),
               "By which the difference may come out otherwise on another machine, at level 1 - alpha."),
           KEY(of_cell, "false: of the reference alone; the cell's own runs may be less steady")}};
}

template <>
Object<Outcome> describe() {
  using S = Outcome;
  return {"outcome", "Does it learn the same? Its numbers stand under statistics.",
          {KEY(verdict), KEY(sentence), KEY(metric), KEY(others)}};
}

Object<Outcome> describe_statistics() {
  using S = Outcome;
  return {"statistics", "",
          {KEY(margin, exact()), KEY(alpha, exact()), KEY(n, at_least(1)), KEY(primary), KEY(equivalence),
           KEY(power, exact()),
           KEY(seeds_needed, at_least(0),
               "Of a true difference of 0, at sd_upper. 0: decided; 10000: that many or more"),
           KEY(sequential),
           {"pairs", usual<std::vector<SeedDifference>>(), pairs_of, set_pairs, "", &S::seeds,
            &S::differences},
           KEY(sd_upper, exact()), KEY(power_half, exact()),
           KEY(seeds_needed_half, at_least(0), "The same of a true difference of half the margin."),
           KEY(p_equivalent, exact()), KEY(p_different, exact()), KEY(p_holm, exact()), KEY(estimates),
           KEY(curves), KEY(target),
           KEY(notes, "What could not be compared, and why."),
           KEY(test, added(usual<OutcomeTest>()),
               "What decided: t, on the mean; sign, on the median, which then stands as the primary metric's mean."),
           KEY(detectable, added(exact()),
               "Smallest true difference that so many seeds call divergent with probability 0.8, at the largest sd_upper of "
               "the question's cells and power controls; 0: not known."),
           KEY(samples_ratio, added(exact()),
               "Samples that a run of the cell saw over those of its reference's; 1 where both saw as many."),
           KEY(skewness, added(exact())),
           KEY(p_skewed, added(exact()), "Of so much skewness among normal differences."),
           KEY(rounding, if_any(usual<RoundingShift>()))}};
}

const Object<Outcome>& statistics_of_an_outcome() {
  static const Object<Outcome> description = describe_statistics();
  return description;
}

template <>
Object<Certification> describe() {
  using S = Certification;
  return {"certification", "Agreement of the emulated run and a prefix on real ranks.",
          {KEY(wanted),
           KEY(steps, at_least(0), "Agreed bit for bit; certified by the band: lay within it."),
           KEY(asked, at_least(0)), KEY(seed),
           KEY(backend, "What carried the real ranks' collectives: gloo, nccl or gloo_cuda."),
           KEY(divergence),
           KEY(certify, added(one_of({kByBits, kByBand})),
               "By what the prefix is certified, or parts. band: bits part and the backend publishes no order of adding, so that "
               "each step's sums are compared with what another order may give."),
           KEY(band_used, added(exact()), "By the band: the largest share of it that a sum takes.")}};
}

template <>
Object<Failure> describe() {
  using S = Failure;
  return {"failure", "",
          {KEY(run),
           KEY(kind, words<FailureKind>(kFailureKindWords, "kind"), "Why a run did not finish, or cannot be judged."),
           KEY(rank, "-1: no one rank"),
           KEY(step, "-1: unknown"),
           KEY(operation), KEY(message), KEY(last_lines)}};
}

template <>
Object<CurveBand> describe() {
  using S = CurveBand;
  return {"curve", "Median and band over seeds; low and high are the smallest and the largest seed.",
          {KEY(metric), KEY(steps), KEY(median, list(number())), KEY(low, list(number())),
           KEY(high, list(number())),
           KEY(chance, if_any(number()), "What guessing gives; without it the metric's name says it.")},
          [](S& c) { check_lengths(c, c.median, "the curve"); }};
}

template <>
Object<StepCosts> describe() {
  using S = StepCosts;
  return {"costs",
          "Of one step: energies that the busiest rank computes, bytes that a rank receives in the loss's "
          "collectives, seconds of the slowest rank.",
          {KEY(energies, number()), KEY(bytes, number()), KEY(seconds, number())}};
}

template <>
Object<NoiseScale> describe() {
  using S = NoiseScale;
  return {"noise_scale",
          "Simple gradient noise scale (McCandlish et al. 2018) from the ranks' own gradients against the "
          "reduced one.",
          {KEY(small_batch, "Rows a rank."),
           KEY(big_batch, "Rows of all ranks."),
           KEY(steps, at_least(1), "Over which numerator and denominator are averaged."),
           KEY(gradient_squared, exact()), KEY(noise, exact()), KEY(batch, exact()), KEY(interval),
           KEY(at, "Middles of the blocks of steps."),
           KEY(batch_at, list(number()), "The noise scale by block."),
           KEY(caveat, "Why or how far the theory does not apply; empty: it does.")},
          [](S& n) {
        if (n.at.size() != n.batch_at.size())
          throw Unreadable("the noise scale by blocks of steps has lists of unequal length");
      }};
}

template <>
Object<ConfigDifference> describe() {
  using S = ConfigDifference;
  return {"config_difference", "A key that the reference sets otherwise.",
          {KEY(key), KEY(reference), KEY(cell),
           KEY(declared, "An axis or an expectation names the key: the difference is what is asked about.")}};
}

template <>
Object<CellResult> describe() {
  using S = CellResult;
  return {"cell", "The judgement of one cell against its reference.",
          {KEY(scenario),
           KEY(run, "Run of the first seed."),
           KEY(reference), KEY(reference_run), KEY(verdict),
           KEY(expected, "Empty: anything but failed."),
           KEY(as_expected), KEY(power_control), KEY(noise), KEY(anchor),
           {"first_divergence", usual<std::optional<Divergence>>(), divergence_of, set_divergence},
           {"cause", usual<std::optional<Cause>>(), cause_of, set_cause, "", &S::cause},
           KEY(mechanism), KEY(outcome),
           {"statistics", &S::outcome,
            rest_of(object(statistics_of_an_outcome), "an outcome without statistics, or the reverse")},
           {"certified_steps", whole<int64_t>(0), [](const S& c) { return c.certification.steps; },
            [](S&, int64_t) {}},
           KEY(certification),
           KEY(exact, if_any(usual<Certification>()),
               "The first steps of both runs in exact arithmetic, where no layout changes a bit."),
           KEY(failure), KEY(costs),
           KEY(rerun, "The command that repeats just this."),
           KEY(replay,
               "the command that repeats the first step that differs, from its kept state; empty if none was "
               "kept"),
           KEY(settings), KEY(config), KEY(curves),
           KEY(config_differences, added(usual<std::vector<ConfigDifference>>()),
               "Keys that can change what is trained and that the reference sets otherwise."),
           KEY(drift, added(usual<std::vector<CurveBand>>()),
               "Of a cell that is its reference in another arithmetic: how far rounding alone carries it, by step. parameters: "
               "a share of their length; the others: absolute differences."),
           KEY(short_name, added(text()), "scenario without the part on its own reference; empty: the same."),
           KEY(layout, added(usual<std::optional<Layout>>()), "null: not known"),
           KEY(real_ranks, added(flag()), "Processes, not threads of one."),
           KEY(no_negatives, added(flag()),
               "There were no negatives to tell a row's positive from: the loss is 0."),
           KEY(failed_saves, added(text()),
               "Saves of checkpoints that failed, of its runs or its reference's, and the newest that stands; empty: none."),
           KEY(noise_scale, if_any(usual<NoiseScale>()))},
          take_facts_of_config};
}

template <>
Object<ReferenceResult> describe() {
  using S = ReferenceResult;
  return {"reference", "",
          {KEY(name), KEY(metric_means, map_of(exact())), KEY(config), KEY(curves),
           KEY(layout, added(usual<std::optional<Layout>>()), "null: not known")},
          [](S& r) {
            if (!r.layout) r.layout = layout_in(r.config);
          }};
}

}  // namespace lockstep::results_format
