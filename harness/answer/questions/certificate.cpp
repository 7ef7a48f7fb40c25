#include "harness/answer/questions/certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "harness/answer/questions/matrix_judge.h"
#include "harness/answer/questions/question_judge.h"
#include "harness/answer/questions/sentences.h"
#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/compare/forced/values.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/plan/config/trainer_spec.h"

namespace lockstep {
namespace {

constexpr const char* kEnergies = "energies_computed";

/// The group that uses most of what is allowed.
struct Worst {
  double used = 0;
  int64_t step = 0;
  GradientSignature group;
};

double used_by(const GradientSignature& group) { return BandUse{group.difference, group.band}.used(); }

/// NaN is worst of all; the first of equals stays.
bool worse(double used, const Worst& than) {
  return than.group.group.empty() || (!std::isnan(than.used) && !(used <= than.used));
}

Worst worst_of(const std::vector<ForcedStep>& steps) {
  Worst worst;
  for (const ForcedStep& step : steps) {
    for (const GradientSignature& group : step.groups) {
      if (worse(used_by(group), worst)) worst = {used_by(group), step.step, group};
    }
  }
  return worst;
}

Divergence parted(int64_t step, const std::string& phase, const std::string& where,
                  const std::string& expected, const std::string& actual) {
  Divergence found{step, phase, -1, where, DivergenceKind::band, expected, actual, ""};
  found.sentence = fmt::format("step {}, {}: {}: {}", step, phase, where, expected_found(expected, actual));
  return found;
}

/// A loss near 0 comes from scores that are not: rounding follows their size.
double loss_size(const ForcedValues& reference) {
  const double loss = std::abs(reference.loss.value_or(0));
  return reference.scores ? std::max(loss, largest_score(*reference.scores)) : loss;
}

/// The first thing at this step that is not as exact as it must be.
std::optional<Divergence> find_parting(const ForcedValues& a, const ForcedValues& b,
                                       const GradientJudgement& judgement, double exact) {
  if (a.loss.has_value() != b.loss.has_value()) {
    return parted(a.step, name_of(Phase::loss), "loss", a.loss ? "a loss" : "nothing",
                  b.loss ? "a loss" : "nothing");
  }
  if (a.loss && !(distance(*a.loss, *b.loss) <= exact * loss_size(a))) {
    return parted(a.step, name_of(Phase::loss), "loss", exact_number(*a.loss), exact_number(*b.loss));
  }
  const std::string phase = name_of(Phase::reduced_gradients);
  if (!judgement.missing.empty() || !judgement.misshapen.empty()) {
    const bool missing = !judgement.missing.empty();
    return parted(a.step, phase, missing ? judgement.missing.front() : judgement.misshapen.front(),
                  "the reference's gradient", missing ? "only one of the two" : "another shape");
  }
  ForcedStep groups{a.step, judgement.groups, 0, ""};
  const Worst worst = worst_of({groups});
  if (worst.used <= 1) return std::nullopt;
  const GradientSignature& g = worst.group;
  return parted(a.step, phase, "group " + g.group, "the reference's gradient",
                fmt::format("{} times it, cosine {}, residual {}; off by {} where {} is allowed",
                            short_number(g.ratio), short_number(g.cosine), short_number(g.residual),
                            short_number(g.difference), short_number(g.band)));
}

/// What the forced comparison, which looks at every phase, says of the same runs; nothing if it cannot.
std::optional<Mechanism> explain(ForcedInputs inputs) {
  inputs.run_a.clear();
  inputs.run_b.clear();
  inputs.repeats.clear();
  try {
    return judge_forced(inputs);
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

std::string certified_sentence(const Mechanism& result, double exact) {
  const Worst worst = worst_of(result.forced);
  std::string steps;
  for (const ForcedStep& step : result.forced) {
    steps += (steps.empty() ? "" : ", ") + std::to_string(step.step);
  }
  return fmt::format(
      "Certified: every parameter group's gradient is within {:g} of the plain reference's at step {}; "
      "{:.2g} % of "
      "that used, most by {} at step {}.",
      exact, steps, 100 * result.band_used, worst.group.group, worst.step);
}

}  // namespace

Mechanism judge_certificate(const ForcedInputs& inputs) {
  const double exact = inputs.band.exact;
  RunReader reference(inputs.forced_reference), cell(inputs.forced_cell);
  const ScoreSpec& scores = scores_of(trainer_of(reference, cell));
  Mechanism result;
  std::optional<Divergence> first;
  bool equal = true;
  while (true) {
    const std::optional<StepOfRun> a = reference.next(), b = cell.next();
    if (!a || !b) {
      if (!a && !b) break;
      throw TraceError(
          fmt::format("{}: lacks forced step {}", a ? cell.dir() : reference.dir(), a ? a->step : b->step));
    }
    if (a->step != b->step) {
      throw TraceError(fmt::format("{}: has forced step {} where {} has step {}", cell.dir(), b->step,
                                   reference.dir(), a->step));
    }
    const ForcedValues expected = forced_values(*a, reference.dir(), scores),
                       actual = forced_values(*b, cell.dir(), scores);
    const GradientJudgement judgement = judge_gradients(expected, actual, {}, inputs.band);
    ForcedStep step{a->step, judgement.groups, 0, ""};
    step.band_used = worst_of({step}).used;
    step.worst_tensor = worst_of({step}).group.group;
    if (!first) first = find_parting(expected, actual, judgement, exact);
    for (const GradientSignature& group : step.groups) equal = equal && group.difference == 0;
    result.forced.push_back(std::move(step));
  }
  result.band_used = worst_of(result.forced).used;
  if (result.forced.empty()) {
    result.sentence = "No gradients could be compared: the forced runs have no complete step.";
    return result;
  }
  if (!first) {
    result.verdict = equal ? VerdictKind::identical : VerdictKind::within_envelope;
    result.sentence = certified_sentence(result, exact);
    return result;
  }
  result.verdict = VerdictKind::divergent;
  result.first_divergence = first;
  result.sentence = "Not certified: " + first->sentence + ".";
  const std::optional<Mechanism> why = explain(inputs);
  if (why && why->first_divergence && why->first_divergence->step <= first->step) {
    result.first_divergence = why->first_divergence;
    result.cause = why->cause;
  }
  return result;
}

namespace {

/// Bytes that a rank receives from others.
double received_bytes(const CollectiveRecord& record, int world_size) {
  if (world_size < 2 || record.op == "reduce_gradients" || record.op == "barrier") return 0;
  double bytes = static_cast<double>(size_of(record.dtype));
  for (const int64_t size : record.shape) bytes *= static_cast<double>(size);
  return record.op == "all_gather" ? bytes * (world_size - 1) : bytes;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? kNaN : sum / static_cast<double>(values.size());
}

/// A tiled case computes every energy twice: the middle one speaks for a row, not a mixture.
double lower_median(std::vector<double> values) {
  if (values.empty()) return kNaN;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// What the rank's result says of its energies, as curve or metric; NaN if nothing.
double energies_of(const RankResult& result) {
  const auto curve = result.curves.find(kEnergies);
  if (curve != result.curves.end() && !curve->second.values.empty()) return mean(curve->second.values);
  const auto metric = result.metrics.find(kEnergies);
  return metric != result.metrics.end() ? metric->second : kNaN;
}

/// The larger one; of a NaN and a number, the number.
double larger(double a, double b) { return std::isnan(a) ? b : std::isnan(b) ? a : std::max(a, b); }

}  // namespace

StepCosts read_costs(const std::string& run_dir) {
  RunReader run(run_dir);
  const auto ranks = static_cast<std::size_t>(run.world_size());
  std::vector<std::vector<double>> energies(ranks);
  std::vector<double> bytes(ranks, 0);
  int64_t steps = 0;
  for (; const std::optional<StepOfRun> step = run.next(); ++steps) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (const Record& record : step->ranks[rank].records) {
        if (record.phase == Phase::collective) {
          bytes[rank] += received_bytes(record.collective, run.world_size());
        } else if (record.is_scalar && record.name == kEnergies) {
          energies[rank].push_back(record.value);
        }
      }
    }
  }
  StepCosts costs;
  costs.energies = kNaN;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const RankResult result = read_rank_result(fmt::format("{}/rank-{}.result.json", run_dir, rank));
    costs.energies = larger(costs.energies, larger(mean(energies[rank]), energies_of(result)));
    costs.bytes = std::max(costs.bytes, bytes[rank] / static_cast<double>(std::max<int64_t>(steps, 1)));
    costs.seconds =
        std::max(costs.seconds, result.train_seconds / static_cast<double>(std::max<int64_t>(steps, 1)));
  }
  return costs;
}

namespace {

std::string value_of(const CellResult& cell, const std::string& key) {
  for (const auto& [name, value] : cell.config) {
    if (name == key) return value;
  }
  return "";
}

const TrainerSpec& trainer_of(const CellResult& cell) {
  const TrainerSpec* trainer = find_trainer_spec(value_of(cell, "trainer"));
  return trainer != nullptr ? *trainer : *trainer_specs().front();
}

/// "infonce global": what stands for the objective in a cell's config.
std::string objective_of(const CellResult& cell) {
  std::string words = value_of(cell, "loss");
  const std::string named = value_of(cell, std::string(trainer_of(cell).naming_key));
  return words.empty() || named.empty() ? words + named : words + " " + named;
}

/// The first word of the key that names the objective: the plainest, which needs no other rank.
std::string plainest_of(const TrainerSpec& trainer) {
  const RunConfig defaults(trainer);
  const RunField* field = find_field(trainer, trainer.naming_key);
  const auto words = field != nullptr ? choices_of(field->spec, field->of(defaults)) : std::vector<std::string_view>{};
  return words.empty() ? "" : std::string(words.front());
}

/// The cell's config with the plainest objective, and perhaps another loss: what it is timed against.
std::string plainest_key(const CellResult& cell, const std::string& loss) {
  const TrainerSpec& trainer = trainer_of(cell);
  const std::string plainest = plainest_of(trainer);
  std::string key;
  for (const auto& [name, value] : cell.config) {
    key += name + "=" + (name == "loss" ? loss : name == trainer.naming_key ? plainest : value) + "\n";
  }
  return key;
}

/// The form of the loss that a trainer takes if nothing is said; empty if it has one alone.
std::string default_loss(const TrainerSpec& trainer) {
  const RunField* field = find_field(trainer, "loss");
  return field != nullptr ? text_of(field->of(RunConfig(trainer))) : "";
}

/// Seconds of the same case with the plainest objective (local negatives), by the same loss or else by the
/// trainer's usual one; nothing if it was not run.
class LocalTimes {
 public:
  explicit LocalTimes(const std::vector<CellResult>& cells) {
    for (const CellResult& cell : cells) {
      const TrainerSpec& trainer = trainer_of(cell);
      if (!cell.costs || value_of(cell, std::string(trainer.naming_key)) != plainest_of(trainer)) continue;
      seconds_[plainest_key(cell, value_of(cell, "loss"))] = cell.costs->seconds;
    }
  }
  std::optional<double> of(const CellResult& cell) const {
    for (const std::string& loss : {value_of(cell, "loss"), default_loss(trainer_of(cell))}) {
      const auto found = seconds_.find(plainest_key(cell, loss));
      if (found != seconds_.end()) return found->second;
    }
    return std::nullopt;
  }

