#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/plan/config/run_config.h"
#include "harness/plan/config/settings.h"
#include "harness/plan/config/trainer_spec.h"

// What a run plants, where that must show first, and how it must be named: known when a trial is drawn and
// asked again when it is scored.

namespace lockstep {

/// What a run plants, and where that must show first.
struct PlantedFault {
  const MutantEntry* entry = nullptr;
  MutantConfig mutant;
  int64_t step = 0;  ///< at which it must show
};

/// The planted fault that shows first; nothing if the run plants none. Throws ConfigError on a mutant that
/// the table lacks.
std::optional<PlantedFault> first_planted(const RunConfig& config);

/// Codes that name the fault rightly. Where a factor was drawn and the entry admits `unexplained`, a closed
/// form (the world size, its inverse, -1) has the code of that form alone, and any other factor is
/// `unexplained`.
std::vector<std::string> right_causes(const PlantedFault& fault, int world_size);

/// Does a place in a trace name what the fault touched? `where` of the entry, "$tensor" being the drawn
/// tensor; a place may say more after a name ("bucket 1", "energies, row 3").
bool names_place(const PlantedFault& fault, const std::string& phase, const std::string& where);

/// Batches of an epoch; 0 if the data are files that have not been read.
int64_t steps_per_epoch(const RunConfig& config);

/// "step 4, rank 2, energy_head.key.weight, bit 27" of what the mutant draws.
std::string drawn_words(const MutantEntry& entry, const MutantConfig& mutant);

/// The step at which a fault that begins at `step` must show, in epochs of so many steps.
int64_t shown_at(const MutantEntry& entry, int64_t step, int64_t epoch_steps);

/// Equal but for the rounding of 1 / world size.
bool is_closed_form(double factor, double form);

/// The parts of a text between separators, without empty ones.
std::vector<std::string_view> split_words(std::string_view text, char at);

/// "key=value key=value" as settings of the trainer's runs; what cannot be read is a problem at `place`.
std::vector<Setting> settings_of(std::string_view text, const TrainerSpec& trainer, const Place& place, Problems& problems);

}  // namespace lockstep
