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
#include <ranges>
#include <ostream>
#include <set>
#include <thread>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/cli/options.h"
#include "harness/judge/causes/acted.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/causes/rules.h"
#include "harness/judge/compare/led.h"
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

/// GPUs that the driver lists, or else cores; at most 4.
int default_ranks() {
  std::error_code error;
  int gpus = 0;
  for (fs::directory_iterator at("/proc/driver/nvidia/gpus", error), end; !error && at != end; at.increment(error))
    ++gpus;
  return std::clamp(gpus > 0 ? gpus : static_cast<int>(std::thread::hardware_concurrency()), 2, 4);
}

int exit_code_of(const CheckDocument& document) {
  return document.verdict == Mark::same        ? kExitAsExpected
         : document.verdict == Mark::different ? kExitUnexpected
                                               : kExitUndecided;
}

class TrainerCheck {
 public:
  TrainerCheck(CheckOptions options, const Console& console) : options_(std::move(options)), console_(console) {}

  int run() {
    restore();
    const RankEnvironment node = own_node();
    settle();
    began_ = monotonic_s();
    if (options_.kept) return judged();
    probe_ = find_probe();
    fs::create_directories(options_.out);
    if (node.rank <= 0) remember();  // what holds a check is no source of the trainer
    if (!options_.nodes.empty()) {
      meet_nodes(node);
      if (node.rank > 0) return nodes_->follow();
    }
    identity_ = probe_identity(probe_, "");
    identity_.data = command_spec().inspect_data(config_of({kReference, &reference_, true, "", ""})).hash;
    const int status = judged();
    if (nodes_) nodes_->status = status;
    return status;
  }

 private:
  int judged() {
    const Wanted leader{kReference, &reference_, true, "", ""};
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
    if (!names_placeholder(reference_.command, "out"))
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
      document.fix = "let it train longer, or judge fewer steps";
      if (made > 1)
        document.decide = command_with([&](CheckOptions& options) {
          options.steps = std::to_string(made);
          options.resumed = "half";
        });
    } else if (train({{"resumed", &second, false, "", "", steps - stop, "stopped"}})) {
      const ResumedFindings found = judge_resumed(folder("whole"), folder("stopped"), folder("resumed"));
      document = resumed_document(found, folder("stopped"));
      if (document.verdict == Mark::undecided)
        document.decide = found.steps > 0 ? again() : command_with([&](CheckOptions& options) {
          options.steps = std::to_string(2 * steps);
          options.resumed = std::to_string(stop);
        });
    } else if (failure_ && failure_->message.find("recorded nothing") != std::string::npos) {
      document.verdict = Mark::different;
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
    if (!json.is_object() || !json.contains("asked"))
      throw ConfigError("no command: lockstep check -- torchrun --nproc-per-node {ranks} train.py --batch {batch} (" +
                        options_.out + " holds no earlier check)");
    const nlohmann::json& asked = json["asked"];
    std::vector<std::string> accept = std::move(options_.accept);
    const bool kept = options_.kept;
    each_asked(options_, [&](const char* key, auto& value) {
      value = json_as<std::remove_reference_t<decltype(value)>>(asked.value(key, nlohmann::json())).value_or(value);
    });
    if (!accept.empty()) options_.accept = std::move(accept);
    options_.kept |= kept;
    node_count_ = json_as<int>(asked.value("nodes", nlohmann::json())).value_or(1);
    if (node_count_ < 1 || options_.accumulate < 1 || options_.rows < 1)
      throw ConfigError(options_.out + "/check.json: numbers of what no check has asked");
  }

  /// Hands each option that says what is checked to `each`, with its key.
  template <class Options, class Each>
  static void each_asked(Options& options, Each each) {
    each("reference", options.reference);
    each("run", options.run);
    each("ranks", options.ranks);
    each("steps", options.steps);
    each("rows", options.rows);
    each("accumulate", options.accumulate);
    each("seed", options.seed);
    each("same_layout", options.same_layout);
    each("vary", options.vary);
    each("timeout", options.timeout_s);
    each("resumed", options.resumed);
    each("resume_with", options.resume_with);
    each("folder", options.folder);
    each("accept", options.accept);
    each("kept", options.kept);
  }