 private:
  std::map<std::string, double> seconds_;
};

CertificateRow row_of(const std::string& loss, int world_size, const std::vector<const CellResult*>& cells,
                      const LocalTimes& local) {
  CertificateRow row;
  row.loss = loss;
  row.world_size = world_size;
  Worst worst;
  std::vector<double> energies, bytes, seconds;
  double own_time = 0, local_time = 0;
  for (const CellResult* cell : cells) {
    ++row.cases;
    row.certified += cell->verdict == VerdictKind::identical || cell->verdict == VerdictKind::within_envelope;
    if (cell->mechanism && !cell->mechanism->forced.empty()) {
      const Worst of_cell = worst_of(cell->mechanism->forced);
      if (worse(of_cell.used, worst)) {
        worst = of_cell;
        row.worst_cell = cell->scenario;
      }
    }
    if (!cell->costs) continue;
    if (!std::isnan(cell->costs->energies)) energies.push_back(cell->costs->energies);
    bytes.push_back(cell->costs->bytes);
    seconds.push_back(cell->costs->seconds);
    if (const std::optional<double> other = local.of(*cell)) {
      own_time += cell->costs->seconds;
      local_time += *other;
    }
  }
  row.worst = row.worst_cell.empty() ? kNaN : worst.used;
  row.worst_step = worst.step;
  row.worst_group = worst.group;
  row.costs = {lower_median(energies), lower_median(bytes), lower_median(seconds)};
  row.time_to_local = local_time > 0 ? own_time / local_time : kNaN;
  return row;
}

}  // namespace

Certificate certificate_of(const std::vector<CellResult>& cells, double exact) {
  Certificate certificate;
  certificate.exact = exact;
  std::vector<std::string> losses;
  std::map<std::string, std::map<int, std::vector<const CellResult*>>> by_loss;
  std::set<int64_t> steps;
  for (const CellResult& cell : cells) {
    const std::string loss = objective_of(cell);
    if (!by_loss.contains(loss)) losses.push_back(loss);
    by_loss[loss][std::atoi(value_of(cell, "layout").c_str())].push_back(&cell);
    if (!cell.mechanism) continue;
    for (const ForcedStep& step : cell.mechanism->forced) steps.insert(step.step);
  }
  certificate.steps.assign(steps.begin(), steps.end());
  const LocalTimes local(cells);
  for (const std::string& loss : losses) {
    for (const auto& [world_size, of_world] : by_loss[loss]) {
      certificate.rows.push_back(row_of(loss, world_size, of_world, local));
    }
  }
  return certificate;
}

}  // namespace lockstep

