#include "harness/lib/checkpoint/names.h"

#include <fmt/format.h>

#include <charconv>

#include "harness/base/hex.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view kSaving = ".saving-";
constexpr std::string_view kReplaced = ".replaced-";

/// A number at the text's head, which is taken off; as this program writes it, without leading zeros.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  const std::size_t digits = static_cast<std::size_t>(end - text.data());
  if (digits > 1 && text[0] == '0') return std::nullopt;
  text.remove_prefix(digits);
  return number;
}

bool take(std::string_view& text, std::string_view head) {
  if (!text.starts_with(head)) return false;
  text.remove_prefix(head.size());
  return true;
}

struct Place {
  int64_t epoch = 0, step = 0;
};

std::optional<Place> take_place(std::string_view& text) {
  if (!take(text, "epoch_")) return std::nullopt;
  const std::optional<int64_t> epoch = take_number(text);
  if (!epoch || !take(text, "_step_")) return std::nullopt;
  const std::optional<int64_t> step = take_number(text);
  if (!step) return std::nullopt;
  return Place{*epoch, *step};
}

/// "-PID-NONCE", up to the end.
std::optional<Writer> take_writer(std::string_view text) {
  if (!take(text, "-")) return std::nullopt;
  const std::optional<int64_t> process = take_number(text);
  if (!process || !take(text, "-") || !from_hex16(text)) return std::nullopt;
  return Writer{*process, std::string(text)};
}

std::string with_writer(std::string_view head, std::string_view name, const Writer& writer) {
  return fmt::format("{}{}-{}-{}", head, name, writer.process, writer.nonce);
}

bool is_shard_name(std::string_view name) {
  if (!take(name, "rank-")) return false;
  const std::optional<int64_t> rank = take_number(name);
  if (!rank || !take(name, "-of-")) return false;
  const std::optional<int64_t> world_size = take_number(name);
  return world_size && *rank < *world_size && name == ".safetensors";
}

}  // namespace

std::string checkpoint_name(int64_t epoch, int64_t step) {
  return fmt::format("epoch_{}_step_{}", epoch, step);
}

std::string shard_name(int rank, int world_size) {
  return fmt::format("rank-{}-of-{}.safetensors", rank, world_size);
}

bool is_part_name(std::string_view name) {
  if (name == kManifest || name == kCommit || is_shard_name(name)) return true;
  return take(name, ".") && take(name, kCommit) && take_writer(name);
}

EntryName parse_entry_name(std::string_view name) {
  EntryName entry;
  std::string_view rest = name;
  if (take(rest, kSaving)) {
    entry.kind = EntryKind::saving;
  } else if (take(rest, kReplaced)) {
    entry.kind = EntryKind::replaced;
  } else if (take(rest, ".")) {
    if (!take(rest, kLatest) && !take(rest, kBest)) return {};
    const std::optional<Writer> writer = take_writer(rest);
    if (!writer) return {};
    entry.kind = EntryKind::temporary;
    entry.writer = *writer;
    return entry;
  } else {
    entry.kind = EntryKind::checkpoint;
  }
  const std::optional<Place> place = take_place(rest);
  if (!place) return {};
  entry.epoch = place->epoch;
  entry.step = place->step;
  if (entry.kind == EntryKind::checkpoint) return rest.empty() ? entry : EntryName{};
  const std::optional<Writer> writer = take_writer(rest);
  if (!writer) return {};
  entry.writer = *writer;
  return entry;
}

std::string saving_name(const std::string& checkpoint, const Writer& writer) {
  return with_writer(kSaving, checkpoint, writer);
}

std::string replaced_name(const std::string& checkpoint, const Writer& writer) {
  return with_writer(kReplaced, checkpoint, writer);
}

std::string temporary_name_of(std::string_view file, const Writer& writer) {
  return with_writer(".", file, writer);
}

}  // namespace lockstep::checkpoint
