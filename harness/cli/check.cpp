#include "harness/cli/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <set>
#include <thread>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/cli/options.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/led.h"
#include "harness/judge/compare/otherwise.h"
#include "harness/judge/compare/resumption.h"
#include "harness/judge/evidence/parts.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/matrix/plan.h"
#include "harness/run/launch.h"
#include "harness/run/launchers/command/launcher.h"
#include "harness/run/launchers/command/starter.h"
#include "harness/run/launchers/external/rendezvous.h"
#include "harness/run/probe.h"
#include "harness/run/rank_environment.h"
#include "harness/run/run_folder.h"
#include "reports/check.h"
#include "scenarios/command/spec.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReference = "reference-float64";
constexpr const char* kOwn = "reference";

/// Of values that a rank keeps of each run; of a model too large for that fewer steps are judged.
constexpr int64_t kMostBytes = int64_t{4} << 30;

/// What is run of one side: its command with the placeholders, its ranks and its micro-steps.
struct Side {
  std::string command;
  int ranks = 1;
  int64_t accumulate = 1;
  std::string words() const {
    return counted(ranks, "rank") + (accumulate > 1 ? fmt::format(", {} micro-steps", accumulate) : "");
  }
};

/// A run that somebody needs: by its id below OUT/runs.
struct Wanted {
  std::string id;
  const Side* side = nullptr;
  bool wide = true;  ///< in float64
  std::string otherwise = {};  ///< variables of the probe's that only this run has
  std::string led_by = kReference;
  int64_t stop = 0;      ///< of --resumed: the step, counted from the run's own first, before which it ends
  std::string out = {};  ///< the run whose folder {out} is; empty: its own
};

int cores_here() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

/// GPUs that the driver lists, or else cores; at most 4.
int default_ranks() {
  std::error_code error;
  int gpus = 0;
  for (fs::directory_iterator at("/proc/driver/nvidia/gpus", error), end; !error && at != end; at.increment(error))
    ++gpus;
  return std::clamp(gpus > 0 ? gpus : cores_here(), 2, 4);
}

bool names(const std::string& text, const char* placeholder) {
  return text.find("{" + std::string(placeholder) + "}") != std::string::npos;
}

std::string command_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    // Braces of placeholders are no shell's.
    const bool plain =
        word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%{}") ==
            std::string::npos &&
        !word.empty();
    text += (text.empty() ? "" : " ") + (plain ? word : shell_quoted(word));
  }
  return text;
}

class TrainerCheck {
 public:
  TrainerCheck(CheckOptions options, const Console& console) : options_(std::move(options)), console_(console) {}

  int run() {
    restore();
    const RankEnvironment node = own_node();
    settle();
    probe_ = find_probe();
    fs::create_directories(options_.out);
    if (node.rank <= 0) remember();  // what holds a check is no source of the trainer
    if (!options_.nodes.empty()) {
      meet_nodes(node);
      if (node.rank > 0) return nodes_->follow();
    }
    const int status = judged();
    if (nodes_) nodes_->status = status;
    return status;
  }

 private:
  int judged() {
    identity_ = probe_identity(probe_, "");
    const Wanted leader{kReference, &reference_, true, "", ""};
    identity_.data = command_spec().inspect_data(config_of(leader)).hash;
    began_ = monotonic_s();
    if (!options_.resumed.empty()) return resumed();
    if (!train({leader})) return in_own_precision();
    const std::string run = "run-float64";
    // The reference in its own precision runs beside it: it is needed if these agree.
    const bool both = train({{run, &run_}, {kOwn, &reference_, false}});
    if (!both && (interrupted_ || (failure_ && failure_->run == run))) return in_own_precision();
    return say(document_of(judge_led(folder(kReference), folder(run)), run));
  }

  /// Of a process on each of several nodes; else of one.
  RankEnvironment own_node() {
    std::vector<std::string> by_hand;
    if (const std::size_t slash = options_.nodes.find('/'); slash != std::string::npos)
      by_hand = {"--rank", options_.nodes.substr(0, slash), "--world", options_.nodes.substr(slash + 1)};
    const Resolution found = resolve_rank_environment(current_environment(), by_hand);
    if (options_.nodes.empty()) {
      if (found.chosen && found.chosen->world > 1)
        throw ConfigError(
            fmt::format("{} has started {} of this: put it behind --, or give --nodes, for one process on each node",
                        found.chosen->name, found.chosen->world));
      return {};
    }
    if (!found.chosen)
      throw ConfigError(fmt::format(
          "--nodes: {}; start one on each node: srun -N 2 --ntasks-per-node 1 lockstep check --nodes …, or with "
          "--nodes 0/2 "
          "on the first and --nodes 1/2 on the second",
          found.problems.empty() ? "this process is in no job" : fmt::format("{}", fmt::join(found.problems, "; "))));
    node_count_ = found.chosen->world;
    return *found.chosen;
  }

