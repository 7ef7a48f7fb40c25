#include "harness/suites/checkpoint/trainer/restarts.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/config/field.h"
#include "harness/plan/matrix/read_matrix.h"
#include "harness/run/libraries.h"
#include "harness/suites/checkpoint/trainer/resumes.h"
#include "harness/suites/engine/suite.h"

namespace lockstep::restarts {
namespace {

constexpr std::string_view kMatrix = "trainer.matrix";
constexpr Range kSeconds{0.05, 86400}, kCount{0, 1e6};

std::vector<std::string_view> mistake_names() {
  return {"", "one_file_name"};
}

#define TRAINER(key, member, ...)                                                                     \
  Field<RestartsConfig> {                                                                             \
    {"trainer." key, __VA_ARGS__}, [](RestartsConfig& c) -> FieldRef { return ref_to(c.member); } \
  }
const std::array kFields{
    TRAINER("matrix", matrix, {}, "", "config whose cell is trained; a relative path starts at this config's folder"),
    TRAINER("cell", cell, {}, "", "name of the cell; its batch is partitioned among as many real ranks as a trial needs"),
    TRAINER("points", subject.points, kCount, "operations",
        "most operations of a save at which each rank is killed, evenly spread; 0: all"),
    TRAINER("resume_steps", subject.resume_steps, Range{1, 1e5}, "steps",
        "the run is stopped at each step up to this one, once and twice in a row"),
    TRAINER("cycles", subject.cycles, Range{1, 1e6}, "cycles", "random kills and restarts of a run of 4 ranks"),
    TRAINER("signals", subject.signals, Range{1, 1e6}, "signals", "SIGTERM or SIGUSR1 at random moments"),
    TRAINER("seed", subject.seed, kCount, "", "seed of the random moments"),
    TRAINER("mistake", subject.mistake, {}, "",
        "mistake planted in the saver that is killed, to check that it is found: `one_file_name`, all ranks "
        "write the same file; empty: none", Words::any,
            Setter::user, &mistake_names),
    TRAINER("deadline_s", deadline_s, kSeconds, "s", "an attempt that takes longer is counted as hung"),
};
#undef TRAINER

std::vector<std::string_view> names_of_experiments() {
  std::vector<std::string_view> names;
  for (const ExperimentKind& kind : experiment_kinds()) names.push_back(kind.name);
  return names;
}

/// The cell's config, with what a trial decides by itself set aside.
void read_cell(const SuiteSource& source, RestartsConfig& config, Problems& problems) {
  const Entry* const named = source.find(kMatrix);
  const Place place = named == nullptr ? source.place : named->place;
  std::string path = config.matrix;
  if (!path.starts_with('/') && (named == nullptr || named->place.source == 0))
    path = (std::filesystem::path(source.file).parent_path() / path).string();
  try {
    const Matrix matrix = read_matrix(path, {config.set, config.cell, "", ""});
    if (matrix.cells.empty()) {
      problems.add(place, fmt::format("trainer.cell: {} selects no cell of {}", in_quotes(config.cell), path));
      return;
    }
    config.subject.config = matrix.cells.front().config;
  } catch (const ConfigError& error) {
    problems.add(place, error.what());
    return;
  }
  RunConfig& run = config.subject.config;
  run.checkpoint = CheckpointConfig{};
  run.rows = RowPartition::equal;
  run.snapshot_steps.clear();
  if (run.mutant.name != "none" || run.second_mutant.name != "none")
    problems.add(place, "trainer.cell: what a planted fault remembers stands in no checkpoint; take a cell without a mutant");
}

}  // namespace

RestartsConfig read_restarts_config(const SuiteSource& source, Problems& problems) {
  RestartsConfig config;
  SuiteSource plain = source;
  const std::vector<std::string_view> names = names_of_experiments();
  config.set = take_words(plain, "trainer.set", {}, problems);
  config.tries = take_words(plain, "trainer.tries", names, problems);
  if (config.tries.empty()) config.tries.assign(names.begin(), names.end());
  read_fields<RestartsConfig>(plain, kFields, config, problems);
  if (config.matrix.empty()) problems.add(source.place, "trainer.matrix is missing: the config whose cell is trained");
  if (config.cell.empty()) problems.add(source.place, "trainer.cell is missing: the name of the cell that is trained");
  if (problems.empty()) read_cell(source, config, problems);
  return config;
}

namespace {

nlohmann::ordered_json restarts_schema() {
  const RestartsConfig defaults;
  SchemaJson schema = object_schema();
  schema["required"] = {"matrix", "cell"};
  add_fields(schema, kFields, defaults);
  schema["properties"]["set"] = words_schema({}, "settings of that config, each `key=value`");
  schema["properties"]["tries"] = words_schema(names_of_experiments(), "what is tried; default all");
  return schema;
}

class TrainerSuite : public Suite {
 public:
  explicit TrainerSuite(RestartsConfig config) : config_(std::move(config)) {}

