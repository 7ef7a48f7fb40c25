#pragma once
// States of random generators of processes, data-loader workers and devices.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "harness/verdict/evidence/align.h"
#include "harness/verdict/evidence/difference.h"

namespace lockstep {

/// "process/dropout", "worker 3/augment", "device 0/dropout": where a generator lives, and its name. Streams without a scope are
/// keyed by sample, and their hashes add up over ranks.
bool is_of_a_generator(std::string_view stream);
/// "dropout" of these.
std::string_view name_of_generator(std::string_view stream);

/// "rank", "same" or "sample": what the header declares of the stream, by its whole name or without its scope; empty: nothing.
std::string declared_state(const StepOfRun& step, const std::string& stream);

/// Did forward passes take random numbers in the step (dropout, sampling), and not the same on the same ranks? Then losses and gradients of the
/// two are not those of one computation: rows of another layout get other numbers.
bool forward_draws_differ(const StepOfRun& a, const StepOfRun& b);

/// States of generators by step, stream and rank.
using GeneratorHistory = std::map<int64_t, std::map<std::string, std::map<int, uint64_t>>>;
void remember_generators(GeneratorHistory& history, const StepOfRun& step);

/// What run B's generators show: two ranks in one state, where the header declares another on each, or where the reference, of as many
/// ranks, has another on each; ranks in several states that are declared the same; and other numbers of draws than the
/// reference's where the declaration, or a `same_partition` of rows over ranks and micro-steps, tells how many they must be.
std::optional<Difference> generators_difference(const StepOfRun& a, const StepOfRun& b, bool same_partition = true);

}  // namespace lockstep
