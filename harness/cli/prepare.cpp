#include "harness/cli/prepare.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "harness/data/dataset.h"
#include "harness/launch/identity.h"
#include "harness/plan/errors.h"
#include "harness/plan/read_file.h"

namespace lockstep {
namespace {

auto key_of(const DataConfig& d) {
  return std::tie(d.source, d.train_file, d.test_file, d.context_steps, d.action_steps, d.stride,
                  d.holdout_series, d.min_context, d.shuffle, d.drop_last, d.series, d.series_steps,
                  d.channels, d.seed);
}

/// Configs of one matrix mostly share their data: each kind once.
std::vector<const DataConfig*> distinct_data(const Matrix& matrix) {
  std::vector<const DataConfig*> found;
  const auto add = [&](const DataConfig& data) {
    const auto same = [&](const DataConfig* other) { return key_of(*other) == key_of(data); };
    if (std::none_of(found.rbegin(), found.rend(), same)) found.push_back(&data);
  };
  for (const Cell& cell : matrix.cells) {
    add(cell.config.data);
    add(cell.reference.data);
  }
  return found;
}

std::string hash_text(const std::string& text) {
  return fmt::format("{:016x}", static_cast<uint64_t>(XXH3_64bits(text.data(), text.size())));
}

}  // namespace

std::string check_data(const Matrix& matrix) {
  std::set<std::string> hashes;
  for (const DataConfig* data : distinct_data(matrix)) {
    load_dataset(*data);
    hashes.insert(data_hash(*data));
  }
  if (hashes.size() == 1) return *hashes.begin();
  std::string all;
  for (const std::string& hash : hashes) all += hash + "\n";
  return hash_text(all);
}

Prepared prepare(const MatrixSelection& selection) {
  Prepared prepared;
  prepared.config_text = read_config_text(selection.config);
  const Matrix matrix = parse_matrix(prepared.config_text, selection.config,
                                     {selection.set, selection.only, selection.seeds});
  prepared.plan.matrix = matrix;
  if (prepared.nothing_selected()) return prepared;
  prepared.out_dir = selection.out.empty() ? default_out_dir(matrix) : selection.out;
  check_out_dir(matrix, prepared.out_dir);
  prepared.rank_program = rank_program_path();
  prepared.identity = current_identity(prepared.rank_program, check_data(matrix));
  prepared.plan = make_plan(matrix, prepared.out_dir, prepared.identity);
  return prepared;
}

std::string nothing_selected_text(const Prepared& prepared, const MatrixSelection& selection) {
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
