#include "harness/verdict/stats/mlperf/benchmarks.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "harness/base/nearest.h"

namespace lockstep {
namespace {

enum class Usage { training, hpc };

struct KnownBenchmark {
  std::string_view name;
  int runs;
  bool samples;  ///< their reader takes samples_count from the evaluations of these
  Usage usage = Usage::training;
};

/// submission_runs["training"] and ["hpc"] of rcp_checker.py, and the benchmarks whose samples it reads. dlrm
/// (rules 1.0.0 to 2.1.0) stood there until dlrm_dcnv2, which is another model, took its place; dlrmv4 comes
/// with rules 6.1.0.
constexpr KnownBenchmark kKnown[] = {
    {"bert", 10, false},
    {"dlrm", 5, false},
    {"dlrm_dcnv2", 10, false},
    {"dlrmv4", 10, true},
    {"gpt3", 3, false},
    {"maskrcnn", 5, false},
    {"resnet", 5, false},
    {"ssd", 5, false},
    {"retinanet", 5, false},
    {"unet3d", 40, false},
    {"rnnt", 10, false},
    {"stable_diffusion", 10, true},
    {"gnn", 10, false},
    {"rgat", 10, false},
    {"llama2_70b_lora", 10, true},
    {"flux1", 10, true},
    {"llama31_405b", 3, true},
    {"llama31_8b", 10, true},
    {"gpt_oss_20b", 10, true},
    {"deepseekv3_671b", 3, true},
    {"qwen35_397b_grpo", 3, true},
    {"cosmoflow", 10, false, Usage::hpc},
    {"deepcam", 5, false, Usage::hpc},
    {"oc20", 5, false, Usage::hpc},
    {"openfold", 10, false, Usage::hpc},
};

struct Alias {
  std::string_view name, of;
};

/// "Benchmark" in rcps_*.json of their repository where it is not the name in the rules: sd in those of 3.1.0,
/// the others in drafts that were renamed before their rules came out.
constexpr Alias kAliases[] = {
    {"sd", "stable_diffusion"},
    {"dlrmv2", "dlrm_dcnv2"},
    {"flux", "flux1"},
    {"deepseek_v3_671b", "deepseekv3_671b"},
};

const KnownBenchmark* known(std::string_view name) {
  const auto found = std::ranges::find(kKnown, name, &KnownBenchmark::name);
  return found == std::end(kKnown) ? nullptr : &*found;
}

}  // namespace

std::string canonical_benchmark(std::string_view name) {
  const auto alias = std::ranges::find(kAliases, name, &Alias::name);
  return std::string(alias == std::end(kAliases) ? name : alias->of);
}

bool points_count_steps(std::string_view name) { return name == "sd"; }

std::optional<MlperfRules> mlperf_rules(std::string_view benchmark) {
  const KnownBenchmark* const found = known(canonical_benchmark(benchmark));
  if (found == nullptr) return std::nullopt;
  MlperfRules rules;
  rules.benchmark = found->name;
  rules.runs = found->runs;
  rules.required = true;
  rules.more_runs = found->usage == Usage::hpc;
  rules.samples = found->samples;
  if (rules.benchmark == "unet3d") rules.rejected = 4;
  if (rules.benchmark == "llama31_405b") rules.slack = 46080;
  return rules;
}

std::string unknown_benchmark_words(std::string_view name) {
  if (name.starts_with("lockstep_") || mlperf_rules(name)) return "";
  std::vector<std::string_view> names;
  for (const KnownBenchmark& benchmark : kKnown) names.push_back(benchmark.name);
  const std::string_view near = nearest(name, names);
  return fmt::format(
      "MLPerf's checker knows no benchmark {}{}; how many runs a submission of it must have is not checked", name,
      near.empty() ? "" : fmt::format(" (did you mean {}?)", near));
}

}  // namespace lockstep
