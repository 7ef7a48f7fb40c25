#include "harness/answer/questions/detection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <set>

#include "harness/answer/questions/matrix_judge.h"
#include "harness/answer/questions/question_judge.h"
#include "harness/answer/questions/sentences.h"
#include "harness/answer/questions/trials.h"
#include "harness/answer/stats/estimates.h"
#include "harness/base/text.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/evidence/run_evidence.h"
#include "harness/judge/trace/record.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/run_config.h"
#include "harness/plan/matrix/cells.h"

namespace lockstep {
namespace {

/// Name of the rate of clean pairs whose verdict is inconclusive and that raised no alarm.
constexpr const char* kUndecided = "clean pairs left undecided, without an alarm";
constexpr double kAskedCaught = 0.95, kAskedExact = 0.95, kAskedNamed = 0.90;

enum Detector { samples, random, control, ledger, energies, loss, local, reduced, update, replicas, failed };

/// Codes that speak of one rank's parameters against another's, not of the update's arithmetic.
bool speaks_of_replicas(const std::string& code) {
  constexpr std::array kCodes{"initial-weights-differ", "replica-corrupted", "rank-behind",
                              "buffers-not-synchronised", "replicas-drift"};
  return std::find(kCodes.begin(), kCodes.end(), code) != kCodes.end();
}

int detector_of(const Mechanism& mechanism) {
  const std::string& phase = mechanism.first_divergence->phase;
  if (phase == "samples") return samples;
  if (phase == "random") return random;
  if (phase == "control") return control;
  if (phase == "collective") return ledger;
  if (phase == "energies") return energies;
  if (phase == "loss") return loss;
  if (phase == "local gradients") return local;
  if (phase == "reduced gradients" || phase == "gradient norm") return reduced;
  const bool one_rank = mechanism.first_divergence->rank >= 0 || mechanism.first_divergence->kind == DivergenceKind::replica;
  if (mechanism.cause && mechanism.cause->code != "unexplained") {
    return speaks_of_replicas(mechanism.cause->code) ? replicas : update;
  }
  return one_rank ? replicas : update;
}

/// The cause that was named; of a failure without one, what its kind says.
std::string cause_code_of(const CellResult& result) {
  if (result.failure && result.cause) return result.cause->code;
  if (result.mechanism && result.mechanism->cause) return result.mechanism->cause->code;
  if (!result.failure) return "";
  const FailureKind kind = result.failure->kind;
  return kind == FailureKind::died || kind == FailureKind::hung || kind == FailureKind::threw ? "rank-" + std::string(to_word(kind)) : "";
}

/// "rank 2" as words of their own.
bool mentions_rank(const std::string& text, int rank) {
  const std::string words = fmt::format("rank {}", rank);
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    const std::size_t end = at + words.size();
    if (end == text.size() || !std::isdigit(static_cast<unsigned char>(text[end]))) return true;
  }
  return false;
}

void score_failure(const PlantedFault& fault, const CellResult& result, TrialScore& score) {
  if (!result.failure) return;
  const Failure& failure = *result.failure;
  score.caught = failure.kind == FailureKind::died || failure.kind == FailureKind::hung || failure.kind == FailureKind::threw;
  if (!score.caught) return;
  score.detector = failed;
  score.exact_step = std::max<int64_t>(failure.step, 0) == fault.step;  // -1: before the first
  const int rank = fault.mutant.rank;
  score.exact_place = rank < 0 || failure.rank == rank || mentions_rank(failure.message, rank);
}

/// A run in exact arithmetic stops at a row that is no number, and names it.
void score_row(const PlantedFault& fault, const Failure& failure, TrialScore& score) {
  const std::size_t at = failure.message.find(kRowNotFinite);
  if (at == std::string::npos) return;
  score.caught = true;
  score.detector = local;
  score.exact_step = failure.step == fault.step;
  constexpr std::string_view kGradient = "its gradient of ";
  const std::size_t where = failure.message.find(kGradient, at);
  if (where == std::string::npos) return;
  const std::string rest = failure.message.substr(where + kGradient.size());
  score.exact_place = names_place(fault, "local gradients", rest.substr(0, rest.find(':')));
}

void score_divergence(const PlantedFault& fault, const CellResult& result, TrialScore& score) {
  if (result.mechanism && result.mechanism->first_divergence) {
    const Divergence& divergence = *result.mechanism->first_divergence;
    score.caught = true;
    score.detector = detector_of(*result.mechanism);
    score.exact_step = divergence.step == fault.step;
    score.exact_place = names_place(fault, divergence.phase, divergence.where);
  } else if (result.failure) {
    // Not finite is what the judge found; a run that was lost otherwise is no finding about the fault.
    score.caught = result.failure->kind == FailureKind::nonfinite;
    if (score.caught) score.detector = failed;
    score_row(fault, *result.failure, score);
  } else {
    score.caught = result.verdict == VerdictKind::divergent;
  }
}

/// Did the fault that must show first change nothing? Where it acted, it may have kept the other from acting.
bool is_idle(const PlantedFault& fault, const RunConfig& config, const CellResult& result) {
  if (!result.failure || result.failure->kind != FailureKind::idle) return false;
  const auto idle = split_words(result.failure->operation, ' ');
  const char* const key = fault.mutant == config.mutant ? "mutant" : "second_mutant";
  return std::find(idle.begin(), idle.end(), key) != idle.end();
}

/// Faults of the table, as words.
std::string drawn_faults(const RunConfig& config) {
  std::string text;
  for (const MutantConfig* mutant : {&config.mutant, &config.second_mutant}) {
    if (mutant->name == "none") continue;
    const MutantEntry* entry = find_mutant(mutant->name);
    if (entry)
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", mutant->name, drawn_words(*entry, *mutant));
  }
  return text;
}

/// What the cells of a matrix plant: faults of the table, which a run's config names, or those of the user's own switches.
class Plants {
 public:
  explicit Plants(const Matrix& matrix) : own_(section_of<DetectionConfig>(matrix).faults) {
    // Views of what the matrix holds.
    for (const OwnFault& fault : own_) {
      MutantEntry entry;
      entry.name = fault.name;
      entry.phase = fault.phase;
      entry.where = fault.tensor;
      entry.causes = fault.causes;
      entries_.push_back(entry);
    }
  }

