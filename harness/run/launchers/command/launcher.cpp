#include "harness/run/launchers/command/launcher.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/field.h"
#include "harness/run/probe.h"
#include "harness/run/process_state.h"
#include "harness/run/rank_environment.h"
#include "harness/run/run_folder.h"

namespace lockstep {

static void write_failed(const RankLeft& left, const std::string& error);

/// Of a rank whose process ended well: finished, with the curves and metrics of its trace and (rank 0) of the log; or failed, if it left no
/// whole trace.
static void write_finished(const RankLeft& left, const std::string& metrics_from);
namespace {

namespace fs = std::filesystem;
using Variables = std::vector<std::pair<std::string, std::string>>;

/// For a rank that threw to end by itself, with all that it prints of it.
constexpr double kThrownEnds_s = 0.5;

/// The ranks that mpirun and srun start know themselves by other names than PyTorch reads.
constexpr const char* kAsTorchReads =
    "export RANK=\"${RANK:-${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$SLURM_PROCID}}}\" "
    "WORLD_SIZE=\"${WORLD_SIZE:-${OMPI_COMM_WORLD_SIZE:-${PMI_SIZE:-$SLURM_STEP_NUM_TASKS}}}\" "
    "LOCAL_RANK=\"${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-$SLURM_LOCALID}}}\"; "
    "export LOCAL_WORLD_SIZE=\"${LOCAL_WORLD_SIZE:-${OMPI_COMM_WORLD_LOCAL_SIZE:-${MPI_LOCALNRANKS:-$WORLD_SIZE}}}\"; ";

/// Of a command that starts its ranks itself: they all write there.
std::string command_log(const std::string& dir) { return dir + "/command.log"; }

/// A port that nothing listens on now. Below those that the kernel gives to whoever connects: one of these would be taken before rank 0 listens.
int free_port(const std::string& run_dir) {
  constexpr uint16_t kFirst = 20000, kCount = 12000, kTries = 200;
  const uint64_t start = XXH3_64bits(run_dir.data(), run_dir.size()) + static_cast<uint64_t>(::getpid());
  for (uint16_t n = 0; n < kTries; ++n) {
    const auto port = static_cast<uint16_t>(kFirst + (start + n) % kCount);
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    const bool bound = socket >= 0 && ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    if (socket >= 0) ::close(socket);
    if (bound) return port;
  }
  throw MachineError(fmt::format("of {} ports from {} on none is free", kCount, kFirst));
}

/// A shell says 128 and the signal of a program that one has ended.
void undo_shell(int& code, int& signal) {
  constexpr int kSignalled = 128, kMostSignal = 64;
  if (signal != 0 || code <= kSignalled || code > kSignalled + kMostSignal) return;
  signal = code - kSignalled;
  code = 0;
}

}  // namespace

CommandLauncher::CommandLauncher(std::string probe, std::vector<std::string> before, std::shared_ptr<Starter> starter,
                                 CommandNodes* nodes)
    : probe_(std::move(probe)), before_(std::move(before)), starter_(std::move(starter)), nodes_(nodes) {
  events_.emplace_back();  // ready
}

CommandLauncher::~CommandLauncher() {
  for (auto& [run, going] : going_) kill_all(going);
}

std::vector<std::pair<std::string, std::string>> CommandLauncher::variables_of(const Going& going, const RunConfig& config) const {
  ProbeSettings settings;
  settings.trace = going.dir;
  settings.level = text_of(find_core_field("trace")->of(config));
  for (const int64_t step : config.snapshot_steps) settings.snapshots += (settings.snapshots.empty() ? "" : ",") + std::to_string(step);
  if (!going.line.led_by.empty()) settings.led_by = (fs::path(going.dir).parent_path() / going.line.led_by).string();
  settings.heartbeat = going.dir + "/" + going.what.heartbeats;
  settings.run = going.hash;
  Variables variables = probe_variables(probe_, settings);
  variables.insert(variables.end(), going.line.probe.begin(), going.line.probe.end());
  std::string names;
  for (const auto& [name, value] : going.line.variables) names += (names.empty() ? "" : " ") + name;
  variables.emplace_back("LOCKSTEP_ENV", names);  // ranks say which values they have of these
  // Another number of threads changes bits; who wants one says so in env.
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}) variables.emplace_back(name, std::to_string(kThreadsPerRank));
  for (const auto& [name, value] : going.line.variables) {
    const auto same = std::ranges::find(variables, name, &Variables::value_type::first);
    if (same == variables.end())
      variables.emplace_back(name, value);
    else
      same->second = name == "PYTHONPATH" ? same->second + ":" + value : value;
  }
  return variables;
}

