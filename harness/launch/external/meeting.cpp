#include "harness/launch/external/meeting.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/base/atomic_file.h"
#include "harness/base/clock.h"
#include "harness/base/errors.h"
#include "harness/base/hex.h"
#include "harness/base/json_text.h"
#include "harness/base/read_file.h"

namespace lockstep {
namespace {

using nlohmann::json;

/// A shared file system tells nobody that a file has come.
constexpr int kLookEvery_ms = 10;
constexpr uint64_t kMostBytes = 1 << 20;

void wait_a_moment() { ::poll(nullptr, 0, kLookEvery_ms); }

std::string answer_file(const std::string& run_dir) { return run_dir + "/rendezvous.json"; }

json to_json(const Arrival& a) {
  return {{"rank", a.rank}, {"world", a.world}, {"local_rank", a.local_rank}, {"nonce", a.nonce},
          {"host", a.host}, {"address", a.address}, {"port", a.port}, {"pid", a.pid}, {"contract", a.contract},
          {"build", a.build}, {"isa", a.isa}, {"device", a.device}, {"accepted", a.accepted}};
}

Arrival from_json(const json& j) {
  Arrival a;
  a.rank = j.value("rank", 0);
  a.world = j.value("world", 1);
  a.local_rank = j.value("local_rank", -1);
  a.nonce = j.value("nonce", "");
  a.host = j.value("host", "");
  a.address = j.value("address", "");
  a.port = j.value("port", 0);
  a.pid = j.value("pid", 0);
  a.contract = j.value("contract", "");
  a.build = j.value("build", "");
  a.isa = j.value("isa", "");
  a.device = j.value("device", "");
  a.accepted = j.value("accepted", "");
  return a;
}

std::optional<json> read_object(const std::string& path) {
  const FileText file = read_file(path, kMostBytes);
  if (!file) return std::nullopt;
  json object = parse_json(file.text);
  if (!object.is_object()) return std::nullopt;
  return object;
}

void write_object(const std::string& path, const json& object) {
  write_file_atomically(path, object.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

std::string own_host() {
  if (const char* chosen = std::getenv("LOCKSTEP_HOST"); chosen != nullptr && *chosen != '\0') {
    const char* node = std::getenv("SLURMD_NODENAME");
    return std::strcmp(chosen, "%n") == 0 && node != nullptr ? node : chosen;
  }
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string own_address() {
  if (const char* chosen = std::getenv("LOCKSTEP_ADDRESS"); chosen != nullptr && *chosen != '\0') return chosen;
  const char* wanted = std::getenv("GLOO_SOCKET_IFNAME");
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "127.0.0.1";
  std::string found;
  for (const ifaddrs* each = all; each != nullptr && found.empty(); each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET || (each->ifa_flags & IFF_UP) == 0) continue;
    const bool named = wanted != nullptr && *wanted != '\0';
    if (named ? std::strcmp(wanted, each->ifa_name) != 0 : (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
    found = text.data();
  }
  ::freeifaddrs(all);
  return found.empty() ? "127.0.0.1" : found;
}

int devices_of_machine() {
  int count = 0;
  while (std::filesystem::exists(fmt::format("/dev/nvidia{}", count))) ++count;
  return count;
}

std::string device_text(int local_rank) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const int device = device_of(local_rank, visible == nullptr ? std::nullopt : std::optional<std::string>(visible),
                               devices_of_machine());
  return device < 0 ? "cpu" : fmt::format("cuda:{}", device);
}

Met of_answer(const json& answer) {
  Met met;
  met.start = answer.value("start", "");
  met.tcp = answer.value("tcp", false);
  met.host = answer.value("host", "");
  met.port = answer.value("port", 0);
  met.one_host = answer.value("one_host", true);
  return met;
}

std::string who(const Arrival& a) { return fmt::format("process {} on {}", a.pid, a.host); }

/// Rank 0's side.
class Host {
 public:
  Host(const std::string& run_dir, const Arrival& mine, const std::string& store, double deadline)
      : run_dir_(run_dir), mine_(mine), store_(store), deadline_(deadline) {
    ranks_.resize(static_cast<std::size_t>(mine.world));
    ranks_[0] = mine;
  }

  Met gather() {
    for (;;) {
      const bool changed = look();
      if (missing().empty() && changed) publish();
      if (missing().empty() && all_accepted()) return met_;
      if (monotonic_s() > deadline_) throw MeetingError(lateness());
      wait_a_moment();
    }
  }

 private:
  bool look() {
    bool changed = met_.start.empty();
    for (int rank = 1; rank < mine_.world; ++rank) {
      Arrival& known = ranks_[static_cast<std::size_t>(rank)];
      if (known.accepted == mine_.nonce) continue;
      Arrival found = read_arrival(run_dir_, rank);
      if (found.nonce.empty()) continue;
      changed = changed || found.nonce != known.nonce;
      known = std::move(found);
    }
    return changed;
  }
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < mine_.world; ++rank)
      if (ranks_[static_cast<std::size_t>(rank)].nonce.empty()) ranks.push_back(rank);
    return ranks;
  }
  bool all_accepted() const {
    for (std::size_t rank = 1; rank < ranks_.size(); ++rank)
      if (ranks_[rank].accepted != mine_.nonce) return false;
    return !met_.start.empty();
  }
  void publish() {
    met_.ranks = ranks_;
    met_.start = mine_.nonce;
    json nonces = json::array();
    for (const Arrival& each : ranks_) {
      nonces.push_back(each.nonce);
      met_.one_host = met_.one_host && each.host == mine_.host;
    }
    met_.tcp = store_.empty() ? !met_.one_host : store_ == "tcp";
    met_.host = met_.one_host ? "127.0.0.1" : mine_.address;
    met_.port = mine_.port;
    write_object(answer_file(run_dir_), {{"start", met_.start}, {"nonces", nonces}, {"tcp", met_.tcp}, {"host", met_.host},
                                         {"port", met_.port}, {"one_host", met_.one_host}, {"first", to_json(mine_)}});
  }
  std::string lateness() const {
    std::vector<int> late = missing();
    const bool silent = late.empty();
    if (silent) {
      for (int rank = 1; rank < mine_.world; ++rank)
        if (ranks_[static_cast<std::size_t>(rank)].accepted != mine_.nonce) late.push_back(rank);
    }
    return fmt::format("{} of {} did not {} in time: {} {}. Did the starter bring {} processes, and do all of them see {}?",
                       late.size() == 1 ? "a rank" : "ranks", mine_.world, silent ? "answer" : "come",
                       late.size() == 1 ? "rank" : "ranks", fmt::join(late, ", "), mine_.world, run_dir_);
  }

  const std::string& run_dir_;
  const Arrival& mine_;
  const std::string& store_;
  double deadline_;
  std::vector<Arrival> ranks_;
  Met met_;
};

Met join(const std::string& run_dir, Arrival mine, double deadline) {
  const auto index = static_cast<std::size_t>(mine.rank);
  for (;;) {
    if (const auto answer = read_object(answer_file(run_dir))) {
      const json nonces = answer->value("nonces", json::array());
      if (nonces.size() == static_cast<std::size_t>(mine.world) && nonces[index] == mine.nonce) {
        Met met = of_answer(*answer);
        met.ranks.resize(static_cast<std::size_t>(mine.world));
        met.ranks[0] = from_json(answer->value("first", json::object()));
        mine.accepted = met.start;
        met.ranks[index] = mine;
        write_object(start_file(run_dir, mine.rank), to_json(mine));
        return met;
      }
    }
    const Arrival now = read_arrival(run_dir, mine.rank);
    if (!now.nonce.empty() && now.nonce != mine.nonce)
      throw MeetingError(fmt::format("two processes are rank {}: {} and {}", mine.rank, who(mine), who(now)));
    if (monotonic_s() > deadline) {
      const Arrival first = read_arrival(run_dir, 0);
      throw MeetingError(first.nonce.empty()
                             ? fmt::format("rank 0 did not come in time; rank {} waited in {}", mine.rank, run_dir)
                             : fmt::format("rank 0 ({}) did not answer in time: other ranks may be missing", who(first)));
    }
    wait_a_moment();
  }
}

}  // namespace

std::string start_file(const std::string& run_dir, int rank) { return fmt::format("{}/rank-{}.start.json", run_dir, rank); }

Arrival read_arrival(const std::string& run_dir, int rank) {
  const auto object = read_object(start_file(run_dir, rank));
  return object ? from_json(*object) : Arrival{};
}

Arrival introduce(const Contract& contract) {
  Arrival mine;
  mine.rank = contract.rank;
  mine.world = contract.world;
  mine.local_rank = contract.local_rank;
  mine.contract = contract.name;
  mine.host = own_host();
  mine.address = own_address();
  mine.pid = ::getpid();
  mine.device = device_text(contract.local_rank);
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  mine.nonce = hash_in_hex(fmt::format("{} {} {} {} {}", mine.host, mine.pid, mine.rank, now.tv_sec, now.tv_nsec));
  return mine;
}

Met meet(const std::string& run_dir, Arrival mine, const std::string& store, double deadline_s) {
  const double deadline = monotonic_s() + deadline_s;
  write_object(start_file(run_dir, mine.rank), to_json(mine));
  if (mine.rank != 0) return join(run_dir, std::move(mine), deadline);
  return Host(run_dir, mine, store, deadline).gather();
}

std::string difference_of_identity(const Arrival& first, const Arrival& mine) {
  std::string text;
  if (first.build != mine.build)
    text = fmt::format("rank 0 runs the build {} and rank {} the build {}", first.build, mine.rank, mine.build);
  if (first.isa != mine.isa) {
    text += fmt::format("{}rank 0 computes on {} and rank {} on {}", text.empty() ? "" : "; ", first.isa, mine.rank, mine.isa);
  }
  if (text.empty()) return "";
  return fmt::format("{} (hosts {} and {}): their bits may differ. Install one build on all hosts, choose hosts of one kind, "
                     "or say --mixed", text, first.host, mine.host);
}

int listening_socket(int& port) {
  const int listening = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t size = sizeof any;
  auto* const address = reinterpret_cast<sockaddr*>(&any);
  if (listening < 0 || ::bind(listening, address, size) != 0 || ::listen(listening, SOMAXCONN) != 0 ||
      ::getsockname(listening, address, &size) != 0) {
    throw MachineError(std::string("cannot listen for the other ranks: ") + std::strerror(errno));
  }
  port = ntohs(any.sin_port);
  return listening;
}

std::string unreachable_text(const Met& met, const Arrival& mine, double deadline_s) {
  const auto failed = [&](const std::string& why) {
    return fmt::format("rank 0 (host {}) listens at {}:{} and rank {} (host {}) cannot reach it: {}. Set LOCKSTEP_ADDRESS or "
                       "GLOO_SOCKET_IFNAME on rank 0's host to what the other hosts see, or LOCKSTEP_STORE=file",
                       met.ranks.front().host, met.host, met.port, mine.rank, mine.host, why);
  };
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(static_cast<uint16_t>(met.port));
  if (::inet_pton(AF_INET, met.host.c_str(), &there.sin_addr) != 1) return failed("no IPv4 address");
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  int error = 0;
  if (::connect(probe, reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      pollfd wait{probe, POLLOUT, 0};
      socklen_t size = sizeof error;
      if (::poll(&wait, 1, static_cast<int>(deadline_s * 1000)) <= 0)
        error = ETIMEDOUT;
      else
        ::getsockopt(probe, SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  ::close(probe);
  return error == 0 ? "" : failed(std::strerror(error));
}

}  // namespace lockstep
