// Causes of runs that did not finish: what the launcher saw, and what the header exchange said before any
// payload moved.

#include <fmt/format.h>

#include "harness/verdict/causes/rules.h"

namespace lockstep {
namespace {

bool says(const Failure& failure, const char* words) {
  return failure.message.find(words) != std::string::npos;
}

std::string told(const Failure& failure) {
  std::string text = failure.rank < 0 ? "the run" : fmt::format("rank {}", failure.rank);
  if (failure.step >= 0) text += fmt::format(" at step {}", failure.step);
  if (!failure.operation.empty()) text += fmt::format(" in {}", failure.operation);
  return text + (failure.message.empty() ? "" : ": " + failure.message);
}

/// The code in the words of gather_rows' header check, or empty.
const char* header_code(const Failure& failure) {
  if (!says(failure, "seen from rank")) return "";
  if (says(failure, " is at step ")) return "step-differs";
  if (says(failure, " calls another collective")) return "collective-order";
  if (says(failure, " with rows of shape ") ||
      (says(failure, " sends ") && says(failure, " tensors, not "))) {
    return "shapes-differ";
  }
  if (says(failure, " sends tensor ") && says(failure, " as ")) return "dtype-differs";
  return "";
}

}  // namespace

std::optional<Cause> name_failure_cause(const Failure& failure, int ranks) {
  std::string code;
  if (failure.kind == FailureKind::threw) {
    code = header_code(failure);
    // A row in exact arithmetic, named before anything was summed.
    if (code.empty() && failure.message.find(kRowNotFinite) != std::string::npos) code = "non-finite";
    if (code.empty()) code = "rank-threw";
  } else if (failure.kind == FailureKind::died) {
    code = "rank-died";
  } else if (failure.kind == FailureKind::hung) {
    code = "rank-hung";
  } else if (failure.kind == FailureKind::slow) {
    code = "rank-slow";
  } else if (failure.kind == FailureKind::unreadable) {
    code = "file-damaged";
  } else {
    return std::nullopt;
  }
  const double confidence = code.starts_with("rank-") || code == "file-damaged" ? 0.9 : causes::kExact;
  Cause cause = causes::made(code.c_str(), confidence, told(failure));
  if (const CausePage* page = find_cause_page(code)) cause.remedy = page->remedy;
  if (code == "rank-hung" && ranks == 1) {
    cause.remedy = "Look at the named operation: a lock, or an input that does not arrive. The run has one process, so no other rank blocks it.";
  }
  return cause;
}

}  // namespace lockstep
