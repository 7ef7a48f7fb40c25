#pragma once
// A suite's results, made up.

#include "harness/answer/results/results.h"

namespace lockstep {

/// Faults, an undecided case, tables of which two hold a fault, a chart of lines and one of rows.
inline Results suite_results() {
  Results results;
  results.name = "saver";
  results.question = std::string(kSuiteQuestion);
  results.question_text = "Does it survive <kills>?";
  results.rerun = "lockstep run saver.yaml";
  results.summary.exit_code = 1;
  SuiteResult& suite = results.suite.emplace();
  suite.kind = "program";
  suite.subject = "torch.save & friends";
  suite.trials = 12;
  suite.cases = 1010;
  suite.faults = 2;
  suite.undecided = 1;
  suite.table = {{"killed", "rank 0, write", "torn", CaseVerdict::fault, 2},
                      {"killed", "rank 0, write", "whole, old", CaseVerdict::good, 1000},
                      {"EIO", "rank 1, rename", "whole, old", CaseVerdict::good, 7},
                      {"EIO", "rank 1, rename", "not reached", CaseVerdict::undecided, 1}};
  suite.findings = {{"kill@0:3", "killed", "rank 0, write", "torn", CaseVerdict::fault, "rank 0 is killed. It <refuses>.",
                          {{"rank 0", "open a|b", ""}, {"rank 0", "write a|b", "killed before it"}}, "sh out/replay/kill-0-3.sh"},
                         {"EIO@1:4", "EIO", "rank 1, rename", "not reached", CaseVerdict::undecided, "never", {}, ""}};
  suite.facts = {{"operations tried", "11 of 11"}};
  suite.notes = {"A power loss is not shown."};
  suite.tables = {
      {"What they took", "Of <one> call.", {{"call", "", false}, {"time", "us", true}, {"#wrong", "", true}},
       {{{"gather|all", "35.20", "0"}}, {{"broadcast", "41.00", "3"}, CaseVerdict::fault}, {{"scatter", "refused", ""}, CaseVerdict::undecided}}, false},
      {"gather|all", "", {{"size", "B", true}, {"time", "us", true}}, {{{"4", "35.20"}}, {{"1048576", "900.00"}}}, true},
      {"broadcast", "", {{"size", "B", true}, {"time", "us", true}, {"#wrong", "", true}},
       {{{"4", "41.00", "0"}}, {{"1048576", "812.00", "3"}, CaseVerdict::fault}}, true}};
  suite.charts = {
      {"Time against size", "Each line is a number of <ranks>.", {"size", "B", true}, {"time", "us", true}, false, {},
       {{"gather|all", {{"2 ranks", CaseVerdict::good, {{4, 35.2}, {2048, 60}, {1048576, 900}}}, {"8 ranks", CaseVerdict::good, {{4, 90}, {1048576, 4100}}}}},
        {"broadcast", {{"2 ranks", CaseVerdict::fault, {{4, 41}, {1048576, 812}}}}}}},
      {"Time to notice", "", {"time", "ms", true}, {}, true, {{"T", 1000}},
       {{"Processes", {{"kill", CaseVerdict::good, {{20, 0}, {31, 0}, {0, 0}}}, {"stop", CaseVerdict::fault, {{1004, 0}, {2900, 0}}}, {"none", CaseVerdict::good, {}}}}}}};
  return results;
}

/// As many failures, outcomes and columns as a large suite has, in its long words; nothing wrong.
inline Results wide_suite_results() {
  Results results = suite_results();
  results.name = "wide";
  results.summary.exit_code = 0;
  SuiteResult& suite = *results.suite;
  suite.faults = suite.undecided = 0;
  suite.findings.clear();
  suite.charts.clear();
  suite.table.clear();
  const char* outcomes[] = {"refused by all: the reward function gave what is not finite", "every bit the same",
                            "all left with the same error, nothing changed", "a step refused by all, the others taken",
                            "found: saved_but_never_published", "named at its first step"};
  for (int i = 0; i < 64; ++i) {
    suite.table.push_back({"killed, over an older checkpoint, mutant_of_the_trainer_" + std::to_string(i),
                                "rank " + std::to_string(i % 8) + ", rename of step_8/model-00003-of-00008.safetensors",
                                outcomes[i % 6], CaseVerdict::good, 100 + i});
  }
  SuiteTable table{"Every phase of a save", "", {{"operation", "", false}}, {}, false};
  for (const char* head : {"processes", "longest time to notice", "lost steps", "bytes written", "bytes read again", "renames", "#wrong"})
    table.columns.push_back({head, "", true});
  table.columns.push_back({"what was said", "", false});
  for (int i = 0; i < 8; ++i) {
    table.rows.push_back({{"write of step_" + std::to_string(i) + "/optimizer-00003-of-00008.safetensors", "8", "1203.25", "0", "1048576", "524288", "17", "0",
                           "rank 3 died silently; a full disk is the likely reason, see /var/log/lockstep/rank_3.log"}});
  }
  suite.tables = {table};
  return results;
}

}  // namespace lockstep
