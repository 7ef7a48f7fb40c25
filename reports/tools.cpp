#include "reports/tools.h"

#include <bit>
#include <boost/crc.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/base/json.h"

namespace lockstep {
namespace {

// Protocol buffers, as far as TensorBoard's Event needs them.

std::string little(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::string varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  return text += static_cast<char>(value);
}

enum Wire : uint64_t { kVarint = 0, kEight = 1, kBytes = 2, kFour = 5 };
std::string head(uint64_t field, Wire wire) { return varint(field << 3 | wire); }
std::string bytes_field(uint64_t field, std::string_view bytes) {
  return head(field, kBytes) + varint(bytes.size()) + std::string(bytes);
}
std::string whole_field(uint64_t field, uint64_t value) { return head(field, kVarint) + varint(value); }

/// A record of TFRecord: length, its check, the bytes, theirs.
std::string framed(const std::string& bytes) {
  const auto check = [](std::string_view of) {
    const uint32_t crc = crc32c(of);
    return little((crc >> 15 | crc << 17) + 0xa282ead8U, 4);
  };
  const std::string length = little(bytes.size(), 8);
  return length + check(length) + bytes + check(bytes);
}

/// Event: wall_time 1, and step 2, file_version 3, summary 5 with one value.
std::string event(double seconds, const std::string& fields) {
  return framed(head(1, kEight) + little(std::bit_cast<uint64_t>(seconds), 8) + fields);
}
std::string event(double seconds, int64_t step, const std::string& value) {
  return event(seconds, whole_field(2, static_cast<uint64_t>(step)) + bytes_field(5, bytes_field(1, value)));
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

std::string tensorboard_events(const ToolRun& run, double seconds) {
  std::string file = event(seconds, bytes_field(3, "brain.Event:2"));
  // Value: tag 1, simple_value 2; a text is metadata 9, which names the plugin, and a tensor 8 of one string (7).
  for (const auto& [tag, points] : run.scalars)
    for (const auto& [step, value] : points)
      file +=
          event(seconds, step,
                bytes_field(1, tag) + head(2, kFour) + little(std::bit_cast<uint32_t>(static_cast<float>(value)), 4));
  for (const auto& [tag, text] : run.texts) {
    const std::string tensor =
        whole_field(1, 7) + bytes_field(2, bytes_field(2, whole_field(1, 1))) + bytes_field(8, text);
    file +=
        event(seconds, 0,
              bytes_field(1, tag) + bytes_field(9, bytes_field(1, bytes_field(1, "text"))) + bytes_field(8, tensor));
  }
  return file;
}

std::string tool_json(const std::vector<ToolRun>& runs) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const ToolRun& run : runs) {
    nlohmann::ordered_json steps = nlohmann::ordered_json::object();
    std::map<int64_t, std::map<std::string, double>> by_step;
    for (const auto& [tag, points] : run.scalars)
      for (const auto& [step, value] : points) by_step[step][tag] = value;
    for (const auto& [step, values] : by_step)
      for (const auto& [tag, value] : values)
        steps[std::to_string(step)][tag] = json_number<nlohmann::ordered_json>(value);
    all.push_back({{"name", run.name}, {"steps", std::move(steps)}, {"texts", run.texts}});
  }
  return all.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string chrome_trace(const std::vector<ToolCall>& calls) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  std::map<std::string, int> processes;
  for (const ToolCall& call : calls) {
    const auto [process, is_new] = processes.emplace(call.run, static_cast<int>(processes.size()));
    if (is_new)
      events.push_back(
          {{"ph", "M"}, {"name", "process_name"}, {"pid", process->second}, {"args", {{"name", call.run}}}});
    events.push_back({{"ph", "X"},
                      {"name", call.name},
                      {"pid", process->second},
                      {"tid", call.rank},
                      {"ts", call.begin_us},
                      {"dur", call.us},
                      {"args", {{"step", call.step}, {"what", call.what}}}});
  }
  return nlohmann::ordered_json{{"traceEvents", std::move(events)}}.dump(-1, ' ', false,
                                                                         nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace lockstep
