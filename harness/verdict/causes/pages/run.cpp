// Pages of causes in replicas and in the ledger of collectives, of failed runs, and of what nothing explains.

#include "harness/verdict/causes/catalogue.h"

namespace lockstep::causes {
namespace {

constexpr CausePage kRunPages[] = {
    {"initial-weights-differ", "replicas", "Ranks start with different parameters.",
     "before the first step the parameters' hashes differ between ranks",
     "torch.manual_seed(seed + rank); model = Model()", "model = Model(); broadcast(model, root=0)",
     "Broadcast the parameters of rank 0 before the first step.",
     "pytorch/pytorch#48188, NVIDIA/Megatron-LM#599"},
    {"replica-corrupted", "replicas", "One tensor of one rank differs from that of all other ranks.",
     "one parameter's hash differs on one rank, and all other tensors of that rank agree",
     "memory without error correction", "hashes of replicas compared every step",
     "Reload that rank from another; if it recurs, take its machine out of service.", ""},
    {"rank-behind", "replicas", "A rank skipped the update of the step.",
     "the rank's tensors did not change while those of the other ranks did", "if finite(loss): optimizer.step()",
     "if all_reduce_min(finite(loss)): optimizer.step()",
     "Let all ranks decide together whether to skip a step.", ""},
    {"buffers-not-synchronised", "replicas", "A buffer (running statistics) differs between ranks.",
     "the buffers' hashes differ between ranks, and the parameters agree", "DDP(model, broadcast_buffers=False)",
     "broadcast(buffer, root=0)", "Broadcast buffers, or compute them from reduced statistics.",
     "pytorch/pytorch#63916, pytorch/pytorch#111138"},
    {"replicas-drift", "replicas", "Replicas differ between ranks, and no known cause fits.",
     "the hashes of replicated values differ between ranks", "optimizer.step()  # by different inputs",
     "compare hash(parameters) over ranks each step",
     "Find the first step and tensor that differ; look at what that rank did differently.",
     "microsoft/DeepSpeed#1801"},

    {"wrong-root", "ledger", "A broadcast or gather has the wrong root.",
     "the call's root is not the reference's", "broadcast(buffer, root=1)", "broadcast(buffer, root=0)",
     "Name the root once, where it is decided.", "openai/baselines#727"},
    {"wrong-op", "ledger", "A collective is the wrong operation, or reduces with the wrong one.",
     "the call's operation or reduction is not that of the other ranks, the previous step or the reference",
     "all_reduce(sums, op=MAX)", "all_reduce(sums, op=SUM)",
     "Pass the operation that this value needs.", "pytorch/pytorch#48959"},
    {"wrong-dtype", "ledger", "A collective moves values of the wrong type.",
     "the call's dtype is not the reference's", "all_reduce(sums.float())", "all_reduce(sums)  # float64",
     "Reduce in the type in which the value is kept.", "huggingface/accelerate#134"},
    {"collective-order", "ledger", "Collectives are called in the wrong order.",
     "the calls are the same as on the other ranks or in the reference, but in another order",
     "broadcast(buffer); all_reduce(sums)", "all_reduce(sums); broadcast(buffer)",
     "Call collectives in the same order on all ranks; use a separate process group for an independent set.", ""},
    {"collective-missing", "ledger", "A collective is missing.",
     "a call of the other ranks or the reference is missing", "if rows > 0: all_reduce(sums)",
     "all_reduce(sums)  # with zeros where there are no rows", "Make the call on every path of every rank.",
     "sgl-project/sglang#24694, huggingface/trl#4041"},
    {"collective-extra", "ledger", "An extra collective is called.",
     "there is a call that neither the other ranks nor the reference make", "broadcast(buffer); broadcast(buffer)",
     "broadcast(buffer)", "Remove it, or make it on every rank.", "NVIDIA/recsys-examples#362"},
    {"stale-buffer", "ledger", "A rank reads the result of an earlier call.",
     "the output is that of the previous step although the inputs changed", "work = all_reduce(x, async); use(x)",
     "work = all_reduce(x, async); work.wait(); use(x)", "Wait for the collective before its result is read.",
     ""},
    {"broadcast-not-received", "ledger", "A rank keeps its own values in spite of a broadcast.",
     "the rank's output is its own input, not the root's", "broadcast(buffer.clone(), root=0)",
     "broadcast(buffer, root=0)", "Broadcast into the tensor that the code reads afterwards.",
     "pytorch/pytorch#63916"},

    {"rank-died", "failed", "A rank's process ended by a signal or without a result.",
     "the launcher reported that the process ended", "", "",
     "Read the rank's last lines and the kernel's log: out of memory (SIGKILL), a crash (SIGSEGV), a "
     "cluster's limit.",
     ""},
    {"rank-hung", "failed", "A rank stopped making progress.",
     "no step and no operation finished within timeout_s", "if rank == 0: all_reduce(x)", "all_reduce(x)",
     "Look at the named operation: a collective that not all ranks call, a lock, or an input that does not "
     "arrive.",
     "Lightning-AI/pytorch-lightning#19485"},
    {"rank-slow", "failed", "A rank computed longer than allowed without a heartbeat.",
     "there was no heartbeat within watch.slow_s, although the process had a core", "while (!converged) step()",
     "for (int i = 0; i < most && !converged; ++i) step()",
     "Raise watch.slow_s (or timeout_s, of which it is a multiple) if the named operation legitimately takes that long; otherwise look "
     "there for an endless loop.",
     ""},
    {"rank-threw", "failed", "A rank threw an exception.", "the rank's result contains the exception's message", "", "",
     "Read the message and the rank's last lines.", ""},
    {"file-damaged", "failed", "A file of a finished run is damaged, cut short or belongs to another run.",
     "the file's checksum, its end or the run that it names is wrong", "", "",
     "Run the same command again: it retrains a run whose files have changed. If it recurs, check the disk "
     "and what else writes to the folder.",
     ""},
    {"shapes-differ", "failed", "Ranks called one gather with tensors of different shapes.",
     "the exchange of headers before the data found rows of another shape, or another number of tensors",
     "all_gather(x[:, :n_local])", "all_gather(pad(x, n_max))",
     "Pad to a common shape, and gather the row counts too.",
     "Lightning-AI/pytorch-lightning#7773, pytorch/ignite#1569"},
    {"dtype-differs", "failed", "Ranks called one gather with tensors of different types.",
     "the exchange of headers before the data found another type", "all_gather(x.half() if fast else x)",
     "all_gather(x.float())", "Convert to one type on all ranks before the gather.",
     "huggingface/accelerate#134"},
    {"step-differs", "failed", "Ranks called one collective at different steps.",
     "the exchange of headers before the data found another step", "if bad(batch): continue",
     "if all_reduce_max(bad(batch)): continue", "Skip a step on all ranks or on none.", ""},

    {"config-differs", "always", "The two runs have different configs.",
     "a key differs between the resolved configs (or the traces' headers), and takes effect where the runs first differ",
     "Adam(parameters, lr, weight_decay=0.1)  # the reference: 0", "Adam(parameters, lr, weight_decay=0)",
     "Give both runs the same value, or make the key an axis of the matrix if its effect is the question.", ""},
    {"unexplained", "always", "No known cause fits, or two fit equally well.",
     "the difference exceeds its tolerance; the evidence lists what was seen", "", "",
     "No single known cause has this pattern. Everything compared before this point agrees: look at what the run does just before "
     "it.",
     ""},
};

}  // namespace

std::span<const CausePage> run_pages() { return kRunPages; }

}  // namespace lockstep::causes