  void meet_nodes(const RankEnvironment& node) {
    try {
      nodes_ = std::make_unique<CommandNodes>(options_.out + "/nodes", node, options_.timeout_s);
    } catch (const RendezvousError& error) {
      throw MachineError(fmt::format("--nodes: {} Start this on each node, with one folder --out that all see",
                                     replaced(error.what(), "rank", "node")));
    }
  }

  /// --resumed: a whole run; one that stops, and the same resumed.
  int resumed() {
    const int64_t steps = 1 + last_step(),
                  stop = options_.resumed == "half" ? steps / 2 : std::strtoll(options_.resumed.c_str(), nullptr, 10);
    if (stop < 1 || stop >= steps)
      throw ConfigError(fmt::format("--resumed {}: a step from 1 to {}; --steps has more", stop, steps - 1));
    if (!names(reference_.command, "out"))
      throw ConfigError(
          "--resumed: the command has no {out}: write it for the folder in which the trainer saves and from which it "
          "resumes");
    const Side second{options_.resume_with.empty() ? reference_.command : options_.resume_with, reference_.ranks,
                      reference_.accumulate};
    check_placeholders(second.command);
    if (!train({{"whole", &reference_, false, "", "", steps}, {"stopped", &reference_, false, "", "", stop, "stopped"}}))
      return failed();
    CheckDocument document;
    const int64_t made = read_recorded_rank(folder("stopped"), 0).steps;
    if (made <= stop) {
      document.headline =
          fmt::format("undecided: the trainer ended by itself after {}, and was to be stopped before step {}",
                      counted(made, "step"), stop);
      document.fix = "let it train longer, or give smaller --steps and --resumed";
    } else if (train({{"resumed", &second, false, "", "", steps - stop, "stopped"}})) {
      document =
          resumed_document(judge_resumed(folder("whole"), folder("stopped"), folder("resumed")), folder("stopped"));
    } else if (failure_ && failure_->message.find("recorded nothing") != std::string::npos) {
      document.verdict = CheckMark::different;
      document.headline = "did not go on: the resumed run makes no step";
    } else {
      return failed();
    }
    document.commands[0] = reference_.command;
    document.commands[1] = second.command;
    document.again = again();
    return say(std::move(document));
  }

  std::string folder(const std::string& id) const { return run_folder(options_.out, id); }

  /// Of `lockstep check --out DIR` alone: what DIR was made with.
  void restore() {
    if (!options_.command.empty() || !options_.reference.empty() || !options_.run.empty()) return;
    const FileText file = read_file(options_.out + "/check.json");
    const nlohmann::json json = file ? parse_json(file.text) : nlohmann::json();
    if (!json.is_object() || !json.contains("asked")) {
      throw ConfigError(
          fmt::format("no command: lockstep check -- torchrun --nproc-per-node {{ranks}} train.py --batch {{batch}} "
                      "({} holds no earlier check)",
                      options_.out));
    }
    const nlohmann::json& asked = json["asked"];
    const auto text = [&](const char* key) {
      return json_as<std::string>(asked.value(key, nlohmann::json())).value_or("");
    };
    options_.reference = text("reference");
    options_.run = text("run");
    options_.ranks = text("ranks");
    options_.steps = text("steps");
    options_.rows = json_as<int64_t>(asked.value("rows", nlohmann::json())).value_or(options_.rows);
    options_.accumulate = json_as<int64_t>(asked.value("accumulate", nlohmann::json())).value_or(1);
    options_.seed = json_as<int64_t>(asked.value("seed", nlohmann::json())).value_or(0);
    options_.same_layout = json_as<bool>(asked.value("same_layout", nlohmann::json())).value_or(false);
    options_.vary = text("vary");
    options_.timeout_s = json_as<double>(asked.value("timeout", nlohmann::json())).value_or(options_.timeout_s);
    options_.resumed = text("resumed");
    options_.resume_with = text("resume_with");
    options_.folder = text("folder");
    node_count_ = json_as<int>(asked.value("nodes", nlohmann::json())).value_or(1);
    if (options_.accept.empty())
      options_.accept = json_as<std::vector<std::string>>(asked.value("accept", nlohmann::json()))
                            .value_or(std::vector<std::string>());
  }

