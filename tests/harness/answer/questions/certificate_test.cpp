#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <stdexcept>

#include "harness/answer/questions/certificate.h"
#include "harness/answer/questions/matrix_judge.h"
#include "harness/answer/questions/mechanism.h"
#include "harness/answer/questions/question_judge.h"
#include "harness/answer/results/words.h"
#include "harness/judge/causes/name_cause.h"
#include "harness/judge/compare/compared.h"
#include "harness/judge/trace/rank_result.h"
#include "harness/judge/trace/reader.h"
#include "harness/judge/trace/record.h"
#include "harness/judge/trace/writer.h"
#include "harness/plan/matrix/plan.h"
#include "tests/support/made_run.h"
#include "tests/support/said.h"
#include "tests/support/synthetic_matrix.h"
#include "tests/support/temp_folder.h"

// Certificates: exact to the last digits of float64, with and without a planted error, and what a step costs.

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tensors = std::vector<std::pair<std::string, std::vector<double>>>;

/// What one rank writes at one forced step, in float64.
struct Step {
  Tensors gradients{{"context_encoder.weight", {0.25, -1.5, 3}},
                    {"action_encoder.weight", {0.5, 2}},
                    {"energy_head.bias", {0}},
                    {"temperature", {-0.75}}};
  Tensors terms;
  double loss = 2.5;
  std::vector<CollectiveRecord> collectives;
  double energies = -1;  ///< below 0: not written
};

Tensors term_sums() {
  return {{"context_encoder.weight", {0.5, 2, 4}},
          {"action_encoder.weight", {1, 3}},
          {"energy_head.bias", {2}},
          {"temperature", {1}}};
}

void write_run(const std::string& dir, int world_size, const std::vector<int64_t>& steps,
               const std::function<void(int64_t step, int rank, Step&)>& change) {
  const TraceHeader header{"hash", 0, world_size, "energy", TraceLevel::hash, "emulated"};
  support::write_ranks(dir, header, [&](TraceWriter& writer, int rank) {
    for (const int64_t step : steps) {
      Step it;
      change(step, rank, it);
      writer.begin_step(step);
      writer.samples({});
      for (const CollectiveRecord& record : it.collectives) writer.collective(record);
      writer.scalar(Phase::loss, "loss", it.loss, Sharing::own);
      if (it.energies >= 0) writer.scalar(Phase::loss, "energies_computed", it.energies, Sharing::own);
      const auto write = [&](Phase phase, const Tensors& tensors) {
        for (const auto& [name, values] : tensors) {
          const std::vector<int64_t> shape{static_cast<int64_t>(values.size())};
          writer.tensor(phase, name, {values.data(), DType::float64, shape, {}}, Sharing::replicated, {},
                        Keep::whole);
        }
      };
      write(Phase::reduced_gradients, it.gradients);
      write(Phase::term_sums, it.terms);
      writer.end_step();
    }
    RankResult result;
    result.rank = rank;
    result.world_size = world_size;
    result.status = "finished";
    result.train_seconds = 0.5 * (rank + 1);
    write_rank_result(dir + "/rank-" + std::to_string(rank) + ".result.json", result);
  });
}

class Certified : public ::testing::Test {
 protected:
  Mechanism judge(const std::function<void(int64_t step, Step&)>& change) {
    inputs_.forced_reference = folder_ / "reference";
    inputs_.forced_cell = folder_ / "cell";
    inputs_.band.exact = 1e-12;
    write_run(inputs_.forced_reference, 1, {0, 60}, [](int64_t, int, Step& it) { it.terms = term_sums(); });
    write_run(inputs_.forced_cell, 3, steps_, [&](int64_t step, int, Step& it) { change(step, it); });
    return judge_certificate(inputs_);
  }
  TempFolder folder_;
  ForcedInputs inputs_;
  std::vector<int64_t> steps_{0, 60};
};

TEST_F(Certified, EqualBitsAreIdentical) {
  const Mechanism result = judge([](int64_t, Step&) {});
  EXPECT_EQ(result.verdict, VerdictKind::identical) << result.sentence;
  EXPECT_EQ(result.band_used, 0);
  ASSERT_EQ(result.forced.size(), 2u);
  EXPECT_EQ(result.forced[1].step, 60);
  ASSERT_EQ(result.forced[0].groups.size(), 5u);
  EXPECT_EQ(result.forced[0].groups[3].group, "temperature");
}

