#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/files.h"
#include "harness/judge/trace/record.h"
#include "harness/plan/config/run_config.h"

// What a tracer of any trainer may say of the run that it traces: names, roles, hyperparameters, parallel groups. All
// of it is optional; what is not declared is not known, and nothing is named from it.

namespace lockstep {

/// Parameters whose names begin with `prefix`, after the prefixes to strip.
struct DeclaredParameters {
  std::string prefix;
  std::string role;                      ///< empty: none
  double rate_factor = 1;                ///< times the step's learning rate
  std::optional<double> weight_decay;    ///< instead of the optimizer's
};

/// The optimizer as PyTorch's of that name computes it.
struct DeclaredOptimizer {
  std::string name;  ///< sgd, adam, adamw; any other: updates are not recomputed
  double momentum = 0, weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
};

struct Declared {
  std::vector<std::string> strip_prefixes;  ///< of names of parameters: "module."
  std::vector<DeclaredParameters> parameters;
  std::optional<DeclaredOptimizer> optimizer;
  double clip_norm = 0;        ///< of the reduced gradient; 0: none
  int64_t accumulation = 1;    ///< micro-steps of a step
  int64_t global_batch = 0;    ///< rows of a step on all ranks; 0: not known
  double base_rate = 0;        ///< before schedule and rules; 0: not known
  std::string precision;       ///< float32, float64, bfloat16, float16: of what gradients are computed in
  std::string gradient_reduction;  ///< mean, sum; empty: mean
  /// Ranks by the name of the group that they talk in.
  std::map<std::string, std::vector<int>, std::less<>> groups;
  /// Groups of ranks whose local gradients are reduced together; empty: all ranks are one.
  std::vector<std::vector<int>> replicas;
  /// Random streams by name: "rank" (another state on each), "same" (one state on all), "sample" (keyed by sample).
  std::map<std::string, std::string, std::less<>> streams;
  double average_decay = 0;  ///< of averaged weights: average = d * average + (1 - d) * parameter; 0: not known
};

/// Of the entries whose prefix the name begins with that of the longest, or null.
const DeclaredParameters* entry_of(const std::vector<DeclaredParameters>& all, std::string_view parameter);

/// Nothing if `json` is not an object of this form; `why` then says what is wrong.
std::optional<Declared> declared_from_json(const nlohmann::json& json, int world_size, std::string& why);
nlohmann::json to_json(const Declared& declared);

// What a trace says of itself first, and its frame as JSON text.

struct TraceHeader {
  std::string config_hash;
  int rank = 0;
  int world_size = 1;
  std::string trainer;
  TraceLevel level = TraceLevel::hash;
  std::string started_by;  ///< "emulated", "real", "replay", or the name of another tracer
  std::shared_ptr<const Declared> declared = {};  ///< null: nothing
};

std::string header_to_json(const TraceHeader& header);

/// Nothing if the text is not such a header; `why` then says what is wrong with it.
std::optional<TraceHeader> header_from_json(std::string_view text, std::string& why);

// The append-only, framed, checksummed trace of one rank.

/// Is a value this rank's own, or one that all ranks hold alike (and rank 0 writes out for all)?
enum class Sharing { own, replicated };

/// How much of a tensor to keep. `by_level` follows the trace's level; `whole` keeps the values at any level
/// but `off`.
enum class Keep { by_level, whole };

/// Writes records in call order; a step becomes one frame on disk when it ends. At level `off` every call
/// returns at once and no file is made. Throws MachineError (disk full) naming the file.
class TraceWriter {
 public:
  /// `part_bytes`: a step of more than that goes to disk in several frames; no frame may have 4 GiB.
  TraceWriter(const std::string& path, const TraceHeader& header, Files& files = real_files(),
              std::size_t part_bytes = kMostPartBytes);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  bool enabled() const;
  TraceLevel level() const;
  /// Are a tensor's values kept that asks for `keep`, on rank 0 at least?
  bool keeps_whole(Keep keep) const { return keep == Keep::whole || level() == TraceLevel::full; }

  void begin_step(int64_t step);
  void samples(std::span<const int64_t> ids);
  /// A random stream: `hash` adds up over ranks for streams keyed by sample, `draws` is how many numbers were
  /// taken.
  void random(std::string_view stream, uint64_t hash, uint64_t draws);
  void scalar(Phase phase, std::string_view name, double value, Sharing sharing);
  /// `ids`: sample ids of the rows of a row-sharded tensor, or empty. A tensor with a placement is a rank's own part of it.
  TensorStats tensor(Phase phase, std::string_view name, const TensorView& tensor, Sharing sharing,
                     std::span<const int64_t> ids = {}, Keep keep = Keep::by_level);
  void collective(const CollectiveRecord& record);
  void end_step();
  /// A whole step as a reader gave it: its bytes are those that the writer of that trace wrote.
  void copy(const StepRecords& step);
  /// Between two steps: every call until `go_on` returns at once, as at level `off`.
  void pause();
  void go_on();
  /// Writes what is left and the end mark: a trace without it was cut short.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::unique_ptr<Impl> paused_;
};

}  // namespace lockstep
