#pragma once
// The section `resume` of a config.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/suites/engine/kinds.h"
#include "harness/verdict/config/field.h"

namespace lockstep::resume {

struct ResumeConfig {
  std::string experiment = "stops";
  int64_t seed = 1;
  int64_t ranks = 3;
  int64_t stops = 64;
  int64_t after = 10;
  bool mutants = true;
  std::vector<int64_t> pair_stops = {31, 43};
  std::vector<int64_t> worlds = {1, 2, 3, 4, 5, 8};
  int64_t cycles = 2000;
  int64_t kills_of_a_run = 20;
  int64_t signals = 200;
  int64_t save_every = 4;
  int64_t keep_last = 2;
  int64_t steps = 48;
  double grace_s = 10;
  double deadline_s = 30;
  bool sync = false;
};

/// What is tried; one of a table.
struct Experiment {
  std::string_view name, help;
  std::unique_ptr<Suite> (*make)(const ResumeConfig& config);
};
std::span<const Experiment> experiments();

ResumeConfig read_resume_config(const SuiteSource& source, Problems& problems);
nlohmann::ordered_json resume_schema();

std::unique_ptr<Suite> make_stops(const ResumeConfig& config);
std::unique_ptr<Suite> make_reshard(const ResumeConfig& config);
std::unique_ptr<Suite> make_cycles(const ResumeConfig& config);
std::unique_ptr<Suite> make_preemption(const ResumeConfig& config);

}  // namespace lockstep::resume
