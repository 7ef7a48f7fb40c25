// The classifier's table: one line a key. A test counts the struct's members, so that none is forgotten here.

#include "harness/config/field.h"
#include "harness/config/ranges.h"
#include "scenarios/classify/config.h"
#include "scenarios/classify/spec.h"

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
    CLASSIFY(data.max_steps, kLength, "time steps", "most of them; shorter rows are padded behind to so many"),
    CLASSIFY(data.stride, kLength, "time steps", "between the places of neighbouring rows of a series"),
    CLASSIFY(data.holdout_series, Range{0, 1e6}, "series", "training series kept back and measured at the end"),
    CLASSIFY(model.width, up_to(8192), "", "features of a time step"),
    CLASSIFY(model.hidden, up_to(8192), "", "of the hidden layer"),
    CLASSIFY(denominator.over, kAny, "", "what the sum of losses is divided by a count of, or a constant"),
    CLASSIFY(denominator.scope, kAny, "",
             "of whom it is counted: all ranks and micro-steps; this rank's step; each micro-step"),
    CLASSIFY(denominator.constant, Range{0, 1e12}, "", "the divisor of denominator.over constant"),
    CLASSIFY(norm, kAny, "", "features are normalised by the statistics of this rank's rows, or of all ranks' rows"),
    CLASSIFY(label_smoothing, kFraction, "", "share of each target that is spread over all classes"),
    CLASSIFY(dropout, kFraction, "", "probability to drop, in the hidden layer, for all time steps of a row at once"),
};
#undef CLASSIFY

}  // namespace

std::span<const RunField> classify_fields() { return kFields; }

}  // namespace lockstep
