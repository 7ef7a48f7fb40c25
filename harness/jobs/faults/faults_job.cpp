#include "harness/jobs/jobs.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/version.h>

#include "harness/base/clock.h"
#include "harness/jobs/abort_listener.h"
#include "harness/jobs/faults/fault_program.h"
#include "harness/jobs/rank_watch.h"
#include "harness/run/failure.h"
#include "harness/run/run_folder.h"
#include "harness/trainers/comm/checked.h"
#include "harness/trainers/comm/gloo.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/comm/preflight_check.h"
#include "harness/verdict/trace/rank_result.h"

namespace lockstep {
namespace {

using faults::Order;

constexpr double kNever_s = 3600;

/// The second communicator's collectives, in the watch's second group.
class OtherGroup : public CollectiveWatch {
 public:
  explicit OtherGroup(CollectiveWatch& inner) : inner_(inner) {}
  void enter(const flight::Entry& what) override {
    flight::Entry entry = what;
    entry.group = "gradients";
    inner_.enter(entry);
  }
  void leave() override { inner_.leave(); }

 private:
  CollectiveWatch& inner_;
};

class FaultRank {
 public:
  FaultRank(const RankTask& task, const Order& order)
      : task_(task),
        order_(order),
        rank_(task.rank < 0 ? 0 : task.rank),
        heartbeats_(HeartbeatFile::open(task.run_dir + "/" + task.heartbeats, order.world)),
        watch_(heartbeats_, task.run_dir, rank_, order.world, true) {}

  int run() {
    at::set_num_threads(1);
    AbortListener abort_listener(task_.notices, kGrace_s, [this](const std::string& why) { leave(why); });
    RankResult result = blank();
    result.status = "failed";
    result.phase = "rendezvous";
    try {
      watch_.heartbeat(0, "rendezvous");
      meet_strangely();
      meet();
      result.phase = "train";
      result.steps_done = train();
      result.status = "finished";
    } catch (const std::exception& error) {
      result.error = message_of(error);
      if (only_lost_its_peers(result.error)) {
        const std::string why = abort_listener.told(kTold_s);
        if (!why.empty()) result.error = "lost its peer: " + why + "; " + result.error;
      }
      note_error(monotonic_s());
      result.steps_done = heartbeats_.step(rank_);
    }
    abort_listener.end_by_itself();
    const bool finished = result.status == "finished";
    if (finished) watch_.forget();
    write_rank_result(rank_result_path(task_.run_dir, rank_), result);
    std::fflush(nullptr);
    // Connections and threads of Gloo end with the process.
    ::_exit(finished ? 0 : 1);
  }

 private:
  static constexpr double kGrace_s = 0.05, kTold_s = 0.2;

  bool wrong(const char* kind) const {
    const bool mine = order_.wrong && order_.kind == kind && rank_ == order_.rank;
    if (mine) acts();
    return mine;
  }
  bool control(const char* kind) const { return !order_.wrong && order_.kind == kind; }

  /// The time is taken last: what opening the file costs is none of the fault's.
  void acts() const {
    std::ofstream file(task_.run_dir + "/acted");
    file.precision(17);
    file << monotonic_s() << std::endl;
  }

  /// When this rank had its error: what it leaves behind it writes after that, as fast as the disk lets it.
  void note_error(double at_s) const {
    std::ofstream file(task_.run_dir + "/rank-" + std::to_string(rank_) + ".error");
    file.precision(17);
    file << at_s << std::endl;
  }

  RankResult blank() const {
    RankResult result;
    result.rank = rank_;
    result.world_size = order_.world;
    return result;
  }

  /// From the thread of the side channel.
  void leave(const std::string& why) {
    const bool next = rank_ == (order_.rank + 1) % order_.world;
    if (order_.wrong && order_.kind == "killed_in_recovery" && next) ::raise(SIGKILL);
    const double at_s = monotonic_s();
    RankResult result = blank();
    result.status = "failed";
    result.phase = "train";
    result.steps_done = heartbeats_.step(rank_);
    note_error(at_s);
    result.error = "lost its peer: " + why + " (this rank was in '" + heartbeats_.operation(rank_) + "')";
    write_rank_result(rank_result_path(task_.run_dir, rank_), result);
  }

  static void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

  /// Kinds whose fault lies before the first connection between ranks.
  void meet_strangely() {
    if (wrong("rank_missing")) sleep(kNever_s);
    if (control("rank_missing") && rank_ == order_.rank) sleep(order_.threshold_s / 2);
    if (order_.kind == "blocked_in_store") wait_for_key();
    if (order_.kind == "port_in_use" && rank_ == order_.rank) serve_a_store();
    if (order_.kind == "half_open" || order_.kind == "store_dead") ask_a_store();
    identity_.facts = {{"threads", "1"}, {"libtorch", TORCH_VERSION}, {"config", "lr=0.01"}};
    const auto differs = [this](const char* kind, std::size_t fact, const char* value) {
      if (wrong(kind) || control(kind)) identity_.facts[fact].second = value;
    };
    differs("other_threads", 0, "8");
    differs("other_library", 1, "2.12.0");
    differs("other_config", 2, "lr=0.02");
    const double ahead_s = wrong("clock_skew") ? 30 : control("clock_skew") && rank_ == order_.rank ? 0.2 : 0;
    identity_.clock = [ahead_s] {
      return ahead_s + std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    };
  }