  std::string subject() const override { return fmt::format("checkpoints of {}, real ranks", config_.cell); }

  std::string identity() const override { return canonical_json(config_.subject.config); }

  std::vector<std::string> plan() const override {
    std::vector<std::string> lines;
    for (const ExperimentKind& kind : experiment_kinds()) {
      if (tries(kind)) lines.push_back(fmt::format("{}: {}", kind.name, kind.help));
    }
    return lines;
  }

  std::vector<Trial> trials(const SuiteRun& run) override {
    std::vector<Trial> all;
    Bench bench = bench_of(run, "references");
    for (const ExperimentKind& kind : experiment_kinds()) {
      if (!tries(kind) || *run.stop_requested != 0) continue;
      Experiment experiment = kind.plan(config_.subject, bench);
      facts_[kind.name] = std::move(experiment.facts);
      run.say(fmt::format("{}: {} trials, after the runs that they are compared with", kind.name,
                          experiment.trials.size()));
      for (BenchTrial& each : experiment.trials) {
        all.push_back(std::move(each.trial));
        all.back().run = [this, on = std::move(each.run)](Slot& slot) {
          return on(slot.keep<Bench>([&] { return bench_of(slot.run(), fmt::format("slot-{}", slot.number())); }));
        };
      }
    }
    return all;
  }

  Facts facts(const Measurements&) const override {
    Facts all;
    for (const auto& [name, facts] : facts_) all.insert(all.end(), facts.begin(), facts.end());
    return all;
  }

  std::vector<std::string> notes(const Measurements&) const override {
    return {"A killed process leaves what it wrote in the page cache: what a power loss would take is not shown by these "
            "trials.",
            "Saves stand between two steps: a position within a step's accumulation is never saved, so none can be lost."};
  }

 private:
  bool tries(const ExperimentKind& kind) const {
    return std::ranges::find(config_.tries, kind.name) != config_.tries.end();
  }

  Bench bench_of(const SuiteRun& run, const std::string& name) const {
    return Bench(rank_program_path(), fmt::format("{}/work/{}", run.out_dir, name), config_.deadline_s, run.stop_requested);
  }

  RestartsConfig config_;
  std::map<std::string_view, Facts> facts_;  ///< by experiment
};

std::unique_ptr<Suite> make(const SuiteSource& source, Problems& problems) {
  RestartsConfig config = read_restarts_config(source, problems);
  return problems.empty() ? std::make_unique<TrainerSuite>(std::move(config)) : nullptr;
}

}  // namespace

// A run of 4 ranks is killed at random moments and started again, many times over.
namespace {

constexpr int kCycleRanks = 4, kKeep = 3;
constexpr int64_t kCycleSteps = 90, kCycleEvery = 3, kCyclesOfChain = 25;
/// Moments of a kill: so long after an attempt's processes began, and so many steps after the first one trained.
constexpr double kBegins_s = 0.25;
constexpr int64_t kMostSteps = 6;

/// What the folder should hold, and what was done to it.
struct Chain {
  std::string dir;
  int64_t newest = 0;  ///< that stood before
  int64_t killed = 0, finished = 0;
  std::vector<TimelineStep> timeline;
};

class Cycles {
 public:
  Cycles(const Subject& subject, Bench& bench)
      : subject_(subject),
        config_(shaped(subject.config, {kCycleRanks, kCycleSteps, kCycleEvery, kKeep, false, false})),
        whole_(reference(bench, "cycles", config_)) {}

