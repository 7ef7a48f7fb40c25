#include <fmt/format.h>

#include <ostream>
#include <stdexcept>

#include "harness/base/errors.h"
#include "harness/cli/compare.h"
#include "harness/lib/flight/compare.h"
#include "harness/lib/flight/dump.h"
#include "harness/lib/flight/words.h"

namespace lockstep {
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
  }
  return mechanism;
}

std::optional<Mechanism> compare_flight_folders(const std::string& a, const std::string& b) {
  if (!flight::holds_records(a) && !flight::holds_records(b)) return std::nullopt;
  return compare_flight_records(records_in(a), records_in(b));
}

}  // namespace lockstep
