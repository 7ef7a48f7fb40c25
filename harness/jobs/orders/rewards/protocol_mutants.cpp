// Ranks that are not where the others are.

#include <array>

#include "harness/jobs/orders/rewards/mutants.h"

namespace lockstep::rewards {
namespace {

void a_step_behind(MutantPlace, int64_t& step, Convention&, Rows&) { --step; }
void masks_alone(MutantPlace, int64_t&, Convention& convention, Rows&) { convention.non_finite = NonFinite::mask; }
void bessel_alone(MutantPlace, int64_t&, Convention& convention, Rows&) { convention.ddof = 1; }
void one_list_short(MutantPlace, int64_t&, Convention&, Rows& rows) { rows.kl.pop_back(); }
void somebody_elses(MutantPlace at, int64_t&, Convention&, Rows& rows) {
  const Rows others = rows_of(at.one.steps[static_cast<std::size_t>(at.step)], (at.rank + 1) % at.one.world);
  rows.ids.front() = others.ids.front();
}

constexpr Mutant row(std::string_view name, std::string_view cause, std::string_view help,
                     void (*act)(MutantPlace, int64_t&, Convention&, Rows&)) {
  Mutant mutant{name, "protocol", cause, help, 2, false};
  mutant.protocol = act;
  return mutant;
}

constexpr std::array kProtocolMutants{
    row("step_behind", "header-differs", "one rank is a step behind", a_step_behind),
    row("masks_alone", "convention-differs", "one rank masks what the others refuse", masks_alone),
    row("bessel_alone", "convention-differs", "one rank divides by count - 1", bessel_alone),
    row("list_short", "rows-ragged", "one rank has a KL term less than rewards", one_list_short),
    row("row_of_another", "id-repeats", "one rank sends a row of another rank", somebody_elses),
};

}  // namespace

std::span<const Mutant> protocol_mutants() { return kProtocolMutants; }

const std::vector<Mutant>& mutants() {
  static const std::vector<Mutant> kAll = [] {
    std::vector<Mutant> all;
    for (const auto family : {broadcast_mutants(), advantage_mutants(), weight_mutants(), normalizer_mutants(),
                              ratio_mutants(), protocol_mutants()})
      all.insert(all.end(), family.begin(), family.end());
    return all;
  }();
  return kAll;
}

}  // namespace lockstep::rewards
