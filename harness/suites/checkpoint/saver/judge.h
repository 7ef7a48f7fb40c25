#pragma once
// What a load found, compared with what was saved and what was told.

#include <string>
#include <vector>

#include "harness/lib/checkpoint/save.h"
#include "harness/suites/checkpoint/saver/content.h"
#include "harness/suites/engine/suite.h"

namespace lockstep::saver {

/// A save that may stand there.
struct KnownSave {
  Content content;
  int ranks = 1;
  bool may = true;  ///< may be what a load finds; if not, finding it is lost work
};

struct Judgement {
  std::string outcome;  ///< "whole, new", "torn"
  bool fault = false;
  std::string found;  ///< what was expected and what was found, if it is a fault
  int save = -1;      ///< which of the known saves was found; -1: none
  CaseVerdict verdict() const { return fault ? CaseVerdict::fault : CaseVerdict::good; }
};

/// Known saves, the newest first. A load must find one that may be found, with all of its bits, on every rank.
/// `none_may`: none of them counts for sure, and a refusal is as it must be.
Judgement judge_load(Contents& contents, const std::vector<KnownSave>& known, bool none_may,
                     const std::vector<checkpoint::LoadOutcome>& loaded);

/// What the ranks that live were told must be the same, of a committed save the remarks as well. Empty: it is.
std::string told_problem(const std::vector<checkpoint::SaveOutcome>& told, const std::vector<bool>& ended);

/// The case, and the timeline if it is a fault.
CaseResult case_of(const Judgement& judgement, const std::string& done, int64_t cases = 1);

}  // namespace lockstep::saver
