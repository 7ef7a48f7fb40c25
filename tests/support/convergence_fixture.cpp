#include <algorithm>
#include <cmath>

#include "tests/support/results_fixture.h"

namespace lockstep {
namespace {

using namespace fixture;

constexpr double kMargin = 0.03;
constexpr int kSeedCount = 10;
/// Of ten pairs: Student's t at 0.975 and 0.95, and about what a band over 17 steps at once takes.
constexpr double kT975 = 2.262157, kT95 = 1.833113, kSimultaneous = 3.1;
const double kRoot = std::sqrt(static_cast<double>(kSeedCount));

VerdictKind verdict_of(double mean, double sd) {
  const double inner = kT95 * sd / kRoot, outer = kT975 * sd / kRoot;
  if (std::abs(mean) + inner < kMargin) return VerdictKind::equivalent;
  return std::abs(mean) - outer > kMargin ? VerdictKind::divergent : VerdictKind::inconclusive;
}

/// From 0 towards `mean`, half way at step `half`, in a band that widens as runs part.
CurveDifference difference_curve(double mean, double sd, int64_t steps, int64_t stride) {
  CurveDifference curve;
  curve.metric = "accuracy_24";
  curve.margin = kMargin;
  for (int64_t step = 0; step <= steps; step += stride) {
    const double t = static_cast<double>(step);
    const double ripple = 0.1 * sd * static_cast<double>((step / stride) * 37 % 11 - 5) / 5.0;
    const double value = 1.2 * mean * t / (t + 0.2 * static_cast<double>(steps)) + (step > 0 ? ripple : 0);
    const double half =
        kSimultaneous * sd / kRoot * (step > 0 ? 0.6 + 0.4 * t / static_cast<double>(steps) : 0);
    curve.steps.push_back(step);
    curve.mean.push_back(value);
    curve.low.push_back(value - half);
    curve.high.push_back(value + half);
    const bool inside = value - half > -kMargin && value + half < kMargin;
    if (!inside && curve.first_leaves < 0) curve.first_leaves = step;
    if (std::abs(value) - half > kMargin && curve.first_beyond < 0) curve.first_beyond = step;
  }
  return curve;
}

struct Learnt {
  double reference = 0.534, mean = 0, sd = 0.01;
  int64_t steps = 400;
};

Outcome learnt(const Learnt& l) {
  Outcome o = outcome(verdict_of(l.mean, l.sd), l.mean, l.sd, l.mean < -0.02 ? 1.3 * l.mean : 0.0, -2 * l.mean,
                      "24-way accuracy, paired by seed.");
  o.primary = difference("accuracy_24", l.reference, l.mean, l.sd, true);
  o.others.push_back(difference("auc_accuracy_24", 0.41, 0.8 * l.mean, 0.7 * l.sd, true));
  o.sd_upper = 1.35 * l.sd;
  // Near enough to what the power curve gives for ten pairs: the interval's half width and a quantile of 0.8 more.
  o.detectable = kMargin + (kT975 + 0.88) * o.sd_upper / kRoot;
  o.skewness = 0.3;
  o.p_skewed = 0.61;
  // Roughly what a power curve does: near 1 where the upper bound is small against the margin.
  const double ratio = kMargin / std::max(o.sd_upper, 1e-9);
  o.power = std::min(0.999, ratio * ratio * ratio / (0.9 + ratio * ratio * ratio));
  o.power_half = std::min(0.999, 0.62 * o.power * o.power);
  if (o.verdict == VerdictKind::inconclusive) {
    o.seeds_needed = static_cast<int>(11 + 40 * o.sd_upper);
    o.seeds_needed_half = static_cast<int>(31 + 200 * o.sd_upper);
  }
  o.p_equivalent = o.verdict == VerdictKind::equivalent ? 0.0004 + 0.3 * l.sd : 0.31;
  o.p_different =
      o.verdict == VerdictKind::divergent ? 1.3e-6 : std::min(1.0, 0.001 / (1e-4 + std::abs(l.mean)));
  o.p_holm = std::min(1.0, 22 * o.p_different);
  const double outer = kT975 * l.sd / kRoot;
  o.estimates = {
      {"mean", "Student t", l.mean, o.primary.interval},
      {"median", "order statistics", l.mean + 0.1 * l.sd, {l.mean - outer, l.mean + 1.3 * outer, 0.979}},
      {"interquartile mean",
       "bootstrap t",
       l.mean + 0.05 * l.sd,
       {l.mean - 1.1 * outer, l.mean + outer, 0.95}}};
  o.curves = {difference_curve(l.mean, l.sd, l.steps, 25)};
  return o;
}

TargetReach reach(double mean) {
  constexpr double kLevel = 0.9785;  // between the second and the ninth of ten
  TargetReach t{0.45, kSeedCount, kSeedCount, kSeedCount, 225, 225, 3, 4, 3, 1.0};
  t.cell_interval = t.reference_interval = {200, 250, kLevel};
  t.ratio = 1, t.ratio_n = kSeedCount, t.ratio_interval = {0.9, 1.125, kLevel};
  if (mean < -0.2)
    t.cell_reached = 0, t.cell_median = INFINITY, t.sooner = 0, t.later = 10, t.tied = 0, t.p = 0.002,
    t.cell_interval = t.ratio_interval = {INFINITY, INFINITY, kLevel}, t.ratio = INFINITY;
  else if (mean < -0.05)
    t.cell_reached = 7, t.cell_median = 350, t.sooner = 0, t.later = 9, t.tied = 1, t.p = 0.004,
    t.cell_interval = {275, INFINITY, kLevel}, t.ratio = 1.5, t.ratio_interval = {1.25, INFINITY, kLevel};
  return t;
}

std::vector<CurveBand> learning(double accuracy, double loss, int64_t steps) {
  const double length = static_cast<double>(steps);
  return {curve("loss_over_log_n", 1.0, loss, 0.25 * length, 0.03, steps, steps / 40),
          curve("accuracy_24", 1.0 / 24, accuracy, 0.28 * length, 0.04, steps, steps / 16)};
}

struct Place {
  std::string layout, negatives, rule = "none", scale = "1";
};

Pairs config_of(const Place& p, int64_t steps) {
  Pairs pairs = config(p.layout, p.negatives, p.rule, p.scale, "keyed");
  for (auto& [key, value] : pairs) {
    if (key == "steps") value = std::to_string(steps);
  }
  return pairs;
}

int rank_count(const std::string& layout) { return std::stoi(layout.substr(0, layout.find('x'))); }
int rows_of(const std::string& layout) { return std::stoi(layout.substr(layout.find('x') + 1)); }

NoiseScale noise_scale(const Place& p) {
  NoiseScale n;
  n.small_batch = rows_of(p.layout), n.big_batch = 24, n.steps = 400;
  n.gradient_squared = 0.012, n.noise = 0.4;
  n.batch = n.noise / n.gradient_squared * (1 + 0.02 * rank_count(p.layout));
  n.interval = {0.7 * n.batch, 1.5 * n.batch, 0.95};
  for (int i = 0; i < 8; ++i) {
    n.at.push_back(25 + 50 * i);
    n.batch_at.push_back(n.batch * (0.15 + 0.3 * i) * (1 + 0.03 * rank_count(p.layout)));
  }
  const std::string rows = std::to_string(n.small_batch);
  n.caveat = p.negatives == "global" ? "The theory does not apply: a rank's gradient of its " + rows +
                                           " rows is no estimate of what 24 rows would give."
                                     : "Holds only for more or fewer times " + rows +
                                           " rows alone: these rows are each other's negatives.";
  return n;
}

/// What every cell of this matrix has.
CellResult made(const std::string& name, const Place& p, const Learnt& l) {
  CellResult c = cell(name, verdict_of(l.mean, l.sd), {});
  c.reference = "1x24 " + p.negatives;
  c.config = config_of(p, l.steps);
  c.settings = {{"layout", p.layout}, {"negatives", p.negatives}};
  c.outcome = learnt(l);
  c.outcome->target = reach(l.mean);
  c.mechanism = within(0.12 + 0.01 * rank_count(p.layout));
  c.mechanism->forced.resize(2);
  c.curves = learning((l.reference + l.mean) * 1.28 - 0.28 / 24, 0.3 + 0.5 * l.mean, l.steps);
  if (rank_count(p.layout) > 1) c.noise_scale = noise_scale(p);
  c.rerun = "lockstep run configs/convergence.yaml --only '" + name + "'";
  return c;
}

void part(CellResult& c, const Divergence& first, std::optional<Cause> cause) {
  c.mechanism = within(8600);
  c.mechanism->verdict = VerdictKind::divergent;
  c.mechanism->forced = {forced(0, 0.43, 0.25, 8600), forced(100, 0.43, 0.25, 8600)};
  c.mechanism->first_divergence = first;
  c.mechanism->sentence = first.sentence;
  c.mechanism->cause = std::move(cause);
}

void add_product(Results& r) {
  struct Row {
    const char* layout;
    Learnt global, local, layer;
  };
  const Row rows[] = {{"1x24", {0.534, 0, 0}, {0.534, 0, 0}, {0.548, 0, 0}},
                      {"2x12", {0.534, 0.001, 0.008}, {0.534, -0.012, 0.013}, {0.548, 0.004, 0.009}},
                      {"3x8", {0.534, -0.001, 0.009}, {0.534, -0.031, 0.02}, {0.548, -0.008, 0.012}},
                      {"4x6", {0.534, 0.002, 0.008}, {0.534, -0.055, 0.022}, {0.548, -0.019, 0.016}},
                      {"8x3", {0.534, 0.0004, 0.009}, {0.534, -0.094, 0.028}, {0.548, -0.034, 0.024}},
                      {"24x1", {0.534, 0.003, 0.01}, {0.534, -0.492, 0.014}, {0.548, -0.041, 0.024}}};
  for (const Row& row : rows) {
    for (const std::string negatives : {"global", "local", "layer"}) {
      const Learnt& l = negatives == "global" ? row.global : negatives == "local" ? row.local : row.layer;
      const Place place{row.layout, negatives};
      CellResult c = made(std::string(row.layout) + " " + negatives, place, l);
      c.anchor = place.layout == "1x24";
      if (c.scenario == "8x3 local") c.outcome->skewness = -1.9, c.outcome->p_skewed = 0.0031;
      if (c.anchor) c.mechanism->verdict = VerdictKind::identical, c.mechanism->forced.clear();
      if (negatives == "global") c.expected = {VerdictKind::equivalent};
      if (!c.anchor && negatives != "global") {
        const int seen = rows_of(place.layout) - 1;
        part(c,
             {0, "energies", -1, "energy_BN", DivergenceKind::shape, "24 candidates a row", "fewer candidates a row",
              negatives == "local" ? "step 0, energies: " + std::to_string(seen) + " negatives of 23"
                                   : "step 0, energies: other negatives"},
             Cause{"another-objective", 0.9, "Each row sees the candidates of its own rank alone.",
                   "negatives: global"});
      }
      r.cells.push_back(std::move(c));
    }
  }
}

void add_growth(Results& r) {
  Growth g;
  g.reference = "1x3 local";
  g.from = {1, 3}, g.to = {8, 3};
  g.from_batch = 3, g.to_batch = 24;
  g.noise_batch = 39;
  g.n = kSeedCount;
  g.sentence =
      "From 1x3 to 8x3 (3 to 24 rows) adam_sqrt has the best mean 24-way accuracy over 10 paired seeds; the rule "
      "none is shown to be "
      "worse; the rules linear and sqrt are not shown to be worse.";
  const struct {
    const char* rule;
    double exponent;
    Learnt l;
  } rules[] = {{"none", 0, {0.451, -0.071, 0.03}},
               {"linear", 1, {0.451, -0.038, 0.041}},
               {"sqrt", 0.5, {0.451, -0.009, 0.024}},
               {"adam_sqrt", 0.5, {0.451, -0.004, 0.026}}};
  for (const auto& rule : rules) {
    const std::string said = std::string(rule.rule) == "none" ? "" : std::string(" lr_rule=") + rule.rule;
    CellResult c = made("8x3 local" + said + " against 1x3", {"8x3", "local", rule.rule}, rule.l);
    c.reference = "1x3 local";
    c.settings.emplace_back("lr_rule", rule.rule);
    c.outcome->target->reference_median = 2100;
    part(c,
         {0, "batch", -1, "samples", DivergenceKind::shape, "3 rows", "24 rows",
          "step 0: 24 rows where the reference has 3"},
         {});
    if (std::string(rule.rule) == "linear")
      c.outcome->rounding = {"A/A " + c.scenario + " perturb=epsilon", kSeedCount, 0.034, 0.034, true};
    g.rules.push_back({c.scenario, rule.rule, rule.exponent, c.verdict, c.outcome->primary, c.outcome->n});
    r.cells.push_back(std::move(c));
  }
  g.best = "adam_sqrt";
  g.not_worse = {"linear", "sqrt"};
  g.predicted_exponent = 0.62;
  g.measured_exponent = 0.58;
  g.measured_interval = {0.44, 0.81, 0.95};
  g.caveat =
      "The negatives of a row are those of its rank, so only the number of ranks grows: the theory applies.";
  r.growth = {g};
}

void add_controls_and_noise(Results& r) {
  CellResult slow =
      made("8x3 global lr_scale=0.125", {"8x3", "global", "none", "0.125"}, {0.534, -0.347, 0.025});
  CellResult local = made("8x3 local against 1x24 global", {"8x3", "local"}, {0.534, -0.094, 0.028});
  local.reference = "1x24 global";
  for (CellResult* control : {&slow, &local}) {
    control->power_control = true;
    control->expected = {VerdictKind::divergent};
    r.cells.push_back(*control);
  }
  const struct {
    const char* what;
    double mean, sd;
  } pairs[] = {{"row_order", 0.0002, 0.006}, {"random_draws", -0.004, 0.031}, {"epsilon", 0.0006, 0.008}};
  for (const auto& pair : pairs) {
    CellResult c = made(std::string("A/A 1x24 global perturb=") + pair.what, {"1x24", "global"},
                        {0.534, pair.mean, pair.sd});
    c.settings = {{"perturb", pair.what}};
    c.noise = true;
    c.mechanism->forced.clear();
    r.cells.push_back(std::move(c));
  }
}

TimingRow timed(const std::string& group, Layout layout, double seconds, double speed_up, double share) {
  TimingRow row;
  row.group = group;
  row.layout = layout;
  row.runs = 3;
  row.step_seconds = seconds;
  row.interval = {0.97 * seconds, 1.05 * seconds, 1};
  row.rows_per_second = static_cast<double>(layout.global_batch()) / seconds;
  row.speed_up = speed_up;
  row.efficiency = speed_up / layout.world_size;
  row.communication_share = share;
  row.bytes = layout.world_size == 1 ? 0 : 96000.0 * (layout.world_size - 1) / layout.world_size;
  row.activation_bytes = 41000.0 * layout.rows_per_rank;
  row.weight_bytes = 53000;
  row.crowded = layout.world_size > 2;
  const bool one = layout.world_size == 1;
  row.speed_up_range = {one ? 1 : 0.92 * speed_up, one ? 1 : 1.08 * speed_up, 1};
  row.share_range = {0.95 * share, 1.04 * share, 1};
  return row;
}

Timing timings() {
  Timing t;
  t.cores = 2;
  t.processor = "a processor with AVX2";
  t.rows = {timed("equal global batch", {1, 24}, 0.0064, 1, 0),
            timed("equal global batch", {2, 12}, 0.0041, 1.56, 0.16),
            timed("equal global batch", {4, 6}, 0.0052, 1.23, 0.38),
            timed("equal global batch", {8, 3}, 0.0088, 0.73, 0.61),
            timed("equal rows a rank", {1, 24}, 0.0064, 1, 0),
            timed("equal rows a rank", {2, 24}, 0.0072, 1.78, 0.11),
            timed("equal rows a rank", {4, 24}, 0.0139, 1.84, 0.29),
            timed("equal rows a rank", {8, 24}, 0.0281, 1.82, 0.47)};
  t.sentence = "4 and 8 ranks share 2 cores: a speed-up above 2 is not possible here.";
  return t;
}

ReferenceResult reference(const std::string& name, const Place& p, double accuracy, int64_t steps) {
  return {name,
          learning(accuracy * 1.28 - 0.28 / 24, 0.3, steps),
          config_of(p, steps),
          {{"accuracy_24", accuracy}}};
}

}  // namespace

Results convergence_results() {
  Results r = frame();
  r.name = "convergence";
  r.config_file = "configs/convergence.yaml";
  r.question_text =
      "Which layouts train the same as 1x24, and which learning-rate rule fits when the batch grows?";
  r.steps = 400;
  r.rerun = "lockstep run configs/convergence.yaml";
  r.primary.target = 0.45;
  r.references = {reference("1x24 global", {"1x24", "global"}, 0.534, 400),
                  reference("1x24 local", {"1x24", "local"}, 0.534, 400),
                  reference("1x24 layer", {"1x24", "layer"}, 0.548, 400),
                  reference("1x3 local", {"1x3", "local"}, 0.451, 3200)};
  add_product(r);
  add_growth(r);
  add_controls_and_noise(r);
  r.timing = timings();
  r.declaration = Declaration{352, 352, 0, {}};
  r.summary =
      summarize(r, 352, 0,
                "2x12 global, 3x8 global, 4x6 global and 2 more train the same as 1x24 global: 24-way accuracy differs by "
                "no more than -0.006 to +0.009 (each cell's 90 % interval), margin 0.03, 10 paired seeds.");
  r.summary.uncontrolled = {"1x24 layer"};
  return with_facts(std::move(r));
}

Results sequential_results() {
  Results r = frame();
  r.name = "sequential";
  r.question_text = "Does 8x3 learn the same as 1x24, with as few seeds as will decide it?";
  r.rerun = "lockstep run configs/sequential.yaml";
  const VerdictKind open = VerdictKind::inconclusive, same = VerdictKind::equivalent,
                    other = VerdictKind::divergent;
  const struct {
    const char* name;
    Learnt l;
    std::vector<VerdictKind> looks;
    InterimEnd ended;
  } cells[] = {{"8x3 global", {0.534, 0.001, 0.008}, {same}, InterimEnd::decided},
               {"8x3 local", {0.534, -0.055, 0.031}, {open, open, other}, InterimEnd::decided},
               {"8x3 global lr_rule=sqrt", {0.534, 0.028, 0.036}, {open, open, open, open}, InterimEnd::budget}};
  for (const auto& made_of : cells) {
    CellResult c = cell(made_of.name, made_of.looks.back(), {});
    c.config = config("8x3", "global", "none", "1", "keyed");
    c.outcome = learnt(made_of.l);
    c.outcome->verdict = made_of.looks.back();
    Sequential s{40, {}, made_of.ended};
    for (std::size_t i = 0; i < made_of.looks.size(); ++i) {
      const double share = static_cast<double>(i + 1) / 8;
      s.looks.push_back(
          {static_cast<int>(5 * (i + 1)), share, 0.05 * share * share, 0.05 * share / 4, made_of.looks[i]});
    }
    c.outcome->n = s.looks.back().n;
    c.outcome->sequential = s;
    r.cells.push_back(std::move(c));
  }
  r.summary = summarize(r, 60, 5, "8x3 global trains the same as 1x24 global.");
  return with_facts(std::move(r));
}

}  // namespace lockstep
