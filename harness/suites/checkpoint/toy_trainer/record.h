#pragma once
// What one rank writes down of a step: what it read, drew and computed. From it alone, and from a run that it should
// equal, a judge tells what was not restored.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/suites/checkpoint/toy_trainer/model.h"
#include "harness/suites/checkpoint/toy_trainer/parts.h"

namespace lockstep::toy {

struct UpdateRecord {
  std::vector<int64_t> total;  ///< gradient of all rows since the last update, all ranks together, in kUnit
  int64_t rows = 0;            ///< those rows
  bool overflow = false;       ///< then nothing is updated
  uint64_t noise = 0;          ///< the first bits that the noise's stream gave
  double rate = 0, decay = 0;
  double factor = 0;              ///< the schedule's, for the next update's rate
  std::vector<float> gradient;    ///< as the optimizer got it
  std::vector<float> direction;   ///< what the rate is multiplied by
  std::vector<float> parameters;  ///< after the update
};

struct EvaluationRecord {
  std::vector<float> averaged;  ///< the weights that were evaluated
  double metric = 0;
  double best_before = 0;
  int64_t left = 0;  ///< evaluations that may yet follow without a better one
};

struct StepRecord {
  int64_t step = 0, epoch = 0;
  std::vector<int64_t> samples;  ///< ids of all ranks, in the order of their places
  std::vector<int64_t> own;      ///< ids of this rank
  int64_t micro = 0;             ///< steps since the last update before this one
  uint64_t dropout = 0;          ///< the first bits that its stream gave
  uint64_t jitter = 0;           ///< the first bits that this rank's own generator gave; 0: it has none
  Normaliser normaliser;         ///< as used
  double scale = 0;              ///< of the loss
  std::vector<float> parameters;
  std::vector<int64_t> gradient;  ///< of this rank's rows, in kUnit
  double loss = 0;                ///< the mean over all ranks' rows
  std::optional<UpdateRecord> update;
  std::optional<EvaluationRecord> evaluation;
};

/// Every bit of a record, for comparing.
std::string bits_of(const StepRecord& record);

}  // namespace lockstep::toy
