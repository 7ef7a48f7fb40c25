#include "harness/jobs/faults/fault_program.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/jobs/parent.h"
#include "harness/jobs/train_job.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/judge/trace/record.h"
#include "harness/run/run_folder.h"
#include "harness/run/supervisor.h"
#include "harness/trainers/comm/emulated.h"
#include "harness/trainers/comm/gloo.h"
#include "harness/trainers/comm/ledger.h"
#include "harness/trainers/core/step.h"

namespace lockstep::faults {
namespace {

void sleep_s(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

constexpr int64_t kRows = 4;
const std::vector<std::string> kNames{"w1", "b", "w2"};
const std::vector<std::vector<int64_t>> kShapes{{4, 3}, {3}, {3, 2}};
constexpr double kForEver_s = 3600;

volatile std::sig_atomic_t g_told = 0;

at::Tensor drawn(const std::vector<int64_t>& shape, uint64_t key) {
  at::Tensor made = at::empty(shape, at::kFloat);
  auto* const values = made.mutable_data_ptr<float>();
  for (int64_t i = 0; i < made.numel(); ++i)
    values[i] = static_cast<float>(unit_interval(mix64(keyed(key, static_cast<uint64_t>(i)))) - 0.5);
  return made;
}

std::string list_of(const std::vector<int64_t>& rows) { return c10::str(at::IntArrayRef(rows)); }

}  // namespace

Program::Program(const Order& order, const Surroundings& around)
    : order_(order), around_(around), comm_(*around.comm), rank_(around.rank) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    weights_[i] = drawn(kShapes[i], keyed(uint64_t{1}, static_cast<uint64_t>(order.seed), i));
    moments_[i] = at::zeros(kShapes[i]);
  }
  random_ = at::zeros({1}, at::kLong);
  sampler_ = at::zeros({1}, at::kLong);
  if (order.records) record_.open(around.run_dir + "/rank-" + std::to_string(rank_) + ".record");
}

/// This rank, at this step, in the wrong program; says that it acts.
bool Program::wrong(const char* kind) const {
  const bool acts = order_.wrong && order_.kind == kind && rank_ == order_.rank && step_ == order_.step;
  if (acts) around_.acts();
  return acts;
}

/// Every rank, at this step, in the correct program.
bool Program::control(const char* kind) const { return !order_.wrong && order_.kind == kind && step_ == order_.step; }

int64_t Program::run() {
  const bool fewer = order_.kind == "fewer_steps" && (!order_.wrong || rank_ == order_.rank);
  const int64_t end = fewer ? order_.step : order_.steps;
  if (order_.kind == "preempted" && !order_.wrong) ::signal(SIGTERM, [](int) { g_told = 1; });
  for (; step_ < end; ++step_) {
    counted_ = step_;
    one_step();
    if (told_to_stop()) return step_ + 1;
    around_.heartbeat(step_ + 1, "train");
  }
  if (order_.wrong && fewer) around_.acts();
  comm_.barrier("end");
  tear_down();
  return step_;
}

void Program::one_step() {
  around_.heartbeat(step_, "read rows");
  if (order_.straggle_share > 0 || order_.jitter_s > 0) {
    const uint64_t key = keyed(uint64_t{7}, static_cast<uint64_t>(step_), static_cast<uint64_t>(rank_));
    const bool late = unit_interval(mix64(key)) < order_.straggle_share / order_.world;
    sleep_s(late ? order_.threshold_s / 2 : order_.jitter_s * unit_interval(mix64(key + 1)));
  }
  if (wrong("loader_stalled")) sleep_s(kForEver_s);
  if (control("loader_stalled") && rank_ == order_.rank) sleep_s(order_.threshold_s / 2);
  load_rows();
  around_.heartbeat(step_, "forward");
  end_process();
  be_silent();
  if (wrong("step_ahead")) ++counted_;
  make_gradients();
  sum_gradients();
  update();
  if (wrong("extra_call") || control("extra_call")) comm_.barrier("more");
  audit_state();
  if (order_.saves) save();
  evaluate();
}