TEST_F(Certified, IsWhatDiffersByNoMoreThanRounding) {
  support::Said said;
  const auto judged = [&](const char* what, const std::function<void(int64_t step, Step&)>& change) {
    const Mechanism result = judge(change);
    said(what, fmt::format("{}: {}", name_of(result.verdict), result.sentence));
    EXPECT_TRUE(std::isfinite(result.band_used) || std::string(what) == "a number that is none") << what;
  };
  judged("rounding", [](int64_t, Step& it) { it.gradients[3].second[0] *= 1 + 4e-16; });
  judged("what is zero by symmetry, by less than its contributions allow", [](int64_t, Step& it) { it.gradients[2].second[0] = 1.5e-12; });
  judged("by more", [](int64_t, Step& it) { it.gradients[2].second[0] = 2.5e-12; });
  judged("one group at the last step alone", [](int64_t step, Step& it) {
    if (step == 60) it.gradients[1].second = {0, 0};
  });
  judged("a factor that float32 would hide", [](int64_t, Step& it) {
    for (double& value : it.gradients[0].second) value *= 1 + 1e-9;
  });
  judged("the loss, where the gradient is right", [](int64_t, Step& it) { it.loss = 7.5; });
  judged("a number that is none", [](int64_t, Step& it) { it.gradients[3].second[0] = std::nan(""); });
  judged("a gradient that is missing", [](int64_t, Step& it) { it.gradients.pop_back(); });
}

TEST_F(Certified, AMissingStepIsATraceError) {
  steps_ = {0};
  EXPECT_THROW(judge([](int64_t, Step&) {}), TraceError);
}

TEST(Costs, AreThoseOfTheBusiestRankWithoutTheReduction) {
  TempFolder folder;
  const std::string dir = folder / "run";
  write_run(dir, 3, {0, 60}, [](int64_t, int rank, Step& it) {
    it.energies = rank == 2 ? 96 : 48;
    CollectiveRecord gather;
    gather.op = "all_gather";
    gather.dtype = DType::float64;
    gather.shape = {8, 2};
    CollectiveRecord sum = gather;
    sum.op = "all_reduce";
    sum.shape = {};
    CollectiveRecord reduction = gather;
    reduction.op = "reduce_gradients";
    reduction.shape = {5000};
    it.collectives = {gather, sum, reduction};
  });
  const StepCosts costs = read_costs(dir);
  EXPECT_EQ(costs.energies, 96);
  EXPECT_EQ(costs.bytes, 2 * 8 * 16 + 8);
  EXPECT_EQ(costs.seconds, 0.75);
}

TEST(Costs, SayWhereNoRankCountsItsEnergies) {
  TempFolder folder;
  const std::string dir = folder / "run";
  write_run(dir, 1, {0}, [](int64_t, int, Step&) {});
  EXPECT_TRUE(std::isnan(read_costs(dir).energies));
  EXPECT_EQ(read_costs(dir).bytes, 0);
}

CellResult case_of(const std::string& loss, const std::string& negatives, const std::string& layout,
                   double used, double seconds, const std::string& rows = "equal") {
  CellResult cell;
  cell.scenario = layout + " " + negatives + " loss=" + loss + " rows=" + rows;
  cell.verdict = used <= 1 ? VerdictKind::within_envelope : VerdictKind::divergent;
  cell.config = {{"layout", layout}, {"loss", loss}, {"negatives", negatives}, {"rows", rows}};
  cell.mechanism.emplace();
  cell.mechanism->forced = {{0, {{"temperature", 1, 1, 0, 1e-13, 1e-12}}, 0.1, ""},
                            {60, {{"context_encoder", 1, 1, 0, used * 1e-12, 1e-12}}, used, ""}};
  cell.costs = StepCosts{72, 100, seconds};
  return cell;
}

