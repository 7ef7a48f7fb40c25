#include "harness/run/launchers/slurm/hello.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "harness/base/json_text.h"
#include "harness/run/identity.h"

namespace lockstep {

using nlohmann::json;

std::string to_line(const AgentHello& hello) {
  json object = {{"key", hello.key}, {"node", hello.node}, {"build", hello.build}, {"isa", hello.isa}, {"pid", hello.pid}, {"slots", hello.slots}};
  put_host(object, hello);
  return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

AgentHello hello_from_line(const std::string& line) {
  const json object = parse_json(line);
  if (!object.is_object() || !object.contains("key") || !object["key"].is_string()) return {};
  AgentHello hello;
  hello.key = object.value("key", "");
  hello.node = object.value("node", "");
  take_host(hello, object);
  hello.build = object.value("build", "");
  hello.isa = object.value("isa", "");
  hello.pid = object.value("pid", 0);
  hello.slots = std::max(1, object.value("slots", 1));
  return hello;
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