  /// Nothing: the cell is clean.
  std::optional<PlantedFault> first(const Cell& cell) const {
    if (own_.empty()) return first_planted(cell.config);
    const std::vector<const OwnFault*> planted = planted_in(own_, cell.config);
    if (planted.empty()) return std::nullopt;
    const OwnFault& fault = *planted.front();
    PlantedFault first{&entries_[static_cast<std::size_t>(&fault - own_.data())], {}, fault.step};
    first.mutant.rank = fault.rank;
    return first;
  }

  bool is_pair(const Cell& cell) const {
    return own_.empty() ? cell.config.second_mutant.name != "none" : planted_in(own_, cell.config).size() > 1;
  }

  /// Was it said where the fault must show?
  bool asks_place(const PlantedFault& fault) const {
    const MutantEntry& entry = *fault.entry;
    return own_.empty() || (entry.phase == "failed" ? fault.mutant.rank >= 0 : !entry.phase.empty() || !entry.where.empty());
  }

  std::string words(const Cell& cell) const {
    std::string text = drawn_faults(cell.config);
    for (const OwnFault* fault : planted_in(own_, cell.config)) text += fmt::format("{}{}: step {}, {}", text.empty() ? "" : "; ", fault->name, fault->step, fault->causes);
    return text.empty() ? "nothing" : text;
  }

