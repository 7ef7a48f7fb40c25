#include "harness/run/launchers/slurm/hello.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "harness/base/json_text.h"
#include "harness/run/identity.h"
#include "harness/run/launchers/external/object_file.h"

namespace lockstep {

using nlohmann::json;

namespace {

constexpr int kMostSlots = 1 << 16;
constexpr uint64_t kMostKeyBytes = 1 << 12;

}  // namespace

std::string to_line(const AgentHello& hello) {
  json object = {{"key", hello.key}, {"node", hello.node}, {"build", hello.build}, {"isa", hello.isa}, {"pid", hello.pid}, {"slots", hello.slots}};
  put_host(object, hello);
  return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

AgentHello hello_from_line(const std::string& line) {
  const json object = parse_json(line);
  const JsonFields fields(object, "an agent's hello");
  AgentHello hello;
  hello.key = fields.at<std::string>("key");
  hello.node = fields.value("node", "");
  take_host(hello, fields);
  hello.build = fields.value("build", "");
  hello.isa = fields.value("isa", "");
  hello.pid = fields.value("pid", 0);
  hello.slots = std::clamp(fields.value("slots", 1), 1, kMostSlots);
  return hello;
}

std::string key_in_file(const std::string& path) {
  return read_fields(path, kMostKeyBytes, [](const JsonFields<>& object) { return object.value("key", ""); }).value_or("");
}

AgentHello introduce_agent(const std::string& key) {
  AgentHello hello;
  static_cast<HostIdentity&>(hello) = this_host();
  hello.key = key;
  hello.pid = ::getpid();
  hello.build = hash_of_file("/proc/self/exe");
  hello.isa = instruction_sets();
  const char* node = std::getenv("SLURMD_NODENAME");
  hello.node = node != nullptr ? node : hello.host;
  const char* processors = std::getenv("SLURM_CPUS_ON_NODE");
  hello.slots = processors != nullptr ? std::max(1, std::atoi(processors)) : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return hello;
}

}  // namespace lockstep
