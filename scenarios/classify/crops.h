#pragma once
// Rows of unequal length with a class, cut from labelled series: the classifier's data without LibTorch.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/verdict/config/run_config.h"
#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {

enum class CropPart { train, holdout, test };

/// Crops that a series of `steps` time steps gives.
int64_t crops_of(int64_t steps, int stride, int min_steps, int max_steps);

/// Valid time steps of a crop whose series is long enough for any: keyed by the part and the sample's id.
int keyed_crop_steps(const RunConfig& config, CropPart part, int64_t crop);

struct Crops {
  int steps = 0, channels = 0;      ///< T, C
  std::vector<float> values;        ///< [crops][T][C], standardised by the training part; 0 behind valid_steps
  std::vector<int64_t> valid_steps;  ///< [crops], 1 to T; they stand at the front
  std::vector<int64_t> labels;       ///< [crops], places among the classes
  std::vector<int64_t> series;       ///< [crops], which series of its part each was cut from
  int64_t size() const { return static_cast<int64_t>(labels.size()); }
};

struct CropDataset {
  Crops train, holdout, test;        ///< sample id = index of a training crop
  std::vector<std::string> classes;  ///< of the training file, sorted
  std::string description;           ///< "BasicMotions: 36 training series, 720 crops, …"
  std::string hash;                  ///< hex, of the very bytes that were read, or of the generator's parameters
};

/// Throws ConfigError: a missing or corrupt file, series without classes, a test class that is never trained,
/// series too short for a crop.
CropDataset load_crops(const RunConfig& config);

/// The counts that load_crops would give and its hash, without cutting a crop; files are read for it. Throws as
/// it does.
DataFacts inspect_crops(const RunConfig& config);

/// The same counts where they follow from the config alone: of BasicMotions and of generated series.
std::optional<SampleCounts> counted_crops(const RunConfig& config);

/// Classes of the data as far as the config tells: of source ts_files, whose classes are known when they are read,
/// the fewest that there may be.
int64_t classes_of(const RunConfig& config);

}  // namespace lockstep