void CommandLauncher::start_process(Going& going, int rank, const Variables& variables) {
  ProgramStart what{{kShell, "-c", followed(going.line.shell)},
                    environment_for(variables),
                    going.has_launcher ? command_log(going.dir) : rank_log_path(going.dir, rank),
                    going.line.folder};
  if (going.has_launcher && !going.line.starts_ranks) {
    what.words.clear();
    for (const std::string& word : before_) what.words.push_back(replaced(word, "{ranks}", std::to_string(going.what.world_size)));
    what.words.insert(what.words.end(), {kShell, "-c", kAsTorchReads + followed(going.line.shell)});
  }
  if (std::vector<std::string> words = starter_ && before_.empty() ? plain_words(going.line.shell) : std::vector<std::string>(); !words.empty()) {
    ProgramStart forked = what;
    for (std::string& entry : take_assignments(words)) {
      std::erase_if(forked.environment, [&](const std::string& each) { return each.starts_with(entry.substr(0, entry.find('=') + 1)); });
      forked.environment.push_back(std::move(entry));
    }
    std::string why;
    if (const auto process = starter_->start(words, forked, why)) {
      going.processes.push_back(*process);
      return;
    }
  }
  going.processes.push_back(start_program(std::move(what)));
}

void CommandLauncher::start(const RankStart& what) {
  Going going;
  going.what = what;
  going.dir = fs::absolute(what.dir).lexically_normal().string();
  std::string problem;
  const auto run = read_sealed(going.dir + "/run.json", problem);
  if (!run) throw MachineError(going.dir + "/run.json " + problem);
  const RunConfig config = run_config_from_json(JsonFields(*run, going.dir + "/run.json").at<nlohmann::json>("config").dump(), going.dir + "/run.json");
  const auto command = spec_of(config).command;
  LOCKSTEP_CHECK(command != nullptr, "a run of this launcher is a command");
  going.hash = config_hash(config);
  going.line = command(config, going.dir);
  going.has_launcher = going.line.starts_ranks || (!before_.empty() && what.world_size > 1);
  going.ranks.resize(static_cast<std::size_t>(what.world_size));
  going.heartbeats = HeartbeatFile::open(going.dir + "/" + what.heartbeats, what.world_size);
  Variables variables = variables_of(going, config);
  const std::string port = std::to_string(free_port(going.dir));
  // torchrun's own port, where the command names none: two runs at once must not meet.
  variables.emplace_back("PET_MASTER_PORT", port);
  if (!going.line.starts_ranks) variables.insert(variables.end(), {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
  LauncherEvent event{.kind = LauncherEvent::Kind::started, .run = what.run};
  going.on_nodes = nodes_ != nullptr && what.world_size % nodes_->count() == 0;
  if (going.on_nodes) nodes_->start(going.dir, going.dir + "/" + what.heartbeats, going.line, variables);
  if (going.has_launcher) {
    start_process(going, 0, variables);
    event.pids.assign(static_cast<std::size_t>(what.processes), going.processes.front());
  } else {
    const std::string world = std::to_string(what.world_size);
    for (int rank = 0; rank < what.world_size; ++rank) {
      Variables own = variables;
      const std::string number = std::to_string(rank);
      own.insert(own.end(), {{"RANK", number}, {"LOCAL_RANK", number}, {"WORLD_SIZE", world}, {"LOCAL_WORLD_SIZE", world}});
      start_process(going, rank, own);
    }
    event.pids.assign(going.processes.begin(), going.processes.end());
  }
  events_.push_back(std::move(event));
  going_.insert_or_assign(what.run, std::move(going));
}

bool CommandLauncher::all_ended(const Going& going) const {
  return std::ranges::all_of(going.processes, [](pid_t pid) { return pid < 0; }) && std::ranges::all_of(going.ranks, &Rank::ended);
}

void CommandLauncher::kill_all(Going& going) {
  for (const pid_t pid : going.processes)
    if (pid > 0) ::killpg(pid, SIGKILL);
  kill_processes_of_run(going.dir + "/" + going.what.heartbeats);
  going.killed = true;
}

void CommandLauncher::stop(const std::string& run, int signal) {
  const auto found = going_.find(run);
  if (found == going_.end()) return;
  Going& going = found->second;
  going.told = true;
  if (signal == SIGKILL) return kill_all(going);
  for (const pid_t pid : going.processes)
    if (pid > 0) ::killpg(pid, signal);
}

/// A rank has ended, and that is told; what it leaves becomes its result.
void CommandLauncher::end_rank(Going& going, int rank, int code, int signal, bool told) {
  Rank& ended = going.ranks[static_cast<std::size_t>(rank)];
  if (ended.ended) return;
  ended.ended = true;
  undo_shell(code, signal);
  const RankLeft left{going.dir, going.hash, rank, going.what.world_size, going.heartbeats->operation(rank)};
  std::error_code error;
  if (going.has_launcher && (code != 0 || signal != 0))
    std::ofstream(rank_log_path(going.dir, rank)) << excerpt_of(command_log(going.dir));
  if (!fs::exists(rank_result_path(going.dir, rank), error)) {
    if (code == 0 && signal == 0)
      write_finished(left, going.line.metrics_from);
    else if (const std::string thrown = thrown_error(left); !thrown.empty())
      write_failed(left, thrown);
  }
  LauncherEvent event = exit_event(going.what, rank, code, signal);
  event.told = told;
  events_.push_back(std::move(event));
}

/// Ranks that stand apart from what the others are end the run before it trains.
void CommandLauncher::refuse(Going& going, int rank, const std::string& why) {
  const int named = rank < going.what.world_size ? rank : 0;
  write_failed({going.dir, going.hash, named, going.what.world_size, kNotBegun}, why);
  kill_all(going);
}

void CommandLauncher::look_at_hellos(Going& going) {
  for (std::size_t r = 0; r < going.ranks.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (going.ranks[r].greeted || going.killed) continue;
    const FileText file = read_file(fmt::format("{}/rank-{}.hello.json", going.dir, rank), kMostConfigBytes);
    if (!file) continue;
    const nlohmann::json hello = parse_json(file.text);
    if (!hello.is_object()) continue;
    going.ranks[r].greeted = true;
    const int world = number_in(hello, "world_size");
    if (world != going.what.world_size) {
      return refuse(going, rank, fmt::format("rank {} says that it is one of {} ranks, and the layout has {}{}", rank, world, going.what.world_size,
                                             going.line.starts_ranks ? ": does the command pass {ranks} on?" : ""));
    }
    const nlohmann::json environment = hello.value("env", nlohmann::json());
    for (const auto& [name, value] : going.line.variables) {
      if (name == "PYTHONPATH" || !environment.is_object() || text_in(environment, name.c_str()) == value) continue;
      return refuse(going, rank, fmt::format("rank {} has {}={}, where the config gives {}", rank, name, text_in(environment, name.c_str()), value));
    }
    const std::string versions = fmt::format("torch {}, Python {}, probe {}", text_in(hello, "torch"), text_in(hello, "python"), text_in(hello, "probe"));
    if (going.first_hello.empty()) going.first_hello = versions;
    if (versions != going.first_hello)
      return refuse(going, rank, fmt::format("rank {} has {}, another rank {}: all ranks must have the same", rank, versions, going.first_hello));
  }
}

/// A command that started its ranks itself has ended, and with it all that is known of them.
void CommandLauncher::launcher_ended(Going& going, int code, int signal) {
  undo_shell(code, signal);
  const bool well = code == 0 && signal == 0;
  const std::map<int, int> said = well ? std::map<int, int>{} : exit_codes_in(command_log(going.dir));
  std::vector<int> order(going.ranks.size());
  for (std::size_t r = 0; r < order.size(); ++r) order[r] = static_cast<int>(r);
  const auto gone_at = [&](int rank) {
    const double at = going.ranks[static_cast<std::size_t>(rank)].gone_at;
    return at > 0 ? at : monotonic_s();
  };
  std::ranges::stable_sort(order, {}, gone_at);
  bool explained = well || going.killed;
  const auto end = [&](int rank, int its_code, int its_signal, bool told) {
    end_rank(going, rank, its_code, its_signal, told);
    explained = explained || !told;
  };
  // First those of which the launcher, or they themselves, said why.
  for (const int rank : order) {
    const RankLeft left{going.dir, going.hash, rank, going.what.world_size, going.heartbeats->operation(rank)};
    const auto status = said.find(rank);
    if (well)
      end(rank, 0, 0, false);
    else if (!thrown_error(left).empty())
      end(rank, 1, 0, false);
    // The launcher ends the others with SIGTERM, and says so of each.
    else if (status != said.end() && status->second != -SIGTERM && status->second != 0)
      end(rank, std::max(status->second, 0), std::max(-status->second, 0), false);
  }
  for (const int rank : order) {
    if (going.ranks[static_cast<std::size_t>(rank)].ended) continue;
    if (going.killed)
      end(rank, 0, SIGKILL, true);
    else if (is_whole({going.dir, going.hash, rank, going.what.world_size, ""}))
      end_rank(going, rank, 0, 0, false);
    else if (!explained)
      end(rank, code, signal, false);
    else
      end(rank, 0, SIGTERM, true);
  }
}

/// Ranks that a launcher started end where nobody waits for them: their processes are gone. One that threw has failed, however long its end
/// takes: the others wait for it meanwhile.
void CommandLauncher::look_at_ranks(Going& going, double now) {
  for (std::size_t r = 0; r < going.ranks.size(); ++r) {
    Rank& rank = going.ranks[r];
    if (rank.ended) continue;
    const int number = static_cast<int>(r);
    const RankLeft left{going.dir, going.hash, number, going.what.world_size, going.heartbeats->operation(number)};
    if (rank.threw_at == 0 && !thrown_error(left).empty()) rank.threw_at = now;
    if (const ProcessId said = going.heartbeats->process(number); said.pid != 0 && said != rank.said) {
      rank.said = said;
      rank.process = seen_from_here(said);
    }
    if (going.has_launcher && rank.gone_at == 0 && is_gone(rank.process)) rank.gone_at = now;
    const bool threw = rank.threw_at > 0 && now - rank.threw_at >= kThrownEnds_s;
    if (!threw && (rank.gone_at == 0 || now - rank.gone_at < kLauncherNotices_s)) continue;
    if (!threw && is_whole(left)) {
      end_rank(going, number, 0, 0, false);
    } else {
      if (rank.threw_at == 0)
        write_failed(left, fmt::format("its process {} is gone, and what started it goes on as if it were not", rank.process.pid));
      end_rank(going, number, 1, 0, false);
    }
  }
}

void CommandLauncher::look(Going& going, double now) {
  look_at_hellos(going);
  look_at_ranks(going, now);
  const std::string why = going.on_nodes && !going.killed ? nodes_->failed() : "";
  if (why.empty()) going.well_at = now;
  if (now - going.well_at > kLauncherNotices_s) refuse(going, 0, why);
  for (std::size_t p = 0; p < going.processes.size(); ++p) {
    int status = 0;
    if (going.processes[p] < 0) continue;
    if (starter_ && starter_->owns(going.processes[p])) {
      const std::optional<int> end = starter_->ended(going.processes[p]);
      if (!end) continue;
      status = *end;
    } else if (::waitpid(going.processes[p], &status, WNOHANG) != going.processes[p]) {
      continue;
    }
    going.processes[p] = -1;
    look_at_hellos(going);
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0, code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    // What it started must not outlive it.
    if (going.has_launcher) {
      kill_processes_of_run(going.dir + "/" + going.what.heartbeats);
      if (going.on_nodes) nodes_->over(going.killed ? 0 : kLauncherNotices_s);
      launcher_ended(going, code, signal);
    } else {
      end_rank(going, static_cast<int>(p), code, signal, going.told || going.killed);
    }
  }
}

std::vector<LauncherEvent> CommandLauncher::poll(double wait_s) {
  return look_until(wait_s, [this] {
    for (auto& [run, going] : going_) look(going, monotonic_s());
    std::erase_if(going_, [this](const auto& each) { return all_ended(each.second); });
  });
}

void CommandLauncher::shut_down(double deadline_s) {
  const double deadline = monotonic_s() + deadline_s;
  for (auto& [run, going] : going_) kill_all(going);
  while (!going_.empty() && monotonic_s() < deadline) poll(0.1);
  events_.clear();
}

namespace {

constexpr std::array<std::string_view, 5> kStepNames = {"step", "global_step", "iteration", "iter", "epoch"};

constexpr const char* kNothing =
    "the command ended well, and the probe recorded nothing of rank {}: it must train with a torch.optim optimizer in the Python that it starts, "
    "which must not ignore PYTHONPATH (-S, -I, -E); or add `import lockstep_probe`";

RankResult result_of(const RankLeft& left, const char* status) {
  RankResult result;
  result.rank = left.rank;
  result.world_size = left.world_size;
  result.config_hash = left.hash;
  result.status = status;
  result.phase = left.operation;
  return result;
}

class Log {
 public:
  void add(const std::string& name, int64_t step, double value) {
    Series& series = found_[name];
    // A step that is logged again replaces what it said before.
    if (!series.steps.empty() && series.steps.back() == step) {
      series.values.back() = value;
    } else if (series.steps.empty() || series.steps.back() < step) {
      series.steps.push_back(step);
      series.values.push_back(value);
    }
  }
  std::map<std::string, Series> done() { return std::move(found_); }

 private:
  std::map<std::string, Series> found_;
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else if (c != '\r')
      cells.back() += c;
  }
  return cells;
}

std::optional<double> number_of(const std::string& text) {
  const char* begin = text.data();
  const char* const end = begin + text.size();
  while (begin != end && *begin == ' ') ++begin;
  double value = 0;
  const auto [read, error] = std::from_chars(begin, end, value);
  return begin != end && error == std::errc() && read == end ? std::optional(value) : std::nullopt;
}

void read_csv(const std::string& text, Log& log) {
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> names = cells_of(line);
  const auto* const step_name = std::ranges::find_if(kStepNames, [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); });
  if (step_name == kStepNames.end()) throw std::runtime_error("its first line names no column step");
  const auto step_column = static_cast<std::size_t>(std::ranges::find(names, *step_name) - names.begin());
  while (std::getline(lines, line)) {
    const std::vector<std::string> cells = cells_of(line);
    const auto step = cells.size() > step_column ? number_of(cells[step_column]) : std::nullopt;
    if (!step) continue;
    for (std::size_t i = 0; i < std::min(cells.size(), names.size()); ++i) {
      if (i == step_column) continue;
      if (const auto value = number_of(cells[i])) log.add(names[i], static_cast<int64_t>(*step), *value);
    }
  }
}

void read_jsonl(const std::string& text, Log& log) {
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const nlohmann::json json = parse_json(line);
    if (!json.is_object()) throw std::runtime_error(fmt::format("line {} is no JSON object", number));
    const auto* const step_name = std::ranges::find_if(kStepNames, [&](std::string_view name) { return json.contains(name) && json[std::string(name)].is_number(); });
    if (step_name == kStepNames.end()) continue;
    const auto step = json[std::string(*step_name)].get<double>();
    constexpr double kMostSteps = 1e15;
    if (!(std::abs(step) < kMostSteps)) throw std::runtime_error(fmt::format("line {}: {} is no step", number, step));
    for (const auto& [key, value] : json.items())
      if (value.is_number() && key != *step_name) log.add(key, static_cast<int64_t>(step), value.get<double>());
  }
}

