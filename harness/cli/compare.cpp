#include "harness/cli/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>

#include "harness/cli/commands.h"
#include "harness/cli/words.h"
#include "harness/judge/judge.h"
#include "harness/plan/errors.h"

namespace lockstep {
namespace {

constexpr VerdictKind kVerdicts[] = {VerdictKind::identical,    VerdictKind::within_envelope,
                                     VerdictKind::equivalent,   VerdictKind::divergent,
                                     VerdictKind::inconclusive, VerdictKind::failed};

std::vector<std::string> expected_verdicts(const CompareCommandOptions& options) {
  std::vector<std::string_view> known;
  for (const VerdictKind kind : kVerdicts) known.emplace_back(name_of(kind));
  std::vector<std::string> words = split_lists(options.expect);
  for (const std::string& word : words) require_known(word, known, "--expect", "verdict");
  return words;
}

void require_folder(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) throw ConfigError(path + ": there is no such run folder");
}

nlohmann::json to_json(const Divergence& d) {
  return {{"step", d.step}, {"phase", d.phase},       {"rank", d.rank},     {"where", d.where},
          {"kind", d.kind}, {"expected", d.expected}, {"actual", d.actual}, {"sentence", d.sentence}};
}

nlohmann::json to_json(const Cause& c) {
  return {{"code", c.code}, {"confidence", c.confidence}, {"evidence", c.evidence}, {"remedy", c.remedy}};
}

}  // namespace

std::string comparison_text(const Mechanism& mechanism) {
  std::string text = std::string(name_of(mechanism.verdict)) + ": " + mechanism.sentence + "\n";
  if (mechanism.first_divergence) {
    const Divergence& d = *mechanism.first_divergence;
    text += fmt::format("  first: step {}, {}, {}, {}\n", d.step, d.phase,
                        d.rank < 0 ? "all ranks" : fmt::format("rank {}", d.rank), d.where);
    text += fmt::format("  {}: expected {}, found {}\n", d.kind, d.expected, d.actual);
  }
  if (mechanism.cause) {
    text += fmt::format("  cause: {} ({})\n", mechanism.cause->code, mechanism.cause->evidence);
    if (!mechanism.cause->remedy.empty()) text += fmt::format("  remedy: {}\n", mechanism.cause->remedy);
  }
  return text;
}

std::string comparison_json(const Mechanism& mechanism, const std::string& run_a, const std::string& run_b) {
  nlohmann::json json = {{"run_a", run_a},
                         {"run_b", run_b},
                         {"verdict", name_of(mechanism.verdict)},
                         {"sentence", mechanism.sentence},
                         {"compared_steps", mechanism.compared_steps},
                         {"band_used", mechanism.band_used},
                         {"band_measured", mechanism.band_measured},
                         {"first_divergence", nullptr},
                         {"cause", nullptr}};
  // JSON has no numbers for these, and null would hide them.
  if (!std::isfinite(mechanism.band_used)) json["band_used"] = fmt::format("{}", mechanism.band_used);
  if (mechanism.first_divergence) json["first_divergence"] = to_json(*mechanism.first_divergence);
  if (mechanism.cause) json["cause"] = to_json(*mechanism.cause);
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int comparison_exit_code(VerdictKind verdict, const std::vector<std::string>& expected) {
  const bool as_expected =
      expected.empty() ? verdict == VerdictKind::identical || verdict == VerdictKind::within_envelope ||
                             verdict == VerdictKind::equivalent
                       : std::find(expected.begin(), expected.end(), name_of(verdict)) != expected.end();
  if (as_expected) return kExitAsExpected;
  return verdict == VerdictKind::inconclusive ? kExitUndecided : kExitUnexpected;
}

int compare_command(const CompareCommandOptions& options, const Console& console) {
  const std::vector<std::string> expected = expected_verdicts(options);
  CompareOptions compare;
  compare.run_a = options.run_a;
  compare.run_b = options.run_b;
  compare.repeats = options.repeats;
  require_folder(compare.run_a);
  require_folder(compare.run_b);
  for (const std::string& repeat : compare.repeats) require_folder(repeat);
  const Mechanism mechanism = compare_runs(compare);
  console.out << (options.json ? comparison_json(mechanism, options.run_a, options.run_b)
                               : comparison_text(mechanism));
  return comparison_exit_code(mechanism.verdict, expected);
}

}  // namespace lockstep