 private:
  const std::vector<OwnFault>& own_;
  std::vector<MutantEntry> entries_;  // by own fault
};

std::string said_words(const CellResult& result) {
  std::string text = name_of(result.verdict);
  if (result.failure && result.failure->kind == FailureKind::idle) return text + ": " + result.failure->message;
  if (result.mechanism && result.mechanism->first_divergence) {
    const Divergence& d = *result.mechanism->first_divergence;
    text += fmt::format(" at step {}, {}{}{}", d.step, d.phase, d.where.empty() ? "" : ", ", d.where);
    if (d.rank >= 0) text += fmt::format(", rank {}", d.rank);
  } else if (result.failure) {
    text += fmt::format(": rank {} {} after {} steps", result.failure->rank, to_word(result.failure->kind),
                        result.failure->step);
    if (!result.failure->message.empty()) text += ": " + result.failure->message;
  }
  const std::string code = cause_code_of(result);
  return text + (code.empty() ? "; no cause" : "; " + code);
}

std::string wrong_words(const TrialScore& score) {
  if (!score.planted) return "false alarm";
  if (score.idle) return "never acted";
  if (!score.caught) return "missed";
  if (score.wrong_cause) return "wrong cause";
  if (!score.exact_step) return "another step";
  if (!score.exact_place) return "another place";
  return "not named";
}

std::vector<std::pair<std::string, std::string>> drawn_rows(const Cell& cell, const Plants& plants) {
  const RunConfig& config = cell.config;
  std::vector<std::pair<std::string, std::string>> rows{
      {"layout", layout_name(config.layout)},
      {"seed", std::to_string(config.seed)},
      {"steps", std::to_string(config.steps)},
      {"planted", plants.words(cell)}};
  for (const auto& setting : cell.settings) {
    if (setting.first != "layout") rows.push_back(setting);
  }
  if (spec_of(config).is_command()) return rows;  // these are no settings of it
  for (const auto& [key, value] : config_fields(config)) {
    if (key == "optimizer" || key == "clip_norm" || key == "dropout" || key == "trace")
      rows.emplace_back(key, value);
  }
  return rows;
}

void slim(const Cell& cell, const Plants& plants, CellResult& result) {
  result.curves.clear();
  result.config.clear();
  result.settings = drawn_rows(cell, plants);
  if (!result.mechanism) return;
  const auto& first = result.mechanism->first_divergence;
  std::erase_if(result.mechanism->forced,
                [&first](const ForcedStep& step) { return !first || step.step != first->step; });
}

void count(const TrialScore& score, bool place_asked, DetectionRow& row) {
  row.place_asked = row.place_asked && place_asked;
  ++row.trials;
  row.caught += score.caught;
  row.exact_step += score.caught && score.exact_step;
  row.exact_place += score.caught && score.exact_place;
  row.exact += score.caught && score.exact();
  row.right_cause += score.caught && score.right_cause;
  row.wrong_cause += score.wrong_cause;
  row.by_loss_curve += score.by_loss_curve;
  if (score.detector >= 0) ++row.first_found[static_cast<std::size_t>(score.detector)];
}

/// The mutant's row, made where there is none yet.
DetectionRow& row_of(Detection& detection, const std::string& mutant) {
  const auto row = std::ranges::find(detection.rows, mutant, &DetectionRow::mutant);
  if (row != detection.rows.end()) return *row;
  DetectionRow fresh;
  fresh.mutant = mutant;
  if (const MutantEntry* entry = find_mutant(mutant)) fresh.report = entry->report;
  fresh.first_found.assign(detection.detectors.size(), 0);
  return detection.rows.emplace_back(std::move(fresh));
}

DetectionRow total_of(const std::vector<DetectionRow>& rows) {
  DetectionRow total;
  for (const DetectionRow& row : rows) {
    total.trials += row.trials;
    total.caught += row.caught;
    total.exact += row.exact;
    total.right_cause += row.right_cause;
    total.wrong_cause += row.wrong_cause;
    total.by_loss_curve += row.by_loss_curve;
    total.exact_trials += row.exact_trials;
    total.exact_found += row.exact_found;
  }
  return total;
}

DetectionRate asked(DetectionRate rate, double share) {
  rate.asked = share;
  // Nothing was tried: nothing is refused.
  rate.enough = rate.of == 0 || static_cast<double>(rate.hits) >= share * static_cast<double>(rate.of);
  return rate;
}

DetectionRate forbidden(DetectionRate rate) {
  rate.asked = 0;
  rate.at_most = true;
  rate.enough = rate.hits == 0;
  return rate;
}

/// What the rows of a detection matrix leave out.
struct BesideRows {
  int64_t idle = 0;       ///< trials whose fault never acted
  int64_t undecided = 0;  ///< silent clean pairs whose verdict is inconclusive
  bool exact = false;     ///< free runs in exact arithmetic, where every fault must show at its step and place
};

/// "of these at the exact step and place"; without a place where none was asked.
std::string exact_words(const Detection& detection) {
  const bool asked = detection.rows.empty() || std::ranges::any_of(detection.rows, &DetectionRow::place_asked);
  return asked ? "at the exact step and place" : "at the exact step";
}

void set_rates(Detection& detection, const BesideRows& beside) {
  const DetectionRow all = total_of(detection.rows);
  auto& rates = detection.rates;
  rates.push_back(asked(detection_rate("caught", all.caught, all.trials), beside.exact ? 1 : kAskedCaught));
  // Of mutants of which none can act nothing is known.
  if (all.trials + all.exact_trials == 0 && !detection.left_out.empty()) rates.back().enough = false;
  rates.push_back(asked(detection_rate("of these " + exact_words(detection), all.exact, all.caught), beside.exact ? 1 : kAskedExact));
  rates.push_back(asked(detection_rate("named rightly", all.right_cause, all.trials), kAskedNamed));
  rates.push_back(forbidden(detection_rate("named wrongly", all.wrong_cause, all.trials)));
  rates.push_back(
      forbidden(detection_rate("false alarms on clean pairs", detection.false_alarms, detection.clean)));
  if (all.exact_trials > 0) {
    rates.push_back(asked(detection_rate("found at the exact step and place by a free run in exact arithmetic",
                                         all.exact_found, all.exact_trials),
                          1));
  }
  if (beside.idle > 0) rates.push_back(forbidden(detection_rate("never acted", beside.idle, all.trials + beside.idle)));
  if (beside.undecided > 0) rates.push_back(detection_rate(kUndecided, beside.undecided, detection.clean));
  rates.push_back(detection_rate("found by comparing loss curves", all.by_loss_curve, all.trials));
  detection.passed =
      std::all_of(rates.begin(), rates.end(), [](const DetectionRate& rate) { return rate.enough; });
}

}  // namespace

