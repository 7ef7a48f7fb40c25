#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/lib/checkpoint/saver.h"
#include "harness/suites/engine/kinds.h"
#include "harness/suites/engine/suite.h"

// What `saver:` holds in a config.

namespace lockstep::saver {

/// What is done to saves.
enum class SearchKind { kill, schedules, power, corruption, errors };
WordList words_of(SearchKind kind);

struct SaverConfig {
  SearchKind search = SearchKind::kill;
  std::vector<int64_t> world_sizes = {1, 2, 4, 8};
  int64_t points = 0;
  int64_t process_points = 0;
  bool planted = true;
};

SaverConfig read_saver_config(const SuiteSource& source, Problems& problems);
nlohmann::ordered_json saver_schema();

// What the suites of the saver library have in common: trials that carry what they run, and planted mistakes.

std::unique_ptr<Suite> make_kill_search(const SaverConfig& config);
std::unique_ptr<Suite> make_schedule_search(const SaverConfig& config);
std::unique_ptr<Suite> make_power_search(const SaverConfig& config);
std::unique_ptr<Suite> make_corruption_search(const SaverConfig& config);
std::unique_ptr<Suite> make_error_search(const SaverConfig& config);

/// A mistake that a search plants to see it found.
struct Mutant {
  std::string_view name, words;
  checkpoint::Planted planted;
};
/// Every one that there is; LOCKSTEP_CHECKs the name.
const Mutant& mutant_named(std::string_view name);

/// What came of the search for one mutant.
struct MutantFound {
  bool found = false;
  int64_t tried = 0;  ///< points, schedules or states, the one that shows it included
  std::string outcome, sentence;
  std::vector<TimelineStep> timeline = {};
};

/// A trial that plants the mutant. Found, it is listed as planted; not found, it is a fault of this suite.
/// `harmless`: why it does no harm in this search; then finding it would be the fault.
Trial mutant_trial(std::string_view name, std::string_view place, std::string_view harmless,
                     std::function<MutantFound()> search);

/// `count` of them, evenly spread; all if count is 0.
template <class T>
std::vector<T> even_sample(const std::vector<T>& all, std::size_t count) {
  if (count == 0 || count >= all.size()) return all;
  std::vector<T> some;
  for (std::size_t i = 0; i < count; ++i) some.push_back(all[i * all.size() / count]);
  return some;
}

}  // namespace lockstep::saver
