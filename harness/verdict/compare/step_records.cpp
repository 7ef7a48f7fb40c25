#include "harness/verdict/compare/step_records.h"

#include <limits>

#include <fmt/format.h>

namespace lockstep {

const Record* find_record(const StepRecords& step, Phase phase, const std::string& name) {
  for (const Record& record : step.records) {
    if (record.phase == phase && record.name == name) return &record;
  }
  return nullptr;
}

std::vector<const Record*> records_of(const StepRecords& step, Phase phase) {
  std::vector<const Record*> list;
  for (const Record& record : step.records) {
    if (record.phase == phase) list.push_back(&record);
  }
  return list;
}

int64_t columns_of(const StepRecords& rank, const std::string& scores) {
  const Record* columns = find_record(rank, Phase::scores, "columns");
  if (columns && columns->shape.size() == 1) return columns->shape[0];
  const Record* record = find_record(rank, Phase::scores, scores);
  return record && record->shape.size() == 2 ? record->shape[1] : -1;
}

Difference difference_at(int64_t step, Phase phase, int rank, const std::string& where,
                         DivergenceKind kind, const std::string& expected, const std::string& actual,
                         int world_size) {
  Difference result;
  result.phase = phase;
  result.relative = std::numeric_limits<double>::infinity();
  if (world_size == 1 && rank == kRankUnknown) rank = kAllRanks;
  result.divergence = {step, name_of(phase), rank, where, kind, expected, actual, ""};
  result.divergence.sentence =
      fmt::format("They first differ at step {}, {}, {}: {}: {}.", step, name_of(phase), rank_text(rank, world_size),
                  where, expected_found(expected, actual));
  return result;
}

std::optional<double> mean_loss(const StepOfRun& step) {
  double sum = 0;
  for (const StepRecords& rank : step.ranks) {
    const Record* loss = find_record(rank, Phase::loss, "loss");
    if (!loss) return std::nullopt;
    sum += loss->value;
  }
  return sum / static_cast<double>(step.ranks.size());
}

const TrainerSpec* trainer_of(const RunReader& reference, const RunReader& cell) {
  const std::string& name = reference.header().trainer;
  return name == cell.header().trainer ? find_trainer_spec(name) : nullptr;
}

const ScoreSpec& scores_of(const TrainerSpec* trainer) {
  static const ScoreSpec kOfAny;
  return trainer == nullptr ? kOfAny : trainer->scores;
}

}  // namespace lockstep