  std::vector<CaseResult> run(int64_t first, int64_t end, Bench& bench) const {
    Chain chain;
    chain.dir = bench.empty("run");
    for (int64_t cycle = first; cycle < end; ++cycle) {
      if (std::string problem = kill_once(cycle, chain, bench); !problem.empty()) return {wrong(chain, problem)};
    }
    const Ended ended = bench.attempt(chain.dir, config_);
    if (ended.hung) return {wrong(chain, "hang: the run does not end after the last kill")};
    const std::string difference = first_difference(whole_, chain.dir, kCycleRanks);
    if (!difference.empty()) return {wrong(chain, "end differs: " + difference)};
    if (const std::string problem = best_model_problem(chain.dir, config_); !problem.empty())
      return {wrong(chain, "not the best: " + problem)};
    CaseResult cycles = good("gone on, at most one interval lost");
    cycles.cases = end - first;
    return {std::move(cycles), good("end equal")};
  }

 private:
  static CaseResult wrong(const Chain& chain, const std::string& problem) {
    CaseResult result = fault(problem.substr(0, problem.find(':')),
                              fmt::format("after {} kills: {}", chain.killed, problem));
    const auto most = static_cast<std::ptrdiff_t>(std::min<std::size_t>(chain.timeline.size(), 6));
    result.timeline.assign(chain.timeline.end() - most, chain.timeline.end());
    return result;
  }

  /// One attempt that is killed at a random moment; begun anew where it came to its end. Returns what is wrong with what it
  /// left: "lost work: …".
  std::string kill_once(int64_t cycle, Chain& chain, Bench& bench) const {
    const auto draw = [&](uint64_t what) {
      return keyed(static_cast<uint64_t>(subject_.seed), static_cast<uint64_t>(cycle), what);
    };
    // One in four is killed while it begins or loads, the others some steps later.
    const bool early = draw(0) % 4 == 0;
    const double after_s = static_cast<double>(draw(1) % 1000) / 1000 * kBegins_s;
    const int64_t steps = static_cast<int64_t>(draw(2) % kMostSteps), pause_us = static_cast<int64_t>(draw(3) % 4000);
    const int victim = static_cast<int>(draw(4) % (kCycleRanks + 1));  // the last number: all of them
    int64_t most = chain.newest;
    double due_s = -1;
    bool killed = false;
    const Ended ended = bench.attempt(chain.dir, config_, {}, [&](const Going& going) {
      if (killed) return;
      most = std::max(most, going.most_steps());
      if (early) {
        if (going.since_started_s < after_s) return;
      } else {
        if (going.fewest_steps() <= chain.newest + steps) return;
        if (due_s < 0) due_s = going.since_started_s + static_cast<double>(pause_us) * 1e-6;
        if (going.since_started_s < due_s) return;
      }
      killed = true;
      if (victim == kCycleRanks) going.signal_all(SIGKILL);
      else going.kill(victim);
      most = std::max(most, going.most_steps());
    });
    if (ended.hung) return "hang: " + ended.in_words();
    const Kept kept = kept_in(chain.dir);
    chain.timeline.push_back({victim == kCycleRanks ? "all ranks" : fmt::format("rank {}", victim),
                              fmt::format("after step {}, the newest checkpoint of step {}", most, kept.newest()),
                              "killed"});
    if (ended.finished()) {
      chain.dir = bench.empty("run");
      chain.newest = 0;
      ++chain.finished;
      return "";
    }
    ++chain.killed;
    if (kept.damaged > 0) return "torn: a checkpoint counts that is damaged";
    if (chain.newest > 0 && kept.whole.empty()) return "none left: no checkpoint is whole where there was one";
    if (kept.newest() < chain.newest)
      return fmt::format("lost work: step {} stood there, and {} does", chain.newest, kept.newest());
    if (most - kept.newest() > kCycleEvery)
      return fmt::format("lost work: {} steps were done, the newest checkpoint is of step {}", most, kept.newest());
    if (kept.whole.size() > kKeep + 1)
      return fmt::format("too many kept: {}, at most {} expected", kept.whole.size(), kKeep + 1);
    chain.newest = kept.newest();
    return "";
  }

