// By what real ranks are certified, as their backend decides.

#include "harness/verdict/questions/certification.h"

#include <gtest/gtest.h>

#include "tests/support/synthetic_matrix.h"

namespace lockstep {
namespace {

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

}  // namespace
}  // namespace lockstep