bool TrialScore::is_found() const { return planted && !idle && caught && exact(); }

bool TrialScore::is_right() const { return planted ? is_found() && right_cause : !caught; }

const std::vector<std::string>& detector_names() {
  static const std::vector<std::string> names{"samples", "random",  "control", "ledger",   "energies", "loss",
                                              "local",   "reduced", "update",  "replicas", "failed"};
  return names;
}

TrialScore score_trial(const Cell& cell, const CellResult& result, double loss_gap, const std::optional<PlantedFault>& fault) {
  TrialScore score;
  score.planted = fault.has_value();
  score.by_loss_curve = !(loss_gap <= kLossCurveTolerance);
  if (!fault) {
    const bool silent = std::ranges::find(cell.expected, result.verdict) != cell.expected.end();
    score.caught = !silent || (result.mechanism && result.mechanism->cause);
    return score;
  }
  score.idle = is_idle(*fault, cell.config, result);
  if (score.idle) return score;
  if (fault->entry->phase == "failed")
    score_failure(*fault, result, score);
  else
    score_divergence(*fault, result, score);
  const std::string code = cause_code_of(result);
  const std::vector<std::string> right = right_causes(*fault, cell.config.layout.world_size);
  score.right_cause = std::find(right.begin(), right.end(), code) != right.end();
  score.wrong_cause = !code.empty() && code != "unexplained" && !score.right_cause;
  return score;
}

