#include "harness/suites/collectives/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/base/files.h"
#include "harness/base/numbers.h"
#include "harness/base/text.h"
#include "harness/run/libraries.h"
#include "harness/suites/collectives/figures.h"
#include "harness/suites/collectives/ranks.h"
#include "harness/suites/engine/suite.h"
#include "harness/verdict/config/field.h"

namespace lockstep {
namespace collectives {
namespace {

struct CollectivesConfig {
  int64_t most_ranks = 8;
  int64_t least_bytes = 4;
  int64_t most_bytes = int64_t{8} << 20;
  int64_t factor = 8;
  int64_t most_calls = 20;
  double deadline_s = 60;
  bool planted = true;
};

#define COLLECTIVES(member, ...)                                                                             \
  Field<CollectivesConfig> {                                                                                 \
    {"collectives." #member, __VA_ARGS__}, [](CollectivesConfig& c) -> FieldRef { return ref_to(c.member); } \
  }
const std::array kFields{
    COLLECTIVES(most_ranks, Range{2, 64}, "ranks", "numbers of ranks: 2, 3, and then twice as many up to this one"),
    COLLECTIVES(least_bytes, Range{4, 1e9}, "bytes", "the smallest size; rounded up to an element for each rank"),
    COLLECTIVES(most_bytes, Range{4, 1e9}, "bytes", "the largest size"),
    COLLECTIVES(factor, Range{2, 1024}, "", "factor from one size to the next"),
    COLLECTIVES(most_calls, Range{1, 1e6}, "calls", "calls that are timed of a small size; of large ones as few as five"),
    COLLECTIVES(deadline_s, Range{1, 3600}, "s",
        "ranks that take longer for all sizes of a collective are killed, which is a fault"),
    COLLECTIVES(planted, {}, "", "also change one element of what a rank received, which must be found and named"),
};
#undef COLLECTIVES

constexpr int64_t kFloat = 4;

std::vector<int> worlds_of(const CollectivesConfig& config) {
  std::vector<int> worlds{2};
  for (int64_t world = 3; world <= config.most_ranks; world = world == 3 ? 4 : 2 * world) worlds.push_back(static_cast<int>(world));
  return worlds;
}

std::vector<Ask> asks_of(const CollectivesConfig& config, std::string_view collective, int world) {
  constexpr int64_t kManyBytes = int64_t{1} << 26;  // calls of all sizes move about as much
  std::vector<Ask> asks;
  for (int64_t bytes = config.least_bytes; bytes <= config.most_bytes; bytes *= config.factor) {
    const int64_t count = (bytes / kFloat + world - 1) / world * world;
    const int64_t calls = std::clamp<int64_t>(kManyBytes / (bytes * world), std::min<int64_t>(5, config.most_calls), config.most_calls);
    if (asks.empty() || asks.back().count != count) asks.push_back({std::string(collective), count, calls});
    if (collective == "barrier") break;
  }
  return asks;
}

std::string place_of(int world) { return fmt::format("{} ranks", world); }

/// The rank and the element that is wrong first; nothing: none is.
std::optional<std::string> wrong_words(const Ask& ask, const std::vector<const Answer*>& of_ranks) {
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const Answer& answer = *of_ranks[rank];
    if (answer.wrong == 0) continue;
    return fmt::format("{} of {} elements: rank {} has {:g} at element {}, not {:g}; {} of its elements are wrong", ask.collective, with_commas(ask.count),
                       rank, answer.got, answer.first_wrong, answer.expected, with_commas(answer.wrong));
  }
  return std::nullopt;
}

class CollectivesSuite final : public Suite {
 public:
  explicit CollectivesSuite(const CollectivesConfig& config) : config_(config) {}

  std::string subject() const override { return "collectives of real ranks on Gloo, timed and looked at element for element"; }

  std::vector<std::string> plan() const override {
    return {fmt::format("{} collectives of up to {} on {} ranks, {} to {} bytes", collective_names().size(),
                        counted(static_cast<int64_t>(asks_of(config_, "all_reduce", 2).size()), "size"), config_.most_ranks, config_.least_bytes,
                        config_.most_bytes)};
  }

