#pragma once
// Everything that is known after a matrix has run: what results.json holds and what reports are made from.

#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/answer/results/suite_results.h"
#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/matrix/matrix.h"

namespace lockstep {

inline constexpr int kResultsSchemaVersion = 2;

/// In place of a rank: all of them; one or several, and nothing tells which.
inline constexpr int kAllRanks = -1, kRankUnknown = -2;

/// The first point at which a run and its reference part.
struct Divergence {
  int64_t step = 0;
  std::string phase;     ///< name_of(Phase)
  int rank = kAllRanks;  ///< or kRankUnknown
  std::string where;  ///< tensor, stream, control value or collective
  DivergenceKind kind = DivergenceKind::bits;
  std::string expected, actual;
  std::string sentence;  ///< the same in words
  /// Where float64 twins tell the two apart: "meaning", or "arithmetic" (in float64 the runs agree); else empty.
  std::string parted = {};
  /// Of runs in exact arithmetic, which row it is: its place in the step's whole batch, and its sample id.
  std::optional<int64_t> row = {}, sample = {};
};

/// Why they part. Named from signatures; `unexplained` if nothing fits.
struct Cause {
  std::string code;
  double confidence = 0;  ///< in [0, 1]
  std::string evidence, remedy;
  std::optional<int> rank = {};  ///< the one rank whose mistake the evidence proves
};

/// How the gradient of one parameter group relates to the reference's: c = <g, g_ref> / |g_ref|^2, cosine,
/// residual |g - c g_ref| / |g|.
struct GradientSignature {
  std::string group;
  double ratio = 1, cosine = 1, residual = 0;
  double difference = 0;  ///< |g - g_ref|
  double band = 0;        ///< what rounding explains: factor * largest difference over repeats, or the floor
};

struct ForcedStep {
  int64_t step = 0;
  std::vector<GradientSignature> groups;  ///< parameter groups, then "all"
  double band_used = 0;                   ///< largest difference / band over tensors
  std::string worst_tensor;
  /// With float64 twins, of which band_used is the larger: of the bound of meaning, and of that of rounding.
  double meaning_used = 0, arithmetic_used = 0;
  /// A row for which rounding alone would choose other columns than float64 does, whose choice the step was given; or -1.
  int64_t chosen_otherwise = -1;
};

/// What was found of one thing that was compared.
enum class Mark { same, different, undecided, none };
inline constexpr std::array<std::string_view, 4> kMarkWords{"same", "different", "undecided", "not compared"};
constexpr std::string_view to_word(Mark mark) { return kMarkWords[static_cast<std::size_t>(mark)]; }

struct Fact {
  Mark mark = Mark::none;
  std::string name, text;  ///< "gradients", "2.2 % off, most in fc1.weight"
};

struct Mechanism {
  VerdictKind verdict = VerdictKind::inconclusive;
  std::optional<Divergence> first_divergence;
  std::optional<Cause> cause;
  double band_used = 0;        ///< over all forced steps; > 1: outside
  bool band_measured = false;  ///< false: "bound, not measured"
  bool twins = false;          ///< float64 twins judged: the bands are bounds of meaning and of rounding
  int64_t compared_steps = 0;  ///< of the free traces
  std::vector<ForcedStep> forced;
  std::string sentence;
  std::vector<Fact> facts = {};  ///< what was compared, in the order of a step
  std::string decide = {};       ///< of `inconclusive`: the command that would decide; empty: none is known
  std::vector<SuiteTable> tables = {};  ///< what rows of forced steps show by step and rank, where rewards are recorded
  std::vector<SuiteChart> charts = {};
};

/// One metric's paired difference, cell minus reference.
struct MetricDifference {
  std::string metric;
  double reference_mean = 0, cell_mean = 0;
  double mean = 0, sd = 0;  ///< of the paired differences; of an outcome's primary metric the middle that was tested
  Interval interval;        ///< 1 - alpha, two-sided; from -infinity to +infinity if n < 2
  bool higher_is_better = true;
  bool has_direction = true;  ///< false: neither way is better, higher_is_better says nothing
};

/// Where the middle of the paired differences lies.
struct Estimate {
  std::string what;    ///< "mean", "median", "interquartile mean"
  std::string method;  ///< of the interval: "Student t", "order statistics", "BCa bootstrap", ...
  double value = 0;
  Interval interval;  ///< with the level that it has: order statistics give more than was asked
};

/// Paired differences of one metric over the steps, with a band that holds at all steps at once.
struct CurveDifference {
  std::string metric;
  double margin = 0;                    ///< 0: none is declared for this metric, so nothing leaves it
  std::vector<int64_t> steps;           ///< of the cell
  std::vector<double> mean, low, high;  ///< simultaneous, at level 1 - alpha
  int64_t first_leaves = -1;  ///< first step at which the band is not wholly inside the margin; -1: none
  int64_t first_beyond = -1;  ///< first step at which it lies wholly beyond
  std::string note;           ///< how steps of unequal batches were matched; empty: step by step
};

/// Steps until the primary metric reached its target. A run that never did has no value, and none is made up.
struct TargetReach {
  double target = 0;
  int n = 0, cell_reached = 0, reference_reached = 0;
  double cell_median = 0, reference_median = 0;  ///< own steps; infinite if half of the runs never got there
  /// Pairs by who was first, by samples seen where the batches differ; tied: both at once, or neither.
  int sooner = 0, later = 0, tied = 0;
  double p = 1;  ///< two-sided sign test of sooner against later
  /// Of the medians, between two order statistics, with the level that these have; infinite where a run never
  /// got there. Level 0: not taken.
  Interval cell_interval{0, 0, 0}, reference_interval{0, 0, 0};
  /// Samples of a pair's cell over those of its reference: the median over the pairs of which one at least got
  /// there, 0 or infinite where one alone did; NaN: no such pair, or not taken.
  double ratio = std::numeric_limits<double>::quiet_NaN();
  int ratio_n = 0;                    ///< those pairs
  Interval ratio_interval{0, 0, 0};  ///< as of the medians
};

/// One look of a sequential comparison.
struct Look {
  int n = 0;
  double information = 0;  ///< n over the most seeds, in (0, 1]
  double alpha_spent = 0;  ///< of each one-sided test, up to this look
  double alpha_here = 0;   ///< nominal level of this look
  VerdictKind verdict = VerdictKind::inconclusive;
};

/// Why there was no further look.
enum class InterimEnd { decided, most_seeds, budget };

struct Sequential {
  int most = 0;
  std::vector<Look> looks;
  InterimEnd ended = InterimEnd::decided;
};

/// What rounding alone does to a cell's outcome, by A/A pairs: one seed trained twice, in another order of rows
/// or from weights that differ in their last place.
struct RoundingShift {
  std::string pairs;     ///< names of the A/A pairs
  int n = 0;             ///< seeds of each
  double sd = 0;         ///< of their paired differences
  /// By which the cell's difference may come out otherwise on another machine, at level 1 - alpha.
  double shift = 0;
  bool of_cell = false;  ///< A/A pairs of the cell itself are among them; else its own runs may be less steady
};

struct Outcome {
  VerdictKind verdict = VerdictKind::inconclusive;
  std::string metric;
  double margin = 0, alpha = 0.05;
  int n = 0;
  double samples_ratio = 1;  ///< samples that a run of the cell saw over those of its reference's
  /// What decided. Under the sign test the middle of `primary` is the median of the paired differences, with the
  /// interval of that.
  OutcomeTest test = OutcomeTest::t;
  MetricDifference primary;
  Interval equivalence;  ///< 1 - 2 alpha: inside +- margin means equivalent; infinite if n < 2
  double sd_upper = 0;   ///< upper bound of the differences' true sd at level 0.8; infinite if n < 2
  /// Chance to be found equivalent with n seeds if the true difference is 0, or half the margin, at sd_upper.
  /// Never computed at the difference that was measured.
  double power = 0, power_half = 0;
  /// Seeds with which those powers reach 0.8. 0: decided already; 2: one seed shows no spread; 10,000: that
  /// many or more.
  int seeds_needed = 0, seeds_needed_half = 0;
  /// Smallest true difference that n seeds call divergent with probability 0.8, at the widest sd_upper of the question's cells
  /// and power controls; infinite: none. 0: not known, as where nothing scatters.
  double detectable = 0;
  double skewness = 0;  ///< of the paired differences
  double p_skewed = 1;  ///< of so much skewness among normal differences
  std::optional<RoundingShift> rounding;  ///< none: no A/A pair shows it
  double p_equivalent = 1;  ///< the larger of the two one-sided tests'
  double p_different = 1;   ///< two-sided, of a difference of 0
  double p_holm = 1;        ///< p_different, adjusted over the cells of the matrix
  std::vector<Estimate> estimates;
  std::vector<CurveDifference> curves;
  std::optional<TargetReach> target;
  std::optional<Sequential> sequential;
  std::vector<int64_t> seeds;
  std::vector<double> differences;       ///< by seed
  std::vector<MetricDifference> others;  ///< the other metrics, primary left out
  std::string sentence;                  ///< says where metrics disagree in sign
  std::vector<std::string> notes;        ///< what could not be compared and why: a metric that is NaN
};

/// What certifies a run by bits, and by a band; see Certification::certify.
inline constexpr const char* kByBits = "bits";
inline constexpr const char* kByBand = "band";

/// Agreement of the emulated run and a prefix on real ranks.
struct Certification {
  bool wanted = false;  ///< false: nothing to certify (real ranks, one process)
  int64_t steps = 0;    ///< agreed bit for bit; certified by the band: lay within it
  int64_t asked = 0;
  int64_t seed = 0;
  std::string backend;  ///< what carried the real ranks' collectives: "gloo", "nccl", "gloo_cuda"
  std::optional<Divergence> divergence;
  /// By what the prefix is certified, or parts: kByBits. kByBand: bits part, and the backend publishes no order of adding, so that
  /// each step's sums are compared with what another order may give.
  std::string certify = kByBits;
  double band_used = 0;  ///< by the band: the largest share of it that a sum takes
};

/// What a run in exact arithmetic says of a row that it cannot add.
inline constexpr const char* kRowNotFinite = "has NaN or infinity in ";

/// Why a run did not finish. Of an idle one `operation` says which fault changed nothing: "mutant", "second_mutant", or both with a space between.
struct Failure {
  std::string run;
  FailureKind kind = FailureKind::died;
  int rank = -1;
  int64_t step = -1;
  std::string operation, message;
  std::vector<std::string> last_lines;
};

/// Median and band over seeds, by step.
struct CurveBand {
  std::string metric;  ///< by name, "loss"
  std::vector<int64_t> steps;
  std::vector<double> median, low, high;  ///< low, high: smallest and largest seed
  std::optional<double> chance = {};      ///< what guessing gives, where it follows from the runs' data
};

/// What a step of a cell costs: of the forced run, mean over its steps.
struct StepCosts {
  double energies = 0;  ///< computed by the rank that computes most; NaN if no rank says
  double bytes = 0;     ///< that a rank receives from others in the loss's collectives
  double seconds = 0;   ///< of the slowest rank
};

/// Simple gradient noise scale from the ranks' own gradients against the reduced one (McCandlish et al.
/// 2018).
struct NoiseScale {
  int small_batch = 0, big_batch = 0;
  int64_t steps = 0;             ///< over which numerator and denominator are averaged
  double gradient_squared = 0;   ///< |G|^2, unbiased
  double noise = 0;              ///< S, trace of the covariance of one row's gradient, unbiased
  double batch = 0;              ///< S / |G|^2, rows; infinite where |G|^2 is not above 0
  Interval interval;             ///< of batch, by blocks of steps
  std::vector<int64_t> at;       ///< middles of the blocks of steps
  std::vector<double> batch_at;  ///< by block
  std::string caveat;            ///< why the theory does not apply here; empty: it does
};

/// What a growing batch asks of the learning rate: predicted from the noise scale, and measured.
struct Growth {
  struct Rule {
    std::string cell;
    std::string rule;
    double exponent = 0;  ///< of the batch's growth, in the learning rate; NaN where it does not grow
    VerdictKind verdict = VerdictKind::inconclusive;
    MetricDifference difference;
    int n = 0;  ///< pairs; 0: none were judged, or not known
  };
  std::string reference;
  int from_batch = 0, to_batch = 0;
  double samples_ratio = 1;  ///< samples that a cell's runs saw over those of the reference's
  std::vector<Rule> rules;
  int n = 0;                           ///< seeds that all judged rules share; 0: not known
  std::string best;                    ///< rule with the best mean of the primary metric
  std::vector<std::string> not_worse;  ///< other rules that no rule is shown to be better than
  double predicted_exponent = 0;       ///< NaN where there is no noise scale
  double measured_exponent = 0;  ///< where a parabola through the rules has its best; NaN if it has none
  Interval measured_interval;    ///< of the best exponent from none to linear, by Student's t over seeds
  std::string caveat;
  Layout from, to;
  /// Rows, by the noise scale of the cell whose rate is not scaled; NaN where there is none.
  double noise_batch = 0;
  Interval predicted_interval;  ///< over the noise scale's interval; for Adam also over a from 0.5 to 1
  std::string sentence;
};

/// Groups of layouts that can be compared with each other.
inline constexpr const char* kEqualBatch = "equal global batch";
inline constexpr const char* kEqualRows = "equal rows a rank";

/// One timed layout.
struct TimingRow {
  std::string group;  ///< "equal global batch", "equal rows a rank"
  Layout layout;
  int runs = 0;
  double step_seconds = 0;  ///< median over runs
  Interval interval;        ///< smallest and largest run
  double rows_per_second = 0;
  double speed_up = 1,
         efficiency = 1;           ///< of rows_per_second against one rank of the group; that per rank
  double communication_share = 0;  ///< of a step, in [0, 1], on the rank that waits most
  double bytes = 0;                ///< that a rank receives from others in a step; NaN if not counted
  double activation_bytes = 0, weight_bytes = 0;  ///< a rank
  bool crowded = false;                           ///< more ranks than cores
  /// From the smallest to the largest that the runs allow: of speed_up, the slowest run against the fastest of
  /// one rank and the other way round. NaN: not taken.
  Interval speed_up_range{std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN(), 1};
  Interval share_range{std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN(), 1};
};

struct Timing {
  int cores = 0;
  std::string processor;
  std::vector<TimingRow> rows;
  std::string sentence;
};

struct CellResult {
  std::string scenario;    ///< the cell's name
  std::string short_name;  ///< without the part about its own reference; empty: the name
  std::string reference;  ///< the reference's name
  std::string run;        ///< id of the run of the first seed
  std::string reference_run;
  VerdictKind verdict = VerdictKind::inconclusive;  ///< the answer to the matrix's question
  std::vector<VerdictKind> expected;
  bool as_expected = true;
  bool power_control = false;
  bool noise = false;   ///< an A/A pair
  bool anchor = false;  ///< its own reference: nothing is compared
  std::optional<NoiseScale> noise_scale;
  std::optional<Mechanism> mechanism;
  std::optional<Outcome> outcome;
  Certification certification;
  std::optional<Certification> exact;  ///< of the first steps in exact arithmetic, if the matrix asked for it
  std::optional<Failure> failure;
  std::optional<Cause> cause;  ///< of the failure; that of a divergence stands in the mechanism
  std::vector<CurveBand> curves;
  /// Of a cell that is its reference in another arithmetic: how far rounding alone carries it, by step. "parameters" and
  /// "parameters without a gradient" are distances in shares of their length, the others are absolute differences.
  std::vector<CurveBand> drift;
  std::vector<std::pair<std::string, std::string>> settings;  ///< axis -> value
  std::vector<std::pair<std::string, std::string>> config;    ///< dotted key -> value, every field
  std::vector<ConfigDifference> config_differences;           ///< from its reference's config
  std::optional<Layout> layout;                               ///< none: not known
  bool real_ranks = false;    ///< processes, not threads of one
  bool no_negatives = false;  ///< no row had a negative: its loss is 0
  std::string failed_saves;   ///< of checkpoints of its runs or its reference's, in one line; empty: none failed
  std::optional<StepCosts> costs;                             ///< where the question is the certificate
  std::string rerun;                                          ///< the command that repeats just this
  std::string replay;  ///< the command that repeats the first step that differs; empty: none was kept
};

struct ReferenceResult {
  std::string name;
  std::vector<CurveBand> curves;
  std::vector<std::pair<std::string, std::string>> config;
  std::map<std::string, double> metric_means;
  std::optional<Layout> layout = std::nullopt;  ///< none: not known
};

/// One loss at one number of ranks against its plain reference in one process: the worst of all its cases.
struct CertificateRow {
  std::string loss;  ///< "infonce global": form and candidates
  int world_size = 1;
  int cases = 0, certified = 0;
  double worst = 0;        ///< largest |g - g_ref| / allowed over cases, forced steps and parameter groups
  std::string worst_cell;  ///< its name
  int64_t worst_step = 0;
  GradientSignature worst_group;
  StepCosts costs;  ///< the median case's, each by itself
  double time_to_local =
      0;  ///< seconds over those of the same cases with local negatives; NaN if there are none
};

struct Certificate {
  double exact = 0;  ///< allowed is this times max(|g_ref|, size of the terms that are added up)
  std::vector<int64_t> steps;
  std::vector<CertificateRow> rows;
};

/// Something that defines the judgement and was declared otherwise when runs were first planned.
struct DeclaredChange {
  std::string what;     ///< "margin", "metric", "alpha", "test", "question", "target"
  std::string was, is;  ///< in words
  int runs = 0;         ///< that were planned under `was`
};

/// Of the runs that outcomes are judged from: was what defines the judgement declared before they ran? Runs that
/// are neither `before` nor `changed` have no record.
struct Declaration {
  int runs = 0;
  int before = 0;   ///< first planned under what is declared now
  int changed = 0;  ///< first planned under something else
  std::vector<DeclaredChange> changes;
};

struct Summary {
  int cells = 0, as_expected = 0, failed = 0, undecided = 0, power_controls = 0, power_controls_caught = 0;
  int runs = 0, runs_reused = 0;
  int exit_code = 0;
  bool can_tell = true;         ///< false: a power control was not divergent
  bool margin_refused = false;  ///< the margin exceeds half of the effect that a power control shows
  std::string margin_text;      ///< why, with the figures
  /// References of cells that were called equivalent though neither a power control nor another cell of theirs
  /// came out divergent: nothing shows that such a comparison could see a difference.
  std::vector<std::string> uncontrolled;
  std::string sentence;         ///< the report's first line: all sentences
  std::vector<std::string> sentences;  ///< what is said one by one, the most important first
};

struct Results {
  int schema_version = kResultsSchemaVersion;
  std::string name, config_file, question_text;
  std::string question = default_question();  ///< name of one of question_plans(), or kSuiteQuestion
  Primary primary;
  int64_t steps = 0;
  std::vector<int64_t> seeds;
  std::vector<CellResult> cells;
  std::vector<ReferenceResult> references;
  std::optional<Certificate> certificate;  ///< where that is the question
  /// Build, versions, host, threads, data, environment; what differs between runs first.
  std::vector<std::pair<std::string, std::string>> provenance;
  std::string rerun;
  std::optional<Detection> detection;  ///< for `question: detection` alone
  std::vector<Growth> growth;
  std::optional<Timing> timing;
  std::optional<Declaration> declaration;  ///< none: of a version that kept no record
  std::optional<SuiteResult> suite;  ///< of a suite's config alone, which has no cells
  Summary summary;
};

/// "decided", "most seeds", "budget".
const char* name_of(InterimEnd end);
std::span<const std::string_view> interim_end_names();

}  // namespace lockstep
