#include "harness/run/host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

/// The value; empty: not set.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string chosen_name() {
  const std::string chosen = variable("LOCKSTEP_HOST"), node = variable("SLURMD_NODENAME");
  return chosen == "%n" && !node.empty() ? node : chosen;
}

std::string own_name() {
  const std::string chosen = chosen_name();
  return chosen.empty() ? host_name() : chosen;
}

std::string own_address() {
  if (const std::string chosen = variable("LOCKSTEP_ADDRESS"); !chosen.empty()) return chosen;
  const std::string wanted = variable("GLOO_SOCKET_IFNAME");
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "127.0.0.1";
  std::string found;
  for (const ifaddrs* each = all; each != nullptr && found.empty(); each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET || (each->ifa_flags & IFF_UP) == 0) continue;
    if (wanted.empty() ? (each->ifa_flags & IFF_LOOPBACK) != 0 : wanted != each->ifa_name) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
    found = text.data();
  }
  ::freeifaddrs(all);
  return found.empty() ? "127.0.0.1" : found;
}

std::string own_machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string machine;
  if (!std::getline(file, machine) || machine.empty()) return "";
  for (const char* space : {"pid", "net"}) {
    std::error_code error;
    const auto number = std::filesystem::read_symlink(std::string("/proc/self/ns/") + space, error);
    if (error) return "";
    machine += " " + number.string();
  }
  const std::string chosen = chosen_name();
  return chosen.empty() ? machine : machine + " " + chosen;
}

}  // namespace

std::string problem_of_surroundings() {
  std::error_code error;
  (void)std::filesystem::current_path(error);
  if (error) return "the current folder has been deleted: cd to a folder that exists, and start again";
  if (::access("/proc/self/exe", F_OK) != 0)
    return "/proc is not mounted, and ranks are started and watched through it: mount -t proc proc /proc, or give the container one";
  return "";
}

void require_surroundings() {
  if (const std::string problem = problem_of_surroundings(); !problem.empty()) throw MachineError(problem);
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

HostIdentity this_host() { return {own_name(), own_address(), own_machine()}; }

void put_host(nlohmann::json& object, const HostIdentity& host) {
  object["host"] = host.host;
  object["address"] = host.address;
  object["machine"] = host.machine;
}

void take_host(HostIdentity& host, const JsonFields<>& object) {
  host.host = object.value("host", "");
  host.address = object.value("address", "");
  host.machine = object.value("machine", "");
}

bool same_host(const HostIdentity& a, const HostIdentity& b) {
  if (a.machine.empty() && b.machine.empty()) return a.host == b.host;
  return a.machine == b.machine && (a.host == b.host || a.address == b.address);
}

namespace {

constexpr int kNice = -10;
constexpr int kOrdinary = 100;  // no niceness

thread_local int before = kOrdinary;  ///< of a thread that is urgent

}  // namespace

Urgent::Urgent() {
  errno = 0;
  const int now = ::getpriority(PRIO_PROCESS, 0);  // of the calling thread; -1 is a niceness too
  if (errno != 0 || now <= kNice) return;
  raised_ = ::setpriority(PRIO_PROCESS, 0, kNice) == 0;
  if (raised_) before = now;
}

Urgent::~Urgent() {
  if (!raised_) return;
  be_ordinary();
  before = kOrdinary;
}

void Urgent::be_ordinary() {
  if (before != kOrdinary) ::setpriority(PRIO_PROCESS, 0, before);
}

}  // namespace lockstep