TEST(CertificateTable, HasTheWorstCaseOfEachLossAndNumberOfRanks) {
  std::vector<CellResult> cells{
      case_of("infonce", "global", "8x3", 0.25, 0.06), case_of("infonce", "global", "3x8", 0.5, 0.03),
      case_of("infonce", "global", "3x8", 3, 0.03, "unequal"), case_of("infonce", "local", "3x8", 0.2, 0.02),
      case_of("symmetric", "global", "3x8", 0.2, 0.05)};
  cells[2].costs->energies = std::nan("");
  const Certificate certificate = certificate_of(cells, 1e-12);
  EXPECT_THAT(certificate.steps, ElementsAre(0, 60));
  ASSERT_EQ(certificate.rows.size(), 4u);
  const CertificateRow& row = certificate.rows[0];
  EXPECT_EQ(row.loss, "infonce global");
  EXPECT_EQ(row.world_size, 3);
  EXPECT_EQ(row.cases, 2);
  EXPECT_EQ(row.certified, 1);
  EXPECT_DOUBLE_EQ(row.worst, 3);
  EXPECT_EQ(row.worst_cell, "3x8 global loss=infonce rows=unequal");
  EXPECT_EQ(row.worst_step, 60);
  EXPECT_EQ(row.worst_group.group, "context_encoder");
  EXPECT_EQ(row.costs.energies, 72);
  EXPECT_DOUBLE_EQ(row.time_to_local, 1.5) << "of the case that has a local one";
  EXPECT_EQ(certificate.rows[1].world_size, 8);
  EXPECT_TRUE(std::isnan(certificate.rows[1].time_to_local));
  EXPECT_EQ(certificate.rows[2].time_to_local, 1);
  EXPECT_DOUBLE_EQ(certificate.rows[3].time_to_local, 2.5)
      << "against infonce where its own loss has no local case";
}

TEST(CertificateTable, KeepsALossWhoseCasesAllFailed) {
  CellResult failed = case_of("hard", "global", "8x3", 0, 0);
  failed.verdict = VerdictKind::failed;
  failed.mechanism.reset();
  failed.costs.reset();
  const Certificate certificate = certificate_of({failed}, 1e-12);
  ASSERT_EQ(certificate.rows.size(), 1u);
  EXPECT_EQ(certificate.rows[0].certified, 0);
  EXPECT_TRUE(std::isnan(certificate.rows[0].worst));
}

/// A planned certificate of two cells, whose runs all finished.
class CertificateMatrix : public ::testing::Test {
 protected:
  CertificateMatrix() {
    matrix_.plan.matrix.question = "certificate";
    matrix_.plan.matrix.seeds = {0};
    matrix_.plan.matrix.band.exact = 1e-12;
    matrix_.plan.matrix.certify_steps = 0;
    matrix_.plan.matrix.cells.clear();
    for (const int world : {3, 8}) {
      Cell cell;
      cell.name = std::to_string(world);
      cell.config.layout = {world, 24 / world};
      cell.config.steps = 61;
      cell.reference = cell.config;
      cell.reference.layout = {1, 24};
      cell.reference.oracle_world = world;
      cell.reference_name = "oracle " + cell.name;
      cell.expected = {VerdictKind::identical, VerdictKind::within_envelope};
      const std::string from = add(RunRole::reference, cell.reference_name, cell.reference, "");
      add(RunRole::forced_reference, cell.reference_name, cell.reference, from);
      add(RunRole::forced_cell, cell.name, cell.config, from);
      matrix_.plan.matrix.cells.push_back(cell);
    }
  }
  std::string add(RunRole role, const std::string& name, RunConfig config, const std::string& from) {
    config.forced.from = from;
    PlannedRun& run = matrix_.add_run(role, name, config, 0);
    run.id = name + " " + name_of(role);
    matrix_.results_of(run.id, config.layout.world_size);
    return run.id;
  }
  Results judge() {
    static double of_eight = 0;
    of_eight = eight_;
    QuestionJudge question = judge_of("certificate");
    question.judge_forced = [](const ForcedInputs& inputs) {
      EXPECT_EQ(inputs.run_b, "");
      EXPECT_TRUE(inputs.repeats.empty());
      EXPECT_EQ(inputs.band.exact, 1e-12);
      EXPECT_THAT(inputs.forced_reference, HasSubstr("forced_reference"));
      return case_of("infonce", "global", "3x8",
                     inputs.forced_cell.find("/8 ") == std::string::npos ? 0.5 : of_eight, 0)
          .mechanism.value();
    };
    question.read_costs = [](const std::string&) { return StepCosts{72, 10, 0.1}; };
    EvidenceSources sources = matrix_.sources();
    sources.question = &question;
    sources.judge_forced = nullptr;
    sources.compare_runs = nullptr;
    return judge_matrix_from(matrix_.plan, matrix_.options, sources);
  }
  support::SyntheticMatrix matrix_{1, 61};
  double eight_ = 0.5;
};

