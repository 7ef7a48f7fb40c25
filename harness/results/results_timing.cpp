#include "harness/results/results_timing.h"

namespace lockstep {

using namespace results_fields;

namespace {

Json row_to_json(const TimingRow& row) {
  return {{"group", row.group},
          {"world_size", row.layout.world_size},
          {"rows_per_rank", row.layout.rows_per_rank},
          {"runs", row.runs},
          {"step_seconds", exact(row.step_seconds)},
          {"smallest_seconds", exact(row.interval.low)},
          {"largest_seconds", exact(row.interval.high)},
          {"rows_per_second", exact(row.rows_per_second)},
          {"speed_up", exact(row.speed_up)},
          {"efficiency", exact(row.efficiency)},
          {"communication_share", exact(row.communication_share)},
          {"received_bytes", exact(row.bytes)},
          {"activation_bytes", exact(row.activation_bytes)},
          {"weight_bytes", exact(row.weight_bytes)},
          {"crowded", row.crowded}};
}

TimingRow row_from_json(const Json& json) {
  TimingRow row;
  row.group = json.at("group").get<std::string>();
  row.layout = {json.at("world_size").get<int>(), json.at("rows_per_rank").get<int>()};
  row.runs = json.at("runs").get<int>();
  row.step_seconds = read_exact(json.at("step_seconds"));
  row.interval = {read_exact(json.at("smallest_seconds")), read_exact(json.at("largest_seconds")), 1.0};
  row.rows_per_second = read_exact(json.at("rows_per_second"));
  row.speed_up = read_exact(json.at("speed_up"));
  row.efficiency = read_exact(json.at("efficiency"));
  row.communication_share = read_exact(json.at("communication_share"));
  row.bytes = read_exact(json.at("received_bytes"));
  row.activation_bytes = read_exact(json.at("activation_bytes"));
  row.weight_bytes = read_exact(json.at("weight_bytes"));
  row.crowded = json.at("crowded").get<bool>();
  return row;
}

}  // namespace

Json timing_to_json(const Timing& timing) {
  return {{"cores", timing.cores},
          {"processor", timing.processor},
          {"sentence", timing.sentence},
          {"rows", list(timing.rows, row_to_json)}};
}

Timing timing_from_json(const Json& json) {
  Timing timing;
  timing.cores = json.at("cores").get<int>();
  timing.processor = json.at("processor").get<std::string>();
  timing.sentence = json.at("sentence").get<std::string>();
  timing.rows = read_list(json.at("rows"), row_from_json);
  return timing;
}

}  // namespace lockstep