/// A protocol buffer's fields, one after the other: number, and a value or a run of bytes.
struct Field {
  uint64_t number = 0, kind = 0, value = 0;
  std::string_view bytes;
};

bool take_varint(std::string_view& text, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !text.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(text.front());
    text.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

std::optional<Field> take_field(std::string_view& text) {
  Field field;
  uint64_t head = 0, size = 0;
  if (!take_varint(text, head)) return std::nullopt;
  field.number = head >> 3;
  field.kind = head & 7;
  constexpr uint64_t kVarint = 0, kEight = 1, kBytes = 2, kFour = 5;
  if (field.kind == kVarint) return take_varint(text, field.value) ? std::optional(field) : std::nullopt;
  if (field.kind == kBytes && !take_varint(text, size)) return std::nullopt;
  if (field.kind != kBytes) size = field.kind == kEight ? 8 : field.kind == kFour ? 4 : UINT64_MAX;
  if (size > text.size()) return std::nullopt;
  field.bytes = text.substr(0, size);
  text.remove_prefix(size);
  if (field.kind != kBytes) std::memcpy(&field.value, field.bytes.data(), size);
  return field;
}

/// Summary.Value: tag 1; simple_value 2; or a tensor 8, whose one float is 5 (packed) or its content 4.
void read_value(std::string_view text, int64_t step, Log& log) {
  std::string tag;
  std::optional<double> number;
  const auto of_bits = [](uint64_t bits) { return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))); };
  while (const auto field = take_field(text)) {
    if (field->number == 1) tag = field->bytes;
    if (field->number == 2 && field->kind == 5) number = of_bits(field->value);
    std::string_view tensor = field->number == 8 ? field->bytes : std::string_view();
    while (const auto part = take_field(tensor)) {
      uint32_t bits = 0;
      if ((part->number == 5 || part->number == 4) && part->bytes.size() == sizeof(bits)) {
        std::memcpy(&bits, part->bytes.data(), sizeof(bits));
        number = of_bits(bits);
      }
    }
  }
  if (!tag.empty() && number) log.add(tag, step, *number);
}

