#pragma once
// What a run goes on from: named kinds of state, each with tensors and plain values. Without LibTorch: a
// tensor is bytes with a type and a shape.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace lockstep::checkpoint
