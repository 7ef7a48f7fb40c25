// The rule's arithmetic against what its authors' program says. The figures were printed by this call, in a
// checkout of mlcommons/logging at 7bbf792 (version 4.1.59), with scipy 1.17.1 and numpy 2.4.6:
//
//   from mlperf_logging.rcp_checker import rcp_checker as R
//   R.submission_runs['training']['lockstep_energy'] = 10
//   points = {f'a_{bs}': {'Benchmark': 'lockstep_energy', 'BS': bs, 'Hyperparams': {},
//                         'Epochs to converge': runs} for bs, runs in ...}     # those of points() below
//   c = R.RCP_Checker('training', '6.0.0', 'lockstep_energy', False, io.StringIO(json.dumps(points)))
//   c.rcp_data[...]['RCP Mean'], ['RCP Stdev'], ['Min Epochs'], ['Max Speedup']; list(c.pruned_rcp_data)
//   c._create_interp_rcp(36, c._find_rcp(24, 'full_rcps'), c._find_rcp(96, 'full_rcps'))
//   c._eval_submission_record(c._find_rcp(24, 'full_rcps'), runs, '')
//
//   R.check_directory(DIR, 'training', '6.0.0', False, False, rcp_file=points)    # message and verdict as a whole
//
// and for their own points by R.RCP_Checker('training', '6.0.0', 'llama31_8b', False).rcp_data.

#include "harness/verdict/stats/mlperf/mlperf.h"

#include <gmock/gmock.h>

#include <cmath>