  nlohmann::json asked() const {
    return {{"reference", options_.reference}, {"run", options_.run},
            {"ranks", options_.ranks},         {"steps", options_.steps},
            {"rows", options_.rows},           {"accumulate", options_.accumulate},
            {"seed", options_.seed},           {"same_layout", options_.same_layout},
            {"vary", options_.vary},           {"timeout", options_.timeout_s},
            {"resumed", options_.resumed},     {"resume_with", options_.resume_with},
            {"folder", options_.folder},       {"accept", options_.accept},
            {"nodes", node_count_}};
  }
  void remember() const {
    write_file_atomically(options_.out + "/check.json", nlohmann::json({{"asked", asked()}}).dump(2) + "\n");
  }

  void settle() {
    const std::string command = command_of(options_.command);
    if (!command.empty() && (!options_.reference.empty() || !options_.run.empty()))
      throw ConfigError("--reference and --run say what is started: there is no command after -- then");
    if (options_.reference.empty() != options_.run.empty())
      throw ConfigError("--reference and --run belong together: the run, and what it should equal");
    if (!command.empty()) options_.reference = options_.run = command;
    const bool one = options_.reference == options_.run;
    if (one && !names(options_.run, "ranks") && options_.vary.empty() && !options_.same_layout &&
        options_.resumed.empty()) {
      throw ConfigError(
          fmt::format("the command has no {{ranks}}: write it where the number of ranks stands, such as torchrun "
                      "--nproc-per-node {{ranks}} train.py, "
                      "or give --reference 'CMD' --run 'CMD'"));
    }
    if (!options_.vary.empty()) {
      require_known(options_.vary, {"accumulate"}, "--vary", "what varies");
      if (!names(options_.run, "accumulate")) throw ConfigError("--vary accumulate: the command has no {accumulate}");
    }
    for (const std::string& code : options_.accept) require_known(code, {"batch-norm-local"}, "--accept", "difference");
    std::vector<int> ranks;
    for (const std::string& word : split_lists({options_.ranks})) {
      char* end = nullptr;
      const int64_t number = std::strtoll(word.c_str(), &end, 10);
      if (word.empty() || *end != '\0' || number < 1 || number > 1024)
        throw ConfigError("--ranks " + options_.ranks + ": one or two numbers, such as 4 or 1,4");
      ranks.push_back(static_cast<int>(number));
    }
    if (ranks.size() > 2) throw ConfigError("--ranks " + options_.ranks + ": one or two numbers, such as 4 or 1,4");
    const bool alike = options_.same_layout || !options_.vary.empty() || !options_.resumed.empty();
    if (ranks.empty()) ranks.push_back(names(options_.run, "ranks") ? default_ranks() * node_count_ : 1);
    if (ranks.size() == 1) ranks.insert(ranks.begin(), alike ? ranks.front() : 1);
    if (options_.ranks.find(',') != std::string::npos && ranks.size() == 1) ranks.push_back(ranks.front());
    if (options_.folder.empty()) options_.folder = fs::current_path().string();
    options_.out = fs::absolute(options_.out).lexically_normal().string();
    reference_ = {options_.reference, ranks[0], 1};
    run_ = {options_.run, ranks[1],
            options_.vary.empty() ? options_.accumulate : std::max<int64_t>(2, options_.accumulate)};
    if (run_.ranks % node_count_ != 0 || (node_count_ > 1 && !names(run_.command, "ranks")))
      throw ConfigError(fmt::format("--nodes: {}, which the command takes by {{ranks}}, cannot be shared out to {}",
                                    run_.words(), counted(node_count_, "node")));
    for (Side* side : {&reference_, &run_}) {
      for (const char* launcher : {"torchrun", "torch.distributed.run", "accelerate launch", "mpirun", "srun"})
        if (side->ranks > 1 && !names(side->command, "ranks") && side->command.find(launcher) != std::string::npos)
          throw ConfigError(
              fmt::format("{}: write {{ranks}} where {} has the number of ranks; without it a command is started once "
                          "for each rank",
                          side->command, launcher));
      if (options_.rows % (side->ranks * side->accumulate) != 0 && names(side->command, "batch"))
        throw ConfigError(fmt::format("--rows {}: cannot be shared out to {}; take a multiple of {}", options_.rows,
                                      side->words(), side->ranks * side->accumulate));
      check_placeholders(side->command);
    }
  }

