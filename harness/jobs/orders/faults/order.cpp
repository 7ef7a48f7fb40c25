#include "harness/jobs/orders/faults/order.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::faults {
namespace {

using enum Notice;

constexpr auto kKinds = std::to_array<FaultKind>({
    // Processes that end.
    {"kill", "process", "the rank is killed between two collectives", "it goes on", died, "killed by signal 9"},
    {"kill_in_collective", "process", "the rank is killed within a sum of gradients", "it goes on", died, "killed by signal 9"},
    {"exit_early", "process", "the rank exits with status 0 and no result", "it goes on", died, "exited with status 0 without a result"},
    {"exception", "process", "the rank throws", "it goes on", threw, "cannot decode sample"},
    {"out_of_memory", "process", "the rank asks for more memory than its limit allows", "it asks for less", threw, "allocate memory"},
    {"crash", "process", "the rank writes to address 0", "it goes on", died, "killed by signal 11"},
    {"preempted", "process", "the rank dies of SIGTERM", "all agree on a step to stop after, and stop", died, "killed by signal 15"},
    {"killed_in_recovery", "process", "the rank is killed, and the next one while it leaves", "both go on", died, "killed by signal 9"},
    // Processes that live and give no sign.
    {"stop", "silence", "the rank is stopped by SIGSTOP", "it goes on", hung, "stopped by a signal"},
    {"continued_late", "silence", "the rank is stopped, and continued after 2 T", "it is continued after T / 2", hung, "stopped by a signal"},
    {"slow", "silence", "the rank computes for 2 T", "it computes for T / 2", slow, "slow, or in a loop"},
    {"endless_loop", "silence", "the rank computes for ever", "it computes for T / 4", slow, "slow, or in a loop"},
    {"loader_stalled", "silence", "the rank's data loader sleeps for ever", "it sleeps for T / 2", hung, "threshold of step"},
    {"slow_disk", "silence", "the rank's save takes four of a save's thresholds", "it takes half of one", hung, "threshold of save"},
    {"slow_evaluation", "silence", "the rank's evaluation takes four of its thresholds", "it takes half of one", hung, "threshold of evaluation"},
    {"blocked_in_teardown", "silence", "the rank never leaves its teardown", "it takes half of its threshold", hung, "threshold of teardown"},
    {"blocked_in_store", "silence", "the rank waits for a key that nobody sets", "somebody sets it", hung, "threshold of load"},
    {"deadlock", "silence", "the rank waits in a barrier of one group, the others go on in another, without the check", "all wait in the barrier", hung, "in 'barrier other group'", false},
    // Calls that do not fit.
    {"wrong_op", "collective", "the rank gathers where the others sum", "all gather", check, "rank {rank} calls all_gather gradients of w1"},
    {"wrong_reduction", "collective", "the rank takes the maximum where the others sum", "all take the maximum", check, "rank {rank} calls all_reduce max gradients of w1"},
    {"wrong_size", "collective", "the rank sums one column less", "all sum one less", check, "rank {rank} calls all_reduce sum gradients of w1 of Float [4, 2]"},
    {"wrong_shape", "collective", "the rank sums the transposed tensor: as many bytes", "all sum the transposed tensor", check, "rank {rank} calls all_reduce sum gradients of w1 of Float [3, 4]"},
    {"wrong_type", "collective", "the rank sums in float64", "all sum in float64", check, "rank {rank} calls all_reduce sum gradients of w1 of Double"},
    {"wrong_order", "collective", "the rank sums w2 before w1", "all do", check, "rank {rank} calls all_reduce sum gradients of w2"},
    {"missing_call", "collective", "the rank leaves out a sum", "all leave it out", check, "rank {rank} calls all_reduce sum gradients of b"},
    {"extra_call", "collective", "the rank has one barrier more", "all have it", check, "rank {rank} calls barrier more"},
    {"wrong_root", "collective", "the rank takes the target from another root", "the root changes, on all ranks alike", check, "rank {rank} calls broadcast target"},
    {"no_gradient_sync", "collective", "the rank sums no gradients at this step", "no rank does", check, "rank {rank} calls all_gather state"},
    {"fewer_steps", "collective", "the rank has a step less", "all have", check, "rank {rank} calls barrier end"},
    {"step_ahead", "collective", "the rank counts one step more", "all count from 1", check, "step {next_step})"},
    {"barrier_removed", "collective", "a rank reads the file that this one writes, without a barrier", "with a barrier", audit, "the file of rank {rank} is of step"},
    // How ranks meet.
    {"port_in_use", "meeting", "the store's port is taken", "the store takes a free port and says which", threw, "EADDRINUSE"},
    {"half_open", "meeting", "who listens at the store's port never answers the rank", "the store answers", hung, "in 'rendezvous store'"},
    {"store_dead", "meeting", "nobody listens at the port that the rank is told", "the store listens", threw, "does not answer rank {rank}"},
    {"wrong_world", "meeting", "the rank counts one rank more", "all count alike", preflight_check, "rank {rank} has world size"},
    {"duplicate_rank", "meeting", "the rank takes the next one's number", "each takes its own", preflight_check, "joined twice"},
    {"rank_missing", "meeting", "the rank never comes", "it comes late", preflight_check, "rank {rank} did not join"},
    {"other_threads", "meeting", "the rank computes with another number of threads", "all do", preflight_check, "rank {rank} has threads"},
    {"other_library", "meeting", "the rank has another LibTorch", "all have", preflight_check, "rank {rank} has libtorch"},
    {"other_config", "meeting", "the rank has another learning rate", "all have", preflight_check, "rank {rank} has config"},
    {"clock_skew", "meeting", "the rank's clock is 30 s ahead", "it is 0.2 s ahead", preflight_check, "rank {rank} has a clock"},
    // Numbers.
    {"nan", "number", "one number of the rank's gradient is NaN", "it is large", guard, "rank {rank}: the gradient of w1 is NaN at element 5 (step {step})"},
    {"infinity", "number", "one number of the rank's gradient is infinite", "it is large", guard, "rank {rank}: the gradient of w2 is infinity at element 3 (step {step})"},
    {"flip_weight", "number", "one bit of the rank's weights flips", "none does", audit, "rank {rank} has other weights/w1 at element 7"},
    {"flip_moment", "number", "one bit of the rank's moments flips", "none does", audit, "rank {rank} has other moments/w2 at element 2"},
    {"flip_random_state", "number", "one bit of the rank's random state flips", "none does", audit, "rank {rank} has other random state"},
    {"flip_sampler", "number", "one bit of the rank's place in the data flips", "none does", audit, "rank {rank} has other sampler"},
    {"flip_payload", "number", "one bit flips in what the rank receives", "none does", audit, "rank {rank} has other reduced/w1 at element 4"},
    {"flip_gradient", "number", "one bit of the rank's own gradient flips", "none does", compared, "rank {rank}, step {step}: gradients/w1 at element 6"},
    {"stale_state", "number", "the rank leaves out an update", "all take it", audit, "rank {rank} has other weights/w1"},
    // Rows.
    {"row_dropped", "row", "the rank leaves out a row", "none does", audit, "rank {rank} lacks row"},
    {"row_doubled", "row", "the rank takes a row twice", "none does", audit, "rank {rank} takes row"},
    {"rows_reordered", "row", "the rank takes its rows in another order", "all ranks shuffle by the same key", audit, "rank {rank} takes its rows in another order"},
    // Disks.
    {"disk_full", "disk", "the rank's disk is full", "it has room", threw, "No space left on device"},
    {"file_cut", "disk", "the rank's saved file loses its end", "it is whole", audit, "the file of rank {rank} is cut short"},
});

}  // namespace

std::string_view to_word(Notice notice) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"died", "hung", "slow", "threw", "check", "guard", "audit", "preflight check", "compared"});
  return kWords[static_cast<std::size_t>(notice)];
}

std::span<const FaultKind> fault_kinds() { return kKinds; }

std::string expected_words(const FaultKind& kind, const Order& order) {
  std::string text(kind.says);
  const std::pair<const char*, std::string> words[] = {{"{rank}", std::to_string(order.rank)},
                                                       {"{step}", std::to_string(order.step)},
                                                       {"{next_step}", std::to_string(order.step + 1)}};
  for (const auto& [mark, value] : words) {
    for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += value.size())
      text.replace(at, std::string_view(mark).size(), value);
  }
  return text;
}

}  // namespace lockstep::faults
