#include "harness/verdict/evidence/replays_beside.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>

#include <fmt/format.h>
#include <xxhash.h>

#include "harness/base/hex.h"
#include "harness/verdict/trace/trace_error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// XXH3 of a whole file.
std::string digest_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw TraceError(path + ": cannot be read");
  const std::unique_ptr<XXH3_state_t, void (*)(XXH3_state_t*)> state(XXH3_createState(), [](XXH3_state_t* it) { XXH3_freeState(it); });
  XXH3_64bits_reset(state.get());
  std::array<char, 1 << 16> part;
  while (file.read(part.data(), part.size()), file.gcount() > 0) {
    XXH3_64bits_update(state.get(), part.data(), static_cast<std::size_t>(file.gcount()));
  }
  return hex16(XXH3_64bits_digest(state.get()));
}

/// The folder of that name within, if it holds a trace.
std::string traces_in(const fs::path& folder, const std::string& name) {
  std::error_code error;
  const fs::path found = folder / name;
  return fs::exists(found / "rank-0.trace", error) ? found.string() : "";
}

}  // namespace

std::optional<ReplaysBeside> replays_beside(const std::string& reference_dir, const std::string& cell_dir) {
  std::error_code error;
  const fs::path of_reference = fs::path(reference_dir) / "replay", of_cell = fs::path(cell_dir) / "replay";
  if (!fs::is_directory(of_reference, error) || !fs::is_directory(of_cell, error)) return std::nullopt;
  const std::string digest = digest_of((fs::path(reference_dir) / "rank-0.trace").string());
  ReplaysBeside found;
  found.reference = traces_in(of_reference / digest, "single");
  found.cell = traces_in(of_cell / digest, "single");
  if (found.reference.empty() || found.cell.empty()) return std::nullopt;
  const auto take_both = [&](const char* name, std::string& reference, std::string& cell) {
    reference = traces_in(of_reference / digest, name);
    cell = traces_in(of_cell / digest, name);
    if (reference.empty() || cell.empty()) reference.clear(), cell.clear();
  };
  take_both("double", found.reference_twin, found.cell_twin);
  take_both("rows", found.reference_rows, found.cell_rows);
  for (int number = 1;; ++number) {
    const std::string repeat = traces_in(of_reference / digest, fmt::format("repeat-{}", number));
    if (repeat.empty()) break;
    found.repeats.push_back(repeat);
  }
  return found;
}

}  // namespace lockstep
