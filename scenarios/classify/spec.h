#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/plan/config/field.h"
#include "harness/plan/config/run_config.h"
#include "harness/plan/config/trainer_spec.h"
#include "losses/denominator.h"

// The trainer classify as programs without LibTorch know it.

namespace lockstep {

const TrainerSpec& classify_spec();

// Rows of unequal length with a class, cut from labelled series: the classifier's data without LibTorch.

enum class CropPart { train, holdout, test };

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

// The classifier's own settings.

/// Statistics that features are normalised by: none | those of this rank's rows of the micro-step | those of all
/// ranks' rows of the micro-step, with gradient.
enum class NormKind { none, batch, sync_batch };

WordList words_of(NormKind);
WordList words_of(DenominatorOver);
WordList words_of(DenominatorScope);

/// How rows are cut from series: crop k of a series begins in [k * stride, (k + 1) * stride), and its first
/// min_steps to max_steps time steps are valid; both are keyed by the sample.
struct CropConfig {
  int min_steps = 8;
  int max_steps = 24;      ///< T, time steps of a row with its padding
  int stride = 4;          ///< time steps between the places of neighbouring crops of a series
  int holdout_series = 4;  ///< training series kept back, measured at the end
};

/// Of the classifier, where they are not the data's.
struct ClassifierConfig {
  static constexpr int kWindow = 4;  ///< time steps that a step's features see, itself the last
  int width = 32;                    ///< D, features of a time step
  int hidden = 64;                   ///< W, of the hidden layer
};

/// A second loss beside the cross-entropy: the same hidden layer reconstructs each time step's values, by a head of its own.
struct AuxiliaryConfig {
  double weight = 0;  ///< of the squared error, divided as the cross-entropy is; 0: there is no second loss and no head
};

struct ClassifyConfig {
  CropConfig data;
  ClassifierConfig model;
  Denominator denominator;
  AuxiliaryConfig auxiliary;
  NormKind norm = NormKind::none;
  double label_smoothing = 0.0;
  double dropout = 0.1;  ///< of the hidden layer; one mask for all time steps of a row
  bool activation_checkpointing = false;  ///< the hidden layer is computed again in the backward pass, not kept
};

/// Of a run of this trainer.
const ClassifyConfig& classify(const RunConfig& config);
ClassifyConfig& classify(RunConfig& config);

std::string_view word_of(NormKind norm);
std::string_view word_of(DenominatorOver over);
std::string_view word_of(DenominatorScope scope);

}  // namespace lockstep