  nlohmann::json asked(const CheckOptions& options) const {
    nlohmann::json json = {{"nodes", node_count_}};
    each_asked(options, [&](const char* key, const auto& value) { json[key] = value; });
    return json;
  }

  /// This check with other options.
  std::string command_with(const std::function<void(CheckOptions&)>& change) const {
    CheckOptions options = options_;
    change(options);
    const nlohmann::json usual = asked(CheckOptions()), all = asked(options);
    std::string text = "lockstep check";
    for (const auto& [key, value] : all.items()) {
      if (value == usual[key] || key == "folder" || key == "kept" || key == "reference" || key == "run") continue;
      const std::string option = " --" + replaced(key, "_", "-");
      if (value.is_boolean()) text += option;
      else if (value.is_array()) text += fmt::format("{} {}", option, fmt::join(value.get<std::vector<std::string>>(), ","));
      else text += option + " " + (value.is_string() ? shell_quoted(value.get<std::string>()) : value.dump());
    }
    return text + (options.reference == options.run
                       ? " -- " + options.run
                       : fmt::format(" --reference {} --run {}", shell_quoted(options.reference), shell_quoted(options.run)));
  }
  void remember() const {
    write_file_atomically(options_.out + "/check.json", nlohmann::json({{"asked", asked(options_)}}).dump(2) + "\n");
  }

  void settle() {
    const std::string command = command_of(options_.command);
    if (!command.empty() && (!options_.reference.empty() || !options_.run.empty()))
      throw ConfigError("--reference and --run say what is started: there is no command after -- then");
    if (options_.reference.empty() != options_.run.empty())
      throw ConfigError("--reference and --run belong together: the run, and what it should equal");
    if (!command.empty()) options_.reference = options_.run = command;
    const bool one = options_.reference == options_.run;
    if (one && !names_placeholder(options_.run, "ranks") && options_.vary.empty() && !options_.same_layout &&
        options_.resumed.empty()) {
      throw ConfigError(
          fmt::format("the command has no {{ranks}}: write it where the number of ranks stands, such as torchrun "
                      "--nproc-per-node {{ranks}} train.py, "
                      "or give --reference 'CMD' --run 'CMD'"));
    }
    if (!options_.vary.empty()) {
      require_known(options_.vary, {"accumulate"}, "--vary", "what varies");
      if (!names_placeholder(options_.run, "accumulate")) throw ConfigError("--vary accumulate: the command has no {accumulate}");
    }
    for (const std::string& code : options_.accept) require_known(code, {"batch-norm-local"}, "--accept", "difference");
    std::vector<int> ranks;
    for (const std::string& word : split_lists({options_.ranks})) {
      char* end = nullptr;
      const int64_t number = std::strtoll(word.c_str(), &end, 10);
      if (word.empty() || *end != '\0' || number < 1 || number > 1024 || ranks.size() == 2)
        throw ConfigError("--ranks " + options_.ranks + ": one or two numbers, such as 4 or 1,4");
      ranks.push_back(static_cast<int>(number));
    }
    const bool alike = options_.same_layout || !options_.vary.empty() || !options_.resumed.empty();
    if (ranks.empty()) ranks.push_back(names_placeholder(options_.run, "ranks") ? default_ranks() * node_count_ : 1);
    // A list names each number once: 2,2 is two of them.
    if (ranks.size() == 1) ranks.insert(ranks.begin(), alike || options_.ranks.find(',') != std::string::npos ? ranks.front() : 1);
    if (options_.folder.empty()) options_.folder = fs::current_path().string();
    options_.out = fs::absolute(options_.out).lexically_normal().string();
    reference_ = {options_.reference, ranks[0], 1};
    run_ = {options_.run, ranks[1],
            options_.vary.empty() ? options_.accumulate : std::max<int64_t>(2, options_.accumulate)};
    if (run_.ranks % node_count_ != 0 || (node_count_ > 1 && !names_placeholder(run_.command, "ranks")))
      throw ConfigError(fmt::format("--nodes: {}, which the command takes by {{ranks}}, cannot be shared out to {}",
                                    run_.words(), counted(node_count_, "node")));
    for (Side* side : {&reference_, &run_}) {
      for (const char* launcher : {"torchrun", "torch.distributed.run", "accelerate launch", "mpirun", "srun"})
        if (side->ranks > 1 && !names_placeholder(side->command, "ranks") && side->command.find(launcher) != std::string::npos)
          throw ConfigError(
              fmt::format("{}: write {{ranks}} where {} has the number of ranks; without it a command is started once "
                          "for each rank",
                          side->command, launcher));
      if (options_.rows % (side->ranks * side->accumulate) != 0 && names_placeholder(side->command, "batch"))
        throw ConfigError(fmt::format("--rows {}: cannot be shared out to {}; take a multiple of {}", options_.rows,
                                      side->words(), side->ranks * side->accumulate));
      check_placeholders(side->command);
    }
  }