/// Records of length (8 bytes), its check (4), Event, its check (4). Event: step 2, summary 5 with values 1.
void read_events(std::string_view text, Log& log) {
  constexpr std::size_t kHead = 12, kTail = 4;
  while (text.size() >= kHead) {
    uint64_t length = 0;
    std::memcpy(&length, text.data(), sizeof(length));
    if (length > text.size() - kHead || text.size() - kHead - length < kTail) return;  // its writer was cut short
    std::string_view event = text.substr(kHead, length), summary;
    text.remove_prefix(kHead + length + kTail);
    int64_t step = 0;
    while (const auto field = take_field(event)) {
      if (field->number == 2 && field->kind == 0) step = static_cast<int64_t>(field->value);
      if (field->number == 5) summary = field->bytes;
    }
    while (const auto value = take_field(summary))
      if (value->number == 1) read_value(value->bytes, step, log);
  }
}

std::vector<std::string> event_files(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path.string()};
  std::vector<std::string> files;
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    if (at->path().filename().string().find(".tfevents.") != std::string::npos) files.push_back(at->path().string());
  if (files.empty()) throw std::runtime_error("holds no TensorBoard events (*.tfevents.*)");
  std::ranges::sort(files);
  return files;
}

std::string whole_text(const std::string& path) {
  FileText file = read_file(path);
  if (!file) throw std::runtime_error(file.problem);
  return std::move(file.text);
}

}  // namespace

