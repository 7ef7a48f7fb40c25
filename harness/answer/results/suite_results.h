#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/plan/matrix/matrix.h"

// What a suite found: trials of a library or of a program under failures, counted by failure, place and
// outcome. A suite trains nothing; its document has no cells.

namespace lockstep {

/// What Results::question holds in a suite's document; no question of a matrix has this name.
inline constexpr std::string_view kSuiteQuestion = "laboratory";

/// undecided: nothing can be said of the case, as where its failure never took place.
enum class CaseVerdict {
  good,
  fault,
  undecided,
  planted,  ///< a mistake that was planted to be found, and was: listed as faults are, and none
};
/// "good", "fault", "undecided", "planted".
std::string_view name_of(CaseVerdict verdict);
std::span<const std::string_view> case_verdict_names();

/// Cases of one failure at one kind of place that ended alike: a row of the table.
struct SuiteCount {
  std::string failure, place, outcome;
  CaseVerdict verdict = CaseVerdict::good;
  int64_t cases = 0;
};

/// What one rank, process or thread did, in the order in which it happened.
struct TimelineStep {
  std::string process;      ///< "rank 1"
  std::string operation;  ///< "write step_8/shard_1, 4096 bytes at 0"
  std::string mark;       ///< "killed", "held", "goes on", "fails with ENOSPC"; empty: done as asked
};

/// A case that came out wrong, or undecided, or wrong as it must.
struct SuiteFinding {
  std::string trial;  ///< its name: `--only` takes it
  std::string failure, place, outcome;
  CaseVerdict verdict = CaseVerdict::fault;
  std::string sentence;  ///< who did what, what was expected, what was found
  std::vector<TimelineStep> timeline;
  std::string replay;  ///< the command that runs this trial again
};

/// A column of a table: what it holds, and in which unit.
struct TableColumn {
  std::string head;  ///< "time"
  std::string unit;  ///< "us"; empty: none
  bool numbers = false;  ///< they are aligned to the right
};

struct TableRow {
  std::vector<std::string> cells;           ///< one a column, as people read it; empty: nothing to say there
  CaseVerdict verdict = CaseVerdict::good;  ///< rows of faults stand first, in their colour, whatever their order here
};

/// What a suite measured or heard, row by row.
struct SuiteTable {
  std::string title;
  std::string why;  ///< how to read it; may be empty
  std::vector<TableColumn> columns;
  std::vector<TableRow> rows;
  /// One to look things up in: folded on the page and in Markdown, and of its rows a terminal shows the faults alone.
  bool folded = false;
};

struct ChartAxis {
  std::string name;  ///< "bus bandwidth"
  std::string unit;  ///< "GB/s"; of "B" a logarithmic axis counts in powers of two
  bool log = false;  ///< what is not above 0 is not drawn in lines, and stands as an arrow at the edge in rows
};

struct ChartPoint {
  double x = 0, y = 0;
};

struct ChartSeries {
  std::string name;  ///< "8 ranks"; alike in all panels where it means the same
  CaseVerdict verdict = CaseVerdict::good;  ///< a fault is drawn in its colour
  std::vector<ChartPoint> points;           ///< in the order of x where they are a line
};

/// Series that stand together: a small drawing of its own where they are lines, rows under one heading else.
struct ChartPanel {
  std::string name;
  std::vector<ChartSeries> series;
};

/// A value of x that is marked from top to bottom: "T".
struct ChartMark {
  std::string name;
  double at = 0;
};

/// What a suite measured, drawn. All panels have the same axes.
struct SuiteChart {
  std::string title;
  std::string why;  ///< how to read it; may be empty
  ChartAxis x, y;
  /// Each series is a row with a dot at every x; y says nothing. Else it is a line through its points.
  bool by_row = false;
  std::vector<ChartMark> marks;
  std::vector<ChartPanel> panels;
};

struct SuiteResult {
  std::string kind;     ///< of suite_kinds(): "program"
  std::string subject;  ///< what was tried
  int64_t trials = 0;   ///< that were run
  int64_t cases = 0;    ///< that these held: one trial may flip many bits
  int64_t faults = 0, undecided = 0;  ///< cases
  double seconds = 0;                 ///< of the wall clock, all trials
  std::vector<SuiteCount> table;
  std::vector<SuiteFinding> findings;  ///< the first ones of each row of the table
  int64_t findings_left_out = 0;            ///< the table counts them all
  /// What was measured beside the trials, in words: "operations tried" -> "212 of 212".
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<std::string> notes;  ///< what this suite could not see
  std::vector<SuiteTable> tables;
  std::vector<SuiteChart> charts;
};

// A confidence interval.

struct Interval {
  double low = 0, high = 0;
  double level = 0.95;
};

// Levels of intervals as people read them, the same in sentences and reports.

/// "95 %" of 0.95, "99.9 %" of 0.999.
std::string level_words(double level);

// What only one question's results hold: rates of detection.

/// A share of a detection matrix's trials.
struct DetectionRate {
  std::string what;  ///< "caught"
  int64_t hits = 0, of = 0;
  Interval interval;  ///< Clopper-Pearson
  double asked = -1;  ///< the least share of hits required, or the most allowed; negative: none
  bool at_most = false;
  bool enough = true;
};

/// The trials of one mutant, or of all pairs.
struct DetectionRow {
  std::string mutant, report;  ///< mutant: of a user's own fault "env.MISTAKE=sum"; report: the public one that it stands for, "owner/repository#number"
  int trials = 0, caught = 0;
  int exact_step = 0, exact_place = 0, exact = 0;  ///< of the caught: step, place, both
  int right_cause = 0, wrong_cause = 0;
  int by_loss_curve = 0;         ///< what a comparison of the loss curves would have found
  std::vector<int> first_found;  ///< by detector: the trials that it was the first to show
  /// Trials beside these, in exact arithmetic and without a forced step; and those of them that showed the fault at its step
  /// and place.
  int exact_trials = 0, exact_found = 0;
  bool place_asked = true;  ///< false, of a user's own fault: where it must show was not said, so that any place counts as exact
};

/// A trial that did not come out as it must.
struct DetectionMiss {
  std::string cell, wrong, planted, said, rerun;
};

/// A mutant that is not tried, or whose trials say nothing.
struct LeftOutMutant {
  std::string mutant, reason;
};

/// Which planted faults were found and named, and what clean pairs raised.
struct Detection {
  std::vector<std::string> detectors;
  std::vector<DetectionRow> rows;  ///< mutants in the table's order, then "pairs"
  std::vector<DetectionRate> rates;
  std::vector<DetectionMiss> misses;
  std::vector<LeftOutMutant> left_out;  ///< that cannot act here
  int64_t clean = 0, false_alarms = 0;
  double loss_tolerance = 0;  ///< relative, of the loss curves
  bool passed = true;         ///< every rate is enough
};

}  // namespace lockstep
