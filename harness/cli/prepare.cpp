#include "harness/cli/prepare.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "harness/data/dataset.h"
#include "harness/launch/identity.h"
#include "harness/plan/errors.h"

namespace lockstep {
namespace {

auto key_of(const DataConfig& d) {
  return std::tie(d.source, d.train_file, d.test_file, d.context_steps, d.action_steps, d.stride,
                  d.holdout_series, d.min_context, d.shuffle, d.drop_last, d.series, d.series_steps,
                  d.channels, d.seed, d.correlation, d.block);
}

std::string hash_text(const std::string& text) {
  return fmt::format("{:016x}", static_cast<uint64_t>(XXH3_64bits(text.data(), text.size())));
}

}  // namespace

void PlannedData::add(const DataConfig& config, std::string hash) {
  hashes_.emplace_back(config, std::move(hash));
}

bool PlannedData::has(const DataConfig& config) const { return !hash_of(config).empty(); }

std::string PlannedData::hash_of(const DataConfig& config) const {
  // Configs of one matrix mostly share their data, and neighbours do.
  const auto same = [&](const auto& each) { return key_of(each.first) == key_of(config); };
  const auto found = std::find_if(hashes_.rbegin(), hashes_.rend(), same);
  return found == hashes_.rend() ? "" : found->second;
}

std::string PlannedData::hash() const {
  std::set<std::string> hashes;
  for (const auto& [config, hash] : hashes_) hashes.insert(hash);
  if (hashes.size() == 1) return *hashes.begin();
  std::string all;
  for (const std::string& hash : hashes) all += hash + "\n";
  return hash_text(all);
}

PlannedData check_data(const Matrix& matrix) {
  PlannedData data;
  const auto add = [&data](const RunConfig& config) {
    if (!data.has(config.data)) data.add(config.data, load_dataset(config.data).hash);
  };
  for (const Cell& cell : matrix.cells) {
    add(cell.config);
    add(cell.reference);
  }
  return data;
}

Prepared prepare(const MatrixSelection& selection) {
  Prepared prepared;
  prepared.config_text = read_config_text(selection.config);
  const Matrix matrix =
      parse_matrix(prepared.config_text, selection.config, {selection.set, selection.only, selection.seeds});
  prepared.plan.matrix = matrix;
  if (prepared.nothing_selected()) return prepared;
  prepared.out_dir = selection.out.empty() ? default_out_dir(matrix) : selection.out;
  check_out_dir(matrix, prepared.out_dir);
  prepared.rank_program = rank_program_path();
  prepared.data = check_data(matrix);
  std::string data_hash = prepared.data.hash();
  // The kept step that a replay begins from is read by its runs as data are.
  if (!matrix.replay.empty()) data_hash = hash_text(data_hash + hash_of_file(matrix.replay));
  prepared.identity = current_identity(prepared.rank_program, data_hash);
  prepared.plan = make_plan(matrix, prepared.out_dir, prepared.identity);
  return prepared;
}

std::string nothing_selected_text(const MatrixSelection& selection, const Prepared& prepared) {
  std::string names;
  const Overrides all{selection.set, "", selection.seeds};
  for (const Cell& cell : parse_matrix(prepared.config_text, selection.config, all).cells) {
    names += "\n  " + cell.name;
  }
  if (names.empty()) return fmt::format("{} has no cells\n", selection.config);
  return fmt::format("no cell of {} is selected by --only {}; its cells are:{}\n", selection.config,
                     shell_quoted(selection.only), names);
}

std::string plan_hash(const Plan& plan) {
  std::string all;
  for (const PlannedRun& run : plan.runs) all += run.hash + "\n";
  return hash_text(all);
}

}  // namespace lockstep