TEST_F(CertificateMatrix, NeedsNoFreeRunOfItsCells) {
  const Results results = judge();
  ASSERT_EQ(results.cells.size(), 2u);
  for (const CellResult& cell : results.cells) {
    EXPECT_FALSE(cell.failure) << cell.failure->message;
    EXPECT_THAT(cell.run, HasSubstr("forced_cell"));
    EXPECT_THAT(cell.reference_run, HasSubstr("oracle"));
    ASSERT_TRUE(cell.costs);
    EXPECT_FALSE(cell.certification.wanted);
  }
  ASSERT_TRUE(results.certificate);
  EXPECT_EQ(results.certificate->rows.size(), 2u);
  EXPECT_EQ(results_to_json(results_from_json(results_to_json(results), "r")), results_to_json(results));
}

TEST_F(CertificateMatrix, FailsWhereAForcedRunIsMissing) {
  matrix_.results.erase(matrix_.path_of("8 forced_cell", 5));
  const Results results = judge();
  EXPECT_EQ(results.cells[1].verdict, VerdictKind::failed);
  EXPECT_EQ(results.cells[0].certification.wanted, false);
  EXPECT_FALSE(results.cells[0].failure);
  EXPECT_EQ(results.summary.exit_code, 3);
}

// By what real ranks are certified, as their backend decides.

using support::SyntheticMatrix;

/// A cell whose bits part at step 7 over that transport, and what holding it to a band then says.
struct Carried {
  SyntheticMatrix matrix{3};
  int held = 0;
  Certification band;

  explicit Carried(Transport transport, const std::string& certified_by) {
    matrix.add_cell({"8x3 global"});
    matrix.plan.matrix.cells[0].config.transport = transport;
    Certification parted;
    parted.steps = 7;
    parted.divergence.emplace().step = 7;
    matrix.certifications["8x3 global certify"] = parted;
    for (PlannedRun& run : matrix.plan.runs) {
      if (run.role == RunRole::certify) run.config.transport = transport;
    }
    matrix.result("8x3 global certify").certified_by = certified_by;
    if (transport == Transport::nccl) {
      matrix.add_run(RunRole::certify_forced, "8x3 global", matrix.plan.matrix.cells[0].config, 0).id = "again";
      matrix.results_of("again", 8);
    }
    band.steps = 20;
    band.certify = kByBand;
    band.band_used = 0.4;
  }
  CellResult judge() {
    EvidenceSources sources = matrix.sources();
    sources.hold_to_band = [this](const BandInputs& inputs) {
      ++held;
      EXPECT_EQ(inputs.real, "out/synthetic/runs/8x3 global certify");
      EXPECT_EQ(inputs.forced, "out/synthetic/runs/again");
      EXPECT_EQ(inputs.asked, 20);
      return band;
    };
    return judge_matrix_from(matrix.plan, matrix.options, sources).cells[0];
  }
};

TEST(Certification, HoldsAPrefixToABandWhereItsBackendPublishesNoOrder) {
  Carried carried(Transport::nccl, "band");
  const CellResult cell = carried.judge();
  EXPECT_EQ(carried.held, 1);
  EXPECT_EQ(cell.verdict, VerdictKind::equivalent);
  EXPECT_FALSE(cell.certification.divergence);
  EXPECT_EQ(cell.certification.backend, "nccl");
  EXPECT_EQ(cell.certification.certify, kByBand);
  EXPECT_EQ(cell.certification.steps, 20);
  EXPECT_EQ(cell.certification.band_used, 0.4);
}

TEST(Certification, FindsAPrefixOutsideItsBandDivergent) {
  Carried carried(Transport::nccl, "band");
  carried.band.steps = 3;
  carried.band.divergence.emplace().step = 3;
  const CellResult cell = carried.judge();
  EXPECT_EQ(cell.verdict, VerdictKind::divergent);
  EXPECT_EQ(cell.mechanism->first_divergence->step, 3);
}

TEST(Certification, HoldsEveryOtherPrefixToItsBits) {
  Carried pinned(Transport::nccl, "bits"), shared(Transport::gloo_cuda, "bits");
  for (Carried* carried : {&pinned, &shared}) {
    const CellResult cell = carried->judge();
    EXPECT_EQ(carried->held, 0);
    EXPECT_EQ(cell.verdict, VerdictKind::divergent);
    EXPECT_EQ(cell.certification.certify, kByBits);
    EXPECT_EQ(cell.certification.divergence->step, 7);
  }
}

