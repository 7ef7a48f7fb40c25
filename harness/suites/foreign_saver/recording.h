#pragma once
// What a traced save did, for people and for other programs.

#include <string>
#include <vector>

#include "harness/suites/foreign_saver/failures.h"
#include "harness/suites/foreign_saver/tracer.h"

namespace lockstep::program {

/// Writes OUT/operations.jsonl, an operation a line, and OUT/operations.data, the bytes of all writes one after the other;
/// docs/savers.md says what stands in them. Throws MachineError.
void write_recording(const TracedRun& run, const std::string& out_dir);

/// "writer 1".
std::string process_words(const std::string& process, const std::vector<std::string>& writers);

/// The operations around the failure, in their order.
std::vector<TimelineStep> timeline_of(const TracedRun& run, const PlannedFailure& planned,
                                      const std::vector<std::string>& writers);

}  // namespace lockstep::program
