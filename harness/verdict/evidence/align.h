#pragma once
// The traces of all ranks of a run, step by step.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/base/counted.h"
#include "harness/verdict/evidence/parts.h"
#include "harness/verdict/evidence/step_of_run.h"
#include "harness/verdict/trace/reader.h"

namespace lockstep {

/// Reads rank-<r>.trace of every rank of a run folder side by side. How many ranks there are stands in rank
/// 0's header.
class RunReader {
 public:
  /// Throws TraceError: a trace is missing, damaged, or of another rank or world size than its name and rank
  /// 0 say.
  explicit RunReader(const std::string& dir);
  const std::string& dir() const { return dir_; }
  int world_size() const { return static_cast<int>(readers_.size()); }
  const TraceHeader& header() const { return readers_.front().header(); }
  /// Of rank 0, with the settings of parameters that other ranks alone declare: those that they own. Null: none.
  std::unique_ptr<const Declared> declared_of_all() const;
  /// Parameters get the names that the other run of this model gives them, where all of these are its own names behind, or without,
  /// one prefix: the same model inside a module, or outside of it.
  void name_like(const std::string& reference_dir);

  /// The next step that every rank holds whole, or nothing at the end of the first rank that ends. Where all
  /// names of parameters begin with a wrapper's prefix ("module."), they stand without it; a prefix that the header
  /// declares is taken off wherever it stands.
  /// `used`: a step that this reader has given and nobody needs any more; its memory serves the next one.
  std::optional<StepOfRun> next(std::optional<StepOfRun> used = {});

  /// Once next() gave nothing: where and how the traces end if they are not whole; empty if they are.
  const std::string& end() const { return end_; }

 private:
  void find_end(const std::vector<bool>& ended);

  std::string dir_;
  std::vector<TraceReader> readers_;
  bool is_ours_ = false;
  OwnersState owners_;
  bool ended_ = false;
  std::string end_;
  std::string prefix_;  ///< see name_like
  std::map<std::string, std::vector<int64_t>> wholes_;  ///< the reference's parameters and their shapes, of name_like
  bool puts_prefix_ = false;
};

/// Six digits for reading; NaN and infinities as words.
std::string short_number(double value);

/// All digits that the double has.
std::string exact_number(double value);

/// "expected A, found B" for a sentence: numbers in six digits where six tell them apart, anything else as it
/// is.
std::string expected_found(const std::string& expected, const std::string& actual);

/// "rank 5", "all 8 ranks", "a rank unknown"; see kRankUnknown.
std::string rank_text(int rank, int world_size);

}  // namespace lockstep
