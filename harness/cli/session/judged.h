#pragma once
// OUT/judged.json: what the results in OUT were judged from, so that nothing is judged twice.

#include <optional>
#include <string>

#include "harness/base/files.h"
#include "harness/cli/session/prepare.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

/// What a judgement depends on: the config as it was read when the matrix was planned, the command, the
/// programs, the data, and the checksums of every run's files.
class Judged {
 public:
  /// Looks at the runs as they are now: construct it before they are judged.
  Judged(const Prepared& prepared, const MatrixSelection& selection);

  /// The results that stand in OUT, if they were judged from the same, and neither they nor a report nor a
  /// kept step has been touched since.
  std::optional<Results> standing() const;
  /// Notes that the results and reports now in OUT are the judgement. Throws MachineError.
  void note(const Results& results, Files& files = real_files()) const;

 private:
  std::string path() const { return out_dir_ + "/judged.json"; }

  std::string out_dir_, key_;
};

}  // namespace lockstep