std::map<std::string, Series> metrics_in_log(const std::string& path) {
  Log log;
  if (path.ends_with(".csv")) {
    read_csv(whole_text(path), log);
  } else if (path.ends_with(".jsonl") || path.ends_with(".json")) {
    read_jsonl(whole_text(path), log);
  } else {
    for (const std::string& file : event_files(path)) read_events(whole_text(file), log);
  }
  std::map<std::string, Series> found = log.done();
  if (found.empty()) throw std::runtime_error("holds no number by step");
  return found;
}

bool is_whole(const RankLeft& left) {
  const RecordedRank recorded = read_recorded_rank(left.dir, left.rank);
  return recorded.there && recorded.problem.empty() && recorded.whole;
}

void write_failed(const RankLeft& left, const std::string& error) {
  RankResult result = result_of(left, "failed");
  result.error = error;
  write_rank_result(rank_result_path(left.dir, left.rank), result);
}

void write_finished(const RankLeft& left, const std::string& metrics_from) {
  const RecordedRank recorded = read_recorded_rank(left.dir, left.rank);
  if (!recorded.there) return write_failed(left, fmt::format(fmt::runtime(kNothing), left.rank));
  if (!recorded.problem.empty()) return write_failed(left, recorded.problem);
  if (!recorded.whole) return write_failed(left, fmt::format("its trace has no end mark, though the command ended well: {}", recorded.end));
  RankResult result = result_of(left, "finished");
  result.phase = "train";
  result.steps_done = recorded.steps;
  result.train_seconds = read_probe_report(left.dir, left.rank).seconds;
  if (!recorded.loss.steps.empty()) result.curves["loss"] = recorded.loss;
  if (left.rank == 0) {
    std::map<std::string, Series> metrics = recorded.metrics;
    if (!metrics_from.empty()) {
      try {
        for (auto& [name, series] : metrics_in_log(metrics_from)) metrics.insert_or_assign(name, std::move(series));
      } catch (const std::runtime_error& error) {
        return write_failed(left, fmt::format("metrics_from {}: {}", metrics_from, error.what()));
      }
    }
    for (auto& [name, series] : metrics) {
      if (name == "loss") continue;  // of the log: the trace has that of every rank
      result.metrics[name] = series.values.back();
      result.curves[name] = std::move(series);
    }
  }
  write_rank_result(rank_result_path(left.dir, left.rank), result);
}

std::string thrown_error(const RankLeft& left) {
  const FileText file = read_file(fmt::format("{}/rank-{}.error", left.dir, left.rank), kMostConfigBytes);
  if (!file) return "";
  return clean_line(file.text.substr(0, file.text.find('\n')));
}

std::map<int, int> exit_codes_in(const std::string& log) {
  std::map<int, int> codes;
  std::ifstream file(log);
  int rank = -1;
  // "  rank      : 4 (local_rank: 4)", and below it "  exitcode  : -9 (pid: 4711)".
  for (std::string line; std::getline(file, line);) {
    const std::size_t name = line.find_first_not_of(' '), colon = line.find(" : ");
    if (name == std::string::npos || colon == std::string::npos) continue;
    const std::string_view key = std::string_view(line).substr(name), value = std::string_view(line).substr(colon + 3);
    const auto number = number_of(std::string(value.substr(0, value.find(' '))));
    if (key.starts_with("rank ")) rank = number ? static_cast<int>(*number) : -1;
    if (key.starts_with("exitcode ") && number && rank >= 0) codes.emplace(rank, static_cast<int>(*number));
  }
  return codes;
}

}  // namespace lockstep
