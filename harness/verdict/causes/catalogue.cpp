#include "harness/verdict/causes/catalogue.h"

#include <algorithm>
#include <array>

#include "harness/verdict/causes/rules.h"

namespace lockstep {
namespace {

/// Families in the order of a step, and what belongs to no step after them.
constexpr std::array<std::string_view, 12> kFamilies = {"samples",  "random", "control",   "energies",
                                                        "loss",     "gradient", "reduction", "update",
                                                        "replicas", "ledger",   "failed",    "always"};

/// A family that stands nowhere in the order comes before what belongs to no step.
std::size_t place_of(std::string_view family) {
  const auto at = std::ranges::find(kFamilies, family);
  return static_cast<std::size_t>((at == kFamilies.end() ? kFamilies.end() - 2 : at) - kFamilies.begin());
}

}  // namespace

std::span<const CausePage> cause_pages() {
  static const std::vector<CausePage> pages = [] {
    std::vector<CausePage> all;
    for (const causes::RulesOfTrainer& it : causes::all_trainer_rules()) {
      if (!it.rules->pages) continue;
      const auto own = it.rules->pages();
      all.insert(all.end(), own.begin(), own.end());
    }
    for (const auto family :
         {causes::data_pages(), causes::reward_pages(), causes::gradient_pages(), causes::reduction_pages(),
          causes::run_pages()}) {
      all.insert(all.end(), family.begin(), family.end());
    }
    std::ranges::stable_sort(all, {}, [](const CausePage& page) { return place_of(page.family); });
    return all;
  }();
  return pages;
}

const CausePage* find_cause_page(std::string_view code) {
  const std::span<const CausePage> pages = cause_pages();
  const auto found =
      std::find_if(pages.begin(), pages.end(), [&](const CausePage& page) { return page.code == code; });
  return found == pages.end() ? nullptr : &*found;
}

}  // namespace lockstep
