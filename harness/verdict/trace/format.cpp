#include "harness/verdict/trace/format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include <xxhash.h>

namespace lockstep {

static_assert(std::endian::native == std::endian::little,
              "traces are little-endian and written as memory lies");

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::snapshot:
      return "snapshot";
    case Phase::samples:
      return "samples";
    case Phase::random:
      return "random";
    case Phase::control:
      return "control";
    case Phase::scores:
      return "energies";
    case Phase::loss:
      return "loss";
    case Phase::local_gradients:
      return "local gradients";
    case Phase::collective:
      return "collective";
    case Phase::reduced_gradients:
      return "reduced gradients";
    case Phase::gradient_norm:
      return "gradient norm";
    case Phase::parameters:
      return "parameters";
    case Phase::evaluation:
      return "evaluation";
    case Phase::term_sums:
      return "term sums";
    case Phase::applied_gradients:
      return "applied gradients";
    case Phase::optimizer_state:
      return "optimizer state";
    case Phase::inputs:
      return "inputs";
    case Phase::gradient_parts:
      return "gradient parts";
    case Phase::averaged_weights:
      return "averaged weights";
  }
  return "unknown";
}

int place_of(Phase phase) {
  if (phase == Phase::applied_gradients) return 10 * static_cast<int>(Phase::gradient_norm) + 3;
  if (phase == Phase::optimizer_state) return 10 * static_cast<int>(Phase::parameters) + 3;
  if (phase == Phase::inputs) return 10 * static_cast<int>(Phase::random) + 3;
  if (phase == Phase::gradient_parts) return 10 * static_cast<int>(Phase::loss) + 3;
  if (phase == Phase::averaged_weights) return 10 * static_cast<int>(Phase::parameters) + 6;
  return 10 * static_cast<int>(phase);
}

std::span<const Phase> phases_in_order() {
  static const auto kOrdered = [] {
    std::array<Phase, static_cast<std::size_t>(kLastPhase) + 1> all;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Phase>(i);
    std::ranges::sort(all, {}, [](Phase phase) { return place_of(phase); });
    return all;
  }();
  return kOrdered;
}

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return 4;
    case DType::float64:
      return 8;
    case DType::int64:
      return 8;
    case DType::bfloat16:
    case DType::float16:
      return 2;
    case DType::boolean:
      return 1;
    case DType::int32:
      return 4;
  }
  return 1;
}

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::int64:
      return "int64";
    case DType::bfloat16:
      return "bfloat16";
    case DType::boolean:
      return "bool";
    case DType::float16:
      return "float16";
    case DType::int32:
      return "int32";
  }
  return "unknown";
}

double value_of_float16(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

int64_t TensorView::elements() const {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

uint64_t frame_head(uint32_t payload_bytes, FrameType type) {
  // The length has a check of its own: without it a damaged length would read as a trace that was cut short.
  const uint64_t head = payload_bytes | static_cast<uint64_t>(type) << 32;
  return head | (XXH3_64bits(&head, 5) & 0xffffff) << 40;
}

void append_definition(ByteSink& out, const Definition& definition) {
  out.raw(static_cast<uint8_t>(definition.kind));
  out.raw(static_cast<uint8_t>(definition.phase));
  const bool placed = definition.placement != nullptr;
  out.raw(static_cast<uint8_t>(definition.replicated | definition.has_stats << 1 | definition.has_ids << 2 |
                               definition.has_payload << 3 | definition.has_dot << 4 | placed << 5));
  out.raw(static_cast<uint8_t>(definition.dtype));
  out.varint(zigzag(definition.root));
  out.varint(definition.shape.size());
  for (int64_t extent : definition.shape) out.varint(zigzag(extent));
  out.text(definition.name);
  if (placed) {
    out.raw(static_cast<uint8_t>(definition.placement->shard));
    for (std::size_t i = 0; i < definition.shape.size(); ++i) {
      out.varint(zigzag(definition.placement->whole[i]));
      out.varint(zigzag(definition.placement->offset[i]));
    }
  }
  if (definition.kind != RecordKind::collective) return;
  out.text(definition.reduction);
  out.text(definition.group);
  out.text(definition.tag);
}

}  // namespace lockstep
