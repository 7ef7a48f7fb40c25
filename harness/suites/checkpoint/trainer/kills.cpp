// SIGKILL before every operation of a save on each rank, through the real trainer on Gloo.

#include <fmt/format.h>

#include <array>
#include <csignal>
#include <fstream>
#include <map>

#include "harness/base/errors.h"
#include "harness/base/json_text.h"
#include "harness/suites/checkpoint/trainer/experiment.h"
#include "harness/suites/checkpoint/trainer/judge.h"

namespace lockstep::restarts {
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

struct Point {
  const Variant* variant;
  int rank;
  Operation operation;
};

class Kills : public Experiment {
 public:
  explicit Kills(const Subject& subject) : subject_(subject) {}

  std::vector<Trial> trials(Bench& bench) override {
    std::vector<Trial> trials;
    for (const Variant& variant : kVariants) add(variant, bench, trials);
    return trials;
  }

  std::vector<CaseResult> run(const Trial& trial, Bench& bench) const override {
    const Point& point = points_.at(trial.name);
    const Variant& variant = *point.variant;
    const Made& made = made_.at(variant.name);
    const std::string dir = variant.fresh ? bench.empty("run") : bench.copy(made.before, "run");
    const int64_t older = variant.fresh ? 0 : kOld, newer = variant.fresh ? kKillEvery : kNew;
    Planted planted;
    planted.rank = point.rank;
    planted.operation = point.operation.number;
    planted.signal = SIGKILL;
    planted.mistake = subject_.mistake;
    const Ended killed = bench.attempt(dir, made.config, planted);
    const std::string who = fmt::format("rank {} was killed before {}", point.rank, point.operation.words);
    if (killed.hung) return {fault("hang", who + ": the other ranks did not end")};
    if (killed.finished())
      return {{"not reached", CaseVerdict::undecided, 1, who + ": it did not come to that operation"}};
    const Kept kept = kept_in(dir);
    if (kept.damaged > 0) return {fault("torn", who + ": a checkpoint counts that is damaged")};
    if (kept.newest() != older && kept.newest() != newer) {
      return {fault("neither", fmt::format("{}: a checkpoint of step {} or {} expected, the newest is of step {}", who, older,
                                           newer, kept.newest()))};
    }
    const Ended ended = bench.attempt(dir, made.config);
    if (ended.hung) return {fault("hang", who + ": the run that goes on does not end")};
    const int64_t resumed = result_of(dir, 0).checkpoints.resumed_at;
    if (resumed != kept.newest()) {
      return {fault("lost work", fmt::format("{}: the run should go on at step {} and does at step {}: {}", who,
                                             kept.newest(), resumed, result_of(dir, 0).error))};
    }
    if (const std::string problem = best_model_problem(dir, made.config); !problem.empty())
      return {fault("not the best", who + ": " + problem)};
    const std::string difference = first_difference(made.whole, dir, made.config.layout.world_size);
    if (!difference.empty()) return {fault("end differs", who + ": " + difference)};
    if (kept.newest() == 0) return {good("begun anew, end equal")};
    return {good(kept.newest() == older ? "old, end equal" : "new, end equal")};
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements&) const override {
    return {{"operations of saves at which ranks were killed", fmt::format("{} of {}", points_.size(), all_)}};
  }

 private:
  struct Made {
    RunConfig config;
    std::string whole, before;
  };

  void add(const Variant& variant, Bench& bench, std::vector<Trial>& trials) {
    Made made;
    made.config = shaped(subject_.config, variant.shape);
    Planted record;
    record.record = true;
    made.whole = reference(bench, variant.name, made.config, record);
    std::string recorded = made.whole;
    if (!variant.fresh) {
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
      recorded = bench.copy(made.before, fmt::format("{}-recorded", variant.name));
      record.mistake = subject_.mistake;
      if (!bench.attempt(recorded, made.config, record).finished()) throw ConfigError("a run that goes on fails");
    }
    for (int rank = 0; rank < variant.shape.ranks; ++rank) {
      const std::vector<Operation> save = operations_of_save(operations_of(recorded, rank), 0);
      all_ += static_cast<int64_t>(save.size());
      const auto count = static_cast<int64_t>(save.size());
      const int64_t take = subject_.points > 0 ? std::min(subject_.points, count) : count;
      for (int64_t i = 0; i < take; ++i) add({&variant, rank, save[static_cast<std::size_t>(i * count / take)]}, trials);
    }
    made_[variant.name] = std::move(made);
  }

  void add(const Point& point, std::vector<Trial>& trials) {
    const std::string name = fmt::format("kill:{}:rank_{}:{}", point.variant->name, point.rank, point.operation.number);
    trials.push_back({name, "kill", place_of(point.rank, point.operation), 0.5});
    points_.emplace(name, point);
  }

  const Subject& subject_;
  std::map<std::string, Made> made_;
  std::map<std::string, Point> points_;
  int64_t all_ = 0;
};

}  // namespace

std::unique_ptr<Experiment> make_kills(const Subject& subject) { return std::make_unique<Kills>(subject); }

}  // namespace lockstep::restarts
