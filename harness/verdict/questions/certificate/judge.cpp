// Whether gradients are those of the plain reference decides.

#include <fmt/format.h>

#include "harness/base/text.h"
#include "harness/verdict/questions/certificate/certificate.h"
#include "harness/verdict/questions/certification.h"
#include "harness/verdict/questions/question_judge.h"
#include "harness/verdict/questions/sentences.h"

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
