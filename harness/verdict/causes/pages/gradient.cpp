// Pages of causes in scores, loss and the gradients before the reduction. W = world size.

#include "harness/verdict/causes/catalogue.h"

namespace lockstep::causes {
namespace {

constexpr CausePage kGradientPages[] = {
    {"precision-differs", "energies", "The two runs are configured to compute in different precisions.",
     "the configs' precisions differ, and no energy differs by more than the rounding of the coarser one",
     "precision: bfloat16  # against a float32 reference", "question: outcome  # do both reach the same metric?",
     "Compare values only between runs of one precision; for two precisions use question: outcome.", ""},

    {"loss-times-world", "loss",
     "The loss is multiplied by the number of ranks without need.",
     "loss and every gradient are W times the reference's", "loss = criterion(...) * world_size",
     "loss = criterion(...)  # the gather's backward sums over ranks",
     "Remove the factor: it belongs only to losses that keep their own slice of the gather, and is not exact "
     "there.",
     "lightonai/pylate#156, mlfoundations/open_clip#616"},
    {"loss-over-world", "loss", "The loss is divided by the number of ranks before gradients are averaged.",
     "loss and every gradient are 1/W of the reference's", "loss = criterion(...) / world_size",
     "loss = criterion(...)  # the reduction takes the mean", "Divide once: in the reduction or in the loss.",
     "lightly-ai/lightly#1977"},
    {"mean-of-means", "loss", "Ranks with few rows have the same weight as ranks with many.",
     "each rank's loss is the mean over its own rows, and the ranks have different numbers of rows",
     "loss = row_losses.mean()", "loss = row_losses.sum() * world_size / all_reduce_sum(rows)",
     "Weight by W / (rows of all ranks), and count only rows that are valid.",
     "huggingface/transformers#34191, pytorch/torchtitan#2206, pytorch/pytorch#67253"},
    {"rows-left-out", "loss", "Some rows are left out of the loss.",
     "a rank's loss is the weighted sum of its row losses without one or all of them",
     "loss = row_losses[:-1].sum() * weight", "loss = row_losses.sum() * weight",
     "Sum over all valid rows of the rank.", ""},

    {"sign-flipped", "gradient", "Every gradient has the wrong sign.", "every parameter group's gradient is -1 times the reference's", "(-loss).backward()",
     "loss.backward()", "Minimise the loss; look for a duplicate minus sign.", ""},
    {"gradient-times-world", "gradient", "Local gradients are W times too large although the loss is right.",
     "before the reduction every parameter group's gradient is W times the reference's", "loss.backward(); p.grad *= world_size", "loss.backward()",
     "Remove the factor; it is right only if the reduction is a sum and the loss a mean.",
     "lightonai/pylate#156, texttron/tevatron#143"},
    {"gradient-over-world", "gradient", "Local gradients are W times too small although the loss is right.",
     "before the reduction every parameter group's gradient is 1/W of the reference's", "p.grad /= world_size  # and the reducer divides again",
     "loss.backward()", "Divide once, in the reduction.", "lightly-ai/lightly#1977"},
    {"accumulation-not-scaled", "gradient", "Micro-steps are added without dividing by their number.",
     "every parameter group's gradient is k times the reference's, k being the number of micro-steps", "loss.backward()  # k times", "(loss / k).backward()  # k times",
     "Weight each micro-step by its share of the step's rows.",
     "huggingface/transformers#35438, huggingface/blog#2414, axolotl-ai-cloud/axolotl#2262"},
    {"bit-flip", "gradient", "One bit of one element of a rank's local gradient is wrong.",
     "one element differs, and flipping one bit of one rank's value gives the reference's element",
     "memory without error correction", "memory with error correction; the step computed twice",
     "Repeat the step on that machine; if it recurs, take the machine out of service.", ""},
    {"non-finite", "gradient", "A local gradient contains NaN or infinity.",
     "an element of one rank's gradient is not finite where the reference's is", "x / x.norm()",
     "x / (x.norm() + eps)",
     "Look at the named tensor's inputs on that rank: a division by 0, an overflow in half precision.",
     "KevinMusgrave/pytorch-metric-learning#233"},
};

}  // namespace

std::span<const CausePage> gradient_pages() { return kGradientPages; }

}  // namespace lockstep::causes
