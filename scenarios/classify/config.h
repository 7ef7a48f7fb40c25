#pragma once
// The classifier's own settings.

#include <span>
#include <string_view>

#include "harness/verdict/config/field.h"
#include "harness/verdict/config/run_config.h"
#include "losses/denominator.h"

namespace lockstep {

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

/// Its own keys, which stand beside the core's.
std::span<const RunField> classify_fields();

std::string_view word_of(NormKind norm);
std::string_view word_of(DenominatorOver over);
std::string_view word_of(DenominatorScope scope);

}  // namespace lockstep
