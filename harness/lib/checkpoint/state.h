#pragma once

#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// What a run goes on from: named kinds of state, each with tensors and plain values. Without LibTorch: a
// tensor is bytes with a type and a shape.

namespace lockstep::checkpoint {

/// A type's name as safetensors has it ("F32"), and the bytes of one element; nothing if there is no such
/// type.
std::optional<std::size_t> element_bytes(std::string_view dtype);

/// Who holds a tensor or values.
enum class Placement {
  replicated,  ///< every rank the same; rank 0 writes it
  sharded,     ///< each rank a range of the elements; together exactly all of them, each once
  per_rank,    ///< each rank its own, of the same name
};
std::string_view name_of(Placement placement);
std::optional<Placement> placement_named(std::string_view name);

/// Elements [begin, end) of a tensor in row-major order.
struct Slice {
  int64_t begin = 0, end = 0;
  bool operator==(const Slice&) const = default;
};

/// Elements [count * part / parts, count * (part + 1) / parts): what rank `part` of `parts` holds where
/// nothing else is said.
Slice even_slice(int64_t count, int part, int parts);

struct Tensor {
  std::string name;  ///< within its kind: "encoder.weight", "first_moment/encoder.weight"
  std::string dtype = "F32";
  std::vector<int64_t> shape;  ///< of the whole tensor, all ranks together; of a per-rank one: of this rank's
  Placement placement = Placement::replicated;
  Slice slice;                        ///< sharded: what this rank holds. Otherwise unused
  std::span<const std::byte> bytes;   ///< little endian, row major: the whole, or the slice
  std::shared_ptr<const void> keeps;  ///< what `bytes` points into, where the tensor owns it

  int64_t elements() const;  ///< of the whole
  /// What these bytes are: [0, elements()) unless sharded.
  Slice held() const { return placement == Placement::sharded ? slice : Slice{0, elements()}; }
};

/// A tensor that owns a copy of `bytes`.
Tensor owning(Tensor tensor, std::span<const std::byte> bytes);

/// One kind's state on one rank.
struct Section {
  std::vector<Tensor> tensors;
  nlohmann::json values = nlohmann::json::object();       ///< the same on every rank
  nlohmann::json rank_values = nlohmann::json::object();  ///< this rank's own
};

/// A kind of state, as files and code name it, and as sentences do.
struct Kind {
  std::string_view name, words;
};

/// The kinds that a trainer may have. A state names a random stream "stream/NAME", which needs no line here;
/// any other name that is none of these is our own mistake.
std::span<const Kind> kinds();
/// "optimizer step"; of "stream/dropout": "random stream dropout".
std::string words_of(std::string_view kind);

namespace kind {
inline constexpr std::string_view parameters = "parameters";
inline constexpr std::string_view moments = "moments";
inline constexpr std::string_view optimizer_step = "optimizer_step";
inline constexpr std::string_view scheduler = "scheduler";
/// Micro-batches done since the last update, and their gradients
inline constexpr std::string_view accumulation = "accumulation";
inline constexpr std::string_view sampler_epoch = "sampler_epoch";
inline constexpr std::string_view sampler_permutation = "sampler_permutation";
inline constexpr std::string_view sampler_cursor = "sampler_cursor";
inline constexpr std::string_view best_metric = "best_metric";
inline constexpr std::string_view patience = "patience";
inline constexpr std::string_view loss_scale = "loss_scale";
inline constexpr std::string_view averaged_weights = "averaged_weights";
inline constexpr std::string_view normalisers = "normalisers";
inline constexpr std::string_view control_values = "control_values";
/// Copies of control values that code keeps elsewhere
inline constexpr std::string_view cached_controls = "cached_controls";
/// What the run has measured so far and will tell at its end
inline constexpr std::string_view curves = "curves";
inline constexpr std::string_view stream_prefix = "stream/";
}  // namespace kind

/// All that one rank gives to a save, or gets from a load.
struct State {
  std::map<std::string, Section, std::less<>> sections;  ///< by kind
  Section& operator[](std::string_view kind_name);
  const Section* find(std::string_view kind_name) const;
};

/// A state with bytes of its own, so that training may go on while it is saved.
State snapshot_of(const State& state);

/// Where two states part, a sentence each, by kind and then by name: "sampler cursor: sample 371 expected,
/// 355 seen", "moments: first_moment/w differs in 3 of 8 elements, first in element 0", "early-stop patience:
/// missing". Empty: they are the same, bit for bit.
std::vector<std::string> state_differences(const State& expected, const State& seen);

// Where the reading of samples stands, so that a run with any number of ranks goes on with the next one.
//
// An epoch has one permutation of all samples, the same on every rank. A step of V ranks with B rows each
// takes the next V * B places of it; row i of rank r is place cursor + i * V + r, which is
// DistributedSampler's partition. The cursor counts places of the permutation and not steps or batches, so it
// means the same for any V and B: places below it have been seen, each once, and the others not yet. Between
// two micro-batches of one update it stands between their places. Rows are partitioned anew from the cursor on:
// what one rank would have read next another one reads.

struct SamplerPosition {
  int64_t epoch = 0;
  int64_t samples = 0;  ///< places of the epoch's permutation that count
  int64_t seed = 0;     ///< the permutation's, with its epoch
  /// Of the places' sample ids, so that another permutation is noticed; may be empty
  std::string permutation_hash;
  int64_t cursor = 0;  ///< places that have been seen
  bool operator==(const SamplerPosition&) const = default;
};

/// XXH3 of the ids in their order.
std::string permutation_hash(const std::vector<int64_t>& ids);

/// Puts it into the kinds sampler_epoch, sampler_permutation and sampler_cursor.
void put_position(State& state, const SamplerPosition& position);

// JSON whose bytes follow from its content, so that any other bytes are damage.

/// The object, sealed with its checksum, keys sorted, two spaces deep, with a line feed at its end.
std::string canonical_text(nlohmann::json object);

/// The object in such a text. `problem`: "not JSON, or cut short, …", "is damaged: …", or nothing.
nlohmann::json canonical_object(std::string_view text, std::string& problem);

/// Takes fields out of an object and remembers the first that is not what it should be: "step: a count
/// expected, found \"x\"".
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string& problem) : object_(object), problem_(problem) {}
  int64_t count(const char* name, int64_t least = 0);
  std::string text(const char* name);
  /// False where it is missing: an older format has none.
  bool flag(const char* name);
  /// 16 or 32 hex digits.
  std::string hash(const char* name, std::size_t digits);
  const nlohmann::json& list(const char* name);
  const nlohmann::json& object(const char* name);
  /// No other fields than `names` may stand there.
  void only(std::initializer_list<std::string_view> names);
  void expect(bool right, const std::string& field, const std::string& expected, const nlohmann::json& found);

 private:
  const nlohmann::json& at(const char* name);
  const nlohmann::json& object_;
  std::string& problem_;
};

}  // namespace lockstep::checkpoint
