#include "harness/cli/compare_mlperf.h"

#include <filesystem>
#include <ostream>

#include "harness/base/clean_text.h"
#include "harness/base/counted.h"
#include "harness/base/errors.h"
#include "harness/cli/commands.h"
#include "harness/cli/compare.h"
#include "harness/cli/compare_json.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Every cell or file of the other side against the same reference points.
std::vector<MlperfComparison> against_points(const std::vector<RunGroup>& reference,
                                             const std::vector<RunGroup>& submissions, const Given& given) {
  std::vector<MlperfComparison> comparisons;
  for (const RunGroup& submission : submissions)
    comparisons.push_back(compare_groups(reference, submission, given));
  return comparisons;
}

}  // namespace

int compare_mlperf_command(const CompareCommandOptions& options, const Console& console) {
  const Given given = given_of(options);
  const auto has_cells = [](const std::string& word) {
    return is_output_folder(word) || !is_mlperf_files(word);
  };
  std::vector<MlperfComparison> comparisons;
  if (has_cells(options.run_a) && has_cells(options.run_b)) {
    MatchedArms matched =
        match_arms(read_arms(options.run_a, given.metric), read_arms(options.run_b, given.metric));
    require_same_question(matched, given, options.across);
    comparisons = compare_cells(matched, given);
  } else {
    const std::vector<RunGroup> reference = groups_of(options.run_a, given);
    if (reference.size() > 1 && reference.front().arm)
      throw ConfigError(options.run_a + ": name the cell that is the reference: " + options.run_a +
                        ":CELL");
    if (fs::is_regular_file(options.run_b) && options.run_b.ends_with(".json"))
      throw ConfigError(options.run_b + ": contains reference points; RUN_B must be runs to compare with them");
    const std::vector<RunGroup> submissions = groups_of(options.run_b, given);
    if (submissions.size() > 1 && !submissions.front().arm)
      throw ConfigError(options.run_b + ": its logs have several batch sizes; a submission has one");
    comparisons = against_points(reference, submissions, given);
  }
  console.out << (options.json ? clean_json(mlperf_json(comparisons)) : clean_text(mlperf_text(comparisons)));
  std::vector<int> codes;
  for (const MlperfComparison& comparison : comparisons) {
    const MlperfVerdict verdict = comparison.judgement.verdict;
    codes.push_back(verdict == MlperfVerdict::passed   ? kExitAsExpected
                    : verdict == MlperfVerdict::failed ? kExitUnexpected
                                                       : kExitUndecided);
  }
  return worst_exit_code(codes);
}

}  // namespace lockstep