namespace lockstep {
namespace {

using testing::HasSubstr;

MlperfRules ten_runs() {
  MlperfRules rules;
  rules.benchmark = "lockstep_energy";
  rules.runs = 10;
  return rules;
}

ReferencePoint point(int64_t batch, std::vector<double> runs) {
  ReferencePoint p;
  p.name = "a_" + std::to_string(batch);
  p.benchmark = "lockstep_energy";
  p.batch = batch;
  p.to_converge = std::move(runs);
  return p;
}

std::vector<ReferencePoint> points() {
  return {point(24, {4.1, 4.3, 4.2, 4.6, 4.4, 4.0, 4.5, 4.3, 4.2, 4.7}),
          point(48, {5.9, 6.1, 6.4, 6.0, 6.2, 6.3, 5.8, 6.5, 6.1, 6.2}),
          point(96, {7.0, 7.4, 7.1, 7.3, 7.2, 6.9, 7.5, 7.2, 7.1, 7.4}),
          point(12, {5.1, 5.0, 5.2, 5.3, 4.9, 5.1, 5.0, 5.2, 5.1, 5.4})};
}

Submission submission(int64_t batch, std::vector<double> runs) {
  return {"8x3 local", batch, std::move(runs)};
}

std::vector<double> nine_and(double nine, double one) {
  std::vector<double> runs(9, nine);
  runs.push_back(one);
  return runs;
}

void expect_point(const ReferencePoint& p, double mean, double sd, double least, double speedup) {
  EXPECT_NEAR(p.mean, mean, 1e-9 * mean) << p.name;
  EXPECT_NEAR(p.sd, sd, 1e-9 * sd) << p.name;
  // Their bisection's last halves turn on the last digits of the distribution.
  EXPECT_NEAR(p.least_mean, least, 1e-4) << p.name;
  EXPECT_NEAR(p.max_speedup, speedup, 1e-4) << p.name;
}

TEST(Mlperf, MeasuresPointsAsTheirProgramDoes) {
  std::vector<ReferencePoint> measured = points();
  for (ReferencePoint& p : measured) measure_point(p, ten_runs());
  expect_point(measured[0], 4.324999999999999, 0.21000000000000002, 4.140051078796386, 1.0446731012935673);
  expect_point(measured[1], 6.15, 0.20615528128088306, 5.968463516235351, 1.0304159493093719);
  expect_point(measured[2], 7.2125, 0.1813835714721706, 7.052784109115601, 1.0226457932659485);
  expect_point(measured[3], 5.125, 0.14177446878757827, 5.000151634216309, 1.0249689159283386);
}

TEST(Mlperf, MeasuresAPublishedPointAsTheirProgramDoes) {
  // llama31_8b_ref_16 of rcps_llama31_8b.json, rules 6.0.0: 17 runs of 159744 and 3 of 172032.
  std::vector<double> runs(17, 159744);
  runs.insert(runs.end(), 3, 172032);
  ReferencePoint p = point(16, runs);
  measure_point(p, mlperf_rules("llama31_8b").value());
  EXPECT_NEAR(p.mean, 161109.33333333334, 1e-6);
  EXPECT_NEAR(p.sd, 4387.693626496726, 1e-6);
  EXPECT_NEAR(p.least_mean, 157919.5454909007, 1e-3);
  EXPECT_NEAR(p.max_speedup, 1.0201988160016358, 1e-8);
}

TEST(Mlperf, PrunesAndInterpolatesAsTheirProgramDoes) {
  std::vector<ReferencePoint> measured = points();
  for (ReferencePoint& p : measured) measure_point(p, ten_runs());
  const std::vector<ReferencePoint> pruned = prune_points(measured, ten_runs());
  ASSERT_EQ(pruned.size(), 2U);
  EXPECT_EQ(pruned[0].batch, 24);
  EXPECT_EQ(pruned[1].batch, 96);
  expect_point(interpolate_points(36, pruned[0], pruned[1], ten_runs()), 4.8062499999999995,
               0.20523059524536177, 4.6598315715789775, 1.031421399287058);
}

TEST(Mlperf, DropsTheBestAndTheWorst) {
  EXPECT_DOUBLE_EQ(olympic_mean(std::vector<double>{9, 1, 2, 3}, 1), 2.5);
  EXPECT_TRUE(std::isnan(olympic_mean(std::vector<double>{1, 2}, 1)));
  EXPECT_DOUBLE_EQ(olympic_mean(std::vector<double>{1, 2, kNeverConverged}, 1), 2);
}

TEST(Mlperf, NormalisesWhatIsFasterButAllowed) {
  const MlperfJudgement j = judge_mlperf(points(), submission(24, nine_and(4.2, 4.3)), ten_runs());
  EXPECT_EQ(j.verdict, MlperfVerdict::passed);
  EXPECT_EQ(j.message, "RCP found");
  EXPECT_NEAR(j.normalisation, 1.0297619047619047, 1e-12);
  EXPECT_EQ(j.pruned, 2);
}

TEST(Mlperf, RefusesWhatIsFasterThanMaxSpeedup) {
  const MlperfJudgement j = judge_mlperf(points(), submission(24, nine_and(4.0, 4.1)), ten_runs());
  EXPECT_EQ(j.verdict, MlperfVerdict::failed);
  EXPECT_EQ(j.message, "RCP found");
  EXPECT_NEAR(j.normalisation, 1.0812499999999998, 1e-12);
  EXPECT_THAT(j.sentence, HasSubstr("Max Speedup is 1.045"));
}

TEST(Mlperf, PassesASlowerRunAndSaysWhy) {
  const std::vector<double> slow = nine_and(8.0, 9.0);
  const MlperfJudgement j = judge_mlperf(points(), submission(24, slow), ten_runs());
  EXPECT_EQ(j.verdict, MlperfVerdict::passed);
  EXPECT_EQ(j.normalisation, 1.0);
  EXPECT_THAT(j.sentence, HasSubstr("85.0 % slower"));
  EXPECT_THAT(j.sentence, HasSubstr("one-sided"));
  // Two-sided, the same runs are far beyond any margin.
  const auto d = welch_difference(points()[0].to_converge, slow, 0.05);
  ASSERT_TRUE(d);
  EXPECT_EQ(decide_unpaired(*d, 0.3), VerdictKind::divergent);
  EXPECT_LT(d->p_slower, 1e-9);
}

TEST(Mlperf, LetsOneRunFailAndNotTwo) {
  const MlperfJudgement one =
      judge_mlperf(points(), submission(24, nine_and(4.2, kNeverConverged)), ten_runs());
  EXPECT_EQ(one.verdict, MlperfVerdict::passed);
  EXPECT_NEAR(one.normalisation, 1.0297619047619047, 1e-12);
  std::vector<double> two(8, 4.2);
  two.insert(two.end(), 2, kNeverConverged);
  const MlperfJudgement both = judge_mlperf(points(), submission(24, two), ten_runs());
  EXPECT_EQ(both.verdict, MlperfVerdict::failed);
  EXPECT_EQ(both.message, "Insufficient convergence");
  EXPECT_EQ(both.failed_runs, 2);
}

TEST(Mlperf, InterpolatesBetweenBatchesAndExtrapolatesNowhere) {
  const auto message = [](int64_t batch, double runs) {
    const MlperfJudgement j =
        judge_mlperf(points(), submission(batch, std::vector<double>(10, runs)), ten_runs());
    return std::string(name_of(j.verdict)) + " " + j.message;
  };
  EXPECT_EQ(message(36, 4.7), "PASSED RCP Interpolation");
  EXPECT_EQ(message(36, 4.6), "FAILED RCP Interpolation");
  EXPECT_EQ(message(192, 9.0), "FAILED Missing RCP, please submit RCP with BS = 192");
  EXPECT_EQ(message(6, 5.0), "PASSED RCP not found but slower convergence on smaller batch size");
  EXPECT_EQ(message(6, 4.0), "FAILED Missing RCP, please submit RCP with BS = 6");
}

TEST(Mlperf, IsUndecidedWithTooFewRuns) {
  MlperfRules rules = ten_runs();
  rules.runs = 2;
  const MlperfJudgement few = judge_mlperf({points()[0]}, submission(24, {4.2, 4.3}), rules);
  EXPECT_EQ(few.verdict, MlperfVerdict::undecided);
  EXPECT_THAT(few.sentence, HasSubstr("8x3 local has 2 runs"));
  EXPECT_THAT(few.sentence, HasSubstr("at least 3"));
  const MlperfJudgement reference =
      judge_mlperf({point(24, {4.2})}, submission(24, nine_and(4, 4)), ten_runs());
  EXPECT_EQ(reference.verdict, MlperfVerdict::undecided);
  const MlperfJudgement never =
      judge_mlperf({point(24, nine_and(4, kNeverConverged))}, submission(24, nine_and(4, 4)), ten_runs());
  EXPECT_EQ(never.verdict, MlperfVerdict::undecided);
  EXPECT_THAT(never.sentence, HasSubstr("1 of 10 runs of a_24 never reached the target"));
}

std::vector<double> about(double mean) {
  std::vector<double> runs;
  for (const double step : {0.0, 0.1, -0.1, 0.0, 0.2, -0.2, 0.0, 0.1, -0.1, 0.0}) runs.push_back(mean + step);
  return runs;
}

std::string message_of(const std::vector<ReferencePoint>& points, const Submission& submission) {
  const MlperfJudgement j = judge_mlperf(points, submission, ten_runs());
  return std::string(name_of(j.verdict)) + " " + j.message;
}

// Their program finds a point by its batch size, in the file's order, among all points whose batch survives the
// pruning: the first of two counts, though it was pruned itself.
TEST(Mlperf, HoldsARepeatedBatchAgainstItsFirstPoint) {
  const std::vector<double> four(10, 4.0);
  const ReferencePoint small = point(12, about(3.0)), slow = point(24, about(6.0)), fast = point(24, about(3.5)),
                       large = point(96, about(7.0));
  EXPECT_EQ(message_of({small, slow, fast, large}, submission(24, four)), "FAILED RCP found");
  EXPECT_EQ(message_of({small, fast, slow, large}, submission(24, four)), "PASSED RCP found");
  EXPECT_EQ(message_of({slow, small, large, fast}, submission(24, four)), "FAILED RCP found")
      << "batches are sorted, points of one batch keep their order";
  // A batch of which no point survives is interpolated, however many points it had. Which survives turns on the
  // order: each is compared with the line to its neighbour, the other point of its batch.
  const ReferencePoint slower = point(24, about(6.5)), large_and_fast = point(96, about(3.2));
  EXPECT_EQ(message_of({small, slower, slow, large_and_fast}, submission(24, four)), "PASSED RCP Interpolation");
  EXPECT_EQ(message_of({small, slow, slower, large_and_fast}, submission(24, four)), "FAILED RCP found");
  // Three at one batch: a line between two points at the same batch is the upper one's value, and no NaN.
  EXPECT_EQ(message_of({small, point(24, about(5.0)), fast, slow, large}, submission(24, four)),
            "FAILED RCP found");
}

TEST(Mlperf, RefusesASubmissionWithAnotherNumberOfRuns) {
  const auto judged = [](const std::string& benchmark, std::size_t runs) {
    return judge_mlperf(points(), submission(24, std::vector<double>(runs, 4.3)), mlperf_rules(benchmark).value());
  };
  for (const std::size_t runs : {0U, 2U, 4U, 9U, 11U}) {
    const MlperfJudgement j = judged("bert", runs);
    EXPECT_EQ(j.verdict, MlperfVerdict::failed) << runs;
    EXPECT_EQ(j.check + ": " + j.message, "package check: Incorrect number of files");
    EXPECT_THAT(j.sentence, HasSubstr("A submission of bert has 10 runs, 8x3 local has " + std::to_string(runs)));
  }
  EXPECT_EQ(judged("bert", 10).verdict, MlperfVerdict::passed);
  EXPECT_EQ(judged("bert", 10).check, "RCP test");
  // Weak scaling in HPC asks for that many at least.
  EXPECT_EQ(judged("deepcam", 6).verdict, MlperfVerdict::passed);
  EXPECT_EQ(judged("deepcam", 4).verdict, MlperfVerdict::failed);
}

TEST(Mlperf, KnowsTheirBenchmarksByAllTheirNames) {
  EXPECT_EQ(canonical_benchmark("sd"), "stable_diffusion");
  EXPECT_EQ(mlperf_rules("sd")->benchmark, "stable_diffusion");
  EXPECT_EQ(mlperf_rules("sd")->runs, 10);
  EXPECT_EQ(mlperf_rules("dlrmv2")->benchmark, "dlrm_dcnv2");
  EXPECT_EQ(mlperf_rules("dlrm")->runs, 5) << "another model than dlrm_dcnv2";
  EXPECT_FALSE(mlperf_rules("dlrm")->samples);
  EXPECT_EQ(mlperf_rules("dlrmv4")->runs, 10);
  EXPECT_TRUE(mlperf_rules("dlrmv4")->samples);
  EXPECT_EQ(canonical_benchmark("resnet"), "resnet");
  for (const char* known : {"sd", "dlrm", "dlrmv4", "bert", "lockstep_energy"})
    EXPECT_EQ(unknown_benchmark_words(known), "") << known;
  EXPECT_THAT(unknown_benchmark_words("stable_difusion"),
              HasSubstr("knows no benchmark stable_difusion (did you mean stable_diffusion?)"));
  EXPECT_THAT(unknown_benchmark_words("ours"), HasSubstr("knows no benchmark ours; "));
}

TEST(Mlperf, KnowsTheirBenchmarks) {
  EXPECT_EQ(mlperf_rules("unet3d")->rejected, 4);
  EXPECT_EQ(mlperf_rules("llama31_405b")->runs, 3);
  EXPECT_TRUE(mlperf_rules("llama2_70b_lora")->samples);
  EXPECT_FALSE(mlperf_rules("lockstep_energy"));
}

TEST(Mlperf, TakesTheMeanItselfWhereNothingScatters) {
  EXPECT_EQ(least_acceptable_mean(4.5, 0, 8, 8, 0.05), 4.5);
  // Counts so large that neighbouring doubles lie farther apart than the tolerance still end.
  EXPECT_LT(least_acceptable_mean(1e17, 1e15, 8, 8, 0.05), 1e17);
}

TEST(WelchDifference, NeedsTwoFiniteRunsOnEachSide) {
  EXPECT_FALSE(welch_difference(std::vector<double>{1}, std::vector<double>{1, 2}, 0.05));
  EXPECT_FALSE(welch_difference(std::vector<double>{1, 2}, std::vector<double>{1, kNeverConverged}, 0.05));
}

TEST(WelchDifference, AgreesWithScipy) {
  // scipy.stats.ttest_ind([4.5, 4.7, 4.6, 4.9], [4.1, 4.3, 4.2, 4.6, 4.4], equal_var=False)
  //   .confidence_interval(0.95); its pvalue is two-sided.
  const auto d = welch_difference(std::vector<double>{4.1, 4.3, 4.2, 4.6, 4.4},
                                  std::vector<double>{4.5, 4.7, 4.6, 4.9}, 0.05);
  ASSERT_TRUE(d);
  EXPECT_NEAR(d->mean, 0.355, 1e-12);
  EXPECT_NEAR(d->interval.low, 0.06729349690585995, 1e-9);
  EXPECT_NEAR(d->interval.high, 0.6427065030941427, 1e-9);
  EXPECT_NEAR(2 * d->p_slower, 0.022528428260102158, 1e-9);
  EXPECT_EQ(decide_unpaired(*d, 1.0), VerdictKind::equivalent);
  EXPECT_EQ(decide_unpaired(*d, 0.4), VerdictKind::inconclusive);
}

}  // namespace
}  // namespace lockstep
