// A run is saved on V ranks, goes on on W, and then on V again: parameters, moments and sampler must be the same bits,
// and every sample must be read once in each epoch.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <tuple>

#include "harness/base/counted.h"
#include "harness/base/hashing.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/suites/checkpoint/resume/resume_config.h"
#include "harness/suites/checkpoint/resume/segments.h"
#include "harness/suites/engine/suite.h"

namespace lockstep::resume {
namespace {

namespace kind = checkpoint::kind;

/// A mistake of a saver or loader, and how the trial must name it.
struct ReshardMistake {
  const char *name, *words;
  std::string_view kind;
  bool needs_other_world;  ///< on the same number of ranks it changes nothing
  void (*plant)(toy::Planted& planted);
};
constexpr ReshardMistake kReshardMistakes[] = {
    {"cursor_in_batches", "the cursor is saved in batches", kind::sampler_cursor, true,
     [](toy::Planted& planted) { planted.cursor_in_batches = true; }},
    {"cursor_of_rank", "each rank saves its own cursor", kind::sampler_cursor, true,
     [](toy::Planted& planted) { planted.cursor_of_rank = true; }},
    {"shard_off_by_one", "a rank's moments are taken one element further on", kind::moments, false,
     [](toy::Planted& planted) { planted.shard_off_by_one = true; }},
};

struct PlannedReshard {
  Trial trial;
  int from = 1, to = 1;
  int64_t stop = 0;
  bool batch_fixed = true;  ///< else each rank has its rows and its generator
  bool asynchronous = false, sharded = false;
  const ReshardMistake* mistake = nullptr;
};

/// All ranks' state as one rank's, without what each rank has for itself but for the sum of what they have accumulated.
toy::TrainerState gathered(const std::vector<toy::RunEnd>& ends, const toy::Config& config) {
  const int ranks = static_cast<int>(ends.size());
  toy::TrainerState whole = trainer_state_of(ends[0], config, 0, ranks);
  for (int rank = 1; rank < ranks; ++rank) {
    const toy::TrainerState part = trainer_state_of(ends[static_cast<std::size_t>(rank)], config, rank, ranks);
    whole.first.insert(whole.first.end(), part.first.begin(), part.first.end());
    whole.second.insert(whole.second.end(), part.second.begin(), part.second.end());
    for (std::size_t at = 0; at < part.accumulated.size(); ++at) whole.accumulated[at] += part.accumulated[at];
    whole.accumulated_rows += part.accumulated_rows;
    whole.accumulated_overflow |= part.accumulated_overflow;
  }
  return whole;
}

std::vector<std::string> differences(const std::vector<toy::RunEnd>& expected, const std::vector<toy::RunEnd>& seen,
                                     const toy::Config& config) {
  toy::Config common = config;
  common.jitter = false;
  common.planted = {};
  const auto state = [&](const std::vector<toy::RunEnd>& ends) {
    return toy::to_checkpoint(gathered(ends, config), common, 0, 1);
  };
  return checkpoint::state_differences(state(expected), state(seen));
}

/// Does each rank have the generator that the rule of Trainer::restore gives it?
std::string jitter_problem(const std::vector<toy::RunEnd>& before, const std::vector<toy::RunEnd>& after,
                           const toy::Config& config) {
  const int savers = static_cast<int>(before.size()), ranks = static_cast<int>(after.size());
  std::set<uint64_t> words;
  for (int rank = 0; rank < ranks; ++rank) {
    const int from = rank % savers;
    const uint64_t theirs = trainer_state_of(before[static_cast<std::size_t>(from)], config, from, savers).jitter.word;
    const uint64_t expected = rank < savers ? theirs : keyed(theirs, static_cast<uint64_t>(rank / savers)) | 1;
    const uint64_t seen = trainer_state_of(after[static_cast<std::size_t>(rank)], config, rank, ranks).jitter.word;
    if (seen != expected)
      return fmt::format("random stream jitter: rank {} of {} has not the generator that the rule gives it", rank,
                         ranks);
    if (!words.insert(seen).second) return fmt::format("random stream jitter: rank {} has that of another rank", rank);
  }
  return "";
}

/// The first epoch in which a sample was read twice, or, if the epoch came to its end, never.
std::string audit(const Steps& steps, int64_t samples, int64_t& read) {
  std::map<int64_t, std::multiset<int64_t>> epochs;
  for (const auto& [step, ranks] : steps) {
    for (const toy::StepRecord& record : ranks) epochs[record.epoch].insert(record.own.begin(), record.own.end());
  }
  for (const auto& [epoch, ids] : epochs) {
    int64_t twice = 0, never = 0;
    for (int64_t id = 0; id < samples; ++id) {
      const auto count = ids.count(id);
      twice += count > 1;
      never += count == 0 && epoch != epochs.rbegin()->first;
    }
    read += static_cast<int64_t>(ids.size());
    if (twice + never > 0)
      return fmt::format("epoch {}: {} read twice, {} never", epoch, counted(twice, "sample"), never);
  }
  return "";
}

/// What does not depend on the number of ranks.
Steps common_of(const Steps& steps) {
  Steps common;
  for (const auto& [step, ranks] : steps) {
    toy::StepRecord record = ranks.at(0);
    record.own.clear();
    record.gradient.clear();
    common[step] = {std::move(record)};
  }
  return common;
}

class ReshardPlayer {
 public:
  explicit ReshardPlayer(const ResumeConfig& config) : config_(config) {}

