#include "harness/cli/compare.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <ostream>
#include <set>
#include <stdexcept>

#include "harness/answer/questions/question_judge.h"
#include "harness/answer/stats/outcome.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/cli/options.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/led.h"
#include "harness/judge/evidence/arms.h"
#include "harness/judge/trace/reader.h"
#include "harness/lib/flight/dump.h"
#include "harness/lib/flight/judge.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/trainer_spec.h"
#include "reports/check.h"
#include "scenarios/command/spec.h"

namespace lockstep {

namespace {

std::vector<std::string> expected_verdicts(const CompareCommandOptions& options) {
  const std::vector<std::string_view> known(verdict_names().begin(), verdict_names().end());
  std::vector<std::string> words = split_lists(options.expect);
  for (const std::string& word : words) require_known(word, known, "--expect", "verdict");
  return words;
}

void require_folder(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) throw ConfigError(path + ": no such run folder");
  if (is_output_folder(path) && !is_run_folder(path)) {
    throw ConfigError(path +
                      ": is the output folder of a matrix, not a run; --rule tost compares outcomes; to "
                      "compare bits, name a run: " +
                      path + "/runs/<id>");
  }
}

/// Options that another rule takes are refused rather than passed over.
void require_own_options(const CompareCommandOptions& options) {
  require_known(options.rule, {"bits", "tost"}, "--rule", "rule");
  const bool bits = options.rule == "bits";
  std::vector<ConfigProblem> problems;
  const auto refuse = [&](bool given, const char* option, const char* why) {
    if (given)
      problems.push_back(
          {option, 0, 0, fmt::format("is allowed with {}, not with --rule {}", why, options.rule), ""});
  };
  refuse(!options.repeats.empty() && !bits, "--repeat", "--rule bits");
  refuse(options.steps > 0 && !bits, "--steps", "--rule bits");
  refuse(!options.metric.empty() && bits, "--metric", "--rule tost");
  refuse(options.margin && bits, "--margin", "--rule tost");
  refuse(options.alpha && bits, "--alpha", "--rule tost");
  if (!problems.empty()) throw ConfigError(problems);
}

/// How two runs differ in trainer or data. Throws ConfigError that lists it unless `across`.
std::vector<QuestionDifference> check_data(const CompareCommandOptions& options, const RunRecord& a,
                                           const RunRecord& b) {
  std::vector<QuestionDifference> differences = data_differences(a.config, b.config);
  if (differences.empty() || options.across) return differences;
  std::vector<ConfigProblem> problems;
  for (const QuestionDifference& d : differences)
    problems.push_back(
        {options.run_b + " against " + options.run_a, 0, 0, "different question: " + difference_text(d), ""});
  problems.push_back(
      {"compare", 0, 0, "--across compares them anyway, and shows how they differ", ""});
  throw ConfigError(problems);
}

void require_enough_repeats(const CompareCommandOptions& options) {
  // Fewer permuted repeats lie close by chance too often: a clean run would be an alarm.
  constexpr std::size_t least = 4;
  if (options.repeats.empty() || options.repeats.size() >= least) return;
  throw ConfigError(fmt::format("--repeat: {} {} given, and measuring the tolerance takes {} or more: fewer may agree by chance, and "
                                "clean runs would be reported as different",
                                options.repeats.size(), options.repeats.size() == 1 ? "is" : "are", least));
}

/// A folder that counts twice measures nothing the second time; run B's own would hide whatever is wrong with it.
void require_different_repeats(const CompareCommandOptions& options) {
  std::vector<std::filesystem::path> seen;
  std::error_code error;
  for (const std::string& dir : {options.run_a, options.run_b}) seen.push_back(std::filesystem::canonical(dir, error));
  for (const std::string& dir : options.repeats) {
    const std::filesystem::path path = std::filesystem::canonical(dir, error);
    if (std::ranges::find(seen, path) != seen.end()) {
      throw ConfigError(fmt::format("--repeat {}: is given twice, or is one of the compared runs; repeats are separate runs of the "
                                    "reference with its rows in another order",
                                    dir));
    }
    seen.push_back(path);
  }
}

std::string name_of_folder(const std::string& dir) { return std::filesystem::path(dir).filename().string(); }

/// The traces that are compared are those of the run that run.json describes.
void require_own_trace(const std::string& run_dir, const RunRecord& record) {
  const std::string path = run_dir + "/rank-0.trace";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return;  // whoever reads it says so
  const std::string found = TraceReader(path).header().config_hash, expected = config_hash(record.config);
  if (found == expected) return;
  throw ConfigError(
      fmt::format("{}: does not belong to the run.json beside it: its config hash is {}, and {} "
                  "was expected",
                  path, found, expected));
}

/// Reads every rank's trace to its end: runs may part long before a damaged frame, and then it would pass
/// unseen or, worse, be what they part at. One that was cut short is compared up to there. Throws TraceError.
void require_undamaged(const std::string& run_dir) {
  for (int rank = 0, world_size = 1; rank < world_size; ++rank) {
    const std::string path = fmt::format("{}/rank-{}.trace", run_dir, rank);
    std::error_code error;
    if (!std::filesystem::exists(path, error)) continue;  // whoever reads it says so
    TraceReader reader(path);
    world_size = std::max(world_size, reader.header().world_size);
    reader.read_to_end();
  }
}

/// By the forced runs of both with their twins.
Mechanism compare_forced(const CompareOptions& compare, const RunRecord& a, const RunRecord& b,
                         const ForcedBeside& beside) {
  ForcedInputs inputs{compare, beside.reference, beside.cell, beside.reference_twin, beside.cell_twin, compare.steps};
  inputs.one_build = std::ranges::all_of(std::to_array<std::string>({"build", "libtorch", "isa", "threads_per_rank"}), [&](const std::string& fact) {
    const auto of_a = a.provenance.find(fact), of_b = b.provenance.find(fact);
    return of_a != a.provenance.end() && of_b != b.provenance.end() && of_a->second == of_b->second;
  });
  for (const std::string& dir : {beside.reference, beside.cell, beside.reference_twin, beside.cell_twin})
    require_undamaged(dir);
  Mechanism mechanism = judge_forced(inputs);
  mechanism.sentence += fmt::format(" The same matrix has forced runs: {} and {}, with their float64 twins.",
                                    name_of_folder(beside.reference), name_of_folder(beside.cell));
  return mechanism;
}

/// Two runs that lockstep trained: where their matrix has forced runs of both, these decide.
Mechanism compare_known(const CompareOptions& compare, const RunRecord& a, const RunRecord& b) {
  const auto beside = forced_runs_beside(compare.run_a, a, compare.run_b, b);
  const bool twins = beside && beside->has_twins(),
             one_seed = twins && beside->seed == a.config.seed && beside->seed == b.config.seed;
  if (one_seed && beside->reference != beside->cell) return compare_forced(compare, a, b, *beside);
  Mechanism mechanism = compare_runs(compare);
  if (twins && !one_seed && mechanism.verdict == VerdictKind::inconclusive)
    mechanism.sentence +=
        fmt::format(" The same matrix has forced runs of seed {}: compare the runs of that seed.", beside->seed);
  const auto &of_a = a.config.forced, &of_b = b.config.forced;
  const bool alike =
      of_a.on() == of_b.on() && of_a.twin == of_b.twin && (!of_a.on() || a.config.layout == b.config.layout);
  const bool later = mechanism.first_divergence && mechanism.first_divergence->step > 0;
  if (alike || mechanism.verdict != VerdictKind::divergent || !(later || of_a.twin != of_b.twin)) return mechanism;
  Mechanism open;
  open.sentence =
      "Each step of a forced run begins with another run's state, and its twin computes in float64: what differs from a "
      "free run, or from one of another layout, decides nothing without the twins, which lie in its matrix's folder.";
  return open;
}

nlohmann::json differences_json(const std::vector<QuestionDifference>& differences) {
  nlohmann::json list = nlohmann::json::array();
  for (const QuestionDifference& d : differences)
    list.push_back({{"what", d.what}, {"reference", d.a}, {"cell", d.b}});
  return list;
}

nlohmann::json to_json(const Divergence& d) {
  return {{"step", d.step}, {"phase", d.phase},       {"rank", d.rank},     {"where", d.where},
          {"kind", to_word(d.kind)}, {"expected", d.expected}, {"actual", d.actual}, {"sentence", d.sentence},
          {"parted", d.parted}};
}

nlohmann::json to_json(const Cause& c) {
  return {{"code", c.code}, {"confidence", c.confidence}, {"evidence", c.evidence}, {"remedy", c.remedy}};
}

}  // namespace