  static void check_placeholders(const std::string& command) {
    const std::vector<std::string_view> known = {"ranks", "batch", "accumulate", "seed", "out", "nodes"};
    for_each_placeholder(command,
                         [&](const std::string& name) { require_known(name, known, "the command", "placeholder"); });
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
      if (names_placeholder(side.command, name) && find_field(command_spec(), key))
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
    if (options_.kept) {
      const auto lacks = std::ranges::find_if(wanted, [&](const Wanted& each) { return !fs::exists(folder(each.id)); });
      if (lacks != wanted.end())
        failure_ = RankFailure{lacks->id, FailureKind::threw, -1, -1, "", "the run was not kept", {}};
      return !failure_;
    }
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
      console_.news() << clean_line(fmt::format("  every process is started anew, which takes longer: {}", refused_))
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
    if (console_.err_terminal) console_.news() << "\r\x1b[K" << text << std::flush;
    painted_ = true;
  }
  void clear_line() {
    if (console_.err_terminal && painted_) console_.news() << "\r\x1b[K" << std::flush;
    painted_ = false;
  }
  void show(const RunEvent& event) {
    const double left = seconds_of_one_ > 0 ? std::max(0.0, 3 * seconds_of_one_ + began_ - monotonic_s()) : 0;
    if (event.kind == RunEvent::Kind::progress && event.step > 0)
      say_line(fmt::format("{}: step {} of {}{}", event.run, event.step, event.steps,
                           left > 0 ? fmt::format(", about {} left", duration_text(left)) : ""));
    if (event.kind == RunEvent::Kind::progress && event.run == kReference) say_disk(event.step);
    if (event.kind != RunEvent::Kind::finished) return;
    clear_line();
    if (event.run == kReference) say_disk(event.steps);
    const RecordedRank recorded = read_recorded_rank(folder(event.run), 0);
    console_.news() << fmt::format("{}: {}, {:.1f} s, {:.3g} MB a rank\n", event.run, counted(recorded.steps, "step"),
                                event.seconds, static_cast<double>(recorded.bytes) / 1e6);
  }