  void wait_for_key() {
    const auto store = c10::make_intrusive<c10d::FileStore>(task_.run_dir + "/store-key", -1);
    if (!order_.wrong && rank_ == (order_.rank + 1) % order_.world) store->set("key", std::vector<uint8_t>{1});
    if (rank_ != order_.rank) return;
    if (order_.wrong) acts();
    watch_.heartbeat(0, "load key");
    store->wait({"key"}, std::chrono::seconds(static_cast<int64_t>(kNever_s)));
  }

  /// Port 0: one that is free, as the control run takes it.
  void serve_a_store() {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(wrong("port_in_use") ? order_.port : 0);
    options.isServer = true;
    options.waitWorkers = false;
    options.timeout = std::chrono::seconds(5);
    served_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }

  /// The control run's store is its own rank 0's, who says at which port it listens.
  void ask_a_store() {
    const auto ports = c10::make_intrusive<c10d::FileStore>(task_.run_dir + "/store-port", -1);
    if (rank_ == 0) {
      c10d::TCPStoreOptions options;
      options.port = 0;
      options.isServer = true;
      options.waitWorkers = false;
      served_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
      const std::string port = std::to_string(dynamic_cast<c10d::TCPStore&>(*served_).getPort());
      ports->set("port", std::vector<uint8_t>(port.begin(), port.end()));
    }
    const std::vector<uint8_t> said = ports->get("port");
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(std::stoi(std::string(said.begin(), said.end())));
    if (wrong("half_open") || wrong("store_dead")) options.port = static_cast<uint16_t>(order_.port);
    options.waitWorkers = false;
    options.timeout = std::chrono::milliseconds(static_cast<int64_t>(order_.threshold_s * 1000));
    watch_.heartbeat(0, "rendezvous store");
    try {
      asked_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
      asked_->set("rank-" + std::to_string(rank_), std::vector<uint8_t>{1});
      asked_->get("rank-" + std::to_string(rank_));
      watch_.heartbeat(0, "rendezvous");
    } catch (const std::exception& error) {
      throw std::runtime_error("the store at 127.0.0.1:" + std::to_string(options.port) + " does not answer rank " +
                               std::to_string(rank_));
    }
  }

  void meet() {
    const bool more = wrong("wrong_world");
    int number = rank_;
    if (wrong("duplicate_rank")) number = (rank_ + 1) % order_.world;
    const GlooOptions options{task_.run_dir + "/store", number, more ? order_.world + 1 : order_.world, "127.0.0.1", kMeet_s};
    const double wait_s = order_.kind == "rank_missing" ? 2 * order_.threshold_s : kMeet_s;
    run_preflight_check(options, identity_, {wait_s, 2});
    auto met = make_gloo_comm(options);
    met->barrier("met");  // what a first call costs (pages, connections) belongs to the meeting, not to the first step
    comm_ = watched(std::move(met), watch_);
    if (order_.kind != "deadlock") return;
    GlooOptions second = options;
    second.store_path += "-other";
    other_ = watched(make_gloo_comm(second), other_group_);
  }

  std::unique_ptr<Comm> watched(std::unique_ptr<Comm> comm, CollectiveWatch& watch) {
    if (order_.checked) comm = make_checked_comm(std::move(comm), [this] { return program_ == nullptr ? 0 : program_->step(); });
    return make_ledger_comm(
        std::move(comm), no_trace_, [](const std::string&) {}, nullptr, &watch);
  }

  int64_t train() {
    faults::Surroundings around;
    around.run_dir = task_.run_dir;
    around.rank = rank_;
    around.comm = comm_.get();
    around.other = other_.get();
    around.heartbeat = [this](int64_t step, const std::string& operation) { watch_.heartbeat(step, operation); };
    around.acts = [this] { acts(); };
    program_ = std::make_unique<faults::Program>(order_, around);
    return program_->run();
  }

  static constexpr double kMeet_s = 30;
  const RankTask& task_;
  const Order& order_;
  const int rank_;
  HeartbeatFile heartbeats_;
  RankWatch watch_;
  OtherGroup other_group_{watch_};
  Identity identity_;
  TraceWriter no_trace_{"", {"", 0, 1, "", TraceLevel::off, "real"}};
  c10::intrusive_ptr<c10d::Store> served_, asked_;
  std::unique_ptr<Comm> comm_, other_;
  std::unique_ptr<faults::Program> program_;
};

}  // namespace

int faults_job(const RankTask& task, const nlohmann::json& run) {
  const Order order = faults::order_from_json(run.at("fault_case"));
  return FaultRank(task, order).run();
}

}  // namespace lockstep
