#pragma once
// What `saver:` holds in a config.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "harness/suites/engine/kinds.h"

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

}  // namespace lockstep::saver
