#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "harness/judge/causes/gradient.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/forced/update.h"
#include "scenarios/causes.h"
#include "scenarios/energy/spec.h"

namespace lockstep {
namespace {

using namespace causes;

/// Roles of the energy model's groups of parameters.
struct EnergyRole {
  enum : Role { context, action, head, temperature, action_head, other };
};

/// A group of the energy model's parameters, and what any model that scores rows against candidates declares.
struct RoleNames {
  std::string_view group, declared;
  Role role;
};
constexpr auto kRoles = std::to_array<RoleNames>({
    {"context_encoder", "row encoder", EnergyRole::context},
    {"action_encoder", "candidate encoder", EnergyRole::action},
    {"energy_head", "score head", EnergyRole::head},
    {"temperature", "temperature", EnergyRole::temperature},
    {"action_head", "candidate head", EnergyRole::action_head},
    {"", "other", EnergyRole::other},
});

Role role_of(std::string_view group) {
  const auto at = std::ranges::find(kRoles, group, &RoleNames::group);
  return at == kRoles.end() ? Role{EnergyRole::other} : at->role;
}

std::optional<Role> role_named(std::string_view name) {
  const auto at = std::ranges::find(kRoles, name, &RoleNames::declared);
  return at == kRoles.end() ? std::nullopt : std::optional(at->role);
}

// Causes of wrong energies that rest on what the energy trainer's config says; those of any scores of candidates stand with the rules of
// any trainer.
Answer mask_ignored(const CauseInputs& inputs) {
  const std::vector<AlignedRow> rows = aligned_rows(inputs);
  if (rows.size() < 2 || misses_scores(inputs) || !inputs.cell_config) return std::nullopt;
  if (energy(*inputs.cell_config).data.min_context >= energy(*inputs.cell_config).data.context_steps) return std::nullopt;
  const WrongScores wrong = wrong_in(rows, inputs.forced->score_band);
  std::size_t whole = 0;
  std::set<int> ranks;
  for (const AlignedRow& row : rows) {
    const auto found = wrong.by_row.find(row.id);
    if (found == wrong.by_row.end()) continue;
    if (10 * found->second < 9 * row.columns.size()) return std::nullopt;
    ++whole;
    ranks.insert(row.rank);
  }
  // Padding is a matter of the sample: rows that differ stand beside rows that do not, on more than one rank.
  if (whole < 2 || whole == rows.size() || (world_size_of(inputs) > 1 && ranks.size() < 2))
    return std::nullopt;
  bool mixed = world_size_of(inputs) == 1;
  for (const auto& [rank, count] : wrong.by_rank) mixed = mixed || count < wrong.of_rank.at(rank);
  if (!mixed) return std::nullopt;
  return made("mask-ignored", kFits,
              "{} of {} rows differ in all their energies and the others in none; contexts of {} to {} steps are "
              "padded",
              whole, rows.size(), energy(*inputs.cell_config).data.min_context,
              energy(*inputs.cell_config).data.context_steps);
}

// Causes of wrong local gradients of the energy model: the mean over ranks against the reference, role by
// role, in closed forms.
/// Factors of the groups, those that are not named 1; the world size, or one over it, as a sign of its own.
struct Pattern {
  double context = 1, action = 1, head = 1, temperature = 1;
};
constexpr double kWorldSize = 1e6, kOverWorldSize = 1e-6;

/// Has every group its factor, and is a factor other than 1 told by a gradient that is not mere rounding?
template <Pattern pattern>
Answer by_pattern(const StepGradients& local) {
  const Signatures signatures = local.signatures();
  const std::pair<Role, double> roles[] = {{EnergyRole::context, pattern.context},
                                           {EnergyRole::action, pattern.action},
                                           {EnergyRole::head, pattern.head},
                                           {EnergyRole::temperature, pattern.temperature},
                                           {EnergyRole::action_head, 1},
                                           {EnergyRole::other, 1}};
  bool is_told = false;
  for (const auto& [role, written] : roles) {
    const double world = local.world;
    const double factor = written == kWorldSize ? world : written == kOverWorldSize ? 1 / world : written;
    if (!signatures.fits(role, factor)) return {};
    if (factor == 1 || !signatures.has(role)) continue;
    if (!signatures.tells(role)) return {};
    is_told = true;
  }
  return is_told ? Answer(told(local.text())) : std::nullopt;
}

Answer gather_backward_sliced(const StepGradients& local) {
  if (local.world < 2) return std::nullopt;
  const Signatures signatures = local.signatures();
  for (const Role role : {EnergyRole::context, EnergyRole::head, EnergyRole::temperature,
                          EnergyRole::action_head, EnergyRole::other}) {
    if (!signatures.inside(role)) return std::nullopt;
  }
  if (!signatures.no_factor_fits(EnergyRole::action) || rank_of_local_fault(*local.evidence) >= 0) return std::nullopt;
  return told(local.text());
}

Answer candidates_not_detached(const CauseInputs& inputs, const StepGradients& local) {
  const Signatures signatures = local.signatures();
  if (!signatures.has(EnergyRole::action_head) || signatures.inside(EnergyRole::action_head)) return std::nullopt;
  // What the predictions are made from may get a gradient too; head and temperature see the same energies.
  if (!signatures.inside(EnergyRole::head) || !signatures.inside(EnergyRole::temperature)) return std::nullopt;
  const bool none = signatures.zero_in_reference(EnergyRole::action_head);
  const bool made_from_predictions =
      inputs.cell_config && (energy(*inputs.cell_config).negatives == Negatives::layer ||
                             energy(*inputs.cell_config).negatives == Negatives::mixed);
  if (!none && !(made_from_predictions && signatures.some_factor_fits_not(EnergyRole::action_head)))
    return std::nullopt;
  return told(none ? kExact : kFits, "{}{}",
              none ? "the action head has a gradient, and in the reference none: " : "", local.text());
}

Answer dropout_not_replayed(const CauseInputs& inputs, const StepGradients& local) {
  if (!inputs.cell_config || energy(*inputs.cell_config).dropout <= 0) return std::nullopt;
  if (energy(*inputs.cell_config).tile_columns >= inputs.cell_config->layout.global_batch()) return std::nullopt;
  const Signatures signatures = local.signatures();
  if (!signatures.has(EnergyRole::temperature) || !signatures.inside(EnergyRole::temperature)) return std::nullopt;
  for (const Role role : {EnergyRole::context, EnergyRole::action, EnergyRole::head})
    if (!signatures.has(role) || signatures.inside(role)) return std::nullopt;
  if (!signatures.no_factor_fits(EnergyRole::action) || rank_of_local_fault(*local.evidence) >= 0) return std::nullopt;
  return told("tiles of {} columns in two passes with dropout {}: energies, loss and the temperature's gradient are "
              "right and no other gradient is; {}",
              energy(*inputs.cell_config).tile_columns, energy(*inputs.cell_config).dropout, local.text());
}

// Causes of a wrong loss of the energy model that rest on the roles of its parameters.

/// The own slice put back behind the gather, and the loss multiplied by the world size for it.
Answer own_slice_times_world_in_loss(const CauseInputs& inputs) {
  const double world = world_size_of(inputs);
  if (!loss_is(inputs, world)) return std::nullopt;
  const auto gradients = gradients_of(inputs);
  const Signatures signatures = gradients->signatures();
  const bool own_slice = signatures.fits(EnergyRole::context, 1) && signatures.fits(EnergyRole::action, 1) &&
                         signatures.fits(EnergyRole::head, world) &&
                         signatures.fits(EnergyRole::temperature, world) &&
                         signatures.tells(EnergyRole::head);
  if (!own_slice || signatures.all_fit(world)) return std::nullopt;
  return told("the loss is {} times the reference's; {}", factor_text(world, world_size_of(inputs)), gradients->text());
}

constexpr double kW = kWorldSize, kOverW = kOverWorldSize;
// What needs the trainer itself has no closed form, or rests on its config; the others hold for any model of these
// roles.
constexpr Hypothesis kHypotheses[] = {
    {"mask-ignored", kInScores, kScores | kOurs, kFits, mask_ignored},
    {"gather-own-slice-times-world", kInLoss, kValues | kWorld, kExact, own_slice_times_world_in_loss},
    {"gather-own-slice-times-world", kInGradients, kLocal | kWorld, kExact,
     of_local<by_pattern<Pattern{1, 1, kW, kW}>>},
    {"gather-without-gradient", kInGradients, kLocal | kWorld, kExact, of_local<by_pattern<Pattern{0, 0, 1, 1}>>},
    {"gather-own-slice", kInGradients, kLocal | kWorld, kExact, of_local<by_pattern<Pattern{kOverW, kOverW, 1, 1}>>},
    {"gather-averaged", kInGradients, kLocal | kWorld, kExact, of_local<by_pattern<Pattern{1, kOverW, 1, 1}>>},
    {"temperature-reduced-twice", kInGradients, kLocal | kWorld, kExact, of_local<by_pattern<Pattern{1, 1, 1, kW}>>},
    {"candidates-detached", kInGradients, kLocal, kExact, of_local<by_pattern<Pattern{1, 0, 1, 1}>>},
    {"head-counted-twice", kInGradients, kLocal, kExact, of_local<by_pattern<Pattern{1, 1, 2, 2}>>},
    {"temperature-detached", kInGradients, kLocal, kExact, of_local<by_pattern<Pattern{1, 1, 1, 0}>>},
    {"context-detached", kInGradients, kLocal, kExact, of_local<by_pattern<Pattern{0, 1, 1, 1}>>},
    {"gather-backward-sliced", kInGradients, kLocal | kWorld | kOurs, kFits, of_local<gather_backward_sliced>},
    {"candidates-not-detached", kInGradients, kLocal | kOurs, kExact, of_local<candidates_not_detached>},
    {"dropout-not-replayed", kInGradients, kLocal | kOurs, 0.75, of_local<dropout_not_replayed>},
};

// Pages of the causes that only the energy trainer has. W = world size.
constexpr CausePage kPages[] = {
    {"local-negatives", "energies", "Each rank contrasts its rows only with its own rows.",
     "a rank's energies have one column for each of its own rows; the reference has one for each row of the global batch; or a rank's gradient is what one process makes of that rank's rows alone",
     "logits = -energy(h, a_local) / tau", "logits = -energy(h, all_gather(a)) / tau",
     "Gather the candidates of all ranks, or compare with a reference with equally few negatives.",
     "openai/CLIP#25, UKPLab/sentence-transformers#2831, UKPLab/sentence-transformers#3149, "
     "facebookresearch/DPR#109"},
    {"negatives-missing", "energies", "Some candidates of the reference are missing from the rows.",
     "the energies have fewer columns than the reference's, but more than the rank's own rows",
     "all = gathered[:n]  # the last rank's rows are cut off", "all = gathered[valid]",
     "Compare the gathered row counts with the headers: every valid row of every rank must be a candidate.", ""},
    {"candidates-misordered", "energies", "Gathered candidates are in a different order from their ids.",
     "each energy equals the reference's of another column, or the columns are shifted by a constant; or the run agrees once one gather has its rows in another order",
     "all = torch.cat(parts[1:] + parts[:1])", "all = torch.cat(parts)  # in rank order",
     "Order gathered parts by rank, and gather ids beside the data with the same call.",
     "UKPLab/sentence-transformers#3453"},
    {"mask-ignored", "energies", "Padding is used as data.",
     "rows with padding differ in all their energies, and rows without padding in none",
     "score = softmax(q @ k.T)", "score = softmax(where(mask, q @ k.T, -inf))",
     "Apply the padding mask in every reduction over time: where(mask, score, -inf).", ""},
    {"candidates-in-low-precision", "energies", "Candidates are gathered in a 16-bit type.",
     "nearly all energies differ by about 1e-3 of their spread, without a pattern",
     "all = all_gather(a.to(torch.bfloat16))", "all = all_gather(a.float())",
     "Gather in float32, and take the log-sum-exp in float32 at least.", "huggingface/accelerate#134"},

    {"label-offset", "loss", "Labels do not point at the columns of the rows' own candidates.",
     "the recorded row losses follow from labels i instead of rank * b + i (b rows a rank), or from another constant shift; or the run agrees once each rank's own rows come first in what it gathers",
     "target = torch.arange(b)", "target = torch.arange(b) + rank * b",
     "Add the rank's offset among the gathered candidates to the labels.",
     "modelscope/ms-swift#10069, modelscope/ms-swift#5477"},
    {"padding-not-masked", "loss", "Rows that only pad the ranks to equal counts are used as negatives.",
     "the recorded row losses, or the columns, include candidates that belong to no row", "logits = -E / tau",
     "logits = torch.where(valid, -E / tau, -inf)", "Mask padded columns with -inf after the gather.", ""},
    {"duplicates-not-masked", "loss", "A candidate that is no negative (a second copy of the sample, a row of its class) is used as one.",
     "with mask_duplicates, the recorded row losses include columns with the row's own sample id; or of as many candidates the ranks mask fewer than one process does",
     "logits = -E / tau", "logits = where((ids_i != ids_j) | own, -E / tau, -inf)",
     "Gather sample ids with the candidates and mask equal ids with -inf.",
     "fartashf/vsepp#6, UKPLab/sentence-transformers#2732"},
    {"temperature-applied-twice", "loss", "Logits are divided by the temperature twice.",
     "the recorded row losses follow from logits -E / tau^2; or all that the softmax takes is 1/tau times the reference's",
     "logits = -energy(h, a) / tau  # energy divides already", "logits = -energy(h, a)",
     "Divide once; do not apply the temperature to the energies.", "openai/CLIP#111"},

    {"gather-without-gradient", "gradient", "The gather has no backward: encoders get no gradient from what is gathered.",
     "gradients over the reference's: encoders 0, head and temperature 1 (each rank computes the full block); or the run agrees once its gathers carry gradients",
     "dist.all_gather(parts, encoded)\nall = torch.cat(parts)", "all = AllGatherWithSum.apply(encoded)",
     "Use a gather whose backward is a reduce-scatter sum, or gather raw data and encode it on every rank.",
     "facebookresearch/SLIP#31, HobbitLong/SupContrast#26, huggingface/accelerate#1154"},
    {"gather-own-slice", "gradient", "Only the rank's own slice of the gather carries gradient.",
     "gradients over the reference's: encoders 1/W, head and temperature 1", "parts[rank] = encoded  # put the own slice back",
     "all = AllGatherWithSum.apply(encoded)",
     "Use a gather whose backward is a reduce-scatter sum; a factor on the loss cannot correct both groups.",
     "lightly-ai/lightly#1977, modelscope/ms-swift#10081"},
    {"gather-own-slice-times-world", "gradient",
     "The rank's own slice is put back, and the loss is multiplied by the world size.",
     "gradients over the reference's: encoders 1, head and temperature W",
     "parts[rank] = encoded\nloss = criterion(...) * world_size",
     "all = AllGatherWithSum.apply(encoded)\nloss = criterion(...)",
     "Use a gather with a summing backward and no factor: the factor is wrong for every value that was not gathered.",
     "texttron/tevatron#30, JohnGiorgi/DeCLUTR#212"},
    {"candidates-detached", "gradient", "Gathered candidates carry no gradient to their encoder.",
     "gradients over the reference's: action encoder 0, all others 1 (each rank computes its own rows)", "all = all_gather(encode(a).detach())",
     "all = encode(all_gather(a))  # raw data needs no gradient",
     "Gather raw actions and encode all of them on each rank, or use a gather with a summing backward.",
     "Lightning-AI/pytorch-lightning#4448"},
    {"gather-backward-sliced", "gradient",
     "The gather's backward keeps the rank's own slice and does not sum over ranks.",
     "gradients over the reference's: action encoder of another direction (no factor fits), all others 1",
     "def backward(ctx, g): return g[rank]", "def backward(ctx, g): return reduce_scatter_sum(g)",
     "Sum the gradient over ranks before taking the own slice.",
     "lightly-ai/lightly#1528, cellarium-ai/cellarium-ml#184"},
    {"gather-averaged", "gradient", "The gather's backward averages over ranks.",
     "gradients over the reference's: action encoder 1/W, all others 1", "def backward(ctx, g): return reduce_scatter_mean(g)",
     "def backward(ctx, g): return reduce_scatter_sum(g)",
     "Sum in the backward: the mean is taken once, in the reduction of the parameters' gradients.",
     "pytorch/pytorch#58005"},
    {"temperature-reduced-twice", "gradient",
     "The temperature's gradient is summed by hand and then also averaged by the reducer.",
     "gradients over the reference's: temperature W, all others 1", "dist.all_reduce(tau.grad)  # DDP reduces it again",
     "# leave it to the reducer", "Reduce each gradient once.", ""},
    {"head-counted-twice", "gradient",
     "A row block and a column block, each with the other side detached, count the head twice.",
     "gradients over the reference's: energy head and temperature 2, encoders 1", "loss = ce(E(h, A.detach())) + ce(E(H.detach(), a))",
     "loss = 0.5 * (row_loss + column_loss)  # one block, column log-sum-exp exchanged",
     "Use one block, or halve the gradients that both blocks share.", ""},
    {"temperature-detached", "gradient", "The temperature gets no gradient.",
     "gradients over the reference's: temperature 0, all others 1", "logits = -E / tau.detach()", "logits = -E / tau",
     "Let the loss depend on the parameter itself.", ""},
    {"context-detached", "gradient", "The context encoder gets no gradient.",
     "gradients over the reference's: context encoder 0, all others 1", "h = encode_context(x).detach()", "h = encode_context(x)",
     "Remove the detach from the row's own context.", ""},
    {"candidates-not-detached", "gradient", "Negatives made from predictions train the prediction head.",
     "the action head has a gradient, although it must have none", "negatives = head.predict(h)",
     "negatives = head.predict(h).detach()",
     "Stop the gradient at explicit candidates; otherwise the head learns to predict badly.", ""},
};

std::span<const CausePage> pages() { return kPages; }
std::span<const Hypothesis> hypotheses() { return kHypotheses; }

}  // namespace

const causes::TrainerRules& energy_cause_rules() {
  static constexpr TrainerRules kRules{.role_of = role_of,
                                       .hypotheses = hypotheses,
                                       .role_named = role_named,
                                       .pages = pages};
  return kRules;
}

}  // namespace lockstep