  static void check_placeholders(const std::string& command) {
    const std::vector<std::string_view> known = {"ranks", "batch", "accumulate", "seed", "out", "nodes"};
    for (std::size_t at = command.find('{'); at != std::string::npos; at = command.find('{', at + 1)) {
      const std::size_t end = command.find('}', at);
      const std::string name = end == std::string::npos ? "" : command.substr(at + 1, end - at - 1);
      const bool is_name = !name.empty() &&
                           name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos &&
                           (at == 0 || command[at - 1] != '$');
      if (is_name) require_known(name, known, "the command", "placeholder");
    }
  }

  std::string recorded(const Wanted& wanted) const {
    return fmt::format("STEPS={} DROPOUT=off MOST_BYTES={}{}{}", options_.steps, kMostBytes,
                       wanted.wide ? " PRECISION=float64" : "",
                       wanted.otherwise.empty() ? "" : " " + wanted.otherwise);
  }

  RunConfig config_of(const Wanted& wanted) const {
    const Side& side = *wanted.side;
    RunConfig config(command_spec());
    const int64_t rows = std::max<int64_t>(1, options_.rows / side.ranks);
    config.layout = {side.ranks, static_cast<int>(rows)};
    config.backend = Backend::gloo;
    config.seed = options_.seed;
    config.steps = 1 + last_step();
    config.timeout_s = options_.timeout_s;
    CommandConfig& own = command_config(config);
    own.command = side.command;
    own.folder = options_.folder;
    const auto fill = [&](const char* name, const std::string& value) {
      const std::string key = std::string("args.") + name;
      if (names(side.command, name) && find_field(command_spec(), key))
        own.arguments[key] = value;  // looked for, a key is known
    };
    fill("batch", std::to_string(std::max<int64_t>(1, rows / side.accumulate)));
    fill("accumulate", std::to_string(side.accumulate));
    fill("nodes", std::to_string(nodes_of(side)));
    if (nodes_of(side) > 1) fill("ranks", std::to_string(side.ranks / nodes_of(side)));
    if (!wanted.out.empty()) fill("out", folder(wanted.out));
    own.recorded = wanted.stop > 0 ? fmt::format("STOP={}", wanted.stop) : recorded(wanted);
    if (wanted.stop == 0) own.led_by = wanted.led_by;
    return config;
  }

  int nodes_of(const Side& side) const { return side.ranks % node_count_ == 0 ? node_count_ : 1; }

  int64_t last_step() const {
    const std::vector<std::string> words = split_lists({options_.steps});
    const int64_t last = words.empty() ? 8 : std::strtoll(words.back().c_str(), nullptr, 10);
    return words.size() == 1 ? std::max<int64_t>(last - 1, 0) : last;
  }

  /// Runs those that are not there. False: one failed, and `failure_` says how.
  bool train(const std::vector<Wanted>& wanted) {
    failure_.reset();
    Plan plan;
    for (const Wanted& each : wanted) {
      PlannedRun run;
      run.id = each.id;
      run.cell = each.id;
      run.config = config_of(each);
      run.hash = config_hash(run.config);
      run.estimate_s = seconds_of_one_;
      plan.runs.push_back(std::move(run));
    }
    if (!options_.fresh) apply_history(plan.runs, options_.out, identity_);
    // What leads is the reference's trace: who was led by an earlier one runs again.
    for (PlannedRun& run : plan.runs)
      run.reused = run.reused && (run.id == kReference || !led_anew_) &&
                   command_config(run.config).arguments.count("args.out") == 0;
    led_anew_ = led_anew_ || (!plan.runs.front().reused && plan.runs.front().id == kReference);
    if (std::ranges::all_of(plan.runs, &PlannedRun::reused)) return true;
    if (node_count_ > 1 && !nodes_)
      throw ConfigError(fmt::format("what {} holds was made on {}: start this on each, with --nodes", options_.out,
                                    counted(node_count_, "node")));
    prepare_starter(wanted);
    LaunchOptions launching;
    launching.out_dir = options_.out;
    // Two that meet at one port must not run at once, nor two steps of one allocation.
    const bool apart =
        !starter_ || nodes_ ||
        std::ranges::any_of(
            std::initializer_list<const char*>{"-port", "_port", "-endpoint", "_endpoint"},
            [&](const char* word) { return (reference_.command + run_.command).find(word) != std::string::npos; });
    launching.jobs = apart ? std::max(reference_.ranks, run_.ranks) : 2 * (reference_.ranks + run_.ranks);
    launching.stop_requested = StopSignals::requested();
    launching.stop_signal = StopSignals::number();
    launching.make_launcher = [this] {
      return std::make_unique<CommandLauncher>(probe_, std::vector<std::string>(), starter_, nodes_.get());
    };
    launching.on_event = [this](const RunEvent& event) { show(event); };
    const StopSignals signals;
    const double before = monotonic_s();
    LaunchReport report = launch(plan, launching, identity_);
    if (seconds_of_one_ == 0) seconds_of_one_ = monotonic_s() - before;
    clear_line();
    if (starter_ && !starter_->refused.empty() && starter_->refused != refused_) {
      refused_ = starter_->refused;
      console_.err << clean_line(fmt::format("  every process is started anew, which takes longer: {}", refused_))
                   << "\n";
    }
    if (report.interrupted) interrupted_ = true;
    if (report.failures.empty() && !report.interrupted) return true;
    if (!report.failures.empty()) failure_ = std::move(report.failures.front());
    return false;
  }

