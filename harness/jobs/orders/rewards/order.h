#pragma once
// Which case ranks are to play, and what a rank answers: the same words for emulated ranks and for real ones.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "harness/jobs/orders/rewards/play.h"

namespace lockstep::rewards {

/// What all cases of a run share.
struct CaseRules {
  uint64_t seed = 0;
  int world = 1;
  int64_t rows = 0;        ///< a rank; 0: drawn
  int64_t group_size = 0;  ///< rows a group; 0: drawn
  bool given = false;      ///< `convention` holds for all cases; else each draws its own
  Convention convention = {};
  double deadline_s = 2;          ///< of cases in which a rank hangs
  double score_deadline_s = 0.3;  ///< of cases in which a reward function hangs
};

/// One case: a random one, one with a mutant, or one with a fault.
struct Order {
  int64_t number = 0;
  std::string mutant;  ///< name; empty: none
  FaultKind fault = FaultKind::none;
};

/// The case of an order, and what is planted in it. Throws std::invalid_argument on an unknown mutant.
Case case_of(const CaseRules& rules, const Order& order);
Plant plant_of(const CaseRules& rules, const Order& order);

/// What one rank answers.
struct Answer {
  std::string digest, numbers, kept;
  std::string code;               ///< of the failure, or of the first finding; empty: none
  std::vector<std::string> also;  ///< of the first finding
  std::string sentence;
  int64_t findings = 0;
  int64_t step = -1;   ///< of the failure or finding
  int64_t acted = -1;  ///< in which the planted mistake first changed anything here
  bool left = false;
};
Answer answer_of(const Played& played);

/// As JSON, for what stands between processes.
nlohmann::json to_json(const CaseRules& rules);
nlohmann::json to_json(const Order& order);
std::string to_text(const Answer& answer);
/// Throw nlohmann::json::exception if the text is none.
CaseRules rules_from_json(const nlohmann::json& json);
Order order_from_json(const nlohmann::json& json);
Answer answer_from_text(const std::string& text);

}  // namespace lockstep::rewards
