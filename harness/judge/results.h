#pragma once
// Everything that is known after a matrix has run: what results.json holds and what reports are made from.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/plan/matrix.h"

namespace lockstep {

inline constexpr int kResultsSchemaVersion = 1;

struct Interval {
  double low = 0, high = 0;
  double level = 0.95;
};

/// The first point at which a run and its reference part.
struct Divergence {
  int64_t step = 0;
  std::string phase;     ///< name_of(Phase)
  int rank = -1;         ///< -1: all ranks
  std::string where;     ///< tensor, stream, control value or collective
  std::string kind;      ///< "bits", "value", "missing", "order", "band", "shape"
  std::string expected, actual;
  std::string sentence;  ///< the same in words
};

/// Why they part. Named from signatures; `unexplained` if nothing fits.
struct Cause {
  std::string code;
  double confidence = 0;  ///< in [0, 1]
  std::string evidence, remedy;
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
};

struct Mechanism {
  VerdictKind verdict = VerdictKind::inconclusive;
  std::optional<Divergence> first_divergence;
  std::optional<Cause> cause;
  double band_used = 0;          ///< over all forced steps; > 1: outside
  bool band_measured = false;    ///< false: "bound, not measured"
  int64_t compared_steps = 0;    ///< of the free traces
  std::vector<ForcedStep> forced;
  std::string sentence;
};

/// One metric's paired difference, cell minus reference.
struct MetricDifference {
  std::string metric;
  double reference_mean = 0, cell_mean = 0;
  double mean = 0, sd = 0;       ///< of the paired differences
  Interval interval;             ///< 1 - alpha, two-sided
  bool higher_is_better = true;
};

struct Outcome {
  VerdictKind verdict = VerdictKind::inconclusive;
  std::string metric;
  double margin = 0, alpha = 0.05;
  int n = 0;
  MetricDifference primary;
  Interval equivalence;          ///< 1 - 2 alpha: inside +- margin means equivalent
  double power = 0;              ///< probability to conclude `equivalent` if the true difference is 0 at this sd and n
  int seeds_needed = 0;          ///< to decide, at this sd, if the true difference is 0; 0: decided already
  std::vector<int64_t> seeds;
  std::vector<double> differences;          ///< by seed
  std::vector<MetricDifference> others;     ///< the other metrics, primary left out
  std::string sentence;          ///< says where metrics disagree in sign
};

/// Bitwise agreement of the emulated run and a prefix on real ranks.
struct Certification {
  bool wanted = false;           ///< false: nothing to certify (real ranks, one process)
  int64_t steps = 0;             ///< agreed bit for bit
  int64_t asked = 0;
  int64_t seed = 0;
  std::string backend;           ///< "gloo"
  std::optional<Divergence> divergence;
};

/// Why a run did not finish.
struct Failure {
  std::string run, kind;         ///< "died", "hung", "threw", "interrupted"
  int rank = -1;
  int64_t step = -1;
  std::string operation, message;
  std::vector<std::string> last_lines;
};

/// Median and band over seeds, by step.
struct CurveBand {
  std::string metric;            ///< loss_over_log_n, accuracy_24
  std::vector<int64_t> steps;
  std::vector<double> median, low, high;   ///< low, high: smallest and largest seed
};

struct CellResult {
  std::string scenario;          ///< the cell's name
  std::string reference;         ///< the reference's name
  std::string run;               ///< id of the run of the first seed
  std::string reference_run;
  VerdictKind verdict = VerdictKind::inconclusive;  ///< the answer to the matrix's question
  std::vector<VerdictKind> expected;
  bool as_expected = true;
  bool power_control = false;
  std::optional<Mechanism> mechanism;
  std::optional<Outcome> outcome;
  Certification certification;
  std::optional<Failure> failure;
  std::vector<CurveBand> curves;
  std::vector<std::pair<std::string, std::string>> settings;   ///< axis -> value
  std::vector<std::pair<std::string, std::string>> config;     ///< dotted key -> value, every field
  std::string rerun;             ///< the command that repeats just this
};

struct ReferenceResult {
  std::string name;
  std::vector<CurveBand> curves;
  std::vector<std::pair<std::string, std::string>> config;
  std::map<std::string, double> metric_means;
};

struct Summary {
  int cells = 0, as_expected = 0, failed = 0, undecided = 0, power_controls = 0, power_controls_caught = 0;
  int runs = 0, runs_reused = 0;
  int exit_code = 0;
  bool can_tell = true;          ///< false: a power control was not divergent
  std::string sentence;          ///< the report's first line
};

struct Results {
  int schema_version = kResultsSchemaVersion;
  std::string name, config_file, question_text;
  Question question = Question::mechanism;
  Primary primary;
  int64_t steps = 0;
  std::vector<int64_t> seeds;
  std::vector<CellResult> cells;
  std::vector<ReferenceResult> references;
  std::vector<std::pair<std::string, std::string>> provenance;  ///< build, versions, host, threads, data, environment
  std::string rerun;
  Summary summary;
};

std::string results_to_json(const Results& results);
/// Throws std::runtime_error on malformed text or a schema version that this build does not know.
Results results_from_json(const std::string& text, const std::string& file_name);

}  // namespace lockstep