  void prepare_starter(const std::vector<Wanted>& wanted) {
    if (options_.as_written) return;
    const RunConfig config = config_of(wanted.front());
    std::vector<std::string> words = plain_words(spec_of(config).command(config, folder(wanted.front().id)).shell);
    take_assignments(words);
    if (!starter_) {
      const std::string python = python_of(words);
      if (python.empty()) return;
      say_line("starting Python: imports what the trainer imports");
      starter_ = std::make_shared<Starter>(python, probe_, options_.out + "/starter.log");
      imports_s_ = starter_->import({"torch"}, script_of(words, options_.folder));
    } else if (const std::vector<std::string> more = starter_->modules(); !more.empty()) {
      imports_s_ += starter_->import(more, "");
    }
  }

  // Progress, on standard error.

  void say_line(const std::string& text) {
    if (console_.err_terminal) console_.err << "\r\x1b[K" << text << std::flush;
    painted_ = true;
  }
  void clear_line() {
    if (console_.err_terminal && painted_) console_.err << "\r\x1b[K" << std::flush;
    painted_ = false;
  }
  void show(const RunEvent& event) {
    const double left = seconds_of_one_ > 0 ? std::max(0.0, 3 * seconds_of_one_ + began_ - monotonic_s()) : 0;
    if (event.kind == RunEvent::Kind::progress && event.step > 0)
      say_line(fmt::format("{}: step {} of {}{}", event.run, event.step, event.steps,
                           left > 0 ? fmt::format(", about {} left", duration_text(left)) : ""));
    if (event.kind != RunEvent::Kind::finished) return;
    clear_line();
    const RecordedRank recorded = read_recorded_rank(folder(event.run), 0);
    console_.err << fmt::format("{}: {}, {:.1f} s, {:.3g} MB a rank\n", event.run, counted(recorded.steps, "step"),
                                event.seconds, static_cast<double>(recorded.bytes) / 1e6);
  }

  // What failed.

  /// A run in float64 has failed. If the program fails anyway that is said; else it is judged as far as its own
  /// precision goes.
  int in_own_precision() {
    if (interrupted_ || !failure_) return failed();
    const RankFailure wide = *failure_;
    if (wide.kind != FailureKind::threw || wide.message.starts_with("node ")) return failed();
    if (!train({{"reference-alone", &reference_, false, "", ""}}) ||
        !train({{"run-alone", &run_, false, "", "reference-alone"}}))
      return failed();
    constexpr LedBounds kOfFloat32{1e-5, 1e-2};
    CheckDocument document = document_of(judge_led(folder("reference-alone"), folder("run-alone"), kOfFloat32),
                                         "run-alone", "reference-alone");
    document.because.push_back(fmt::format(
        "Not in float64, which the program cannot compute in ({}: {}): differences below 1e-2 decide nothing.",
        wide.run, wide.message));
    return say(std::move(document));
  }