std::vector<int64_t> Program::partitioned(int rank) const {
  const int64_t batch = kRows * order_.world;
  std::vector<int64_t> all;
  for (int64_t k = 0; k < batch; ++k) all.push_back(step_ * batch + k);
  if (control("rows_reordered")) std::ranges::reverse(all);
  return {all.begin() + rank * kRows, all.begin() + (rank + 1) * kRows};
}

void Program::load_rows() {
  rows_ = partitioned(rank_);
  if (wrong("exception")) throw std::runtime_error("cannot decode sample " + std::to_string(rows_[1]));
  if (wrong("row_dropped")) rows_.erase(rows_.begin() + 2);
  if (wrong("row_doubled")) rows_[2] = rows_[1];
  if (wrong("rows_reordered")) std::swap(rows_[0], rows_[3]);
  sampler_ += kRows * order_.world;
  random_.mul_(6364136223846793005).add_(1);
  // Which rows a rank takes is for all to see: counts may differ where rows are dropped.
  const GatheredRows all = gather_rows(comm_, {at::tensor(rows_)}, counted_, "rows");
  const int64_t most = all.valid.numel() / order_.world;
  for (int rank = 0; rank < order_.world; ++rank) {
    const at::Tensor valid = all.valid.narrow(0, rank * most, most);
    const at::Tensor taken = all.columns[0].narrow(0, rank * most, most).masked_select(valid);
    const std::vector<int64_t> rows(taken.const_data_ptr<int64_t>(), taken.const_data_ptr<int64_t>() + taken.numel());
    const std::vector<int64_t> expected = partitioned(rank);
    if (rows == expected) continue;
    const std::string who = c10::str("audit: rank ", rank, " ");
    for (const int64_t row : expected) {
      const auto count = std::ranges::count(rows, row);
      if (count > 1) throw std::runtime_error(c10::str(who, "takes row ", row, " ", count, " times (step ", step_, ")"));
    }
    for (const int64_t row : expected) {
      if (std::ranges::find(rows, row) == rows.end())
        throw std::runtime_error(c10::str(who, "lacks row ", row, " (step ", step_, ")"));
    }
    throw std::runtime_error(c10::str(who, "takes its rows in another order: ", list_of(rows), ", not ", list_of(expected), " (step ", step_, ")"));
  }
}

void Program::end_process() {
  if (wrong("kill") || wrong("killed_in_recovery")) ::raise(SIGKILL);
  if (wrong("exit_early")) ::_exit(0);
  if (wrong("preempted")) ::raise(SIGTERM);
  if (wrong("crash")) {
    ::rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    ::raise(SIGSEGV);
  }
  if (control("preempted") && rank_ == order_.rank) ::raise(SIGTERM);
  constexpr int64_t kMore_bytes = int64_t{1} << 40;
  if (wrong("out_of_memory")) {
    rlimit limit{};
    ::getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = static_cast<rlim_t>(kMore_bytes) / 4;
    ::setrlimit(RLIMIT_AS, &limit);
    at::empty({kMore_bytes}, at::kByte).fill_(1);
  }
  if (control("out_of_memory")) at::empty({4096}, at::kByte).fill_(1);
}

void Program::be_silent() {
  const double threshold_s = order_.threshold_s;
  const bool mine = rank_ == order_.rank;
  if (wrong("stop")) ::raise(SIGSTOP);
  if (wrong("continued_late")) ::raise(SIGSTOP);
  if (control("continued_late") && mine) {
    around_.acts();
    ::raise(SIGSTOP);
  }
  if (wrong("slow")) wait_busily(2 * threshold_s);
  if (control("slow") && mine) wait_busily(threshold_s / 2);
  if (wrong("endless_loop")) wait_busily(kForEver_s);
  if (control("endless_loop") && mine) wait_busily(threshold_s / 4);
  if (wrong("deadlock") || control("deadlock")) around_.other->barrier("other group");
}