  std::vector<CaseResult> run(const PlannedReshard& planned) {
    toy::Config toy = toy_of(planned);
    if (planned.mistake != nullptr) planned.mistake->plant(toy.planted);
    const int64_t turn = planned.stop + 9, end = planned.stop / toy.accumulate * toy.accumulate + 27;
    const std::vector<Segment> segments{{planned.from, planned.stop, planned.asynchronous},
                                {planned.to, planned.stop},
                                {planned.to, turn, planned.asynchronous},
                                {planned.from, turn},
                                {planned.from, end}};
    const SegmentsDone seen = run_segments(toy, segments, config_.deadline_s);
    if (!seen.problem.empty() && (planned.mistake == nullptr || seen.ends.size() < 2))
      return {{"failed", CaseVerdict::fault, 1, seen.problem}};
    const std::vector<std::string> problems = problems_of(planned, toy, seen, end);
    CaseResult result = planned.mistake == nullptr ? judged(planned, problems) : judged_mistake(planned, problems);
    if (result.verdict != CaseVerdict::good) result.timeline = timeline_of(segments);
    return {std::move(result)};
  }

 private:
  toy::Config toy_of(const PlannedReshard& planned) const {
    toy::Config toy;
    toy.seed = static_cast<uint64_t>(config_.seed);
    toy.jitter = !planned.batch_fixed;
    if (!planned.batch_fixed) toy.rows_per_rank = 2;
    toy.shard_parameters = planned.sharded;
    return toy;
  }

  /// Everything that is not as it should be, the loads first.
  std::vector<std::string> problems_of(const PlannedReshard& planned, const toy::Config& toy, const SegmentsDone& seen,
                                       int64_t end) {
    std::vector<std::string> problems = differences(seen.ends[0], seen.ends[1], toy);
    // A planted mistake may go so far that the ranks cannot save any more.
    if (!seen.problem.empty()) {
      problems.push_back(seen.problem);
      return problems;
    }
    const std::vector<std::string> back = differences(seen.ends[2], seen.ends[3], toy);
    problems.insert(problems.end(), back.begin(), back.end());
    if (toy.jitter) {
      for (const std::size_t segment : {std::size_t{0}, std::size_t{2}}) {
        if (std::string problem = jitter_problem(seen.ends[segment], seen.ends[segment + 1], toy); !problem.empty())
          problems.push_back(std::move(problem));
      }
    }
    int64_t read = 0;
    if (std::string problem = audit(seen.steps, toy.samples, read); !problem.empty())
      problems.push_back(std::move(problem));
    if (planned.batch_fixed) {
      const SegmentsDone control = run_segments(toy_of(planned), {{planned.from, end}}, config_.deadline_s);
      if (!control.problem.empty()) problems.push_back("the uninterrupted run: " + control.problem);
      const int64_t step = first_difference(common_of(control.steps), common_of(seen.steps), 1, end);
      if (step >= 0) problems.push_back(fmt::format("step {} has other bits than that of the uninterrupted run", step));
      const std::vector<std::string> ends = differences(control.last(), seen.last(), toy);
      if (!ends.empty()) problems.push_back("at the end: " + ends.front());
      measured().add("steps", end);
    }
    if (planned.mistake == nullptr) {
      measured().add("loads", 2);
      measured().add("samples", read);
      measured().keep("pairs", fmt::format("{}-{}", planned.from, planned.to));
    }
    return problems;
  }

  static std::string told(const std::vector<std::string>& problems) {
    std::string text;
    for (const std::string& each : problems) text += (text.empty() ? "" : "; ") + each;
    return text;
  }

  static CaseResult judged(const PlannedReshard& planned, const std::vector<std::string>& problems) {
    if (problems.empty())
      return {planned.batch_fixed ? "same bits, each sample once" : "state equal, each sample once", CaseVerdict::good,
              1, ""};
    return {"other state", CaseVerdict::fault, 1,
            fmt::format("saved on {} and gone on with on {}: {}", counted(planned.from, "rank"), planned.to,
                        told(problems))};
  }