  /// What all runs will keep, from what the first rank of the first keeps of so many steps.
  void say_disk(int64_t steps) {
    const std::vector<std::string> listed = split_lists({options_.steps});
    const auto kept_of = [&](int64_t made) {
      return listed.size() == 1 ? made : std::ranges::count_if(listed, [&](const std::string& step) {
        return std::strtoll(step.c_str(), nullptr, 10) < made;
      });
    };
    std::error_code error;
    const auto bytes = static_cast<double>(fs::file_size(folder(kReference) + "/rank-0.trace", error));
    if (said_disk_ || error || bytes == 0 || kept_of(steps) < 1) return;
    said_disk_ = true;
    const double of_rank = std::min(static_cast<double>(kMostBytes),
                                    bytes / static_cast<double>(kept_of(steps)) * static_cast<double>(kept_of(1 + last_step())));
    clear_line();
    console_.news() << fmt::format("values of {}: about {:.3g} MB a rank, {:.3g} MB on disk in all\n",
                                counted(kept_of(1 + last_step()), "step"), of_rank / 1e6,
                                of_rank / 1e6 * 2 * (reference_.ranks + run_.ranks));
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
    const std::vector<std::string>& lines = failure.last_lines;
    for (std::size_t i = lines.size() - std::min<std::size_t>(3, lines.size()); i < lines.size(); ++i)
      console_.err << "  " << clean_line(lines[i]) << "\n";
    console_.err << "  all of it: " << folder(failure.run) << "\n";
    const bool nothing = failure.message.find("recorded nothing") != std::string::npos;
    return nothing                                                                  ? kExitMachine
           : failure.kind == FailureKind::hung || failure.kind == FailureKind::slow ? kExitHung
                                                                                    : kExitDied;
  }

  // What is said.