  std::vector<Trial> trials(const SuiteRun&) override {
    std::vector<Trial> trials;
    const auto add = [&](Trial trial, Plan plan) {
      trial.run = [this, what = trial, plan = std::move(plan)](Slot& slot) {
        return run(what, plan, slot.keep<Ranks>([&] { return Ranks(rank_program_path(), slot.folder(), slot.run().stop_requested); }));
      };
      trials.push_back(std::move(trial));
    };
    for (const std::string_view collective : collective_names()) {
      for (const int world : worlds_of(config_)) {
        add({fmt::format("{}:{}", collective, world), std::string(collective), place_of(world), 0.4 * world},
            {{world, asks_of(config_, collective, world)}, false});
      }
    }
    for (const int world : worlds_of(config_)) {
      if (world == 3) continue;
      Order order{world, {}};
      for (int round = 0; round < kThreadRounds; ++round) {
        for (const bool as_pytorch : {false, true}) {
          for (const int64_t bytes : kThreadBytes) order.asks.push_back({"all_reduce", bytes / kFloat, kThreadCalls, as_pytorch});
        }
      }
      add({fmt::format("threads:{}", world), "all_reduce with one thread and with PyTorch's", place_of(world), 0.5 * world}, {std::move(order), false});
    }
    for (const std::string_view collective : collective_names()) {
      if (collective == "barrier" || !config_.planted) continue;
      constexpr int kWorld = 3;
      // The last rank is the root, which gets something of every collective.
      add({fmt::format("planted:{}", collective), "planted: one element of what a rank got is changed", std::string(collective), 1},
          {{kWorld, {{std::string(collective), 3 * kPlantedChunk, 1}}, kWorld - 1, kPlantedChunk - 1}, true});
    }
    return trials;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    const std::vector<Row> rows = all_rows(m);
    int64_t wrong = 0;
    for (const Row& row : rows) wrong += row.wrong;
    if (rows.empty()) return {};
    return {{"wrong elements", fmt::format("{} in {}", wrong, counted(static_cast<int64_t>(rows.size()), "measurement"))}};
  }

  std::vector<SuiteTable> tables(const Measurements& m) const override {
    std::vector<SuiteTable> all = collectives::tables(all_rows(m));
    std::vector<ThreadsRow> threads;
    for (const auto& [key, rows] : m.entries("threads")) {
      const auto some = rows.get<std::vector<ThreadsRow>>();
      threads.insert(threads.end(), some.begin(), some.end());
    }
    if (!threads.empty()) all.insert(all.begin() + (all.empty() ? 0 : 1), threads_table(threads));
    return all;
  }
  void write_files(const Measurements& m, const std::string& out_dir) const override {
    if (const std::vector<Row> rows = all_rows(m); !rows.empty()) write_file_atomically(out_dir + "/collectives.tsv", table(rows));
  }
  std::vector<SuiteChart> charts(const Measurements& m) const override { return collectives::charts(all_rows(m)); }

  std::vector<std::string> notes(const Measurements&) const override {
    return {"OUT/collectives.tsv has every size, in the columns of nccl-tests. Ranks are processes of one host that meet over loopback: what a "
            "network takes is not in it. Trials of collectives run one after the other, whatever --jobs says."};
  }

 private:
  static constexpr int64_t kPlantedChunk = 40, kThreadCalls = 40;
  static constexpr int kThreadRounds = 5;
  static constexpr std::array<int64_t, 2> kThreadBytes{4096, 262144};

  struct Plan {
    Order order;
    bool planted = false;
  };

  std::vector<CaseResult> run(const Trial& trial, const Plan& plan, Ranks& ranks) {
    Answers answers;
    {
      // Of two at a time neither would have the machine.
      const std::lock_guard alone(machine_);
      answers = ranks.play(plan.order, config_.deadline_s);
    }
    if (!answers.problem.empty()) return {{"did not end", CaseVerdict::fault, 1, fmt::format("{} on {}: {}", trial.failure, trial.place, answers.problem)}};
    if (plan.planted) return planted(plan.order, answers);
    return plan.order.asks.back().as_pytorch ? threads_judged(plan.order, answers) : judged(plan.order, answers);
  }

  static std::vector<const Answer*> of_ranks(const Answers& answers, std::size_t ask) {
    std::vector<const Answer*> all;
    for (const auto& rank : answers.by_rank) all.push_back(&rank[ask]);
    return all;
  }