  const Subject& subject_;
  const RunConfig config_;
  const std::string whole_;
};

}  // namespace

Experiment plan_cycles(const Subject& subject, Bench& bench) {
  const auto cycles = std::make_shared<const Cycles>(subject, bench);
  Experiment planned;
  for (int64_t first = 0; first < subject.cycles; first += kCyclesOfChain) {
    const int64_t end = std::min(first + kCyclesOfChain, subject.cycles);
    planned.trials.push_back({{fmt::format("cycle:from_{}", first), "random kill and restart", "4 ranks", 15},
                              [cycles, first, end](Bench& on) { return cycles->run(first, end, on); }});
  }
  planned.facts = {{"kill-and-restart cycles of a run of 4 ranks",
                    fmt::format("{}, each of them a random rank or all, a save every {} steps, {} kept", subject.cycles,
                                kCycleEvery, kKeep)}};
  return planned;
}

// SIGKILL before every operation of a save on each rank, through the real trainer on Gloo.
namespace {

struct Variant {
  const char* name;
  Shape shape;
  bool fresh;  ///< the first save of all; else one over two older ones, of which one goes
};
constexpr int64_t kKillEvery = 2, kKillSteps = 7, kOld = 4, kNew = 6;
constexpr std::array kVariants{
    Variant{"2_ranks", {2, kKillSteps, kKillEvery, 2, false, false}, false},
    Variant{"2_ranks_fresh", {2, kKillSteps, kKillEvery, 2, false, false}, true},
    Variant{"2_ranks_async", {2, kKillSteps, kKillEvery, 2, true, false}, false},
    Variant{"4_ranks_sharded", {4, kKillSteps, kKillEvery, 2, false, true}, false},
    Variant{"1_rank", {1, kKillSteps, kKillEvery, 2, false, false}, false},
};

struct Operation {
  int64_t number = 0;
  std::string kind, words;
};

/// Paths begin at the folder of checkpoints.
std::string shortened(std::string words, const std::string& dir) {
  const std::string folder = dir + "/checkpoints/";
  for (std::size_t at = 0; (at = words.find(folder, at)) != std::string::npos;) words.erase(at, folder.size());
  return words;
}

std::vector<Operation> operations_of(const std::string& dir, int rank) {
  std::vector<Operation> operations;
  std::ifstream file(fmt::format("{}/operations-{}.jsonl", dir, rank));
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json json = parse_json(line);
    const JsonFields fields(json, fmt::format("{}/operations-{}.jsonl", dir, rank));
    operations.push_back({fields.at<int64_t>("number"), fields.at<std::string>("kind"), shortened(fields.at<std::string>("words"), dir)});
  }
  return operations;
}

/// The operations of one save, from 0, behind those of the load: each save ends with the gather 'finished', and rank 0
/// then gives the lock back.
std::vector<Operation> operations_of_save(const std::vector<Operation>& all, int which) {
  std::vector<Operation> found;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].words == "gather 'survey'" || all[i].words == "gather 'verified'") begin = i + 1;
  }
  int save = 0;
  for (std::size_t i = begin; i < all.size(); ++i) {
    const bool unlocks = i > 0 && all[i - 1].words == "gather 'finished'" && all[i].kind == "close";
    if (save == which || (unlocks && save == which + 1)) found.push_back(all[i]);
    if (all[i].words == "gather 'finished'") ++save;
  }
  if (!found.empty() && which > 0 && found.front().kind == "close") found.erase(found.begin());
  return found;
}

/// "rank 1, gather 'written'": a row of the table.
std::string place_of(int rank, const Operation& operation) {
  const std::string& what = operation.kind == "gather" ? operation.words : operation.kind;
  return fmt::format("rank {}, {}", rank == 0 ? "0" : "1 and above", what);
}

/// What the saves of a variant are compared with.
struct Made {
  const Variant& variant;
  RunConfig config;
  std::string whole, before, recorded;
  std::string mistake;  ///< planted in the saver that is killed
};