std::string comparison_json(const Mechanism& mechanism, const std::string& run_a, const std::string& run_b,
                            const std::vector<QuestionDifference>& across,
                            const std::vector<ConfigDifference>& configured) {
  nlohmann::json differences = nlohmann::json::array();
  for (const ConfigDifference& it : configured) {
    differences.push_back({{"key", it.key}, {"reference", it.reference}, {"cell", it.cell}});
  }
  nlohmann::json json = {{"run_a", run_a},
                         {"run_b", run_b},
                         {"verdict", name_of(mechanism.verdict)},
                         {"sentence", mechanism.sentence},
                         {"compared_steps", mechanism.compared_steps},
                         {"band_used", mechanism.band_used},
                         {"band_measured", mechanism.band_measured},
                         {"first_divergence", nullptr},
                         {"cause", nullptr},
                         {"facts", nlohmann::json::array()},
                         {"decide", mechanism.decide},
                         {"config_differences", std::move(differences)},
                         {"question_differences", differences_json(across)}};
  // JSON has no numbers for these, and null would hide them.
  if (!std::isfinite(mechanism.band_used)) json["band_used"] = fmt::format("{}", mechanism.band_used);
  if (mechanism.first_divergence) json["first_divergence"] = to_json(*mechanism.first_divergence);
  if (mechanism.cause) json["cause"] = to_json(*mechanism.cause);
  for (const Fact& fact : mechanism.facts)
    json["facts"].push_back({{"name", fact.name}, {"text", fact.text}, {"state", to_word(fact.mark)}});
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

namespace {

int print_comparison(const CompareCommandOptions& options, const Mechanism& mechanism,
                     const std::vector<QuestionDifference>& differences, const std::vector<ConfigDifference>& configured,
                     const std::vector<std::string>& expected, const Console& console) {
  CheckDocument document = document_of(mechanism);
  for (const QuestionDifference& d : differences)
    document.because.push_back("across questions: " + difference_text(d));
  const bool named =
      mechanism.cause && mechanism.cause->code != "unexplained" && find_cause_page(mechanism.cause->code);
  document.more = fmt::format("{}lockstep compare {} {} --json",
                              named ? fmt::format("lockstep explain {}; ", mechanism.cause->code) : "",
                              shell_quoted(options.run_a), shell_quoted(options.run_b));
  document.reference = options.run_a, document.run = options.run_b;
  const auto name = [&](const std::string& run) {
    const auto last = [](const std::string& dir) {
      return std::filesystem::path(dir).lexically_normal().filename().string();
    };
    return last(options.run_a) == last(options.run_b) ? run : last(run);
  };
  if (!options.outputs.html.empty() || !options.outputs.md.empty())
    document.charts = charts_of(paired_steps(options.run_a, options.run_b),
                                mechanism.first_divergence ? mechanism.first_divergence->step : -1, false,
                                name(options.run_a), name(options.run_b));
  print_document(document, comparison_json(mechanism, options.run_a, options.run_b, differences, configured),
                 check_text(document, console.out_colour, console.out_width), options.outputs, console);
  write_tools({{name(options.run_a), options.run_a},
               {name(options.run_b), options.run_b, options.run_a, check_markdown(document)}},
              options.outputs.tools, console);
  return comparison_exit_code(mechanism.verdict, expected);
}

/// With its placeholders, of a run that a matrix or a check has started; empty: nobody has kept it.
std::string recorded_command(const std::string& dir) {
  const std::optional<RunRecord> record = read_run_record(dir);
  return record && spec_of(record->config).is_command() ? command_config(record->config).command : "";
}

std::optional<RunRecord> record_of_own_run(const std::string& dir) {
  std::optional<RunRecord> record = read_run_record(dir);
  return record && spec_of(record->config).is_command() ? std::nullopt : std::move(record);
}

}  // namespace

static nlohmann::json interval_json(const Interval& interval) {
  return {
      {"low", json_number(interval.low)}, {"high", json_number(interval.high)}, {"level", interval.level}};
}

namespace {

flight::Records records_in(const std::string& folder) {
  try {
    return flight::read_records(folder);
  } catch (const std::runtime_error& error) {
    throw ConfigError(std::string("compare: ") + error.what());
  }
}

Divergence divergence_of(const flight::Parting& parting) {
  Divergence found;
  found.step = parting.step;
  found.phase = "flight record";
  found.rank = parting.rank;
  found.where = fmt::format("{} {} {}", flight::name_in_words(parting.group), parting.sequence, parting.name);
  found.kind = parting.kind;
  found.expected = parting.expected;
  found.actual = parting.actual;
  found.sentence = fmt::format("rank {} differs in {}: {}: expected {}, found {}", found.rank, found.where, to_word(found.kind), found.expected, found.actual);
  return found;
}

}  // namespace

Mechanism compare_flight_records(const flight::Records& a, const flight::Records& b) {
  const flight::FlightComparison comparison = flight::compare_flights(a, b);
  Mechanism mechanism;
  std::string lacks;
  if (!comparison.without_b.empty()) lacks += fmt::format(" {} left no record in the second.", flight::ranks_in_words(comparison.without_b));
  if (!comparison.without_a.empty()) lacks += fmt::format(" {} left no record in the first.", flight::ranks_in_words(comparison.without_a));
  for (const std::string& line : comparison.unread) lacks += " " + line + ".";
  if (comparison.compared == 0) {
    mechanism.sentence = "the two flight records have no collective in common." + lacks;
  } else if (comparison.first) {
    mechanism.verdict = VerdictKind::divergent;
    mechanism.first_divergence = divergence_of(*comparison.first);
    mechanism.sentence = mechanism.first_divergence->sentence + "." + lacks;
  } else {
    mechanism.verdict = lacks.empty() ? VerdictKind::identical : VerdictKind::inconclusive;
    mechanism.sentence = fmt::format("the {} collectives in both flight records are the same.{}", comparison.compared, lacks);
    mechanism.facts = {{Mark::same, "collectives", ""}};
  }
  return mechanism;
}

/// Of two folders; nothing if neither holds flight records. Throws ConfigError if only one does. A record that cannot be read leaves the verdict inconclusive.
static std::optional<Mechanism> compare_flight_folders(const std::string& a, const std::string& b) {
  if (!flight::holds_records(a) && !flight::holds_records(b)) return std::nullopt;
  return compare_flight_records(records_in(a), records_in(b));
}

namespace {

using nlohmann::json;

json to_json(const Outcome& o) {
  json differences = json::object();
  for (std::size_t i = 0; i < o.seeds.size() && i < o.differences.size(); ++i)
    differences[std::to_string(o.seeds[i])] = json_number(o.differences[i]);
  return {{"metric", o.metric},
          {"margin", o.margin},
          {"alpha", o.alpha},
          {"n", o.n},
          {"reference_mean", json_number(o.primary.reference_mean)},
          {"cell_mean", json_number(o.primary.cell_mean)},
          {"mean", json_number(o.primary.mean)},
          {"sd", json_number(o.primary.sd)},
          {"interval", interval_json(o.primary.interval)},
          {"equivalence", interval_json(o.equivalence)},
          {"power", json_number(o.power)},
          {"power_half", json_number(o.power_half)},
          {"seeds_needed", o.seeds_needed},
          {"seeds_needed_half", o.seeds_needed_half},
          {"p_equivalent", json_number(o.p_equivalent)},
          {"p_different", json_number(o.p_different)},
          {"notes", o.notes},
          {"differences", differences}};
}

json to_json(const OutcomeComparison& c) {
  return {
      {"reference", c.reference},
      {"cell", c.cell},
      {"verdict", name_of(c.verdict)},
      {"sentence", c.sentence},
      {"statistics", c.outcome ? to_json(*c.outcome) : json(nullptr)},
      {"failure",
       c.failure ? json{{"kind", to_word(c.failure->kind)}, {"run", c.failure->run}, {"message", c.failure->message}}
                 : json(nullptr)},
      {"question_differences", differences_json(c.differences)}};
}

/// A metric that no run has is a slip of the pen; runs that failed have none.
void require_measured(const std::string& metric, const std::vector<ArmPair>& pairs) {
  std::set<std::string> measured;
  for (const ArmPair& pair : pairs) {
    for (const Arm* arm : {&pair.reference, &pair.cell}) {
      for (const auto& [seed, run] : arm->runs) {
        for (const auto& [name, value] : run.evidence.metrics) measured.insert(name);
      }
    }
  }
  if (!measured.empty()) require_known(metric, {measured.begin(), measured.end()}, "--metric", "metric");
}

std::string outcomes_text(const std::vector<OutcomeComparison>& comparisons,
                          const std::vector<std::string>& alone) {
  std::string text;
  for (const OutcomeComparison& c : comparisons) {
    text += fmt::format("{}: {}\n  {} against {}\n", name_of(c.verdict), c.sentence, c.cell, c.reference);
    if (c.outcome && c.outcome->verdict == VerdictKind::inconclusive && !leaves_out(c.outcome->primary.interval, 0)) {
      text += fmt::format("  seeds needed: {}{}\n", c.outcome->seeds_needed,
                          c.outcome->n < 2 ? " or more; one seed gives no spread" : "");
    }
    if (c.outcome) {
      for (const std::string& note : c.outcome->notes) text += "  not compared: " + note + "\n";
    }
    for (const QuestionDifference& difference : c.differences)
      text += "  across questions: " + difference_text(difference) + "\n";
  }
  for (const std::string& each : alone) text += "not compared: " + each + "\n";
  return text;
}

std::string outcomes_json(const std::vector<OutcomeComparison>& comparisons,
                          const std::vector<std::string>& alone) {
  json list = json::array();
  for (const OutcomeComparison& comparison : comparisons) list.push_back(to_json(comparison));
  const json document = {{"rule", "tost"}, {"comparisons", list}, {"not_compared", alone}};
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

/// The rule tost. `expected`: verdicts to exit 0 for. Returns the exit code.
static int compare_outcomes_command(const CompareCommandOptions& options, const std::vector<std::string>& expected,
                             const Console& console) {
  MatchedArms matched =
      match_arms(read_arms(options.run_a, options.metric), read_arms(options.run_b, options.metric));
  const Given given{options.metric, options.margin, options.alpha};
  require_same_question(matched, given, options.across);
  require_paired_seeds(matched.pairs);
  std::vector<OutcomeComparison> comparisons;
  std::vector<int> codes;
  for (const ArmPair& pair : matched.pairs) {
    const Primary primary = primary_of(pair.reference, pair.cell, given);
    if (!options.metric.empty()) require_measured(options.metric, matched.pairs);
    comparisons.push_back(compare_arms(pair, primary));
    codes.push_back(comparison_exit_code(comparisons.back().verdict, expected));
  }
  const std::string text = clean_text(outcomes_text(comparisons, matched.alone));
  print_document(document_of(text), outcomes_json(comparisons, matched.alone), text, options.outputs, console);
  return worst_exit_code(codes);
}

int compare_command(const CompareCommandOptions& options, const Console& console) {
  const std::vector<std::string> expected = expected_verdicts(options);
  require_own_options(options);
  if (options.rule == "tost") return compare_outcomes_command(options, expected, console);
  CompareOptions compare{
      .run_a = options.run_a, .run_b = options.run_b, .repeats = options.repeats, .steps = options.steps};
  require_folder(compare.run_a);
  require_folder(compare.run_b);
  for (const std::string& repeat : compare.repeats) require_folder(repeat);
  require_enough_repeats(options);
  require_different_repeats(options);
  if (const auto flights = compare_flight_folders(options.run_a, options.run_b)) {
    if (!options.repeats.empty()) throw ConfigError("--repeat: is allowed with runs, not with flight records");
    if (options.steps > 0) throw ConfigError("--steps: is allowed with runs, not with flight records");
    return print_comparison(options, *flights, {}, {}, expected, console);
  }
  // Other trainers' traces come without run.json, or with one that says how a command was started; then the traces alone speak.
  const auto record_a = record_of_own_run(options.run_a), record_b = record_of_own_run(options.run_b);
  std::vector<QuestionDifference> differences;
  require_undamaged(options.run_a);
  require_undamaged(options.run_b);
  for (const std::string& repeat : compare.repeats) require_undamaged(repeat);
  if (record_a) require_own_trace(options.run_a, *record_a);
  if (record_b) require_own_trace(options.run_b, *record_b);
  if (!record_a || !record_b) require_one_model(options.run_a, options.run_b);
  if (record_a && record_b) {
    differences = check_data(options, *record_a, *record_b);
    compare.reference_config = &record_a->config;
    compare.cell_config = &record_b->config;
  }
  Mechanism mechanism = record_a && record_b && options.repeats.empty()
                            ? compare_known(compare, *record_a, *record_b)
                            : compare_runs(compare);
  if (const std::string command = recorded_command(options.run_b); !command.empty())
    mechanism.decide = replaced(mechanism.decide, "COMMAND", command);
  return print_comparison(options, mechanism, differences, differences_of(compare), expected, console);
}

}  // namespace lockstep