  std::vector<CaseResult> judged(const Order& order, const Answers& answers) {
    std::vector<CaseResult> results;
    std::vector<Row> rows;
    for (std::size_t k = 0; k < order.asks.size(); ++k) {
      const Ask& ask = order.asks[k];
      const std::vector<const Answer*> ranks = of_ranks(answers, k);
      Row row{ask.collective, order.world, ask.collective == "barrier" ? 0 : ask.count * kFloat, ask.count, 0, 0, ""};
      for (const Answer* answer : ranks) {
        row.seconds = std::max(row.seconds, answer->seconds);
        row.wrong += answer->wrong;
        if (!answer->error.empty()) row.refused = answer->error.substr(0, answer->error.find('\n'));
      }
      if (!row.refused.empty()) {
        results.push_back({"refused by the backend", CaseVerdict::undecided, 1, fmt::format("{} on {}: {}", ask.collective, place_of(order.world), row.refused)});
      } else if (const auto words = wrong_words(ask, ranks)) {
        results.push_back({"wrong elements", CaseVerdict::fault, 1, fmt::format("{} ranks, {}", order.world, *words)});
      } else if (results.empty() || results.back().verdict != CaseVerdict::good) {
        results.push_back({"every element right", CaseVerdict::good, 1, ""});
      } else {
        ++results.back().cases;
      }
      rows.push_back(std::move(row));
    }
    measured().keep("rows", fmt::format("{}:{:05}", order.asks.front().collective, order.world), rows);
    return results;
  }

  std::vector<CaseResult> threads_judged(const Order& order, const Answers& answers) {
    std::map<std::pair<int64_t, bool>, std::vector<double>> seconds;
    for (std::size_t k = 0; k < order.asks.size(); ++k) {
      const Ask& ask = order.asks[k];
      const std::vector<const Answer*> ranks = of_ranks(answers, k);
      if (const auto words = wrong_words(ask, ranks)) return {{"wrong elements", CaseVerdict::fault, 1, fmt::format("{} ranks, {}", order.world, *words)}};
      double slowest = 0;
      for (const Answer* answer : ranks) slowest = std::max(slowest, answer->seconds);
      seconds[{ask.count, ask.as_pytorch}].push_back(slowest);
    }
    std::vector<ThreadsRow> rows;
    for (const int64_t bytes : kThreadBytes)
      rows.push_back({order.world, bytes, median(seconds.at({bytes / kFloat, false})), median(seconds.at({bytes / kFloat, true}))});
    measured().keep("threads", fmt::format("{:05}", order.world), rows);
    return {{"every element right", CaseVerdict::good, static_cast<int64_t>(order.asks.size()), ""}};
  }

  /// By collective, number of ranks and size.
  static std::vector<Row> all_rows(const Measurements& m) {
    std::vector<Row> all;
    for (const std::string_view collective : collective_names()) {
      for (const auto& [key, rows] : m.entries("rows")) {
        if (!key.starts_with(std::string(collective) + ":")) continue;
        const auto some = rows.get<std::vector<Row>>();
        all.insert(all.end(), some.begin(), some.end());
      }
    }
    return all;
  }

  static std::vector<CaseResult> planted(const Order& order, const Answers& answers) {
    const Ask& ask = order.asks.front();
    const std::vector<const Answer*> ranks = of_ranks(answers, 0);
    for (const Answer* answer : ranks) {
      if (!answer->error.empty()) return {{"refused by the backend", CaseVerdict::undecided, 1, ask.collective + ": " + answer->error}};
    }
    const auto words = wrong_words(ask, ranks);
    const Answer& spoiled = *ranks[static_cast<std::size_t>(order.wrong_rank)];
    int64_t wrong = 0;
    for (const Answer* answer : ranks) wrong += answer->wrong;
    // In the call before the timed ones and in the one after them.
    const bool named = words && wrong == 2 && spoiled.wrong == 2 && spoiled.first_wrong == order.wrong_element;
    if (named) return {{"planted, found and named", CaseVerdict::planted, 1, *words}};
    return {{"planted, not found", CaseVerdict::fault, 1,
             fmt::format("{}: element {} of rank {} was changed; found: {}", ask.collective, order.wrong_element, order.wrong_rank,
                         words.value_or("nothing"))}};
  }

  const CollectivesConfig config_;
  std::mutex machine_;
};

std::unique_ptr<Suite> make(const SuiteSource& source, Problems& problems) {
  const std::size_t before = problems.size();
  CollectivesConfig config;
  read_fields<CollectivesConfig>(source, kFields, config, problems);
  if (problems.size() == before && config.least_bytes > config.most_bytes)
    problems.add(source.place, fmt::format("collectives.least_bytes {} is more than collectives.most_bytes {}", config.least_bytes, config.most_bytes));
  if (problems.size() != before) return nullptr;
  return std::make_unique<CollectivesSuite>(config);
}

nlohmann::ordered_json schema() {
  const CollectivesConfig defaults;
  SchemaJson schema = object_schema();
  add_fields(schema, kFields, defaults);
  return schema;
}

}  // namespace
}  // namespace collectives

const SuiteKind& collectives_suite() {
  static const SuiteKind kKind{"collectives", "every collective at every size on real ranks: time, bandwidth, wrong elements",
                                    &collectives::make, &collectives::schema};
  return kKind;
}

}  // namespace lockstep