  std::string again() const {
    const char* const check = options_.kept ? "lockstep check --kept --out " : "lockstep check --out ";
    return check + shell_quoted(fs::relative(options_.out).string());
  }

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
    std::vector<Fact> last;
    const LedItem* different = found.different();
    const std::optional<Otherwise> by_norm = different ? otherwise(found, run, reference, OtherwiseInputs::Tried::norm) : std::nullopt;
    const LedFindings& shown = by_norm ? by_norm->agrees : found;  // BatchNorm is all: by its statistics of ranks
    if (found.steps.empty()) {
      document.headline = fmt::format("undecided: {}", found.problem.empty() ? "no step could be led" : found.problem);
      document.verdict = Mark::undecided;
      document.facts = facts_of(found);
      // Without being led, the runs still show what free ones do.
      document.decide = fmt::format("lockstep compare {} {}", shell_quoted(folder(reference)), shell_quoted(folder(run)));
      return document;
    }
    if (by_norm) {
      const bool accepted = std::ranges::find(options_.accept, "batch-norm-local") != options_.accept.end();
      document.verdict = accepted ? Mark::same : Mark::different;
      document.headline = accepted ? same_headline(found) + ", but for BatchNorm"
                                   : fmt::format("different from step {}: batch-norm-local", different->first);
      last.push_back({accepted ? Mark::none : Mark::different, "BatchNorm",
                      fmt::format("{:.3g} % of the gradient", 100 * most_of(found))});
      document.because = {by_norm->because};
      if (!accepted)
        document.fix = "SyncBatchNorm.convert_sync_batchnorm(model); or --accept batch-norm-local, if this is meant";
    } else if (different) {
      name_difference(*different, found, run, reference, document);
    } else if (const LedItem* open = found.undecided()) {
      document.verdict = Mark::undecided;
      document.headline = fmt::format("undecided from step {}: {} {}", open->first, open->name, open->text);
      tell_what_decides(found, reference == kReference, document);
    } else {
      document.verdict = Mark::same;
      document.headline = same_headline(found);
      if (reference == kReference) last.push_back(own_precision(document));
    }
    if (!found.problem.empty()) document.because.push_back("not led further: " + found.problem);
    for (Fact& fact : facts_of(shown)) document.facts.push_back(std::move(fact));
    for (Fact& fact : last) document.facts.push_back(std::move(fact));
    document.charts = charts_of(found.steps, different ? different->first : -1, true, reference_.words(), run_.words());
    return document;
  }

  void tell_what_decides(const LedFindings& found, bool in_float64, CheckDocument& document) const {
    document.decide = again();
    if (!found.narrow.empty()) {
      document.because = {fmt::format("float64 is none in {}: what computes in a narrower type rounds",
                                      join_words(found.narrow | std::views::take(3)))};
      document.fix = "let it compute in its inputs' type, and check again";
    } else if (options_.same_layout) {
      document.because = {"Two runs of one layout differ: the program adds in an order of chance, or draws without a seed."};
      document.fix = "torch.use_deterministic_algorithms(True), a seed for what draws, and check again";
    } else if (in_float64) {
      document.because = {"More than rounding in float64, and less than mistakes make: does the run differ from itself as much?"};
      document.decide = command_with([&](CheckOptions& options) {
        options.same_layout = true;
        options.vary.clear();
        options.ranks = std::to_string(run_.ranks);
        options.reference = options.run;
        options.out += "-same-layout";
      });
    }
  }

  std::string same_headline(const LedFindings& found) const {
    return fmt::format("the same: {} as {} ({}, from equal weights and rows)", run_.words(), reference_.words(),
                       counted(static_cast<int64_t>(found.steps.size()), "step"));
  }

  Mechanism compared(const std::string& reference, const std::string& run) const {
    return compare_runs({.run_a = folder(reference), .run_b = folder(run)});
  }

  void name_difference(const LedItem& first, const LedFindings& found, const std::string& run,
                       const std::string& reference, CheckDocument& document) {
    document.verdict = Mark::different;
    std::string code = first.code;
    const auto take = [&](const std::string& name, const std::string& why) { code = name, document.because.push_back(why); };
    const auto by_another_run = [&](OtherwiseInputs::Tried tried) {
      const auto shown = code.empty() ? otherwise(found, run, reference, tried) : std::nullopt;
      if (shown) take(shown->code, shown->because);
      return shown && shown->other_rows;
    };
    const bool of_values = first.name == "loss" || first.name == "gradients";
    // What is proven comes before what is recognised, but for a name that says no more than what differs.
    const bool other_rows = by_another_run(OtherwiseInputs::Tried::first);
    if (const auto cause = code.empty() && of_values ? name_cause_of_rows(folder(reference), folder(run), first.first) : std::nullopt)
      take(cause->code, cause->evidence);
    if (other_rows && code.empty()) {
      document.verdict = Mark::undecided;
      document.headline = fmt::format("undecided from step {}: the ranks have other rows than the reference", first.first);
      document.fix = "let all ranks choose the rows of a step alike, each taking its part, and check again";
      document.decide = again();
      return;
    }
    if (const auto cause = of_values ? name_cause_of_draws(folder(reference), folder(run), first.first, code) : std::nullopt)
      take(cause->code, cause->evidence);
    if (code.empty() || code == "rate-differs") {
      const Mechanism mechanism = compared(reference, run);
      const bool of_step = mechanism.first_divergence && mechanism.first_divergence->step == first.first;
      const Cause* cause = of_step && mechanism.cause ? &*mechanism.cause : nullptr;
      const bool is_named = cause && cause->code != "unexplained" && cause->code != code;
      // Of two that fit alike both are said.
      if (is_named || (cause && code.empty() && cause->evidence.find(" fit equally well") != std::string::npos)) {
        if (is_named) code = cause->code, document.because.clear();
        document.because.push_back(cause->evidence);
        document.fix = cause->remedy;
      }
    }
    by_another_run(OtherwiseInputs::Tried::rest);
    if (code.empty() && first.name == "replicas") code = "replicas-drift";
    if (const CausePage* page = code.empty() ? nullptr : find_cause_page(code)) {
      document.because.insert(document.because.begin(), std::string(page->what));
      if (document.fix.empty()) document.fix = std::string(page->remedy);
    }
    document.headline = fmt::format("different from step {}: {}", first.first, code.empty() ? first.name : code);
    if (code.empty() && document.because.empty())
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
  Fact own_precision(CheckDocument& document) {
    if (failure_ || !train({{"run", &run_, false}}))
      return {Mark::none, "own precision", failure_ ? failure_->message : "interrupted"};
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
    const auto differs = [&](const std::string& headline, std::string why, std::string fix) {
      document.verdict = Mark::different;
      document.headline = headline;
      document.because.push_back(std::move(why));
      document.fix = std::move(fix);
    };
    const std::string from = fmt::format("different from step {} in the trainer's own precision: ", here.front().step);
    const std::vector<std::string> casts = rounds_more ? casts_of_run() : std::vector<std::string>();
    if (apart) {
      differs(fmt::format("different at step {} in the trainer's own precision, and the same in float64", at),
              "What float64 does not have is at fault: a loss scale, an overflow, a reduction in a narrow type.", document.fix);
    } else if (!casts.empty()) {
      differs(from + "precision-differs",
              fmt::format("The run's forward pass computes in 16 bits where the reference does not: {}.", join_words(casts | std::views::take(3))),
              std::string(find_cause_page("precision-differs")->remedy));
    } else if (const auto cause = rounds_more ? compared(kOwn, "run").cause : std::nullopt;
               cause && cause->code == "reduced-in-low-precision") {
      differs(from + cause->code, cause->evidence, cause->remedy);
    }
    std::string text = fmt::format("{:.2g} from float64 (the reference {:.2g}){}", run_rounds, rounds,
                                   rounds_more ? ": the run rounds more, as a reduction in a narrow type does" : "");
    if (reference_.ranks == run_.ranks && std::ranges::all_of(led_steps(folder(kOwn), folder("run")),
                                                              [](const LedStep& step) { return step.gradients == 0; }))
      text += ", bit for bit alike";
    return {document.verdict, "own precision", text};
  }

  static std::vector<Fact> facts_of(const LedFindings& found) {
    std::vector<Fact> facts;
    for (const LedItem& item : found.items) {
      if (item.state == Mark::none &&
          (item.name == "norm" || item.name == "metrics" || item.name == "replicas"))
        continue;
      Fact fact{item.state, item.name, item.text};
      if (item.state == Mark::same && item.text.empty() && item.name == "gradients")
        fact.text = fmt::format("{} (float64: at most {:.1g} off)", counted(item.steps, "step"), most_of(found));
      if (item.state == Mark::same && item.text.empty() && item.name == "rows")
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

  int say(CheckDocument document) {
    nlohmann::json json = document_json(document);
    json["asked"] = asked(options_);
    json["command"] = command_with([](CheckOptions&) {});
    json["seconds"] = monotonic_s() - began_;
    json["seconds_of_imports"] = imports_s_;
    const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    write_file_atomically(options_.out + "/check.json", text);
    write_file_atomically(options_.out + "/check.html", check_page(document));
    const std::string markdown = check_markdown(document);
    write_file_atomically(options_.out + "/check.md", markdown);
    print_document(document, text, check_text(document, console_.out_colour, console_.out_width), options_.outputs,
                   console_);
    std::set<std::string> runs;
    std::error_code error;
    for (const auto& each : fs::directory_iterator(options_.out + "/runs", error))
      if (fs::exists(each.path() / "rank-0.trace") && !each.path().string().ends_with("-operations"))
        runs.insert(each.path().filename().string());
    std::vector<ToolSource> sources;
    for (const std::string& id : runs) {
      const std::string other = id.starts_with("run") ? "reference" + id.substr(3) : "";
      sources.push_back({id, folder(id), runs.contains(other) ? folder(other) : "", other.empty() ? "" : markdown});
    }
    write_tools(sources, options_.outputs.tools, console_);
    return exit_code_of(document);
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
  bool interrupted_ = false, painted_ = false, led_anew_ = false, said_disk_ = false;
  double began_ = 0, seconds_of_one_ = 0, imports_s_ = 0;
};

}  // namespace

int check_command(const CheckOptions& options, const Console& console) {
  if (options.acted.empty()) return TrainerCheck(options, console).run();
  CheckDocument document = document_of(judge_acted(read_acted(options.acted == "-" ? "/dev/stdin" : options.acted)));
  document.again = "lockstep check --acted " + shell_quoted(options.acted);
  print_document(document, "", check_text(document, console.out_colour, console.out_width), options.outputs, console);
  return exit_code_of(document);
}

}  // namespace lockstep
