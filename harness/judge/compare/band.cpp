#include "harness/judge/compare/band.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/judge/compare/forced/update.h"
#include "harness/judge/compare/forced/values.h"
#include "harness/judge/compare/step_pairs.h"
#include "harness/judge/trace/reader.h"
#include "harness/judge/trace/writer.h"
#include "harness/plan/config/field.h"
#include "harness/plan/config/trainer_spec.h"

namespace lockstep {
namespace {

const std::vector<ForcedValues> kNoBandRepeats;

/// The one rank without whose part, and no other's, the reduced gradient is what the others' give; -1: there is none.
int rank_left_out(const ForcedValues& values, const std::string& tensor) {
  const NamedTensor* reduced = find_tensor(values.gradients, tensor);
  const std::vector<NamedTensor> means = mean_of_local(values);
  const NamedTensor* mean = find_tensor(means, tensor);
  if (reduced == nullptr || mean == nullptr || mean->values.size() != reduced->values.size()) return -1;
  const std::vector<double> allowance = reduction_allowance(values, *reduced);
  const double divisor = values.reduced_by_sum ? 1 : static_cast<double>(values.local.size());
  int found = -1;
  for (std::size_t rank = 0; rank < values.local.size(); ++rank) {
    const NamedTensor* own = find_tensor(values.local[rank], tensor);
    if (own == nullptr || own->values.size() != mean->values.size()) continue;
    bool explains = true;
    for (std::size_t i = 0; i < allowance.size() && explains; ++i)
      explains = distance(mean->values[i] - own->values[i] / divisor, reduced->values[i]) <= allowance[i];
    if (!explains) continue;
    if (found >= 0) return -1;
    found = values.local_ranks[rank];
  }
  return found;
}

/// Names the rank whose part is missing, where one is.
void name_rank(Difference& difference, const CauseInputs& around) {
  Divergence& told = difference.divergence;
  if (told.kind != DivergenceKind::reduction || !around.forced) return;
  const int rank = rank_left_out(around.forced->cell, told.where);
  if (rank < 0) return;
  told.rank = rank;
  told.sentence += fmt::format(" It is the result of the other ranks' parts: rank {}'s is missing.", rank);
}

class BandedPrefix {
 public:
  explicit BandedPrefix(const BandInputs& inputs)
      : inputs_(inputs),
        forced_(inputs.forced),
        real_(inputs.real),
        rules_(rules_of(forced_, real_, {inputs.config, inputs.config})) {
    if (forced_.world_size() != real_.world_size())
      throw TraceError(fmt::format("{}: {}, where {} has {}", inputs.forced, counted(forced_.world_size(), "rank"), inputs.real, real_.world_size()));
  }

  Certification hold() {
    Certification result;
    result.wanted = true;
    result.asked = inputs_.asked;
    result.certify = kByBand;
    std::optional<StepOfRun> before_a, before_b;
    while (result.steps < inputs_.asked) {
      std::optional<StepOfRun> a = next_with_gradients(forced_, before_a), b = next_with_gradients(real_, before_b);
      if (!a || !b) break;
      if (a->step != b->step)
        throw TraceError(fmt::format("{}: step {} where {} has step {}", inputs_.forced, a->step, inputs_.real, b->step));
      result.divergence = first_outside(*a, before_a, *b, before_b);
      if (result.divergence) return result;
      result.band_used = std::max(result.band_used, used_);
      ++result.steps;
      before_a = std::move(a);
      before_b = std::move(b);
    }
    return result;
  }

 private:
  std::optional<Divergence> first_outside(const StepOfRun& a, const std::optional<StepOfRun>& before_a, const StepOfRun& b,
                                          const std::optional<StepOfRun>& before_b) {
    const KnownState known = snapshot_of(b.ranks[0]);
    JudgedStep judged = judge({a, inputs_.forced, b, inputs_.real, before_b, kNoBandRepeats, known, nullptr, true, true});
    std::optional<Difference> first;
    if (judged.first) {
      first = judged.first->difference;
      name_rank(*first, *judged.first);
      // What the emulated ranks show of themselves is planted, and no matter of what carries the real ones.
      const JudgedStep itself = judge({a, inputs_.forced, a, inputs_.forced, before_a, kNoBandRepeats, known, nullptr, false, true});
      if (itself.first && same_place(itself.first->difference, *first)) first = reduced_apart(*judged.first, b);
    }
    keep_earlier(first, moved_otherwise(a, b));
    if (first) return first->divergence;
    used_ = judged.at.band_used;
    ForcedValues values = forced_values(b, inputs_.real, rules_.scores());
    values.reduced_by_sum = judged.reduced_by_sum;
    for (const ReductionUse& use : judge_reduction(values)) used_ = std::max(used_, use.used);
    return std::nullopt;
  }

