// The classifier's table: one line a key. A test counts the struct's members, so that none is forgotten here.

#include "scenarios/classify/config.h"

#include "harness/verdict/config/field.h"
#include "harness/verdict/config/own_settings.h"

namespace lockstep {
namespace {

using namespace ranges;

// The member's own spelling is its key.
#define CLASSIFY(member, ...)                                                                    \
  {                                                                                              \
    {#member, __VA_ARGS__}, [](RunConfig& c) -> FieldRef { return ref_to(classify(c).member); } \
  }
const RunField kFields[] = {
    CLASSIFY(data.min_steps, kLength, "time steps", "fewest valid time steps of a row, keyed by its sample"),
    CLASSIFY(data.max_steps, kLength, "time steps",
             "most valid time steps of a row; shorter rows are padded at the end to this many"),
    CLASSIFY(data.stride, kLength, "time steps", "distance between neighbouring rows of a series"),
    CLASSIFY(data.holdout_series, Range{0, 1e6}, "series", "training series kept back and measured at the end"),
    CLASSIFY(model.width, up_to(8192), "", "features of a time step"),
    CLASSIFY(model.hidden, up_to(8192), "", "of the hidden layer"),
    CLASSIFY(denominator.over, kAny, "", "what is counted to divide the sum of losses, or a constant"),
    CLASSIFY(denominator.scope, kAny, "",
             "where it is counted: over all ranks and micro-steps; this rank's step; each micro-step"),
    CLASSIFY(denominator.constant, Range{0, 1e12}, "", "the divisor of denominator.over constant"),
    CLASSIFY(auxiliary.weight, kNotNegative, "",
             "weight of a second loss, the squared error of each time step's values as a head of its own reconstructs them from "
             "the hidden layer, divided as the cross-entropy is; 0: no second loss"),
    CLASSIFY(norm, kAny, "", "features are normalised by the statistics of this rank's rows, or of all ranks' rows"),
    CLASSIFY(label_smoothing, kFraction, "", "share of each target that is spread over all classes"),
    CLASSIFY(dropout, kFraction, "",
             "dropout probability in the hidden layer, for all time steps of a row at once"),
    CLASSIFY(activation_checkpointing, kAny, "",
             "the hidden layer keeps only its inputs and is computed again in the backward pass, with the same dropout: the "
             "same bits with less memory"),
};
#undef CLASSIFY

}  // namespace

LOCKSTEP_WORDS_BOTH_WAYS(NormKind, sync_batch, "none", "batch", "sync_batch")
LOCKSTEP_WORDS_BOTH_WAYS(DenominatorOver, constant, "valid_steps", "rows", "constant")
LOCKSTEP_WORDS_BOTH_WAYS(DenominatorScope, micro, "global", "local", "micro")

std::span<const RunField> classify_fields() { return kFields; }

const ClassifyConfig& classify(const RunConfig& config) { return own_settings<ClassifyConfig>(config, "classify"); }
ClassifyConfig& classify(RunConfig& config) { return own_settings<ClassifyConfig>(config, "classify"); }

}  // namespace lockstep
