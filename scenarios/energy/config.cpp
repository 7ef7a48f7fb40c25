// The energy trainer's table: one line a key. A test counts the struct's members, so that none is forgotten here.

#include "scenarios/energy/config.h"

#include "harness/verdict/config/catalogue.h"
#include "harness/verdict/config/field.h"
#include "harness/verdict/config/own_settings.h"

namespace lockstep {
namespace {

using namespace ranges;

std::vector<std::string_view> loss_names() {
  std::vector<std::string_view> names;
  for (const CatalogueEntry& entry : catalogue_losses()) names.push_back(entry.name);
  return names;
}

// The member's own spelling is its key.
#define ENERGY(member, ...)                                                                  \
  {                                                                                          \
    {#member, __VA_ARGS__}, [](RunConfig& c) -> FieldRef { return ref_to(energy(c).member); } \
  }
const RunField kFields[] = {
    ENERGY(data.context_steps, kLength, "time steps", "length of the context"),
    ENERGY(data.action_steps, kLength, "time steps", "length of the action chunk that follows the context"),
    ENERGY(data.stride, kLength, "time steps", "every stride-th start in a series gives a pair"),
    ENERGY(data.holdout_series, up_to(1e6), "series",
        "training series held out, spread evenly over the set, to fit the evaluation temperature"),
    ENERGY(data.min_context, kLength, "time steps",
        "contexts keep a length from this to `data.context_steps`, drawn by the pair's index; the front is "
        "masked"),
    ENERGY(data.cache, kAny, "",
        "pairs are cut from their series and standardised once; `false`: again for the rows of each step, with "
        "the same bits"),
    ENERGY(loss, kAny, "", "form of the loss; `lockstep list losses` describes them", Words::any, Setter::user, &loss_names),
    ENERGY(negatives, kAny, "",
        "candidates of the loss: `local`, the rank's own rows; `global`, all ranks' rows; `layer`, explicit ones "
        "of each row; `mixed`, global and explicit; `adaptive` and `adaptive_as_written`, chosen by layout"),
    ENERGY(layer.count, up_to(4096), "negatives", "explicit negatives of each row"),
    ENERGY(layer.layers, Range{0, 255}, "",
        "layers of the action head whose predictions are explicit negatives; []: layers 0, n/3, n/2, n − 2; "
        "default `[]`"),
    ENERGY(layer.as_written, kAny, "",
           "explicit negatives as the published advice has them, mistakes included"),
    ENERGY(model.width, up_to(8192), "", "size of the encodings"),
    ENERGY(model.hidden, up_to(8192), "", "size of the hidden layers"),
    ENERGY(model.action_layers, up_to(256), "layers",
        "layers of the action head, which exists only where explicit negatives need it"),
    ENERGY(tile_columns, from(1), "candidates",
        "energies of this many candidates are held at once; with more candidates the loss takes two passes and "
        "gives the same gradient"),
    ENERGY(mask_duplicates, kAny, "", "candidates with the row's own sample id are not negatives"),
    ENERGY(invalid_rows, kFraction, "", "share of the rows, keyed by sample, that do not count in the loss"),
    ENERGY(activation_checkpointing, kAny, "",
        "context encoder, action encoder and head each keep only their inputs and compute again in the backward "
        "pass: the same bits with less memory (`activation_bytes` of a rank's result)"),
    ENERGY(running_stats, kAny, "",
        "keep a running mean of energies: a sum over ranks and a broadcast by rank 0 at each step"),
    ENERGY(temperature, kScale, "", "initial value of the learned temperature"),
    ENERGY(dropout, kFraction, "", "dropout probability in the energy head"),
    ENERGY(context_noise, kNotNegative, "standard deviations", "noise on the context's standardised channels"),
};
#undef ENERGY

}  // namespace

LOCKSTEP_WORDS(Negatives, adaptive_as_written, "local", "global", "layer", "mixed", "adaptive", "adaptive_as_written")

std::span<const RunField> energy_fields() { return kFields; }

const EnergyConfig& energy(const RunConfig& config) { return own_settings<EnergyConfig>(config, "energy"); }
EnergyConfig& energy(RunConfig& config) { return own_settings<EnergyConfig>(config, "energy"); }

PairConfig pair_config(const RunConfig& config) { return {config.data, energy(config).data}; }

}  // namespace lockstep
