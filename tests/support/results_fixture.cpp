#include "tests/support/results_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "harness/base/numbers.h"

namespace lockstep {
namespace fixture {

using namespace std::string_literals;

const std::vector<int64_t> kSeeds{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

/// Ten numbers of mean 0 and standard deviation 1, unevenly placed.
constexpr double kSpread[] = {-0.44, 1.31, -1.02, 0.27, 0.66, -1.73, 0.12, 1.08, -0.72, 0.47};

// Divisions only, so that every machine gives the same bits.
CurveBand curve(const std::string& metric, double start, double end, double half, double width, int64_t last,
                int64_t stride) {
  CurveBand band{metric, {}, {}, {}, {}};
  for (int64_t step = 0; step <= last; step += stride) {
    const double t = static_cast<double>(step);
    const double ripple = 0.01 * static_cast<double>((step / stride) * 37 % 11 - 5) / 5.0 * (step > 0);
    const double value = start + (end - start) * t / (t + half) + ripple;
    const double spread = width * t / (t + half);
    band.steps.push_back(step);
    band.median.push_back(value);
    band.low.push_back(value - spread);
    band.high.push_back(value + 0.8 * spread);
  }
  return band;
}

std::vector<CurveBand> curves(double accuracy, double loss, int64_t last) {
  return {curve("loss_over_log_n", 1.0, loss, 110, 0.03, last, 5),
          curve("accuracy_24", 1.0 / 24, accuracy, 120, 0.04, last, 25)};
}

MetricDifference difference(const std::string& metric, double reference, double mean, double sd,
                            bool higher) {
  const double half = 2.262157 * sd / std::sqrt(10.0);
  return {metric, reference, reference + mean, mean, sd, {mean - half, mean + half, 0.95}, higher};
}

Outcome outcome(VerdictKind verdict, double mean, double sd, double loss, double cross_entropy,
                const std::string& sentence) {
  Outcome o;
  o.verdict = verdict;
  o.metric = "accuracy_24";
  o.margin = 0.03;
  o.n = 10;
  o.seeds = kSeeds;
  o.primary = difference("accuracy_24", 0.534, mean, sd, true);
  const double half = 1.833113 * sd / std::sqrt(10.0);
  o.equivalence = {mean - half, mean + half, 0.9};
  for (const double z : kSpread) o.differences.push_back(mean + sd * z);
  o.power = sd < 0.02 ? 0.999 : 0.43;
  o.power_half = sd < 0.02 ? 0.97 : 0.21;
  o.sd_upper = 1.293385 * sd;
  o.detectable = 0.03 + 3.14 * o.sd_upper / std::sqrt(10.0);
  o.skewness = 0.1;
  o.p_skewed = 0.84;
  o.seeds_needed = verdict == VerdictKind::inconclusive ? 34 : 0;
  o.seeds_needed_half = verdict == VerdictKind::inconclusive ? 121 : 0;
  o.others = {difference("cross_entropy_24", 1.62, cross_entropy, 0.05, false),
              difference("cross_entropy_24_fitted", 1.55, -2.1 * mean, 0.03, false),
              difference("train_loss_over_log_n", 0.352, loss, 0.006, false)};
  o.sentence = sentence;
  return o;
}

ForcedStep forced(int64_t step, double ratio, double residual, double share) {
  ForcedStep f{step, {}, share, "head.query.weight"};
  const char* groups[] = {"context encoder", "action encoder", "energy head", "temperature", "all"};
  for (int i = 0; i < 5; ++i) {
    const double r = ratio == 1 ? 1 + 1e-7 * i : ratio + 0.011 * i;
    const double cosine = residual == 0 ? 1 : 1 - residual * residual * (0.8 + 0.1 * i);
    f.groups.push_back(
        {groups[i], r, cosine, residual * (1 - 0.12 * i), share * 2e-6 * (1 - 0.17 * i), 2e-6});
  }
  return f;
}

Mechanism within(double used) {
  Mechanism m;
  m.verdict = VerdictKind::within_envelope;
  m.band_used = used;
  m.band_measured = true;
  m.compared_steps = 600;
  for (const int64_t step : {0, 1, 2, 5, 10, 20, 50, 100, 200, 500})
    m.forced.push_back(forced(step, 1, 2e-7, used / static_cast<double>(1 + step % 3)));
  m.sentence = "Differs from the reference by rounding alone.";
  return m;
}

Mechanism parted(double used, double ratio, const Divergence& first) {
  Mechanism m = within(used);
  m.verdict = VerdictKind::divergent;
  m.forced.clear();
  for (const int64_t step : {0, 1, 2, 5, 10, 20, 50, 100, 200, 500})
    m.forced.push_back(forced(step, ratio, ratio == 1 ? 0.02 : 0.25, used));
  m.first_divergence = first;
  m.sentence = first.sentence;
  return m;
}

Pairs config(const std::string& layout, const std::string& negatives, const std::string& rule,
             const std::string& scale, const std::string& rank_seed) {
  return {{"trainer", "energy"},    {"data.source", "basic_motions"},
          {"layout", layout},       {"ranks", "emulated"},
          {"steps", "600"},         {"negatives", negatives},
          {"rank_seed", rank_seed}, {"optimizer", "adam"},
          {"lr", "0.001"},          {"lr_rule", rule},
          {"lr_scale", scale},      {"schedule", "constant"},
          {"dropout", "0.1"},       {"context_noise", "0.05"},
          {"clip_norm", "0"},       {"eval_every", "25"},
          {"trace", "hash"},        {"bucket_cap_bytes", "0"}};
}

CellResult cell(const std::string& name, VerdictKind verdict, std::vector<VerdictKind> expected,
                bool control) {
  CellResult c;
  c.scenario = name;
  c.reference = "1x24 global";
  c.run = "8x3-run";
  c.reference_run = "1x24-run";
  c.verdict = verdict;
  c.expected = std::move(expected);
  c.power_control = control;
  c.certification = {true, 50, 50, 0, "gloo", std::nullopt};
  c.rerun = "lockstep run configs/parity_1x24_vs_8x3.yaml --only 'name == \"" + name + "\"'";
  return c;
}

ReferenceResult reference() {
  return {"1x24 global",
          curves(0.64, 0.30, 600),
          config("1x24", "global", "none", "1", "keyed"),
          {{"accuracy_24", 0.534}}};
}

Results frame() {
  Results r;
  r.name = "parity_1x24_vs_8x3";
  r.config_file = "configs/parity_1x24_vs_8x3.yaml";
  r.question_text = "Does 8x3 with local or global negatives learn the same as 1x24?";
  r.question = "outcome";
  r.primary = {"accuracy_24", 0.03, 0.05};
  r.steps = 600;
  r.seeds = kSeeds;
  r.references = {reference()};
  r.provenance = {{"build", "0.1.0, g++ 12.2.0, -O3"},
                  {"libtorch", "2.13.0+cpu"},
                  {"instruction set", "AVX2"},
                  {"threads per rank", "1"},
                  {"data", "BasicMotions, sha256 0f3a…77c2"},
                  {"host", "2 cores"}};
  r.rerun = "lockstep run configs/parity_1x24_vs_8x3.yaml";
  return r;
}

/// Counted from the cells, as a judge would; what only it knows is given.
Summary summarize(const Results& r, int runs, int exit_code, const std::string& sentence) {
  Summary s;
  s.cells = static_cast<int>(r.cells.size());
  for (const CellResult& c : r.cells) {
    s.as_expected += c.as_expected;
    s.failed += c.verdict == VerdictKind::failed;
    s.undecided += c.verdict == VerdictKind::inconclusive;
    s.power_controls += c.power_control;
    s.power_controls_caught += c.power_control && c.verdict == VerdictKind::divergent;
  }
  s.can_tell = s.power_controls == s.power_controls_caught;
  s.runs = runs;
  s.exit_code = exit_code;
  s.sentence = sentence;
  return s;
}

namespace {

std::string value_in(const Pairs& pairs, const std::string& key) {
  const auto found = std::ranges::find(pairs, key, &Pairs::value_type::first);
  return found == pairs.end() ? "" : found->second;
}

std::optional<Layout> layout_in(const Pairs& pairs) {
  Layout layout;
  const std::string text = value_in(pairs, "layout");
  if (std::sscanf(text.c_str(), "%dx%d", &layout.world_size, &layout.rows_per_rank) != 2) return std::nullopt;
  return layout;
}

/// Parted after a full stop that a space and no lower-case letter follows.
std::vector<std::string> sentences_in(const std::string& text) {
  std::vector<std::string> sentences;
  std::size_t begin = 0;
  for (std::size_t i = 0; i + 2 < text.size(); ++i) {
    if (text[i] != '.' || text[i + 1] != ' ' || (text[i + 2] >= 'a' && text[i + 2] <= 'z')) continue;
    sentences.push_back(text.substr(begin, i + 1 - begin));
    begin = i + 2;
  }
  if (begin < text.size()) sentences.push_back(text.substr(begin));
  return sentences;
}

}  // namespace

Results with_facts(Results r) {
  for (CellResult& c : r.cells) {
    c.layout = layout_in(c.config);
    c.real_ranks = value_in(c.config, "ranks") == "real";
    const std::string negatives = value_in(c.config, "negatives");
    c.no_negatives = c.layout && ((negatives == "local" && c.layout->rows_per_rank == 1) ||
                                  (negatives == "global" && c.layout->global_batch() == 1));
    c.short_name = c.scenario.substr(0, c.scenario.find(" against "));
  }
  for (ReferenceResult& reference : r.references) reference.layout = layout_in(reference.config);
  r.summary.sentences = sentences_in(r.summary.sentence);
  return r;
}

CellResult local_cell() {
  CellResult c = cell("8x3 local", VerdictKind::divergent, {VerdictKind::divergent});
  c.config = config("8x3", "local", "none", "1", "keyed");
  c.outcome = outcome(
      VerdictKind::divergent, -0.094, 0.028, -0.12, -0.21,
      "24-way accuracy 0.094 lower (95 % interval 0.074 to 0.114, 10 paired seeds), although its training loss / "
      "log N and its raw "
      "cross-entropy are lower.");
  c.mechanism = parted(86000, 0.43,
                       {0, "energies", -1, "energy_BN", DivergenceKind::shape, "24 candidates a row", "3 candidates a row",
                        "step 0, energies: 2 negatives of 23"});
  c.mechanism->cause =
      Cause{"local-negatives", 0.98, "a row has 2 negatives instead of 23, those of its own rank alone",
            "Gather the candidates of all ranks."};
  c.curves = curves(0.53, 0.12, 600);
  return c;
}

CellResult failed_cell() {
  CellResult c = cell("8x3 global lr_rule=linear", VerdictKind::failed, {});
  c.config = config("8x3", "global", "linear", "1", "keyed");
  c.as_expected = false;
  c.certification = {true, 0, 50, 0, "gloo", std::nullopt};
  c.failure = Failure{
      "8x3-global-lr_rule-linear-s4-1f2e3d4c",
      FailureKind::died,
      3,
      41,
      "all_gather loss.actions",
      "killed by signal 9",
      {"rank 3: step 40 loss 2.7711", "rank 3: step 41", "rank 3: all_gather loss.actions, 1152 bytes"}};
  c.mechanism = parted(1.4, 1, {0, "control", -1, "learning_rate", DivergenceKind::value, "0.001", "0.008", ""});
  c.curves = curves(0.71, 0.2, 40);
  return c;
}

}  // namespace fixture

using namespace fixture;

Results outcome_results() {
  Results r = frame();
  CellResult same = cell("8x3 global", VerdictKind::equivalent, {VerdictKind::equivalent});
  same.config = config("8x3", "global", "none", "1", "keyed");
  same.outcome = outcome(VerdictKind::equivalent, 0.0004, 0.008, -0.0004, 0.003,
                         "24-way accuracy differs by +0.000 (90 % interval -0.004 to +0.005), inside the margin of 0.03 (10 "
                         "paired seeds).");
  same.mechanism = within(0.19);
  same.curves = curves(0.64, 0.30, 600);
  CellResult stream = cell("8x3 global rank_seed=same", VerdictKind::equivalent, {});
  stream.config = config("8x3", "global", "none", "1", "same");
  stream.outcome = outcome(VerdictKind::equivalent, -0.002, 0.013, 0.001, 0.01,
                           "24-way accuracy differs by -0.002 (90 % interval -0.010 to +0.006), inside the margin of 0.03 (10 "
                           "paired seeds).");
  stream.mechanism = parted(3100, 0.98,
                            {0, "random", 1, "dropout.head", DivergenceKind::value, "key (0, dropout, 0, 1)",
                             "key (0, dropout, 0, 0)", "step 0, random: ranks 1 to 7 draw rank 0's numbers"});
  stream.curves = curves(0.638, 0.302, 600);
  CellResult root = cell("8x3 global lr_rule=sqrt", VerdictKind::inconclusive, {});
  root.config = config("8x3", "global", "sqrt", "1", "keyed");
  root.outcome = outcome(
      VerdictKind::inconclusive, 0.034, 0.036, -0.06, -0.09,
      "24-way accuracy differs by +0.034 (95 % interval +0.008 to +0.060) against a margin of 0.03 (10 paired "
      "seeds).");
  root.mechanism =
      parted(0.21, 1, {0, "control", -1, "learning_rate", DivergenceKind::value, "0.001", "0.0028284271247461903", ""});
  root.curves = curves(0.68, 0.24, 600);
  CellResult control =
      cell("8x3 global lr_scale=0.125", VerdictKind::divergent, {VerdictKind::divergent}, true);
  control.config = config("8x3", "global", "none", "0.125", "keyed");
  control.outcome =
      outcome(VerdictKind::divergent, -0.347, 0.025, 0.31, 0.82,
              "24-way accuracy 0.347 lower (95 % interval 0.329 to 0.365, 10 paired seeds).");
  control.mechanism = parted(0.2, 1, {0, "control", -1, "learning_rate", DivergenceKind::value, "0.001", "0.000125", ""});
  control.curves = curves(0.24, 0.78, 600);
  r.cells = {same, local_cell(), stream, root, failed_cell(), control};
  r.summary = summarize(
      r, 74, 3,
      "8x3 global trains the same as 1x24 global: 24-way accuracy differs by +0.000 (90 % interval -0.004 to "
      "+0.005), margin 0.03, 10 paired seeds; 8x3 local does not: 24-way accuracy 0.094 lower (95 % interval "
      "0.074 to 0.114, 10 paired seeds), although its training loss / log N and its raw cross-entropy are lower; the first "
      "difference, at step 0: a row has 2 negatives instead of 23, those of its own rank alone. 8x3 global "
      "lr_rule=linear failed: rank 3 died at step 41 in all_gather loss.actions: killed by signal 9. The power "
      "control 8x3 global lr_scale=0.125 was found to differ, as required: 24-way accuracy 0.347 lower (95 % "
      "interval 0.329 to 0.365, 10 paired seeds). Against 1x24 global a true "
      "difference in 24-way accuracy of 0.077 or more is found with probability 0.8 or more (10 paired seeds with the spread of "
      "8x3 global lr_rule=sqrt, at its upper bound); its power control 8x3 global lr_scale=0.125 differs by 12 margins: it does not show that a "
      "small difference would be noticed.");
  r.summary.runs_reused = 8;
  return with_facts(std::move(r));
}

Results missed_control_results() {
  Results r = frame();
  CellResult same = cell("8x3 global", VerdictKind::equivalent, {VerdictKind::equivalent});
  same.config = config("8x3", "global", "none", "1", "keyed");
  same.outcome =
      outcome(VerdictKind::equivalent, 0.0004, 0.008, -0.0004, 0.003, "24-way accuracy differs by +0.000.");
  same.mechanism = within(0.19);
  CellResult control =
      cell("8x3 global lr_scale=0.125", VerdictKind::equivalent, {VerdictKind::divergent}, true);
  control.as_expected = false;
  control.config = config("8x3", "global", "none", "0.125", "keyed");
  control.outcome =
      outcome(VerdictKind::equivalent, -0.006, 0.009, 0.01, 0.01, "24-way accuracy differs by -0.006.");
  r.cells = {same, control};
  r.summary = summarize(
      r, 22, 1,
      "This matrix cannot tell: the power control 8x3 global lr_scale=0.125 came out equivalent (-0.006), "
      "but it must "
      "be found to differ. 8x3 global came out equivalent to 1x24 global: 24-way accuracy differs by +0.000 "
      "(-0.004 to +0.005), margin "
      "0.03, 10 paired seeds; but no power control and no other cell was found to differ from 1x24 "
      "global, so nothing shows that "
      "a difference would be noticed in this comparison.");
  r.summary.uncontrolled = {"1x24 global"};
  return with_facts(std::move(r));
}

Results mechanism_results() {
  Results r = frame();
  r.name = "smoke";
  r.config_file = "configs/smoke.yaml";
  r.question_text = "Do 3 and 8 real ranks compute what one process computes?";
  r.question = "mechanism";
  r.steps = 30;
  r.seeds = {0};
  r.rerun = "lockstep run configs/smoke.yaml";
  r.references = {{"1x24 global",
                   {curve("loss_over_log_n", 1.0, 0.3, 40, 0, 29, 1)},
                   config("1x24", "global", "none", "1", "keyed"),
                   {}}};
  CellResult equal =
      cell("3x8 global", VerdictKind::identical, {VerdictKind::identical, VerdictKind::within_envelope});
  equal.mechanism = Mechanism{};
  equal.mechanism->verdict = VerdictKind::identical;
  equal.mechanism->compared_steps = 30;
  equal.mechanism->band_measured = true;
  equal.mechanism->forced = {forced(0, 1, 0, 0), forced(20, 1, 0, 0)};
  equal.mechanism->sentence = "Every compared bit is equal.";
  CellResult inside = cell("8x3 global", VerdictKind::within_envelope, {VerdictKind::within_envelope});
  inside.mechanism = within(0.31);
  CellResult planted =
      cell("8x3 global mutant=grad_scale", VerdictKind::divergent, {VerdictKind::within_envelope});
  planted.as_expected = false;
  planted.mechanism =
      parted(4.2e6, 8,
             {0, "reduced_gradients", -1, "context.0.weight", DivergenceKind::band, "norm 0.4127", "norm 3.3016",
              "step 0, reduced gradients, all ranks: context.0.weight is 8 times the reference's"});
  CellResult untraced = cell("3x8 local", VerdictKind::inconclusive, {});
  untraced.mechanism = Mechanism{};
  untraced.mechanism->sentence = "No traces were kept (trace: off), so what was computed cannot be compared.";
  r.cells = {equal, inside, planted, untraced};
  for (CellResult& c : r.cells) {
    c.certification = {};
    c.curves = {curve("loss_over_log_n", 1.0, 0.3, 40, 0, 29, 1)};
    c.config = config(c.scenario.substr(0, 3), "global", "none", "1", "keyed");
    c.config[3].second = "real";
    c.rerun = "lockstep run configs/smoke.yaml --only 'name == \"" + c.scenario + "\"'";
  }
  r.cells[2].config.emplace_back("mutant.name", "grad_scale");
  r.summary = summarize(
      r, 9, 1,
      "8x3 global mutant=grad_scale does not compute the same as 1x24 global: step 0, reduced gradients, all "
      "ranks: "
      "context.0.weight is 8 times the reference's. 3x8 global computes the very bits of 1x24 global.");
  return with_facts(std::move(r));
}

Results hostile_results() {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(),
                   kInfinite = std::numeric_limits<double>::infinity();
  Results r = frame();
  r.name = "</title><script>alert('name')</script>";
  r.config_file = "a\"b'c&d.yaml";
  r.question_text = "--> ]]> <!-- \"quoted\" & 'quoted' | piped ` ticked";
  r.rerun = "lockstep run 'a b' && `whoami` ```` <x> | tee\n## heading";
  CellResult script = cell("<script>alert(1)</script>", VerdictKind::divergent, {VerdictKind::equivalent});
  script.as_expected = false;
  script.outcome =
      outcome(VerdictKind::divergent, kNaN, kNaN, kInfinite, -kInfinite, "<img src=x onerror=alert(2)>");
  script.outcome->differences = {kNaN, kInfinite, -1e300};
  script.mechanism = parted(kInfinite, kNaN,
                            {-1, "energies\"><b>", 3, "</td></table>", DivergenceKind::value, "\x1b[31mred\x1b[0m",
                             "\xff\xfe\x80 bad", "a\nb\tc\rd"});
  script.mechanism->cause = Cause{"<cause>", kNaN, "javascript:alert(3)", "\"onmouseover=\"alert(4)"};
  script.settings = {{"<axis>", "\"value\""}};
  CellResult twin = script;
  twin.scenario = "<SCRIPT>alert(1)</SCRIPT>";
  CellResult ghost = cell("nul\0byte \x07 bell \x7f \xc2\x85 \xed\xa0\x80 \xf4\x90\x80\x80 \xc0\xaf"s,
                          VerdictKind::failed, {VerdictKind::failed});
  ghost.failure = Failure{"../../etc/passwd",
                          FailureKind::died,
                          0,
                          7,
                          "<op>",
                          "\xe2\x80\xae"
                          "reversed & <tag> ]]>",
                          {std::string(5000, 'x'), "\x1b]0;title\x07prompt\x1b[2K",
                           "</pre><script>alert(5)</script>", "| a | b |", "\xef\xbf\xbf"}};
  CellResult wide = cell("幅 広い 名前 e\xcc\x81 👍 " + std::string(300, 'W'), VerdictKind::inconclusive, {});
  wide.outcome = outcome(VerdictKind::inconclusive, 0, 0, 0, 0, "");
  wide.outcome->n = 1;
  wide.outcome->primary.interval = {-kInfinite, kInfinite, 0.95};
  wide.outcome->equivalence = {-kInfinite, kInfinite, 0.9};
  wide.outcome->seeds.clear();
  wide.curves = {{"loss_over_log_n", {0, 1, 2}, {1, kNaN}, {0}, {}},
                 {"<metric onload=\"alert(6)\">", {0, 5}, {1e30, -1e30}, {}, {}}};
  CellResult bare;
  bare.reference = "no such reference";
  r.cells = {script, twin, ghost, wide, bare};
  r.provenance = {{"<env>", "PATH=\"/bin\"\nEVIL=<script>"}, {"", ""}};
  r.summary = summarize(r, 5, 1, "<b onclick=alert(7)>Bold</b>. \xff Second & last.");
  return with_facts(std::move(r));
}

Results empty_results() {
  Results r = frame();
  r.references.clear();
  r.summary = {};
  r.summary.exit_code = 6;
  return with_facts(std::move(r));
}

Results large_results(int cells, int points, int forced_steps) {
  Results r = outcome_results();
  const std::vector<CellResult> models = r.cells;
  r.cells.clear();
  const int64_t stride = std::max(1, 600 / std::max(1, points - 1));
  const auto long_curves = [&](double accuracy, double loss) {
    return std::vector{curve("loss_over_log_n", 1.0, loss, 110, 0.03, stride * (points - 1), stride),
                       curve("accuracy_24", 1.0 / 24, accuracy, 120, 0.04, stride * (points - 1), stride)};
  };
  for (int i = 0; i < cells; ++i) {
    CellResult c = models[static_cast<std::size_t>(i) % models.size()];
    c.scenario += " variant=" + std::to_string(i);
    c.curves = long_curves(0.3 + 0.015 * i, 0.2 + 0.02 * i);
    if (c.mechanism) c.mechanism->forced.resize(static_cast<std::size_t>(std::min<int>(forced_steps, 10)));
    r.cells.push_back(c);
  }
  r.references.front().curves = long_curves(0.64, 0.3);
  r.summary.cells = cells;
  return with_facts(std::move(r));
}

Results certificate_results() {
  Results r = frame();
  r.name = "losses";
  r.config_file = "configs/losses.yaml";
  r.question_text = "Does every loss have the gradient of its plain reference in one process?";
  r.question = "certificate";
  r.steps = 61;
  r.seeds = {0};
  r.rerun = "lockstep run configs/losses.yaml";
  const auto judged = [](const std::string& name, bool exact) {
    CellResult c = cell(name, exact ? VerdictKind::within_envelope : VerdictKind::divergent,
                        {VerdictKind::within_envelope, VerdictKind::identical});
    c.as_expected = exact;
    c.certification = {};
    c.config = config(name.substr(0, 3), "global", "none", "1", "keyed");
    c.costs = StepCosts{192, 4608, 0.0042};
    c.rerun = "lockstep run configs/losses.yaml --only 'name == \"" + name + "\"'";
    c.mechanism = within(exact ? 0.004 : 0);
    c.mechanism->band_measured = false;
    c.mechanism->forced = {forced(0, exact ? 1 : 3, exact ? 2e-16 : 0.02, exact ? 0.004 : 8e11),
                           forced(60, exact ? 1 : 3, exact ? 4e-16 : 0.4, exact ? 0.002 : 9e11)};
    if (exact) return c;
    c.mechanism->verdict = VerdictKind::divergent;
    c.mechanism->first_divergence =
        Divergence{0,
                   "reduced gradients",
                   -1,
                   "group context encoder",
                   DivergenceKind::band,
                   "the reference's gradient",
                   "3 times it",
                   "step 0, reduced gradients: group context encoder: 3 times the reference's"};
    c.mechanism->sentence = "Not certified: " + c.mechanism->first_divergence->sentence + ".";
    return c;
  };
  CellResult broken = judged("8x3 global loss=sigmoid", true);
  broken.verdict = VerdictKind::failed;
  broken.as_expected = false;
  broken.costs.reset();
  broken.mechanism.reset();
  broken.failure = Failure{"8x3-global-s0-forced-1f2e3d4c",
                           FailureKind::threw,
                           2,
                           0,
                           "all_gather loss.header",
                           "rank 2 holds float32 where rank 0 holds float64",
                           {}};
  r.cells = {judged("3x8 global", true), judged("3x8 global rows=unequal", true),
             judged("3x8 global loss=symmetric", false), broken};
  const GradientSignature good{"temperature", 1, 1, 3.1e-16, 2.4e-15, 6e-13};
  const GradientSignature bad{"context encoder", 3, 0.92, 0.4, 0.5, 6e-13};
  r.certificate = Certificate{
      1e-12,
      {0, 60},
      {{"infonce global", 3, 2, 2, 0.004, "3x8 global", 60, good, {192, 4608, 0.0042}, 1.18},
       {"infonce global", 8, 1, 0, kNaN, "", 0, {}, {kNaN, kNaN, kNaN}, kNaN},
       {"symmetric global", 3, 1, 0, 9e11, "3x8 global loss=symmetric", 60, bad, {192, 5376, 0.0051}, kNaN}}};
  r.summary = summarize(r, 12, 3,
                        "3x8 global loss=symmetric does not compute the same as its plain reference: the "
                        "context encoder's gradient is 3 times it.");
  return with_facts(std::move(r));
}

Results detection_results() {
  Results r = outcome_results();
  r.name = "mutants";
  r.config_file = "configs/mutants.yaml";
  r.question_text =
      "Which planted bugs are found, at which step, in which tensor, and are they named rightly?";
  r.question = "detection";
  r.rerun = "lockstep run configs/mutants.yaml";
  r.steps = 20;
  r.seeds = {0, 1, 2, 3, 4};
  r.cells.clear();
  r.references.clear();
  for (const char* name : {"flip_bit #0", "grad_scale #2", "clean #512"}) {
    CellResult trial;
    trial.scenario = name;
    trial.verdict = VerdictKind::divergent;
    trial.as_expected = false;
    trial.rerun = r.rerun + " --only '" + name + "'";
    r.cells.push_back(trial);
  }
  Detection& d = r.detection.emplace();
  d.detectors = {"samples", "random",  "control", "ledger",   "energies", "loss",
                 "local",   "reduced", "update",  "replicas", "failed"};
  d.loss_tolerance = 0.05;
  d.clean = 1000;
  d.false_alarms = 1;
  d.passed = false;
  d.rows = {{"flip_bit", "pytorch/pytorch#1", 5, 4, 4, 4, 4, 4, 0, 1, {0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0}},
            {"grad_scale", "", 5, 5, 5, 5, 5, 4, 1, 0, {0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0}},
            {"die", "", 5, 5, 5, 5, 5, 5, 0, 5, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5}},
            {"pairs", "", 30, 30, 30, 29, 29, 28, 0, 12, {1, 0, 2, 3, 4, 5, 6, 7, 2, 0, 0}}};
  const auto rate = [](const char* what, int64_t hits, int64_t of, Interval interval, double asked,
                       bool at_most, bool enough) {
    return DetectionRate{what, hits, of, interval, asked, at_most, enough};
  };
  d.rates = {rate("caught", 44, 45, {0.882, 0.999, 0.95}, 0.95, false, true),
             rate("of these at the exact step and place", 43, 44, {0.879, 0.999, 0.95}, 0.95, false, true),
             rate("named rightly", 41, 45, {0.788, 0.975, 0.95}, 0.9, false, true),
             rate("named wrongly", 1, 45, {0.001, 0.118, 0.95}, 0, true, false),
             rate("false alarms on clean pairs", 1, 1000, {0.00003, 0.0056, 0.95}, 0, true, false),
             rate("found by comparing loss curves", 18, 45, {0.257, 0.557, 0.95}, -1, false, true)};
  d.misses = {{"flip_bit #0", "missed", "flip_bit: step 4, rank 2, energy_head.key.weight, bit 20",
               "within_envelope; no cause", r.cells[0].rerun},
              {"grad_scale #2", "wrong cause", "grad_scale: step 7, action_encoder.in.weight, factor 3.7",
               "divergent at step 7, local gradients, action_encoder.in.weight; gradient-times-world",
               r.cells[1].rerun},
              {"clean #512", "false alarm", "nothing",
               "divergent at step 3, energies, <b>row</b> 7; no cause", r.cells[2].rerun}};
  r.summary = {};
  r.summary.cells = 1045;
  r.summary.as_expected = 1042;
  r.summary.runs = 2893;
  r.summary.exit_code = 1;
  r.summary.sentence =
      "The detectors do not meet their limits: named wrongly 1 of 45, where none is allowed; false alarms on clean pairs 1 of "
      "1000, where "
      "none may be.";
  return with_facts(std::move(r));
}

Results suite_results() {
  Results results;
  results.name = "saver";
  results.question = std::string(kSuiteQuestion);
  results.question_text = "Does it survive <kills>?";
  results.rerun = "lockstep run saver.yaml";
  results.summary.exit_code = 1;
  SuiteResult& suite = results.suite.emplace();
  suite.kind = "program";
  suite.subject = "torch.save & friends";
  suite.trials = 12;
  suite.cases = 1010;
  suite.faults = 2;
  suite.undecided = 1;
  suite.table = {{"killed", "rank 0, write", "torn", CaseVerdict::fault, 2},
                      {"killed", "rank 0, write", "whole, old", CaseVerdict::good, 1000},
                      {"EIO", "rank 1, rename", "whole, old", CaseVerdict::good, 7},
                      {"EIO", "rank 1, rename", "not reached", CaseVerdict::undecided, 1}};
  suite.findings = {{"kill@0:3", "killed", "rank 0, write", "torn", CaseVerdict::fault, "rank 0 is killed. It <refuses>.",
                          {{"rank 0", "open a|b", ""}, {"rank 0", "write a|b", "killed before it"}}, "sh out/replay/kill-0-3.sh"},
                         {"EIO@1:4", "EIO", "rank 1, rename", "not reached", CaseVerdict::undecided, "never", {}, ""}};
  suite.facts = {{"operations tried", "11 of 11"}};
  suite.notes = {"A power loss is not shown."};
  suite.tables = {
      {"What they took", "Of <one> call.", {{"call", "", false}, {"time", "us", true}, {"#wrong", "", true}},
       {{{"gather|all", "35.20", "0"}}, {{"broadcast", "41.00", "3"}, CaseVerdict::fault}, {{"scatter", "refused", ""}, CaseVerdict::undecided}}, false},
      {"gather|all", "", {{"size", "B", true}, {"time", "us", true}}, {{{"4", "35.20"}}, {{"1048576", "900.00"}}}, true},
      {"broadcast", "", {{"size", "B", true}, {"time", "us", true}, {"#wrong", "", true}},
       {{{"4", "41.00", "0"}}, {{"1048576", "812.00", "3"}, CaseVerdict::fault}}, true}};
  suite.charts = {
      {"Time against size", "Each line is a number of <ranks>.", {"size", "B", true}, {"time", "us", true}, false, {},
       {{"gather|all", {{"2 ranks", CaseVerdict::good, {{4, 35.2}, {2048, 60}, {1048576, 900}}}, {"8 ranks", CaseVerdict::good, {{4, 90}, {1048576, 4100}}}}},
        {"broadcast", {{"2 ranks", CaseVerdict::fault, {{4, 41}, {1048576, 812}}}}}}},
      {"Time to notice", "", {"time", "ms", true}, {}, true, {{"T", 1000}},
       {{"Processes", {{"kill", CaseVerdict::good, {{20, 0}, {31, 0}, {0, 0}}}, {"stop", CaseVerdict::fault, {{1004, 0}, {2900, 0}}}, {"none", CaseVerdict::good, {}}}}}}};
  return results;
}

}  // namespace lockstep