/// By what it has of a core: on a busy machine it is slow for longer.
void Program::wait_busily(double seconds) const {
  const auto had_s = [] {
    timespec had{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &had);
    return static_cast<double>(had.tv_sec) + 1e-9 * static_cast<double>(had.tv_nsec);
  };
  const double until_s = had_s() + seconds;
  while (had_s() < until_s) {
  }
}

void Program::make_gradients() {
  const int root = control("wrong_root") || wrong("wrong_root") ? 1 % order_.world : 0;
  at::Tensor target = rank_ == root ? at::full({2}, 0.5F) : at::zeros({2});
  comm_.broadcast(target, root, "target");
  GradientGuard guard;
  guard.begin();
  float rows = 0;
  for (const int64_t row : rows_) rows += static_cast<float>(row % 17);
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    gradients_[i] = weights_[i] * 0.01 + drawn(kShapes[i], keyed(uint64_t{2}, static_cast<uint64_t>(rows_.front()), i)) * (rows * 0.01);
    if (i == 0 && wrong("flip_gradient")) flip(gradients_[i], 6);
    if (i == 0 && wrong("nan")) gradients_[i].flatten()[5] = std::numeric_limits<float>::quiet_NaN();
    if (i == 2 && wrong("infinity")) gradients_[i].flatten()[3] = std::numeric_limits<float>::infinity();
    if (i == 0 && (control("nan") || control("infinity"))) gradients_[i].flatten()[5] = 1e30F;
    guard.look(i, gradients_[i]);
    record("gradients/" + kNames[i], gradients_[i]);
  }
  if (const auto found = guard.agree(comm_)) throw std::runtime_error("nan_guard: " + in_words(*found, kNames, step_));
}

void Program::sum_gradients() {
  if (wrong("no_gradient_sync") || control("no_gradient_sync")) return;
  if (wrong("wrong_order") || control("wrong_order")) {
    for (const std::size_t index : {std::size_t{2}, std::size_t{1}, std::size_t{0}}) sum(index);
    return;
  }
  for (std::size_t index = 0; index < kNames.size(); ++index) sum(index);
}

void Program::sum(std::size_t index) {
  const std::string tag = "gradients of " + kNames[index];
  at::Tensor& gradient = gradients_[index];
  const bool first = index == 0;
  if (first && (wrong("missing_call") || control("missing_call"))) return;
  if (first && (wrong("wrong_op") || control("wrong_op"))) {
    gradient = comm_.all_gather(gradient, tag).sum(0);
  } else if (first && (wrong("wrong_reduction") || control("wrong_reduction"))) {
    comm_.all_reduce_max(gradient, tag);
  } else if (first && (wrong("wrong_size") || control("wrong_size"))) {
    at::Tensor part = gradient.narrow(1, 0, 2).contiguous();
    comm_.all_reduce_sum(part, tag);
    gradient.zero_().narrow(1, 0, 2).copy_(part);
  } else if (first && (wrong("wrong_shape") || control("wrong_shape"))) {
    at::Tensor turned = gradient.t().contiguous();
    comm_.all_reduce_sum(turned, tag);
    gradient = turned.t().contiguous();
  } else if (first && (wrong("wrong_type") || control("wrong_type"))) {
    at::Tensor wide = gradient.to(at::kDouble);
    comm_.all_reduce_sum(wide, tag);
    gradient = wide.to(at::kFloat);
  } else {
    // The second tensor, so that the others are within the collective already.
    if (index == 1 && wrong("kill_in_collective")) {
      around_.heartbeat(step_, "all_reduce " + tag);
      ::raise(SIGKILL);
    }
    comm_.all_reduce_sum(gradient, tag);
  }
  gradient.div_(order_.world);
  if (first && wrong("flip_payload")) flip(gradient, 4);
}