  int failed() {
    if (interrupted_ || !failure_) return interrupted_ ? kExitInterrupted : kExitMachine;
    const RankFailure& failure = *failure_;
    console_.err << clean_line(fmt::format("lockstep: {}: {}{}{}", failure.run,
                                           failure.rank >= 0 ? fmt::format("rank {}: ", failure.rank) : "",
                                           failure.message,
                                           failure.operation.empty() ? "" : fmt::format(" (in {})", failure.operation)))
                 << "\n";
    for (const std::string& line : last_of(failure)) console_.err << "  " << clean_line(line) << "\n";
    console_.err << "  all of it: " << folder(failure.run) << "\n";
    const bool nothing = failure.message.find("recorded nothing") != std::string::npos;
    return nothing                                                                  ? kExitMachine
           : failure.kind == FailureKind::hung || failure.kind == FailureKind::slow ? kExitHung
                                                                                    : kExitDied;
  }

  static std::vector<std::string> last_of(const RankFailure& failure) {
    constexpr std::size_t kLines = 3;
    const std::size_t count = std::min(kLines, failure.last_lines.size());
    return {failure.last_lines.end() - static_cast<std::ptrdiff_t>(count), failure.last_lines.end()};
  }

  // What is said.

  std::string again() const { return "lockstep check --out " + shell_quoted(fs::relative(options_.out).string()); }

  /// What one more run shows, in which one thing is otherwise.
  std::optional<Otherwise> otherwise(const LedFindings& found, const std::string& run, const std::string& reference,
                                     OtherwiseInputs::Tried tried) {
    if (reference != kReference) return std::nullopt;
    const auto make = [&](const OtherRun& other) -> std::optional<std::string> {
      if (interrupted_ || !train({{other.id, other.of_reference ? &reference_ : &run_, true, other.variables}}))
        return std::nullopt;
      return folder(other.id);
    };
    auto explained = explain_otherwise({folder(reference), folder(run), found, make, tried});
    failure_.reset();
    return explained;
  }

  CheckDocument document_of(LedFindings found, const std::string& run, const std::string& reference = kReference) {
    CheckDocument document;
    document.reference = reference_.words();
    document.run = run_.words();
    document.commands[0] = reference_.command;
    document.commands[1] = run_.command;
    document.again = again();
    LedFindings shown = found;  // where BatchNorm is all, against the reference with statistics by ranks
    std::vector<CheckFact> last;
    const LedItem* different = found.different();
    const int64_t different_from = different ? different->first : -1;
    const std::optional<Otherwise> by_norm = different ? otherwise(found, run, reference, OtherwiseInputs::Tried::norm) : std::nullopt;
    if (by_norm) shown = by_norm->agrees;
    if (found.steps.empty()) {
      document.headline = fmt::format("undecided: {}", found.problem.empty() ? "no step could be led" : found.problem);
      document.verdict = CheckMark::undecided;
      document.facts = facts_of(found);
      return document;
    }
    if (by_norm) {
      const bool accepted = std::ranges::find(options_.accept, "batch-norm-local") != options_.accept.end();
      document.verdict = accepted ? CheckMark::same : CheckMark::different;
      document.headline = accepted ? same_headline(found) + ", but for BatchNorm"
                                   : fmt::format("different from step {}: batch-norm-local", different_from);
      last.push_back({accepted ? CheckMark::none : CheckMark::different, "BatchNorm",
                      fmt::format("{:.3g} % of the gradient", 100 * most_of(found))});
      document.because = {by_norm->because};
      if (!accepted)
        document.fix = "SyncBatchNorm.convert_sync_batchnorm(model); or --accept batch-norm-local, if this is meant";
    } else if (different) {
      name_difference(*different, found, run, reference, document);
    } else if (const LedItem* open = found.undecided()) {
      document.verdict = CheckMark::undecided;
      document.headline = fmt::format("undecided from step {}: {} {}", open->first, open->name, open->text);
      if (!found.narrow.empty())
        document.because = {fmt::format("float64 is none in {}: what computes in a narrower type rounds",
                                        join_words(first_of(found.narrow, 3)))};
    } else {
      document.verdict = CheckMark::same;
      document.headline = same_headline(found);
      if (reference == kReference) last.push_back(own_precision(document));
    }
    if (!found.problem.empty()) document.because.push_back("not led further: " + found.problem);
    for (CheckFact& fact : facts_of(shown)) document.facts.push_back(std::move(fact));
    for (CheckFact& fact : last) document.facts.push_back(std::move(fact));
    document.charts = charts_of(found);
    return document;
  }

