#pragma once
// What the fixtures of results are put together from.

#include <string>
#include <utility>
#include <vector>

#include "harness/answer/results/results.h"

namespace lockstep::fixture {

/// A forced step whose gradients are `ratio` times the reference's, with that residual, using that share of the band.
ForcedStep forced(int64_t step, double ratio, double residual, double share);
/// A mechanism within the band, using that share of it.
Mechanism within(double used);
/// A cell of that name and verdict, as expected if `expected` holds the verdict.
CellResult cell(const std::string& name, VerdictKind verdict, std::vector<VerdictKind> expected,
                bool control = false);
using Pairs = std::vector<std::pair<std::string, std::string>>;
/// The fields that a parity matrix turns.
Pairs config(const std::string& layout, const std::string& negatives, const std::string& rule,
             const std::string& scale, const std::string& rank_seed);
/// Everything of a parity matrix but its cells.
Results frame();
/// The same with what its texts say as facts of their own too, as a judge gives both: layouts, real ranks and
/// the lack of negatives of the config's rows, a name without its reference, the sentences of the summary.
Results with_facts(Results results);
/// Counted from the cells, as a judge would; what only it knows is given.
Summary summarize(const Results& results, int runs, int exit_code, const std::string& sentence);

}  // namespace lockstep::fixture