void Program::update() {
  around_.heartbeat(step_, "update");
  if (!wrong("stale_state")) {
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      moments_[i].mul_(0.9).add_(gradients_[i]);
      weights_[i].sub_(moments_[i], 0.01);
    }
  }
  if (wrong("flip_weight")) flip(weights_[0], 7);
  if (wrong("flip_moment")) flip(moments_[2], 2);
  if (wrong("flip_random_state")) random_.bitwise_xor_(int64_t{1} << 17);
  if (wrong("flip_sampler")) sampler_.bitwise_xor_(4);
  for (std::size_t i = 0; i < kNames.size(); ++i) record("weights/" + kNames[i], weights_[i]);
}

/// The lowest bit of the exponent's neighbour: a change that no norm shows.
void Program::flip(const at::Tensor& tensor, int64_t element) const {
  float& value = static_cast<float*>(tensor.mutable_data_ptr())[element];
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  bits ^= 1U << 12;
  std::memcpy(&value, &bits, sizeof bits);
}

std::vector<Program::Named> Program::state() const {
  std::vector<Named> all{{"random state", random_}, {"sampler", sampler_}};
  const bool summed = !control("no_gradient_sync") && !control("missing_call");
  for (std::size_t i = 0; summed && i < kNames.size(); ++i) all.push_back({"reduced/" + kNames[i], gradients_[i]});
  // An update that is not summed is each rank's own, by intent.
  for (std::size_t i = 0; summed && i < kNames.size(); ++i) all.push_back({"moments/" + kNames[i], moments_[i]});
  for (std::size_t i = 0; summed && i < kNames.size(); ++i) all.push_back({"weights/" + kNames[i], weights_[i]});
  return all;
}

/// What must be equal on all ranks: fingerprints first, and of the first that differs the tensor itself.
void Program::audit_state() {
  if (!order_.wrong && step_ > order_.step && (order_.kind == "no_gradient_sync" || order_.kind == "missing_call")) return;
  const std::vector<Named> mine = state();
  std::vector<int64_t> hashes;
  for (const Named& each : mine)
    hashes.push_back(static_cast<int64_t>(tensor_hash(view_of(each.tensor.contiguous()))));
  const at::Tensor all = comm_.all_gather(at::tensor(hashes), "state");
  // The cause stands before what it brings about: a stale update shows in moments and weights alike.
  const bool stale = order_.kind == "stale_state";
  for (std::size_t k = 0; k < mine.size(); ++k) {
    const std::size_t i = stale ? mine.size() - 3 + k % 3 : k;
    std::map<int64_t, std::vector<int>> by_hash;
    for (int rank = 0; rank < order_.world; ++rank)
      by_hash[all.const_data_ptr<int64_t>()[static_cast<std::size_t>(rank) * mine.size() + i]].push_back(rank);
    if (by_hash.size() < 2) continue;
    const auto fewest = std::ranges::min_element(by_hash, {}, [](const auto& each) { return each.second.size(); });
    name_state(mine[i].name, fewest->second.front(), mine[i].tensor);
  }
}

void Program::name_state(const std::string& name, int rank, const at::Tensor& mine) {
  const at::Tensor all = comm_.all_gather(mine.contiguous(), "state of " + name).reshape({order_.world, -1});
  const int other = rank == 0 ? 1 : 0;
  const at::Tensor differs = all[rank].ne(all[other]).logical_or(all[rank].isfinite().logical_not());
  const auto element = differs.to(at::kByte).argmax().item<int64_t>();
  throw std::runtime_error(c10::str("audit: rank ", rank, " has other ", name, " at element ", element, " (step ", step_, ")"));
}

std::string Program::file_of(int rank) const { return around_.run_dir + "/state-" + std::to_string(rank); }

