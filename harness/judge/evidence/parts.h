#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/judge/trace/reader.h"

// One step of a run, as all its ranks recorded it.

namespace lockstep {

/// What all ranks of a run saw at one step.
struct StepOfRun {
  int64_t step = 0;
  std::vector<StepRecords> ranks;
  std::shared_ptr<const Declared> declared = {};  ///< of the run; null: nothing
  /// By rank: records of tensors of which it holds a part. `ranks` has the whole ones in their place.
  std::vector<std::vector<Record>> parts = {};
  /// Where ranks hold parts of their local gradients: of those that together hold one, the first; it has the whole. Empty:
  /// none do.
  std::vector<int> bearers = {};
};

/// Null if the rank recorded none of that name in that phase.
const Record* find_record(const StepRecords& rank, Phase phase, std::string_view name);
std::vector<const Record*> records_of(const StepRecords& rank, Phase phase);
/// The sample ids of the rank's rows, in its order.
std::vector<int64_t> sample_ids(const StepRecords& rank);

/// One row of a record that says of which sample each of its rows is.
struct SampleRow {
  int64_t id = 0;
  int rank = 0;
  std::size_t place = 0;  ///< in the record
  std::vector<double> values;
};
/// Of all ranks' records of that name, as far as they kept their values.
std::vector<SampleRow> sample_rows(const StepOfRun& step, Phase phase, std::string_view name);
/// The same by sample; of one that the step has twice the first.
std::map<int64_t, SampleRow> rows_by_sample(const StepOfRun& step, Phase phase, std::string_view name);

/// "float32 [2, 3]".
std::string form_text(const Record& record);

/// Those of so many ranks of which it is so.
template <typename Rank = std::size_t, typename Is>
std::vector<Rank> ranks_where(std::size_t count, Is is) {
  std::vector<Rank> ranks;
  for (std::size_t rank = 0; rank < count; ++rank)
    if (is(rank)) ranks.push_back(static_cast<Rank>(rank));
  return ranks;
}

/// Null where there is none.
inline const StepOfRun* pointer_to(const std::optional<StepOfRun>& step) { return step ? &*step : nullptr; }

// Tensors of which ranks hold parts, put together from the placements that their records state.

/// Puts whole records in the place of parts, where the parts of a tensor are all there: on every rank, as one that all hold alike,
/// with its values on rank 0; of what is a rank's own (local gradients, their parts, inputs) on the first of the ranks that
/// together hold one. A rank whose part is not what another rank holds of the same place keeps a whole of its own. What
/// cannot be put together stays as it is. A replicated tensor is hashed in one piece, if its values are there.
void put_together(StepOfRun& step);

/// The optimizers' state where parameters have owners: a rank moves what it owns, all take the result, and the state that a rank has of the others'
/// parameters says nothing. Wherever ranks end a step with one parameter in equal bits and with its state in others, all of them get the state of the
/// rank on which it moved; where no rank can be told, none has it. The number of updates is the largest. Steps are given in their order.
class OwnersState {
 public:
  void put_together(StepOfRun& step);

 private:
  std::map<std::string, std::vector<uint64_t>> last_;  ///< of state that ranks hold otherwise: its hash after the step before, by rank
  std::map<std::string, std::size_t> owners_;          ///< as far as steps have shown
};

/// The part of that tensor that the rank holds; null if it holds none.
const Record* find_part(const StepOfRun& step, std::size_t rank, Phase phase, const std::string& name);

// The traces of all ranks of a run, step by step.

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

/// "rank 5", "all 8 ranks", "a rank unknown"; see kRankUnknown.
std::string rank_text(int rank, int world_size);

/// The one rank of these, or kAllRanks if it is every rank of several; else the first. Of none kRankUnknown.
int first_or_all(const std::vector<int>& ranks, const StepOfRun& step);

// Which ranks of a run hold the same parameters: what replicas reduce together, and whose rows make the batch.

/// The ranks whose local gradients are reduced with rank 0's: as the header declares, or else all, if each holds rank
/// 0's parameters, or shards of parameters whose gradients it has whole; none where the traces do not tell.
std::vector<int> ranks_reduced_together(const StepOfRun& step);

/// The ranks whose rows together are the step's batch. A rank that has an earlier rank's rows and holds other parameters, or other
/// shards of them, is a part of the same replica.
std::vector<int> ranks_with_rows(const StepOfRun& step);

/// The first of these ranks whose local gradient of some tensor has another shape or type than the reference's; where ranks of the
/// reference do not have one form, or none that a rank here has, than most have. -1: none.
struct OtherForm {
  int rank = -1;
  std::string tensor, expected, actual;
  bool other_shape = false;
};
OtherForm local_gradient_of_another_form(const StepOfRun& step, const std::vector<int>& ranks, const StepOfRun& reference);

}  // namespace lockstep