  CaseResult judged_mistake(const PlannedReshard& planned, const std::vector<std::string>& problems) {
    const bool acts = !planned.mistake->needs_other_world || planned.from != planned.to;
    if (!acts)
      return problems.empty() ? CaseResult{"makes no difference on the same ranks", CaseVerdict::good, 1, ""}
                              : CaseResult{"false alarm", CaseVerdict::fault, 1, told(problems)};
    const std::string words = checkpoint::words_of(planned.mistake->kind) + ":";
    if (problems.empty() || !problems[0].starts_with(words))
      return {problems.empty() ? "not found" : "named wrongly", CaseVerdict::fault, 1,
              fmt::format("{}: {} expected, found: {}", planned.mistake->words, words, told(problems))};
    std::string text = problems.front();
    if (problems.back() != problems.front()) text += "; " + problems.back();
    measured().keep(std::string("found ") + planned.mistake->words, fmt::format("{:04}-{:04}", planned.from, planned.to),
                    fmt::format("{} to {}: {}", counted(planned.from, "rank"), planned.to, text));
    return {"found and named", CaseVerdict::good, 1, ""};
  }

  static std::vector<TimelineStep> timeline_of(const std::vector<Segment>& segments) {
    std::vector<TimelineStep> timeline;
    int64_t at = 0;
    for (const Segment& segment : segments) {
      timeline.push_back({"run",
                          fmt::format("goes from step {} to {} on {}", at, segment.until, counted(segment.ranks, "rank")),
                          segment.asynchronous ? "saved asynchronously" : "saved"});
      at = segment.until;
    }
    return timeline;
  }

  const ResumeConfig& config_;
};

class Reshard : public Suite {
 public:
  explicit Reshard(const ResumeConfig& config) : config_(config) {}

  std::string subject() const override { return "a toy run that goes on on another number of ranks"; }

  std::vector<std::string> plan() const override {
    const auto worlds = static_cast<int64_t>(config_.worlds.size());
    return {fmt::format("from each of {} numbers of ranks to each, and back: {} pairs", worlds, worlds * worlds),
            "a step's rows fixed: all bits of the run that stayed; rows fixed for each rank: the loaded state, and "
            "each sample once"};
  }

  std::vector<Trial> trials(const SuiteRun&) override {
    planned_.clear();
    for (const int64_t from : config_.worlds) {
      for (const int64_t to : config_.worlds) plan_pair(static_cast<int>(from), static_cast<int>(to));
    }
    std::vector<Trial> trials;
    for (const PlannedReshard& each : planned_) {
      trials.push_back(each.trial);
      trials.back().run = [this, &each](Slot&) { return ReshardPlayer(config_).run(each); };
    }
    return trials;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    std::vector<std::pair<std::string, std::string>> facts{
        {"pairs of numbers of ranks, and back",
         fmt::format("{} of {}", m.entries("pairs").size(), config_.worlds.size() * config_.worlds.size())},
        {"loads on another number of ranks, or the same", with_commas(m.count("loads"))},
        {"samples read, each once in its epoch", with_commas(m.count("samples"))},
        {"steps compared bit for bit with a run that stayed", with_commas(m.count("steps"))},
        {"what each rank had for itself",
         "rank 0 takes the sum of half-accumulated gradients, the others none; rank r the generator of rank r mod V of "
         "the V "
         "that saved, mixed with r / V unless that is 0"}};
    std::map<std::string, std::string> found;  // by mistake: of the first pair of numbers of ranks
    for (const ReshardMistake& mistake : kReshardMistakes) {
      const auto& pairs = m.entries(std::string("found ") + mistake.words);
      if (!pairs.empty()) found[mistake.words] = pairs.begin()->second.get<std::string>();
    }
    for (const auto& [mistake, words] : found) facts.emplace_back("planted: " + mistake, words);
    return facts;
  }

 private:
  void add(int from, int to, int64_t stop, bool batch_fixed, bool asynchronous, const ReshardMistake* mistake) {
    PlannedReshard planned;
    planned.from = from;
    planned.to = to;
    planned.stop = stop;
    planned.batch_fixed = batch_fixed;
    planned.asynchronous = planned.sharded = asynchronous;
    planned.mistake = mistake;
    const std::string what = mistake != nullptr ? mistake->name : batch_fixed ? "batch" : "rows";
    planned.trial = {fmt::format("{}-{}@{}:{}{}", from, to, stop, what, asynchronous ? "-async" : ""),
                     mistake != nullptr ? fmt::format("mutant: {}", mistake->words)
                     : batch_fixed      ? "a step's rows fixed"
                                        : "each rank's rows fixed, a generator for each rank",
                     from == to  ? "on the same number of ranks"
                     : from < to ? "on more ranks"
                                 : "on fewer ranks",
                     0.1};
    planned_.push_back(std::move(planned));
  }

  void plan_pair(int from, int to) {
    // Inside an accumulation; after an update at an epoch's edge; inside one and at an edge.
    for (const int64_t stop : {11, 24, 16}) add(from, to, stop, true, stop == 11, nullptr);
    add(from, to, 11, false, true, nullptr);
    add(from, to, 12, false, false, nullptr);
    if (!config_.mutants) return;
    for (const ReshardMistake& mistake : kReshardMistakes) add(from, to, 11, false, false, &mistake);
  }

  ResumeConfig config_;
  std::vector<PlannedReshard> planned_;
};

}  // namespace

std::unique_ptr<Suite> make_reshard(const ResumeConfig& config) { return std::make_unique<Reshard>(config); }

}  // namespace lockstep::resume