// Whether gradients are those of the plain reference decides.

namespace lockstep::questions::certificate {
namespace {

std::vector<std::string> sentences(const Results& results, const SortedCells& sorted) {
  std::vector<std::string> all;
  const std::size_t certified = sorted.identical.size() + sorted.within.size();
  const CertificateRow* worst = nullptr;
  if (results.certificate) {
    for (const CertificateRow& row : results.certificate->rows) {
      if (row.certified == row.cases && row.cases > 0 && (!worst || row.worst > worst->worst)) worst = &row;
    }
  }
  if (certified > 0 && worst) {
    all.push_back(
        fmt::format("{} of {} cases are certified: their gradients equal those of the plain reference in one "
                    "process to within {:g} of their size; at most {:.2g} of that is used, by {} with {}.",
                    certified, results.cells.size(), results.certificate->exact, worst->worst, worst->loss,
                    counted(worst->world_size, "rank")));
  }
  add(all, each_of(sorted.divergent, "are not certified", mechanism_divergence));
  add(all, each_of(sorted.undecided, "are undecided", undecided_in_words));
  return all;
}

}  // namespace

const QuestionJudge& judge() {
  static const QuestionJudge kJudge{
      .verdict = &verdict_by_mechanism,
      .judge_forced = &judge_certificate,
      .read_costs = &read_costs,
      .complete =
          [](const MatrixEvidence& evidence, Results& results) {
            results.certificate = certificate_of(results.cells, evidence.matrix().band.exact);
          },
      .sentences = &sentences,
  };
  return kJudge;
}

}  // namespace lockstep::questions::certificate
