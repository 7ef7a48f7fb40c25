// What is said of runs that agree rests on what was compared: records are taken away one kind at a time, and no sentence may speak
// of them any more.

#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/verdict/causes/name_cause.h"
#include "harness/verdict/trace/reader.h"
#include "harness/verdict/trace/writer.h"
#include "tests/support/fake_run.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using support::FakeRun;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A kind of record, and the words that may be said only where it was compared.
struct Taken {
  Phase phase;
  std::vector<std::string> words;
};

const std::vector<Taken>& kinds() {
  static const std::vector<Taken> list = {
      {Phase::samples, {"sample ids"}},
      {Phase::random, {"random streams"}},
      {Phase::control, {"control values"}},
      {Phase::collective, {"collectives"}},
      {Phase::scores, {"energies"}},
      {Phase::loss, {"loss"}},
      {Phase::local_gradients, {"local gradients"}},
      {Phase::gradient_norm, {"gradient norm"}},
      {Phase::reduced_gradients, {"reduced gradients"}},
      {Phase::parameters, {"replicas", "updates"}},
  };
  return list;
}

/// Writes the traces of `from` to `to` without the records of these phases.
void write_without(const std::string& from, const std::string& to, int world_size, const std::vector<Phase>& taken) {
  std::filesystem::create_directories(to);
  for (int rank = 0; rank < world_size; ++rank) {
    const std::string name = "/rank-" + std::to_string(rank) + ".trace";
    TraceReader reader(from + name);
    TraceWriter writer(to + name, reader.header());
    while (auto step = reader.next()) {
      std::erase_if(step->records, [&](const Record& record) { return std::ranges::find(taken, record.phase) != taken.end(); });
      writer.copy(*step);
    }
    writer.finish();
  }
}

class ComparedSentences : public ::testing::Test {
 protected:
  static FakeRun run(int world_size, double noise) {
    FakeRun it;
    it.world_size = world_size;
    it.steps = support::steps_up_to(4);
    if (noise == 0) it.steps.insert(it.steps.begin(), -1);
    it.noise = noise;
    it.noise_seed = static_cast<uint64_t>(world_size);
    return it;
  }
  /// Both runs without these records.
  std::string sentence(const FakeRun& a, const FakeRun& b, const std::vector<Phase>& taken) {
    support::write_fake_run(folder_ / "whole_a", a);
    support::write_fake_run(folder_ / "whole_b", b);
    write_without(folder_ / "whole_a", folder_ / "a", a.world_size, taken);
    write_without(folder_ / "whole_b", folder_ / "b", b.world_size, taken);
    const Mechanism result = compare_runs({folder_ / "a", folder_ / "b", {}, {}});
    EXPECT_NE(result.verdict, VerdictKind::divergent) << result.sentence;
    // What is said to be undecided is not said to agree.
    return result.sentence.substr(0, result.sentence.find(" parameters are not the same bit for bit"));
  }
  TempFolder folder_;
};

TEST_F(ComparedSentences, OfTwoLayoutsNameWhatBothRecorded) {
  const FakeRun a = run(1, 0), b = run(3, 0);
  const std::string whole = sentence(a, b, {});
  EXPECT_THAT(whole, AllOf(HasSubstr("sample ids, random streams, control values, calls of collectives and replicas"),
                           HasSubstr("energies, loss, reduced gradients and gradient norm")));
  std::vector<Phase> all;
  for (const Taken& each : kinds()) {
    all.push_back(each.phase);
    const std::string left = sentence(a, b, {each.phase}), none = sentence(a, b, all);
    for (const std::string& word : each.words) {
      EXPECT_THAT(left, Not(HasSubstr(word + ","))) << left;
      EXPECT_THAT(left, Not(HasSubstr(word + " and"))) << left;
    }
    for (const Taken& gone : kinds()) {
      if (std::ranges::find(all, gone.phase) == all.end()) continue;
      for (const std::string& word : gone.words) EXPECT_THAT(none, Not(HasSubstr(word + ","))) << none;
    }
  }
  EXPECT_THAT(sentence(a, b, all), HasSubstr("nothing that must be equal bit for bit was recorded"));
}

TEST_F(ComparedSentences, OfCollectivesThatTheReferenceDoesNotMakeSpeakOfTheRunsOwn) {
  FakeRun a = run(1, 0);
  a.fault = [](support::FakeStep& it) { it.collectives.clear(); };
  EXPECT_THAT(sentence(a, run(3, 0), {}), HasSubstr("control values, collectives among the run's ranks and replicas"));
}

TEST_F(ComparedSentences, OfOneLayoutNameWhatWasNotRecorded) {
  const FakeRun it = run(3, 0);
  EXPECT_THAT(sentence(it, it, {}), testing::StartsWith("Identical: every bit of 4 steps on 3 ranks agrees."));
  for (const auto& [phase, word] : {std::pair{Phase::samples, "sample ids"}, {Phase::loss, "loss"},
                                    {Phase::reduced_gradients, "reduced gradients"}, {Phase::parameters, "parameters"}}) {
    EXPECT_THAT(sentence(it, it, {phase}), HasSubstr(std::string("agrees in what both recorded: not in ") + word));
  }
}

TEST_F(ComparedSentences, OfGradientsThatNoLocalOnesWereRecordedOfSayNothing) {
  // Rounding drives the parameters apart, so that later steps are judged by what each run's own records show.
  FakeRun a = run(1, 3e-7), b = run(3, 3e-7);
  a.forced = b.forced = true;
  a.level = b.level = TraceLevel::full;
  b.fault = [](support::FakeStep& it) {
    for (std::size_t t = 0; t < it.local_gradients.size(); ++t) it.local_gradients[t].second = it.reduced_gradients[t].second;
  };
  EXPECT_THAT(sentence(a, b, {}), HasSubstr("At 3 further steps each reduced gradient is the reduction of its local gradients"));
  EXPECT_THAT(sentence(a, b, {Phase::local_gradients}), Not(HasSubstr("reduction of its local gradients")));
  EXPECT_THAT(sentence(a, b, {Phase::gradient_norm}), Not(HasSubstr("the gradient norm is the norm")));
}

}  // namespace
}  // namespace lockstep