/// Step, bytes, weights: enough to see which step a file is of, and whether it is whole.
void Program::write_file(bool cut) {
  const at::Tensor bytes = weights_[0].contiguous();
  const bool full = wrong("disk_full");
  const std::string path = full ? "/dev/full" : file_of(rank_) + ".new";
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  const int64_t head[2] = {step_, static_cast<int64_t>(bytes.nbytes())};
  const auto count = static_cast<std::size_t>(cut ? 10 : head[1]);
  bool written = file != nullptr && std::fwrite(head, sizeof head, 1, file) == 1 &&
                 std::fwrite(bytes.const_data_ptr(), 1, count, file) == count;
  if (file != nullptr) written = std::fclose(file) == 0 && written;
  if (written && !full) written = std::rename(path.c_str(), file_of(rank_).c_str()) == 0;
  if (!written) throw std::runtime_error("cannot save: " + path + ": " + std::strerror(errno));
}

void Program::save() {
  around_.heartbeat(step_, "save");
  if (wrong("slow_disk")) sleep_s(4 * order_.disk_threshold_s());
  if (control("slow_disk") && rank_ == order_.rank) sleep_s(order_.disk_threshold_s() / 2);
  // Without a barrier nobody knows that the writer is late.
  const bool removed = order_.wrong && order_.kind == "barrier_removed" && step_ == order_.step;
  if (removed && wrong("barrier_removed")) sleep_s(order_.threshold_s / 2);
  write_file(wrong("file_cut"));
  if (!removed) comm_.barrier("saved");
  audit_files(removed);
}

/// Without the barrier the other ranks' files may be late too, on a machine that has no core for them: only the culprit's is read.
void Program::audit_files(bool of_culprit) {
  for (int rank = 0; rank < order_.world; ++rank) {
    if (of_culprit && rank != order_.rank) continue;
    std::ifstream file(file_of(rank), std::ios::binary);
    int64_t head[2] = {-1, 0};
    file.read(reinterpret_cast<char*>(head), sizeof head);
    std::string rest((std::istreambuf_iterator<char>(file)), {});
    // A rank that is ahead may have written the next one.
    if (head[0] != step_ && head[0] != step_ + 1)
      throw std::runtime_error(c10::str("audit: the file of rank ", rank, " is of step ", head[0], ", not ", step_));
    if (static_cast<int64_t>(rest.size()) != head[1])
      throw std::runtime_error(c10::str("audit: the file of rank ", rank, " is cut short: ", rest.size(), " of ", head[1], " bytes (step ", step_, ")"));
  }
}

void Program::evaluate() {
  around_.heartbeat(step_, "evaluate");
  if (wrong("slow_evaluation")) sleep_s(4 * order_.threshold_s);
  if (control("slow_evaluation") && rank_ == order_.rank) sleep_s(order_.threshold_s / 2);
}

/// All ranks stop after the same step, because one was told to.
bool Program::told_to_stop() {
  if (order_.kind != "preempted" || order_.wrong) return false;
  at::Tensor told = at::full({1}, static_cast<int64_t>(g_told), at::kLong);
  comm_.all_reduce_sum(told, "told to stop");
  return told.item<int64_t>() > 0;
}

void Program::tear_down() {
  around_.heartbeat(order_.steps, "teardown");
  if (order_.kind != "blocked_in_teardown" || rank_ != order_.rank) return;
  around_.acts();
  sleep_s(order_.wrong ? kForEver_s : order_.disk_threshold_s() / 2);
}

void Program::record(const std::string& name, const at::Tensor& tensor) {
  if (!record_.is_open()) return;
  record_ << step_ << '\t' << name;
  const at::Tensor whole = tensor.contiguous();
  for (int64_t i = 0; i < whole.numel(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, static_cast<const float*>(whole.const_data_ptr()) + i, sizeof bits);
    record_ << '\t' << std::hex << bits << std::dec;
  }
  record_ << std::endl;
}

}  // namespace lockstep::faults

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

  /// Kinds whose fault lies before the first connection between ranks.
  void meet_strangely() {
    if (wrong("rank_missing")) faults::sleep_s(kNever_s);
    if (control("rank_missing") && rank_ == order_.rank) faults::sleep_s(order_.threshold_s / 2);
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
  const Order order = run.at("fault_case").get<Order>();
  return FaultRank(task, order).run();
}

}  // namespace lockstep