  JudgedStep judge(const EqualStep& step) const { return judge_equal_step(step, rules_); }

  /// What is planted in both shows alike in both: their reduced gradients lie no further apart than rounding brings them.
  static std::optional<Difference> reduced_apart(const CauseInputs& around, const StepOfRun& b) {
    const TensorUse* worst = around.forced ? around.forced->reduced.worst() : nullptr;
    if (!worst || worst->use.used() <= 1) return std::nullopt;
    return difference_at(b, Phase::reduced_gradients, kAllRanks, worst->name, DivergenceKind::band,
                         "norm " + exact_number(worst->norm_reference), "norm " + exact_number(worst->norm_cell));
  }

  static bool same_place(const Difference& a, const Difference& b) {
    return a.phase == b.phase && a.divergence.where == b.divergence.where && a.divergence.kind == b.divergence.kind;
  }

  const BandInputs& inputs_;
  RunReader forced_, real_;
  StepRules rules_;
  double used_ = 0;
};

}  // namespace

Certification hold_to_band(const BandInputs& inputs) { return BandedPrefix(inputs).hold(); }

static std::string json_of(const RunField& field, const RunConfig& config) {
  std::string text;
  if (field.spec.words == Words::path) {
    const std::string path = text_of(field.of(config));
    append_json(text, std::string_view(path.empty() ? path : std::filesystem::absolute(path).string()));
  } else {
    append_json(text, field.of(config));
  }
  return text;
}

static bool is_users(const RunField& field) { return field.spec.setter == Setter::user; }

std::string replay_config(const Matrix& matrix, const Cell& cell, int64_t step, bool has_step) {
  const TrainerSpec& trainer = spec_of(cell.config);
  const RunConfig defaults(trainer);
  std::string text = fmt::format("# Step {} of {}, repeated: does it differ from {}?\n", step,
                                 clean_line(cell.name), clean_line(cell.reference_name));
  text += fmt::format("name: replay\nquestion: mechanism\nseeds: {}\nranks: emulated\nforced_steps: [{}]\n",
                      cell.config.seed, step);
  if (has_step) text += "replay: rank-0.trace\n";
  text += fmt::format("band: {{floor: {}}}\n", matrix.band.floor);
  std::string differs;
  for (const RunField* each : fields_of(trainer)) {
    const RunField& field = *each;
    if (!is_users(field) || field.spec.key == "ranks" || field.spec.key == "backend" || field.spec.key == "snapshot_steps") continue;
    if (!equal(field.of(cell.config), field.of(defaults))) {
      text += fmt::format("{}: {}\n", field.spec.key, json_of(field, cell.config));
    }
    // The reference never has the cell's faults.
    if (field.spec.key.starts_with("mutant.") || field.spec.key.starts_with("second_mutant.")) continue;
    if (!equal(field.of(cell.config), field.of(cell.reference))) {
      differs += fmt::format(", {}: {}", field.spec.key, json_of(field, cell.reference));
    }
  }
  return text + fmt::format("reference: {{same_as: cell{}}}\n", differs);
}

bool keep_step(const std::string& from, int64_t step, const std::string& to, Files& files) {
  TraceReader reader(from);
  std::optional<StepRecords> records;
  do {
    records = reader.next();
  } while (records && records->step != step);
  const auto is_state = [](const Record& record) {
    return record.phase == Phase::snapshot && !record.payload.empty();
  };
  if (!records || std::ranges::none_of(records->records, is_state)) return false;
  TraceHeader header = reader.header();
  header.started_by = "replay";
  header.level = TraceLevel::hash;
  TraceWriter writer(to, header, files);
  writer.begin_step(step);
  for (const Record& record : records->records) {
    if (is_state(record)) {
      writer.tensor(record.phase, record.name, {record.payload.data(), record.dtype, record.shape, {}},
                    Sharing::replicated, {}, Keep::whole);
    } else if (record.phase == Phase::samples) {
      writer.samples(record.ids);
    } else if (record.phase == Phase::random) {
      writer.random(record.name, record.stats.hash, static_cast<uint64_t>(record.value));
    }
  }
  writer.end_step();
  writer.finish();
  return true;
}

void write_replay(const Matrix& matrix, const Cell& cell, int64_t step, const std::string& reference_run,
                  const std::string& dir, Files& files) {
  if (const auto error = files.make_folders(dir)) {
    throw MachineError(dir + ": cannot be created: " + error.message());
  }
  const bool has_step = keep_step(reference_run + "/rank-0.trace", step, dir + "/rank-0.trace", files);
  write_file_atomically(dir + "/replay.yaml", replay_config(matrix, cell, step, has_step), files);
}

}  // namespace lockstep
