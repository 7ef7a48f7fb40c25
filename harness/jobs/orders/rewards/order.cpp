#include "harness/jobs/orders/rewards/order.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace lockstep::rewards {
namespace {

constexpr double kPatience_s = 60;

/// Every rank has so many rows, and every group.
void shape(Case& one, int64_t rows, int64_t group_size) {
  for (std::size_t at = 0; at < one.steps.size(); ++at) {
    CaseStep& step = one.steps[at];
    if (rows > 0) {
      const CaseStep drawn = step;
      step.rows = {};
      step.ranks.clear();
      for (int64_t i = 0; i < rows * one.world; ++i) {
        if (drawn.ranks.empty()) {
          step.rows.append({{0}, {0}, {0.5}, {0}, {1}, {1}, {0}}, 0);
        } else {
          step.rows.append(drawn.rows, static_cast<std::size_t>(i) % drawn.ranks.size());
        }
        step.rows.ids.back() = 1000 * static_cast<int64_t>(at) + 3 * i;
        step.rows.groups.back() = i / 4;
        step.ranks.push_back(static_cast<int>(i % one.world));
      }
    }
    for (std::size_t i = 0; i < step.rows.size() && group_size > 0; ++i)
      step.rows.groups[i] = static_cast<int64_t>(i) / group_size;
  }
}

}  // namespace

Case case_of(const CaseRules& rules, const Order& order) {
  Case one = order.mutant.empty() ? make_case(rules.seed, order.number, rules.world)
                                  : make_telling_case(rules.seed, order.number, rules.world);
  one.deadline_s = kPatience_s;
  if (order.fault != FaultKind::none) {
    one = make_telling_case(rules.seed, order.number, rules.world);
    one.fault = order.fault;
    one.fault_step = 1;
    one.fault_rank = rules.world - 1;
    // Who is to be found silent is waited for as short as it is said; the others may be slow.
    one.deadline_s = order.fault == FaultKind::rank_hangs ? rules.deadline_s : kPatience_s;
    one.score_deadline_s = order.fault == FaultKind::hangs ? rules.score_deadline_s : kPatience_s / 2;
  }
  if (const Plant plant = plant_of(rules, order); plant.mutant != nullptr) {
    if (plant.mutant->prepare != nullptr) plant.mutant->prepare(one);
    return one;
  }
  if (order.fault == FaultKind::none) {
    if (rules.given) one.convention = rules.convention;
    shape(one, rules.rows, rules.group_size);
  }
  return one;
}

Plant plant_of(const CaseRules& rules, const Order& order) {
  if (order.mutant.empty()) return {};
  const auto found = std::ranges::find(mutants(), order.mutant, &Mutant::name);
  if (found == mutants().end()) throw std::invalid_argument("there is no mutant " + order.mutant);
  // Never rank 0, which is the root where that matters.
  const int rank = rules.world == 1 ? 0 : 1 + static_cast<int>(order.number % (rules.world - 1));
  return {&*found, rank, 1};
}

Answer answer_of(const Played& played) {
  Answer answer{played.digest, played.numbers, played.kept, played.failure.code, {}, played.failure.sentence,
                static_cast<int64_t>(played.findings.size()), played.failed_step, played.acted_step, played.left};
  if (!played.findings.empty()) {
    const Finding& first = played.findings.front();
    answer.code = first.code;
    answer.also = first.also;
    answer.sentence = first.sentence;
    if (first.ranks.size() > 1) answer.sentence += " (" + ranks_in_words(first.ranks) + ")";
    answer.step = played.found_step;
  }
  return answer;
}

nlohmann::json to_json(const CaseRules& rules) {
  return {{"seed", rules.seed},
          {"world", rules.world},
          {"rows", rules.rows},
          {"group_size", rules.group_size},
          {"given", rules.given},
          {"convention", nlohmann::json(to_json(rules.convention))},
          {"deadline_s", rules.deadline_s},
          {"score_deadline_s", rules.score_deadline_s}};
}

nlohmann::json to_json(const Order& order) { return {order.number, order.mutant, static_cast<int>(order.fault)}; }

std::string to_text(const Answer& answer) {
  const nlohmann::json json{answer.digest,   answer.numbers, answer.kept,  answer.code,  answer.also,
                            answer.sentence, answer.findings, answer.step, answer.acted, answer.left};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

CaseRules rules_from_json(const nlohmann::json& json) {
  std::vector<std::pair<std::string, std::string>> problems;
  CaseRules rules;
  rules.seed = json.at("seed");
  rules.world = json.at("world");
  rules.rows = json.at("rows");
  rules.group_size = json.at("group_size");
  rules.given = json.at("given");
  rules.convention = convention_from_json(json.at("convention"), problems);
  rules.deadline_s = json.at("deadline_s");
  rules.score_deadline_s = json.at("score_deadline_s");
  return rules;
}

Order order_from_json(const nlohmann::json& json) {
  return {json.at(0), json.at(1), static_cast<FaultKind>(json.at(2).get<int>())};
}

Answer answer_from_text(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  return {json.at(0), json.at(1), json.at(2), json.at(3), json.at(4).get<std::vector<std::string>>(),
          json.at(5), json.at(6), json.at(7), json.at(8), json.at(9)};
}

}  // namespace lockstep::rewards