TEST(Certification, CertifiesByBitsWhateverTheBackendWhereTheyAgree) {
  Carried carried(Transport::nccl, "band");
  carried.matrix.certifications.clear();
  const CellResult cell = carried.judge();
  EXPECT_EQ(carried.held, 0);
  EXPECT_EQ(cell.certification.certify, kByBits);
  EXPECT_EQ(cell.certification.backend, "nccl");
  EXPECT_EQ(cell.certification.steps, 20);
}

using support::FakeRun;
using support::tensor_of;

FakeRun run_of(int64_t steps, int world_size = 8) {
  FakeRun run;
  run.world_size = world_size;
  run.steps = support::steps_up_to(steps);
  return run;
}

TEST(Certify, CountsTheStepsThatAgree) {
  TempFolder folder;
  support::write_fake_run(folder / "emulated", run_of(60));
  support::write_fake_run(folder / "real", run_of(50));
  const Certification result = certify(folder / "emulated", folder / "real", 50);
  EXPECT_TRUE(result.wanted);
  EXPECT_EQ(result.asked, 50);
  EXPECT_EQ(result.steps, 50);
  EXPECT_FALSE(result.divergence.has_value());
  EXPECT_EQ(certify(folder / "emulated", folder / "real", 20).steps, 20) << "no more than asked";
}

TEST(Certify, StopsAtTheFirstDifferingBit) {
  TempFolder folder;
  support::write_fake_run(folder / "emulated", run_of(60));
  FakeRun real = run_of(50);
  real.fault = [](support::FakeStep& it) {
    if (it.step >= 31) tensor_of(it.reduced_gradients, "head.weight")[2] *= 1.0000002F;
  };
  support::write_fake_run(folder / "real", real);
  const Certification result = certify(folder / "emulated", folder / "real", 50);
  EXPECT_EQ(result.steps, 31);
  ASSERT_TRUE(result.divergence.has_value());
  EXPECT_EQ(result.divergence->step, 31);
  EXPECT_EQ(result.divergence->where, "head.weight");
}

TEST(Certify, RefusesAnotherLayout) {
  TempFolder folder;
  support::write_fake_run(folder / "emulated", run_of(5));
  support::write_fake_run(folder / "real", run_of(5, 3));
  EXPECT_THROW(certify(folder / "emulated", folder / "real", 5), TraceError);
}

// A cell's first steps in exact arithmetic, and what the judge makes of them.

using testing::HasSubstr;

const CellResult& cell_of(const Results& results, const std::string& name) {
  return *std::ranges::find(results.cells, name, &CellResult::scenario);
}

/// The usual matrix with the exact pair of its first cell, which parts at that step; -1: it does not.
SyntheticMatrix with_exact_pair(int64_t parts_at) {
  SyntheticMatrix matrix = SyntheticMatrix::usual();
  matrix.plan.matrix.certify.exact = 50;
  for (const Cell& cell : std::vector<Cell>(matrix.plan.matrix.cells)) {
    const std::optional<ExactPair> pair = exact_pair_of(matrix.plan.matrix, cell);
    if (!pair) continue;
    const std::string own = cell.name + " exact", reference = cell.name + " exact reference";
    matrix.add_run(RunRole::exact_cell, own, pair->cell, 0);
    matrix.add_run(RunRole::exact_reference, reference, pair->reference, 0);
    matrix.results_of(SyntheticMatrix::id_of(own, 0), 8);
    matrix.results_of(SyntheticMatrix::id_of(reference, 0), 1);
    Mechanism& mechanism = matrix.mechanisms[SyntheticMatrix::id_of(own, 0)];
    mechanism.verdict = VerdictKind::identical;
    mechanism.compared_steps = 50;
    if (parts_at < 0 || cell.name != "8x3 global") continue;
    mechanism.verdict = VerdictKind::divergent;
    mechanism.first_divergence = Divergence{parts_at, "energies", 3, "inputs", DivergenceKind::bits, "a", "b", "Step 7."};
    mechanism.first_divergence->row = 11;
  }
  return matrix;
}

