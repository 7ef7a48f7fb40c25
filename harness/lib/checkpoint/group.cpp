#include "harness/lib/checkpoint/group.h"

#include <fmt/format.h>

namespace lockstep::checkpoint {

Gathered HookedGroup::all_gather(const std::string& label, const std::string& mine, double deadline_s) {
  const Operation operation{
      .number = seam_.next_number(), .kind = OperationKind::gather, .path = label, .bytes = mine};
  const Intervention wanted = seam_.hook().before(operation);
  Gathered all;
  if (!wanted.error || wanted.performed) all = inner_.all_gather(label, mine, deadline_s);
  if (wanted.error) all = {{}, fmt::format("gather '{}' failed: {}", label, wanted.error.message())};
  seam_.hook().after(operation, wanted.error);
  return all;
}

std::string agree(Group& group, const std::string& label, const std::string& problem, double deadline_s) {
  const Gathered all = group.all_gather(label, problem, deadline_s);
  if (!all) return all.problem;
  std::string text;
  for (std::size_t rank = 0; rank < all.texts.size(); ++rank) {
    if (all.texts[rank].empty()) continue;
    text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", rank, all.texts[rank]);
  }
  return text;
}

}  // namespace lockstep::checkpoint
