#include "harness/jobs/orders/faults/order.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace lockstep::faults {

nlohmann::json to_json(const Order& order) {
  return {{"kind", order.kind},
          {"wrong", order.wrong},
          {"world", order.world},
          {"rank", order.rank},
          {"step", order.step},
          {"steps", order.steps},
          {"threshold_s", order.threshold_s},
          {"disk_thresholds", order.disk_thresholds},
          {"straggle_share", order.straggle_share},
          {"jitter_s", order.jitter_s},
          {"seed", order.seed},
          {"port", order.port},
          {"records", order.records},
          {"saves", order.saves},
          {"checked", order.checked}};
}

Order order_from_json(const nlohmann::json& json) {
  Order order;
  json.at("kind").get_to(order.kind);
  json.at("wrong").get_to(order.wrong);
  json.at("world").get_to(order.world);
  json.at("rank").get_to(order.rank);
  json.at("step").get_to(order.step);
  json.at("steps").get_to(order.steps);
  json.at("threshold_s").get_to(order.threshold_s);
  json.at("disk_thresholds").get_to(order.disk_thresholds);
  json.at("straggle_share").get_to(order.straggle_share);
  json.at("jitter_s").get_to(order.jitter_s);
  json.at("seed").get_to(order.seed);
  json.at("port").get_to(order.port);
  json.at("records").get_to(order.records);
  json.at("saves").get_to(order.saves);
  json.at("checked").get_to(order.checked);
  return order;
}

std::string expected_words(const FaultKind& kind, const Order& order) {
  std::string text(kind.says);
  const std::pair<const char*, std::string> words[] = {{"{rank}", std::to_string(order.rank)},
                                                       {"{step}", std::to_string(order.step)},
                                                       {"{next_step}", std::to_string(order.step + 1)}};
  for (const auto& [mark, value] : words) {
    for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += value.size())
      text.replace(at, std::string_view(mark).size(), value);
  }
  return text;
}

}  // namespace lockstep::faults
