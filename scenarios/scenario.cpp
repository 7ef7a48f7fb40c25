#include "scenarios/scenario.h"

#include <array>
#include <stdexcept>
#include <string>

namespace lockstep {
namespace {

constexpr std::array kScenarios{
    ScenarioEntry{"energy", &make_energy_scenario},
    ScenarioEntry{"classify", &make_classify_scenario},
    ScenarioEntry{"flow_rl", &make_flow_rl_scenario},
};

}  // namespace

std::span<const ScenarioEntry> scenarios() { return kScenarios; }

std::unique_ptr<Scenario> make_scenario(std::string_view name) {
  for (const ScenarioEntry& entry : kScenarios) {
    if (entry.name == name) {
      return entry.make();
    }
  }
  throw std::invalid_argument("no scenario is called " + std::string(name));
}

}  // namespace lockstep
