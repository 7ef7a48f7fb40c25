// Pages of causes in replicas and in the ledger of collectives, of failed runs, and of what nothing explains.

#include "harness/verdict/causes/catalogue.h"

namespace lockstep::causes {
namespace {

constexpr CausePage kRunPages[] = {
    {"initial-weights-differ", "replicas", "Ranks begin with different parameters.",
     "hashes of parameters before the first step differ between ranks",
     "torch.manual_seed(seed + rank); model = Model()", "model = Model(); broadcast(model, root=0)",
     "Broadcast the parameters of rank 0 before the first step.",
     "pytorch/pytorch#48188, NVIDIA/Megatron-LM#599"},
    {"replica-corrupted", "replicas", "One tensor of one rank differs from that of all other ranks.",
     "hashes of one parameter differ on one rank, and all its other tensors agree",
     "memory without error correction", "hashes of replicas compared every step",
     "Reload that rank from another; if it recurs, take its machine out of service.", ""},
    {"rank-behind", "replicas", "A rank did not make the update of the step.",
     "its tensors kept their bits while those of the other ranks moved", "if finite(loss): optimizer.step()",
     "if all_reduce_min(finite(loss)): optimizer.step()",
     "Decide on all ranks together whether a step is skipped.", ""},
    {"buffers-not-synchronised", "replicas", "A buffer (running statistics) differs between ranks.",
     "hashes of buffers differ, parameters agree", "DDP(model, broadcast_buffers=False)",
     "broadcast(buffer, root=0)", "Broadcast buffers, or make them from reduced statistics.",
     "pytorch/pytorch#63916, pytorch/pytorch#111138"},
    {"replicas-drift", "replicas", "Replicas differ in a way that points to no known mistake.",
     "hashes of replicated values differ between ranks", "optimizer.step()  # by different inputs",
     "hash(parameters) compared over ranks each step",
     "Find the first step and tensor that differ; look at what that rank did differently.",
     "microsoft/DeepSpeed#1801"},

    {"wrong-root", "ledger", "A broadcast or gather has another root.",
     "root of the call is not the reference's", "broadcast(buffer, root=1)", "broadcast(buffer, root=0)",
     "Name the root once, where it is decided.", "openai/baselines#727"},
    {"wrong-op", "ledger", "A collective is another operation, or reduces by another one.",
     "operation or reduction of the call is not that of the other ranks, the step before or the reference",
     "all_reduce(sums, op=MAX)", "all_reduce(sums, op=SUM)",
     "Pass the operation that the quantity calls for.", "pytorch/pytorch#48959"},
    {"wrong-dtype", "ledger", "A collective moves values of another type.",
     "dtype of the call is not the reference's", "all_reduce(sums.float())", "all_reduce(sums)  # float64",
     "Reduce in the type in which the value is kept.", "huggingface/accelerate#134"},
    {"collective-order", "ledger", "Collectives come in another order.",
     "the same calls, in another order than on the other ranks or in the reference",
     "broadcast(buffer); all_reduce(sums)", "all_reduce(sums); broadcast(buffer)",
     "Call collectives in one order on all ranks; give a second set a group of its own.", ""},
    {"collective-missing", "ledger", "A collective is left out.",
     "a call that the other ranks or the reference make is not there", "if rows > 0: all_reduce(sums)",
     "all_reduce(sums)  # with zeros where there are no rows", "Make the call on every path of every rank.",
     "sgl-project/sglang#24694, huggingface/trl#4041"},
    {"collective-extra", "ledger", "An extra collective is called.",
     "a call that neither the other ranks nor the reference make", "broadcast(buffer); broadcast(buffer)",
     "broadcast(buffer)", "Remove it, or make it on every rank.", "NVIDIA/recsys-examples#362"},
    {"stale-buffer", "ledger", "A rank reads the result of an earlier call.",
     "the output is that of the step before while inputs changed", "work = all_reduce(x, async); use(x)",
     "work = all_reduce(x, async); work.wait(); use(x)", "Wait for the collective before its result is read.",
     ""},
    {"broadcast-not-received", "ledger", "A rank keeps its own values through a broadcast.",
     "its output is its input, and not the root's", "broadcast(buffer.clone(), root=0)",
     "broadcast(buffer, root=0)", "Broadcast into the tensor that is read afterwards.",
     "pytorch/pytorch#63916"},

    {"rank-died", "failed", "A rank's process ended by a signal or without a result.",
     "the launcher saw its process end", "", "",
     "Read the rank's last lines and the kernel's log: out of memory (SIGKILL), a crash (SIGSEGV), a "
     "cluster's limit.",
     ""},
    {"rank-hung", "failed", "A rank stopped making progress.",
     "no step and no operation finished within timeout_s", "if rank == 0: all_reduce(x)", "all_reduce(x)",
     "Look at the operation named: a collective that not all ranks make, a lock, an input that does not "
     "come.",
     "Lightning-AI/pytorch-lightning#19485"},
    {"rank-slow", "failed", "A rank computed for longer than it may without a report.",
     "nothing was reported within watch.slow_s, and its process had a core", "while (!converged) step()",
     "for (int i = 0; i < most && !converged; ++i) step()",
     "Raise watch.slow_s (or timeout_s, of which it is a multiple) if the operation named is honest work; else look there for a loop "
     "without an end.",
     ""},
    {"rank-threw", "failed", "A rank threw an exception.", "the rank's result says what was thrown", "", "",
     "Read the message and the rank's last lines.", ""},
    {"file-damaged", "failed", "A file of a finished run is damaged, cut short or belongs to another run.",
     "its checksum, its end or the run that it names does not fit", "", "",
     "Run the same command again: it retrains a run whose files have changed. If it recurs, check the disk "
     "and what else writes to the folder.",
     ""},
    {"shapes-differ", "failed", "Ranks brought tensors of different shapes to one gather.",
     "the header exchange before the payload found rows of another shape, or another number of tensors",
     "all_gather(x[:, :n_local])", "all_gather(pad(x, n_max))",
     "Pad to a common shape and send the row counts.",
     "Lightning-AI/pytorch-lightning#7773, pytorch/ignite#1569"},
    {"dtype-differs", "failed", "Ranks brought tensors of different types to one gather.",
     "the header exchange before the payload found another type", "all_gather(x.half() if fast else x)",
     "all_gather(x.float())", "Convert to one type on all ranks before the gather.",
     "huggingface/accelerate#134"},
    {"step-differs", "failed", "Ranks met in a collective at different steps.",
     "the header exchange before the payload found another step", "if bad(batch): continue",
     "if all_reduce_max(bad(batch)): continue", "Skip steps on all ranks together or on none.", ""},

    {"config-differs", "always", "The two runs are configured otherwise.",
     "a key differs between the resolved configs (or what the traces' headers declare) and first acts where the runs part",
     "Adam(parameters, lr, weight_decay=0.1)  # the reference: 0", "Adam(parameters, lr, weight_decay=0)",
     "Give both runs the same value, or make the key an axis of the matrix if it is what you ask about.", ""},
    {"unexplained", "always", "No known mistake fits, or two fit equally well.",
     "the difference lies outside its band; the evidence lists what was seen", "", "",
     "Look at the first point that parts, and at what the run does just before it. A wrong name would be worse "
     "than none.",
     ""},
};

}  // namespace

std::span<const CausePage> run_pages() { return kRunPages; }

}  // namespace lockstep::causes