Detection score_detection(const Matrix& matrix, std::vector<CellResult>& cells,
                          const std::vector<double>& loss_gaps) {
  Detection detection;
  detection.detectors = detector_names();
  detection.loss_tolerance = kLossCurveTolerance;
  DetectionRow pairs;
  pairs.mutant = "pairs";
  pairs.first_found.assign(detection.detectors.size(), 0);
  int64_t idle = 0, undecided = 0;
  const Plants plants(matrix);
  const auto is_exact = [](const Cell& cell) { return cell.config.arithmetic == Arithmetic::exact; };
  // Where others are native, trials in exact arithmetic stand beside them.
  const bool exact = !matrix.cells.empty() && std::ranges::all_of(matrix.cells, is_exact);
  detection.left_out = section_of<DetectionConfig>(matrix).left_out;
  std::vector<TrialScore> scores;
  std::vector<std::optional<PlantedFault>> faults;
  std::set<std::string> acted;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    faults.push_back(plants.first(matrix.cells[i]));
    scores.push_back(score_trial(matrix.cells[i], cells[i], loss_gaps[i], faults.back()));
    if (!scores.back().idle) acted.insert(matrix.cells[i].config.mutant.name);
  }
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Cell& cell = matrix.cells[i];
    CellResult& result = cells[i];
    const TrialScore& score = scores[i];
    if (score.idle && !acted.contains(cell.config.mutant.name)) {
      // It did nothing in any of its trials: nothing here lets it act.
      const std::string& name = cell.config.mutant.name;
      if (std::ranges::find(detection.left_out, name, &LeftOutMutant::mutant) == detection.left_out.end()) {
        detection.left_out.push_back({name, result.failure->message});
      }
      result.as_expected = true;
      slim(cell, plants, result);
      continue;
    }
    if (result.failure && result.failure->kind == FailureKind::idle && !score.idle && result.mechanism) {
      result.failure.reset();  // The trial is that of its first fault.
      result.verdict = result.mechanism->verdict;
    }
    const bool beside = !exact && cell.config.arithmetic == Arithmetic::exact;
    result.as_expected = beside ? score.is_found() : score.is_right();
    if (!score.planted) {
      ++detection.clean;
      detection.false_alarms += score.caught;
      undecided += !score.caught && result.verdict == VerdictKind::inconclusive;
    } else if (beside) {
      DetectionRow& row = row_of(detection, cell.config.mutant.name);
      ++row.exact_trials;
      row.exact_found += score.is_found();
    } else if (score.idle) {
      ++idle;
    } else {
      count(score, plants.asks_place(*faults[i]),
            plants.is_pair(cell) ? pairs : row_of(detection, std::string(faults[i]->entry->name)));
    }
    if (!result.as_expected) {
      detection.misses.push_back({result.scenario, wrong_words(score), plants.words(cell),
                                  said_words(result), result.rerun});
    }
    slim(cell, plants, result);
  }
  if (pairs.trials > 0) detection.rows.push_back(std::move(pairs));
  set_rates(detection, {idle, undecided, exact});
  return detection;
}

std::vector<std::string> detection_sentences(const Detection& detection) {
  std::string text;
  for (const DetectionRate& rate : detection.rates) {
    if (rate.enough) continue;
    text += fmt::format("{}{} {} of {}", text.empty() ? "" : "; ", rate.what, rate.hits, rate.of);
    if (rate.at_most)
      text += ", where none is allowed";
    else
      text += fmt::format(", where {:.0f} % are required", 100 * rate.asked);
  }
  std::vector<std::string> sentences;
  if (!text.empty()) sentences = {"The detectors do not meet their limits: " + text + "."};
  const DetectionRow all = total_of(detection.rows);
  if (text.empty()) {
    sentences = {fmt::format(
              "{} of {} planted faults were caught, {} of them {}, {} named rightly and {} wrongly; {} false alarms on {}.",
              all.caught, all.trials, all.exact, exact_words(detection), all.right_cause, all.wrong_cause, detection.false_alarms,
              counted(detection.clean, "clean pair")),
          fmt::format("Comparing loss curves would have found {} of them.", all.by_loss_curve)};
  }
  if (const auto undecided = std::ranges::find(detection.rates, kUndecided, &DetectionRate::what); undecided != detection.rates.end()) {
    sentences.push_back(fmt::format("{} of {} could not be decided beyond what both layouts show exactly; it raised no alarm.", undecided->hits,
                                    counted(undecided->of, "clean pair")));
  }
  if (std::string left_out = left_out_words(detection.left_out); !left_out.empty()) {
    left_out[0] = 'L';
    sentences.push_back(left_out + ".");
  }
  return sentences;
}

}  // namespace lockstep