TEST(ExactPairs, StandBesideTheVerdict) {
  const Results same = with_exact_pair(-1).judge();
  const CellResult& equal = cell_of(same, "8x3 global");
  ASSERT_TRUE(equal.exact.has_value());
  EXPECT_EQ(equal.exact->steps, 50);
  EXPECT_EQ(equal.exact->asked, 50);
  EXPECT_FALSE(equal.exact->divergence.has_value());
  EXPECT_FALSE(cell_of(same, "8x3 global lr_scale=0.125").exact.has_value()) << "a power control is another run by design";
  EXPECT_THAT(same.summary.sentence, HasSubstr("exact arithmetic"));

  SyntheticMatrix half = with_exact_pair(-1);
  half.mechanisms[SyntheticMatrix::id_of("8x3 global exact", 0)].compared_steps = 20;
  EXPECT_EQ(cell_of(half.judge(), "8x3 global").exact->steps, 20) << "no more than was compared";

  const Results parted = with_exact_pair(7).judge();
  const CellResult& apart = cell_of(parted, "8x3 global");
  ASSERT_TRUE(apart.exact && apart.exact->divergence);
  EXPECT_EQ(apart.exact->steps, 7);
  EXPECT_EQ(apart.exact->divergence->row, 11);
  EXPECT_EQ(apart.verdict, equal.verdict) << "the verdict is that of the runs that were asked for";
}

TEST(ExactPairs, ARunThatFailedOrIsNotThereFailsItsCell) {
  SyntheticMatrix matrix = with_exact_pair(-1);
  matrix.result(SyntheticMatrix::id_of("8x3 global exact", 0), 5).status = "failed";
  EXPECT_TRUE(cell_of(matrix.judge(), "8x3 global").failure.has_value());
  SyntheticMatrix lost = with_exact_pair(-1);
  std::erase_if(lost.plan.runs, [](const PlannedRun& run) { return run.cell == "8x3 global exact"; });
  const Results results = lost.judge();
  ASSERT_TRUE(cell_of(results, "8x3 global").failure.has_value());
  EXPECT_THAT(cell_of(results, "8x3 global").failure->message, HasSubstr("no exact pair of 8x3 global"));
}

/// Two runs of two ranks with the same results, by folder.
struct Pair {
  std::map<std::string, RankResult> results;
  Pair() {
    for (const std::string run : {"a", "b"}) {
      for (int rank = 0; rank < 2; ++rank) {
        RankResult& result = at(run, rank);
        result.steps_done = 3;
        result.parameters_hash = "0123456789abcdef";
        result.curves["loss"] = {{0, 1, 2}, {3.5 + rank, 2.5, std::nan("")}};
        result.curves["gradient_norm"] = {{0, 1, 2}, {1, 1.5, 2}};
        if (rank == 0) result.metrics = {{"accuracy_24", 0.5}};
      }
    }
  }
  RankResult& at(const std::string& run, int rank) {
    return results[run + "/rank-" + std::to_string(rank) + ".result.json"];
  }
  Mechanism compare() const {
    return compare_results("a", "b", 2, [this](const std::string& path) {
      const auto found = results.find(path);
      if (found == results.end()) throw std::runtime_error(path + ": cannot read it");
      return found->second;
    });
  }
};

TEST(CompareResults, NamesTheFirstBitThatDiffers) {
  support::Said said;
  const auto compared = [&said](const char* what, const std::function<void(Pair&)>& change) {
    Pair pair;
    change(pair);
    std::string found;
    const std::string error = support::thrown_by([&] {
      const Mechanism mechanism = pair.compare();
      found = fmt::format("{} of {} steps: {}", name_of(mechanism.verdict), mechanism.compared_steps, mechanism.sentence);
    });
    said(what, found.empty() ? error : found);
  };
  compared("nothing", [](Pair&) {});
  compared("a curve from step 1, and what comes later", [](Pair& pair) {
    double& value = pair.at("b", 1).curves["gradient_norm"].values[1];
    value = std::nextafter(value, 2);
    pair.at("b", 0).curves["loss"].values[2] = 1;
    pair.at("b", 0).parameters_hash = "fedcba9876543210";
  });
  compared("parameters that no curve shows", [](Pair& pair) { pair.at("b", 1).parameters_hash = "fedcba9876543210"; });
  compared("a metric", [](Pair& pair) { pair.at("b", 0).metrics["accuracy_24"] = 0.75; });
  compared("no fingerprint", [](Pair& pair) { pair.at("a", 1).parameters_hash.clear(); });
  compared("no result", [](Pair& pair) { pair.results.erase("b/rank-1.result.json"); });
}

}  // namespace
}  // namespace lockstep
