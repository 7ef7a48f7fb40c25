#include "reports/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/base/text.h"
#include "harness/verdict/plan/question.h"
#include "harness/verdict/results/metric_names.h"
#include "harness/verdict/stats/outcome.h"
#include "harness/verdict/stats/power.h"
#include "harness/verdict/stats/rounding.h"
#include "harness/verdict/stats/tests.h"
#include "reports/numbers.h"
#include "reports/text.h"

namespace lockstep {
namespace {

bool leaves_out_zero(const MetricDifference& d) { return d.interval.low > 0 || d.interval.high < 0; }

}  // namespace

std::string metric_words(std::string_view metric) {
  const MetricName name = metric_name(metric);
  if (name.spec == nullptr) return clean_line(metric);
  if (name.training) return std::string(name.spec->train_words);
  std::string words(name.spec->family.empty() ? name.spec->name : name.spec->family);
  if (!name.spec->way.empty()) words = fmt::format("{}-way {}", name.spec->way, words);
  if (!name.spec->qualifier.empty()) {
    std::string qualifier(name.spec->qualifier);
    std::ranges::replace(qualifier, '-', ' ');
    words += ", " + qualifier;
  }
  return name.area ? words + ", area under the curve" : words;
}

std::string name_words(std::string_view name) {
  constexpr int kLongest = 120;
  return name.empty() ? "(no name)" : short_line(name, kLongest);
}

double chance_of(std::string_view metric) {
  const MetricName name = metric_name(metric);
  return name.spec == nullptr || name.area ? -1 : name.spec->chance.value_or(-1);
}

bool has_direction(const MetricDifference& difference) { return difference.has_direction; }

bool disagrees_in_sign(const MetricDifference& primary, const MetricDifference& other) {
  if (!leaves_out_zero(primary) || !leaves_out_zero(other)) return false;
  if (!has_direction(primary) || !has_direction(other)) return false;
  const auto better = [](const MetricDifference& d) { return (d.mean > 0) == d.higher_is_better; };
  return better(primary) != better(other);
}

std::string divergence_words(const Divergence& divergence) {
  if (!divergence.sentence.empty()) return clean_line(divergence.sentence);
  std::string text = place_words(divergence);
  if (!divergence.where.empty()) text += ": " + clean_line(divergence.where);
  return text;
}

std::string place_words(const Divergence& divergence) {
  std::string text = fmt::format("step {}", divergence.step);
  if (!divergence.phase.empty()) {
    std::string phase = clean_line(divergence.phase);
    std::replace(phase.begin(), phase.end(), '_', ' ');
    text += ", " + phase;
  }
  if (divergence.rank >= 0) text += fmt::format(", rank {}", divergence.rank);
  return text;
}

std::string failure_words(const Failure& failure) {
  std::string text = failure.rank >= 0 ? fmt::format("rank {} ", failure.rank) : "";
  text += to_word(failure.kind);
  if (failure.step >= 0) text += fmt::format(" at step {}", failure.step);
  if (!failure.operation.empty()) text += " in " + clean_line(failure.operation);
  if (!failure.message.empty()) text += ": " + clean_line(failure.message);
  return text;
}

std::string mechanism_words(const CellResult& cell) {
  if (!cell.mechanism) return "mechanism not compared";
  const Mechanism& mechanism = *cell.mechanism;
  std::string text = style_of(mechanism.verdict).words;
  if (mechanism.verdict == VerdictKind::within_envelope) text += " (" + used_words(mechanism) + ")";
  return text;
}

const Cause* cause_of(const CellResult& cell) {
  const std::optional<Cause>& cause = cell.failure || !cell.mechanism ? cell.cause : cell.mechanism->cause;
  return cause && cause->code != "unexplained" ? &*cause : nullptr;
}

std::string with_cause(std::string text, const Cause& cause) {
  text += (text.empty() ? "Cause: " : text.ends_with('.') ? " Cause: " : "; cause: ") + clean_line(cause.code);
  if (cause.code == "unexplained" && !cause.evidence.empty()) text += ": " + clean_line(cause.evidence);
  if (!cause.remedy.empty()) text += ". " + clean_line(cause.remedy);
  return text;
}

namespace {

/// seeds_in_words for a column: "80 % chance to decide: 34 seeds if there is no difference, 121 if it is half the margin".
std::string needed_words(const Outcome& o) {
  const auto count = [](int seeds) {
    return seeds >= kMostSeeds ? std::string("10,000 or more") : std::to_string(seeds);
  };
  if (o.n < 2) return "one seed gives no spread: at least 2 are needed";
  if (leaves_out(o.primary.interval, 0)) {
    return leaves_out(o.primary.interval, o.margin / 2) || o.seeds_needed_half <= o.n
               ? std::string("not 0: the difference may be larger than the margin")
               : fmt::format("not 0; {:.0f} % chance to decide: {} seeds if the difference is half the margin", 100 * kWantedPower,
                             count(o.seeds_needed_half));
  }
  if (o.seeds_needed > o.n) {
    return fmt::format("{:.0f} % chance to decide: {} seeds if there is no difference, {} if it is half the margin", 100 * kWantedPower,
                       count(o.seeds_needed), count(o.seeds_needed_half));
  }
  if (o.seeds_needed_half <= o.n) return "the difference may be larger than the margin";
  return fmt::format("the difference may be close to the margin; {:.0f} % chance to decide: {} seeds if it is half the margin",
                     100 * kWantedPower, count(o.seeds_needed_half));
}

}  // namespace

std::string more_seeds_words(const Results& results) {
  const auto counts = [](const CellResult& cell) {
    return !cell.noise && !cell.anchor && !cell.failure && cell.outcome && cell.outcome->n >= 2 &&
           cell.verdict == VerdictKind::inconclusive && cell.outcome->seeds_needed_half > cell.outcome->n;
  };
  if (std::ranges::none_of(results.cells, counts)) return "";
  return "These numbers hold for a new run of so many seeds; to extend this one use seeds: auto.";
}

namespace {

/// The keys in which the configs differ although nobody asked about them.
std::string undeclared_words(const CellResult& cell) {
  std::vector<ConfigDifference> undeclared;
  std::ranges::copy_if(cell.config_differences, std::back_inserter(undeclared), std::not_fn(&ConfigDifference::declared));
  return undeclared.empty() ? "" : "configs differ in " + clean_line(differences_text(undeclared));
}

}  // namespace

std::string note_words(const CellResult& cell) {
  std::string text;
  if (cell.certification.divergence) {
    text = "real ranks differ from the emulated run: " + divergence_words(*cell.certification.divergence);
  } else if (cell.failure) {
    text = failure_words(*cell.failure);
    if (cell.cause) text = with_cause(std::move(text), *cell.cause);
  } else if (cell.power_control && !is_missed_control(cell)) {
    text = "found, as required";
  } else if (cell.mechanism && cell.mechanism->verdict == VerdictKind::divergent &&
             cell.mechanism->first_divergence) {
    text = divergence_words(*cell.mechanism->first_divergence);
    if (cell.mechanism->cause) text = with_cause(std::move(text), *cell.mechanism->cause);
  } else if (cell.mechanism) {
    const bool agree = cell.mechanism->verdict == VerdictKind::within_envelope;
    text = agree ? fmt::format("gradients agree ({})", used_words(*cell.mechanism)) : "mechanism " + mechanism_words(cell);
    if (cell.verdict == cell.mechanism->verdict) {
      text = agree
                 ? used_words(*cell.mechanism) + " used"
                 : clean_line(cell.mechanism->sentence);
    }
  }
  if (cell.outcome && cell.verdict == VerdictKind::inconclusive && cell.outcome->seeds_needed > 0) {
    const std::string needed = needed_words(*cell.outcome);
    text = needed + (text.empty() ? "" : "; " + text);
  }
  if (cell.outcome && cell.verdict != VerdictKind::failed) {
    const Outcome& o = *cell.outcome;
    std::string doubt;
    if (is_skewed(o)) doubt = fmt::format("skewed differences (p {:.2g}): the t test may err", o.p_skewed);
    if (is_unsteady(o)) {
      doubt += fmt::format("{}rounding alone changes it by {}{}", doubt.empty() ? "" : "; ",
                           format_difference(o.rounding->shift, o.margin), o.rounding->of_cell ? "" : " or more");
    }
    if (!doubt.empty()) text = doubt + (text.empty() ? "" : "; " + text);
  }
  const std::string configured = cell.failure ? "" : undeclared_words(cell);
  if (!configured.empty() && !text.starts_with("Configs differ")) text = configured + (text.empty() ? "" : "; " + text);
  if (!cell.failed_saves.empty()) text += (text.empty() ? "" : "; ") + ("checkpoints: " + clean_line(cell.failed_saves));
  std::string expectation;
  if (is_missed_control(cell)) {
    expectation = "a power control must be found to differ: this matrix cannot tell";
  } else if (!cell.as_expected) {
    expectation = "expected " + expected_words(cell);
  }
  return expectation.empty() || text.empty() ? expectation + text : expectation + "; " + text;
}

Certified certified_of(const Results& results) {
  int wanted = 0, agreed = 0, by_band = 0, world_size = -1;
  double most_used = 0;
  int64_t fewest = -1, most = -1;
  std::string backend;
  for (const CellResult& cell : results.cells) {
    const Certification& c = cell.certification;
    if (!c.wanted) continue;
    ++wanted;
    if (c.divergence || c.steps < c.asked || c.steps == 0) continue;
    ++agreed;
    if (c.certify == kByBand) {
      ++by_band;
      most_used = std::max(most_used, c.band_used);
    }
    fewest = fewest < 0 ? c.steps : std::min(fewest, c.steps);
    most = std::max(most, c.steps);
    const int ranks = world_size_of(cell);
    world_size = world_size == -1 || world_size == ranks ? ranks : 0;
    backend = backend.empty() || backend == c.backend ? c.backend : " ";
  }
  if (wanted == 0) return {};
  if (agreed == 0) return {"", fmt::format("none of {} certified on real ranks", counted(wanted, "cell"))};
  std::string text = by_band == 0 ? "certified bit for bit on " : by_band == agreed ? "within tolerance on " : "certified on ";
  if (world_size > 0) text += fmt::format("{} ", world_size);
  text += "real ";
  if (backend != " " && !backend.empty()) text += backend_words(backend) + " ";
  const std::string steps = fewest == most ? fmt::format("{}", most) : fmt::format("{} to {}", fewest, most);
  const std::string cells = agreed == wanted ? "each cell" : fmt::format("{} of {} cells", agreed, wanted);
  std::string what = fmt::format("{} steps of {}", steps, cells);
  if (by_band > 0) {
    if (by_band < agreed) what += fmt::format(", {} bit for bit and {} within tolerance", agreed - by_band, by_band);
    what += fmt::format(", at most {:.2g} % of tolerance used; {}", 100 * most_used, band_reason_words(backend));
  }
  return {text + "ranks", std::move(what)};
}

std::string certification_words(const Results& results) {
  const Certified certified = certified_of(results);
  return certified.how.empty() ? certified.what : certified.how + ": " + certified.what;
}

std::string declaration_words(const Results& results) {
  const Declaration none, &d = results.declaration ? *results.declaration : none;
  const int unknown = d.runs - d.before - d.changed;
  const auto part = [&d](int runs) { return fmt::format("{} of {} runs", runs, d.runs); };
  if (d.changed > 0) {
    std::vector<std::string> changes;
    for (const DeclaredChange& change : d.changes)
      changes.push_back(fmt::format("{} was {}", clean_line(change.what), clean_line(change.was)));
    return fmt::format("changed after {} ({} when they were planned){}",
                       d.changed == d.runs ? "the runs" : part(d.changed), join_words(changes),
                       unknown > 0 ? fmt::format("; unknown for {}", part(unknown)) : "");
  }
  if (d.before == 0) return "time of declaration unknown";
  if (unknown == 0) return "declared before anything ran";
  return fmt::format("declared before {}; unknown for the others", part(d.before));
}

std::string changed_words(const Results& results) {
  const bool judged = question_named(results.question).by_outcome;
  if (!judged || !results.declaration || results.declaration->changed == 0) return "";
  return fmt::format("Margin ± {:g} of {}, {}.", results.primary.margin, metric_words(results.primary.metric),
                     declaration_words(results));
}

std::string question_words(const Results& results) {
  const std::string seeds = counted(static_cast<int64_t>(results.seeds.size()), "seed");
  const std::string margin = fmt::format("margin ± {:g}", results.primary.margin);
  if (results.detection) {
    return fmt::format("{}: which planted faults are found and named correctly, {}, {}", results.question,
                       counted(static_cast<int64_t>(results.cells.size()), "trial"),
                       counted(results.steps, "step"));
  }
  if (results.certificate) {
    return fmt::format("{}: do gradients equal those of the plain reference to {:g}, {}", results.question,
                       results.certificate->exact,
                       counted(static_cast<int64_t>(results.cells.size()), "case"));
  }
  const QuestionPlan& asked = question_named(results.question);
  if (!asked.by_outcome) {
    return fmt::format("{}: {}, {}, {}", asked.name, asked.help, counted(results.steps, "step"), seeds);
  }
  return fmt::format("{}: {}, {}, {}{}", asked.name, clean_line(results.primary.metric), margin,
                     counted(static_cast<int64_t>(results.seeds.size()), "paired seed"),
                     results.primary.test == OutcomeTest::sign ? ", sign test of the median" : "");
}

std::string backend_words(std::string_view backend) {
  if (backend == "gloo") return "Gloo";
  if (backend == "nccl") return "NCCL";
  if (backend == "gloo_cuda") return "Gloo (GPU)";
  return clean_line(backend);
}

std::string band_reason_words(std::string_view backend) {
  return (backend.empty() || backend == " " ? "such a backend" : backend_words(backend)) + " does not specify its summation order";
}

int world_size_of(const CellResult& cell) { return cell.layout ? cell.layout->world_size : 0; }

std::vector<std::string> cell_anchors(const Results& results) {
  std::vector<std::string> anchors;
  for (const CellResult& cell : results.cells) {
    const std::string base = "cell-" + slug(cell.scenario);
    std::string anchor = base;
    for (int copy = 2; std::find(anchors.begin(), anchors.end(), anchor) != anchors.end(); ++copy) {
      anchor = base + "-" + std::to_string(copy);
    }
    anchors.push_back(anchor);
  }
  return anchors;
}

const ReferenceResult* reference_of(const Results& results, const CellResult& cell) {
  const auto found =
      std::find_if(results.references.begin(), results.references.end(),
                   [&](const ReferenceResult& reference) { return reference.name == cell.reference; });
  return found == results.references.end() ? nullptr : &*found;
}

}  // namespace lockstep