// Rates over all trials decide, not each trial.

namespace lockstep::questions::detection {
namespace {

/// The largest relative difference of the training loss to the reference's at any step; infinite if the
/// cell's run left no finite curve.
double loss_gap(const MatrixEvidence& evidence, const Cell& cell) {
  const SeedPair pair = evidence.arms().pair_seeds(cell).front();
  if (!pair.cell || !pair.reference) return std::numeric_limits<double>::infinity();
  const RunEvidence &own = evidence.of(*pair.cell), &reference = evidence.of(*pair.reference);
  const auto a = reference.curves.find("loss"), b = own.curves.find("loss");
  if (own.failure || a == reference.curves.end() || b == own.curves.end())
    return std::numeric_limits<double>::infinity();
  double gap = 0;
  for (std::size_t i = 0; i < std::min(a->second.values.size(), b->second.values.size()); ++i) {
    const double expected = a->second.values[i];
    gap = std::max(gap, std::abs(b->second.values[i] - expected) / std::max(std::abs(expected), 1e-12));
  }
  return gap;
}

/// Reports own faults whose cause or phase nothing can say. The planner knows neither.
std::vector<ConfigProblem> problems(const Matrix& matrix) {
  std::vector<std::string_view> codes, phases{"failed"};
  for (const CausePage& page : cause_pages()) codes.push_back(page.code);
  for (const Phase phase : phases_in_order()) phases.emplace_back(name_of(phase));
  std::vector<ConfigProblem> problems;
  const auto add = [&](const Place& place, std::string message, std::string_view near = {}) {
    problems.push_back({matrix.file, place.line, place.column, std::move(message), std::string(near)});
  };
  for (const OwnFault& fault : section_of<DetectionConfig>(matrix).faults) {
    for (const std::string_view code : split_words(fault.causes, ' ')) {
      const CausePage* page = find_cause_page(code);
      if (page == nullptr)
        add(fault.cause_place, fmt::format("there is no cause {}; `lockstep explain` lists all", in_quotes(code)), nearest(code, codes));
      else if (page->family == "failed" && !fault.fails())
        add(fault.cause_place, fmt::format("{} is the cause of a run that ends by its fault: it needs phase: failed", code));
    }
    for (const std::string_view phase : split_words(fault.phase, '|')) {
      if (std::ranges::find(phases, phase) == phases.end())
        add(fault.phase_place, fmt::format("there is no phase {}; phases are {}", in_quotes(phase), fmt::join(phases, ", ")), nearest(phase, phases));
    }
  }
  return problems;
}

void complete(const MatrixEvidence& evidence, Results& results) {
  std::vector<double> gaps;
  for (const Cell& cell : evidence.matrix().cells) gaps.push_back(loss_gap(evidence, cell));
  results.detection = score_detection(evidence.matrix(), results.cells, gaps);
}

std::vector<std::string> whole_summary(const Results& results) {
  return results.detection ? detection_sentences(*results.detection) : std::vector<std::string>{};
}

std::optional<bool> passed(const Results& results) {
  if (!results.detection || results.cells.empty()) return std::nullopt;
  return results.detection->passed;
}

}  // namespace

const QuestionJudge& judge() {
  static const QuestionJudge kJudge{
      .verdict = &verdict_by_mechanism,
      // Hundreds of references that only serve a trial each say nothing by themselves.
      .omits_references = true,
      .problems = &problems,
      .complete = &complete,
      .sentences = &mechanism_sentences,
      .whole_summary = &whole_summary,
      .passed = &passed,
  };
  return kJudge;
}

}  // namespace lockstep::questions::detection