  static std::vector<std::string> first_of(const std::vector<std::string>& all, std::size_t count) {
    return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(count, all.size()))};
  }

  std::string same_headline(const LedFindings& found) const {
    return fmt::format("the same: {} as {} ({}, from equal weights and rows)", run_.words(), reference_.words(),
                       counted(static_cast<int64_t>(found.steps.size()), "step"));
  }

  void name_difference(const LedItem& first, const LedFindings& found, const std::string& run,
                       const std::string& reference, CheckDocument& document) {
    document.verdict = CheckMark::different;
    std::string code = first.code, fix;
    const auto by_another_run = [&](OtherwiseInputs::Tried tried) {
      const auto shown = code.empty() ? otherwise(found, run, reference, tried) : std::nullopt;
      if (shown) code = shown->code, document.because.push_back(shown->because);
    };
    // What is proven comes before what is recognised.
    by_another_run(OtherwiseInputs::Tried::first);
    if (code.empty()) {
      CompareOptions comparing;
      comparing.run_a = folder(reference);
      comparing.run_b = folder(run);
      const Mechanism mechanism = compare_runs(comparing);
      const bool of_step = mechanism.first_divergence && mechanism.first_divergence->step == first.first;
      if (of_step && mechanism.cause && mechanism.cause->code != "unexplained") {
        code = mechanism.cause->code;
        document.because.push_back(mechanism.cause->evidence);
        fix = mechanism.cause->remedy;
      }
    }
    by_another_run(OtherwiseInputs::Tried::rest);
    if (const CausePage* page = code.empty() ? nullptr : find_cause_page(code)) {
      document.because.insert(document.because.begin(), std::string(page->what));
      if (fix.empty()) fix = std::string(page->remedy);
    }
    document.headline = fmt::format("different from step {}: {}", first.first, code.empty() ? first.name : code);
    document.fix = fix;
    if (code.empty())
      document.because.push_back(fmt::format("no known cause explains it; {}: {}", first.name, first.text));
  }

  /// Where the run's forward passes ask for a 16-bit type and the reference's do not: "train.py:59".
  std::vector<std::string> casts_of_run() const {
    std::vector<std::string> casts = read_probe_report(folder("run-float64"), 0).casts;
    const std::vector<std::string> there = read_probe_report(folder(kReference), 0).casts;
    std::erase_if(casts, [&](const std::string& each) { return std::ranges::find(there, each) != there.end(); });
    return casts;
  }

  /// Where float64 agrees: how far the trainer's own precision rounds.
  CheckFact own_precision(CheckDocument& document) {
    if (failure_ || !train({{"run", &run_, false}}))
      return {CheckMark::none, "own precision", failure_ ? failure_->message : "interrupted"};
    const std::vector<LedStep> there = led_steps(folder(kReference), folder(kOwn)),
                               here = led_steps(folder(kReference), folder("run"));
    double rounds = 0, run_rounds = 0;
    int64_t at = -1;
    for (const LedStep& step : there) rounds = std::max(rounds, step.applied);
    for (const LedStep& step : here)
      if (step.applied > run_rounds || std::isnan(step.applied)) run_rounds = step.applied, at = step.step;
    constexpr double kFar = 0.1, kNear = 0.01;
    const bool apart = !(run_rounds <= kFar) && rounds < kNear,
               rounds_more = run_rounds > 100 * rounds && run_rounds > 1e-4;
    if (apart) {
      document.verdict = CheckMark::different;
      document.headline =
          fmt::format("different at step {} in the trainer's own precision, and the same in float64", at);
      document.because.push_back(
          "What float64 does not have is at fault: a loss scale, an overflow, a reduction in a narrow type.");
    } else if (const std::vector<std::string> casts = rounds_more ? casts_of_run() : std::vector<std::string>(); !casts.empty()) {
      document.verdict = CheckMark::different;
      document.headline =
          fmt::format("different from step {} in the trainer's own precision: precision-differs", here.front().step);
      document.because.push_back(
          fmt::format("The run's forward pass computes in 16 bits where the reference does not: {}.", join_words(first_of(casts, 3))));
      document.fix = std::string(find_cause_page("precision-differs")->remedy);
    }
    std::string text = fmt::format("{:.2g} from float64 (the reference {:.2g}){}", run_rounds, rounds,
                                   rounds_more ? ": the run rounds more, as a reduction in a narrow type does" : "");
    if (reference_.ranks == run_.ranks && std::ranges::all_of(led_steps(folder(kOwn), folder("run")),
                                                              [](const LedStep& step) { return step.gradients == 0; }))
      text += ", bit for bit alike";
    return {document.verdict, "own precision", text};
  }

  static std::vector<CheckFact> facts_of(const LedFindings& found) {
    std::vector<CheckFact> facts;
    for (const LedItem& item : found.items) {
      if (item.state == LedState::not_compared &&
          (item.name == "norm" || item.name == "metrics" || item.name == "replicas"))
        continue;
      CheckFact fact{item.state == LedState::same        ? CheckMark::same
                     : item.state == LedState::different ? CheckMark::different
                     : item.state == LedState::undecided ? CheckMark::undecided
                                                         : CheckMark::none,
                     item.name, item.text};
      if (item.state == LedState::same && item.text.empty() && item.name == "gradients")
        fact.text = fmt::format("{} (float64: at most {:.1g} off)", counted(item.steps, "step"), most_of(found));
      if (item.state == LedState::same && item.text.empty() && item.name == "rows")
        fact.text = counted(item.steps, "step");
      facts.push_back(std::move(fact));
    }
    return facts;
  }

  static double most_of(const LedFindings& found) {
    double most = 0;
    for (const LedStep& step : found.steps) most = std::max(most, step.gradients);
    return most;
  }

  std::vector<SuiteChart> charts_of(const LedFindings& found) const {
    SuiteChart losses, gradients;
    losses.title = "Loss";
    losses.why = "of each step, in float64, from equal weights";
    gradients.title = "Difference of gradients";
    gradients.why = "relative to the reference's; below 1e-12 they are the same";
    losses.x = gradients.x = {"step", "", false};
    losses.y = {"loss", "", false};
    gradients.y = {"difference", "", true};
    ChartSeries a{reference_.words(), CaseVerdict::good, {}}, b{run_.words(), CaseVerdict::good, {}},
        off{"before clipping", CaseVerdict::good, {}};
    for (const LedStep& step : found.steps) {
      const auto x = static_cast<double>(step.step);
      if (std::isfinite(step.expected_loss)) a.points.push_back({x, step.expected_loss});
      if (std::isfinite(step.loss)) b.points.push_back({x, step.loss});
      if (std::isfinite(step.gradients)) off.points.push_back({x, std::max(step.gradients, 1e-17)});
    }
    losses.panels = {{"", {a, b}}};
    gradients.panels = {{"", {off}}};
    if (const LedItem* first = found.different())
      gradients.marks = {{"first difference", static_cast<double>(first->first)}};
    return {losses, gradients};
  }

  int say(CheckDocument document) {
    nlohmann::json json = {{"asked", asked()},
                           {"headline", document.headline},
                           {"because", document.because},
                           {"fix", document.fix},
                           {"decide", document.decide}};
    json["verdict"] = document.verdict == CheckMark::same        ? "same"
                      : document.verdict == CheckMark::different ? "different"
                                                                 : "undecided";
    for (const CheckFact& fact : document.facts)
      json["facts"].push_back({{"name", fact.name},
                               {"text", fact.text},
                               {"state", fact.mark == CheckMark::same        ? "same"
                                         : fact.mark == CheckMark::different ? "different"
                                         : fact.mark == CheckMark::undecided ? "undecided"
                                                                             : "not compared"}});
    json["seconds"] = monotonic_s() - began_;
    json["seconds_of_imports"] = imports_s_;
    write_file_atomically(options_.out + "/check.json",
                          json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    write_file_atomically(options_.out + "/check.html", check_page(document));
    write_file_atomically(options_.out + "/check.md", check_markdown(document));
    if (options_.json)
      console_.out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    else
      console_.out << check_text(document, console_.out_colour, console_.out_width);
    return document.verdict == CheckMark::same        ? kExitAsExpected
           : document.verdict == CheckMark::different ? kExitUnexpected
                                                      : kExitUndecided;
  }

  CheckOptions options_;
  const Console& console_;
  Side reference_, run_;
  std::string probe_, refused_;
  BuildIdentity identity_;
  std::shared_ptr<Starter> starter_;
  std::unique_ptr<CommandNodes> nodes_;
  int node_count_ = 1;
  std::optional<RankFailure> failure_;
  bool interrupted_ = false, painted_ = false, led_anew_ = false;
  double began_ = 0, seconds_of_one_ = 0, imports_s_ = 0;
};

}  // namespace

int check_command(const CheckOptions& options, const Console& console) { return TrainerCheck(options, console).run(); }

}  // namespace lockstep