Made made_of(const Subject& subject, const Variant& variant, Bench& bench) {
  Made made{variant, shaped(subject.config, variant.shape), "", "", "", subject.mistake};
  Planted record;
  record.record = true;
  made.whole = made.recorded = reference(bench, variant.name, made.config, record);
  if (variant.fresh) return made;
  // A run that ends just before its third save: checkpoints of steps 2 and 4 stand, traces reach to step 6.
  Planted stop;
  stop.rank = 0;
  stop.operation = operations_of_save(operations_of(made.whole, 0), 2).at(0).number;
  stop.signal = SIGKILL;
  made.before = bench.empty(fmt::format("{}-before", variant.name));
  bench.attempt(made.before, made.config, stop);
  if (const Kept kept = kept_in(made.before); kept.newest() != kOld) {
    throw ConfigError(fmt::format("a run that ends before it saves step {} should leave a checkpoint of step {}; its "
                                  "newest is of step {}",
                                  kNew, kOld, kept.newest()));
  }
  made.recorded = bench.copy(made.before, fmt::format("{}-recorded", variant.name));
  record.mistake = subject.mistake;
  if (!bench.attempt(made.recorded, made.config, record).finished()) throw ConfigError("a run that goes on fails");
  return made;
}

std::vector<CaseResult> kill_at(const Operation& operation, int rank, const Made& made, Bench& bench) {
  const Variant& variant = made.variant;
  const std::string dir = variant.fresh ? bench.empty("run") : bench.copy(made.before, "run");
  const int64_t older = variant.fresh ? 0 : kOld, newer = variant.fresh ? kKillEvery : kNew;
  Planted planted;
  planted.rank = rank;
  planted.operation = operation.number;
  planted.signal = SIGKILL;
  planted.mistake = made.mistake;
  const Ended killed = bench.attempt(dir, made.config, planted);
  const std::string who = fmt::format("rank {} was killed before {}", rank, operation.words);
  if (killed.hung) return {fault("hang", who + ": the other ranks did not end")};
  if (killed.finished())
    return {{"not reached", CaseVerdict::undecided, 1, who + ": it did not come to that operation"}};
  const Kept kept = kept_in(dir);
  if (kept.damaged > 0) return {fault("torn", who + ": a checkpoint counts that is damaged")};
  if (kept.newest() != older && kept.newest() != newer) {
    return {fault("neither", fmt::format("{}: a checkpoint of step {} or {} expected, the newest is of step {}", who,
                                         older, newer, kept.newest()))};
  }
  const Ended ended = bench.attempt(dir, made.config);
  if (ended.hung) return {fault("hang", who + ": the run that goes on does not end")};
  const int64_t resumed = result_of(dir, 0).checkpoints.resumed_at;
  if (resumed != kept.newest()) {
    return {fault("lost work", fmt::format("{}: the run should go on at step {} and does at step {}: {}", who,
                                           kept.newest(), resumed, result_of(dir, 0).error))};
  }
  if (auto wrong = wrong_end(made.whole, dir, made.config, who); !wrong.empty()) return wrong;
  if (kept.newest() == 0) return {good("begun anew, end equal")};
  return {good(kept.newest() == older ? "old, end equal" : "new, end equal")};
}

}  // namespace

Experiment plan_kills(const Subject& subject, Bench& bench) {
  Experiment planned;
  std::size_t all = 0;
  for (const Variant& variant : kVariants) {
    const auto made = std::make_shared<const Made>(made_of(subject, variant, bench));
    for (int rank = 0; rank < variant.shape.ranks; ++rank) {
      const std::vector<Operation> save = operations_of_save(operations_of(made->recorded, rank), 0);
      all += save.size();
      for (const Operation& operation : even_sample(save, subject.points)) {
        planned.trials.push_back({{fmt::format("kill:{}:rank_{}:{}", variant.name, rank, operation.number), "kill",
                                   place_of(rank, operation), 0.5},
                                  [made, rank, operation](Bench& on) { return kill_at(operation, rank, *made, on); }});
      }
    }
  }
  planned.facts = {
      {"operations of saves at which ranks were killed", fmt::format("{} of {}", planned.trials.size(), all)}};
  return planned;
}

}  // namespace lockstep::restarts

namespace lockstep {

const SuiteKind& trainer_suite() {
  static const SuiteKind kKind{
      "trainer", "real runs of a trainer, killed, told to stop and started again, compared with runs that were not",
      &restarts::make, &restarts::restarts_schema};
  return kKind;
}

}  // namespace lockstep
