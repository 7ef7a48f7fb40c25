#include "harness/suites/collectives/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

namespace lockstep::collectives {
namespace {

constexpr std::array<std::string_view, 10> kNames{"all_reduce", "reduce",         "broadcast",  "all_gather",   "gather",
                                                  "scatter",    "reduce_scatter", "all_to_all", "send_receive", "barrier"};

std::string time_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.0f} us", seconds * 1e6) : fmt::format("{:.3g} ms", seconds * 1e3);
}

CaseVerdict verdict_of(const Row& row) {
  if (!row.refused.empty()) return CaseVerdict::undecided;
  return row.wrong > 0 ? CaseVerdict::fault : CaseVerdict::good;
}

std::string redop_of(const Row& row) { return reduces(row.collective) ? "sum" : "none"; }
int root_of(const Row& row) { return has_root(row.collective) ? row.world - 1 : -1; }

/// Rows of one collective, and of one number of ranks of it; empty where none was measured.
std::vector<Row> of(std::span<const Row> rows, std::string_view collective, int world = 0) {
  std::vector<Row> some;
  for (const Row& row : rows) {
    if (row.collective == collective && (world == 0 || row.world == world)) some.push_back(row);
  }
  return some;
}

std::set<int> worlds_of(std::span<const Row> rows) {
  std::set<int> worlds;
  for (const Row& row : rows) worlds.insert(row.world);
  return worlds;
}

/// "61 us · 3.58 GB/s": of one collective and number of ranks, in the order of sizes.
std::string in_short(const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  if (!rows.front().refused.empty()) return "refused";
  if (rows.front().bytes == 0) return time_text(rows.front().seconds);
  return fmt::format("{} · {:.3g} GB/s", time_text(rows.front().seconds), rows.back().busbw());
}

SuiteTable short_table(std::span<const Row> rows) {
  SuiteTable table{"Latency and bus bandwidth",
                        "The time of the smallest size, and the bus bandwidth of the largest one, by number of ranks; #wrong counts elements of all sizes "
                        "and ranks.",
                        {{"collective", "", false}}, {}, false};
  const std::set<int> worlds = worlds_of(rows);
  for (const int world : worlds) table.columns.push_back({fmt::format("{} ranks", world), "", true});
  table.columns.push_back({"#wrong", "", true});
  for (const std::string_view collective : collective_names()) {
    const std::vector<Row> all = of(rows, collective);
    if (all.empty()) continue;
    TableRow line{{std::string(collective)}};
    int64_t wrong = 0;
    for (const int world : worlds) line.cells.push_back(in_short(of(rows, collective, world)));
    for (const Row& row : all) {
      wrong += row.wrong;
      if (verdict_of(row) == CaseVerdict::fault || line.verdict == CaseVerdict::good) line.verdict = verdict_of(row);
    }
    line.cells.push_back(std::to_string(wrong));
    table.rows.push_back(std::move(line));
  }
  return table;
}

SuiteTable whole_table(std::string_view collective, const std::vector<Row>& rows) {
  SuiteTable table{std::string(collective), "",
                        {{"ranks", "", true}, {"size", "B", true}, {"count", "elements", true}, {"type", "", false}, {"redop", "", false},
                         {"root", "", true}, {"time", "us", true}, {"algbw", "GB/s", true}, {"busbw", "GB/s", true}, {"#wrong", "", true}},
                        {}, true};
  for (const Row& row : rows) {
    TableRow line{{std::to_string(row.world), std::to_string(row.bytes), std::to_string(row.count), "float", redop_of(row), std::to_string(root_of(row))},
                  verdict_of(row)};
    if (row.refused.empty())
      line.cells.insert(line.cells.end(), {fmt::format("{:.2f}", row.seconds * 1e6), fmt::format("{:.4f}", row.algbw()),
                                           fmt::format("{:.4f}", row.busbw()), std::to_string(row.wrong)});
    else
      line.cells.insert(line.cells.end(), {"refused", "", "", ""});
    table.rows.push_back(std::move(line));
  }
  return table;
}

/// Of every collective that has sizes.
SuiteChart by_size(std::span<const Row> rows, std::string title, std::string why, ChartAxis y, double (*value)(const Row&)) {
  SuiteChart chart{std::move(title), std::move(why), {"size", "B", true}, std::move(y), false, {}, {}};
  for (const std::string_view collective : collective_names()) {
    ChartPanel panel{std::string(collective), {}};
    for (const int world : worlds_of(rows)) {
      ChartSeries series{fmt::format("{} ranks", world), CaseVerdict::good, {}};
      for (const Row& row : of(rows, collective, world)) {
        if (row.bytes == 0 || !row.refused.empty()) continue;
        series.points.push_back({static_cast<double>(row.bytes), value(row)});
        if (row.wrong > 0) series.verdict = CaseVerdict::fault;
      }
      if (!series.points.empty()) panel.series.push_back(std::move(series));
    }
    if (!panel.series.empty()) chart.panels.push_back(std::move(panel));
  }
  return chart;
}

}  // namespace

std::span<const std::string_view> collective_names() { return kNames; }

bool reduces(std::string_view collective) {
  return collective == "all_reduce" || collective == "reduce" || collective == "reduce_scatter";
}

bool has_root(std::string_view collective) {
  return collective == "reduce" || collective == "broadcast" || collective == "gather" || collective == "scatter";
}

double bus_factor(std::string_view collective, int world) {
  const double others = static_cast<double>(world - 1) / world;
  if (collective == "barrier") return 0;
  if (collective == "all_reduce") return 2 * others;
  return collective == "broadcast" || collective == "reduce" || collective == "send_receive" ? 1 : others;
}

double Row::algbw() const { return seconds > 0 ? static_cast<double>(bytes) / seconds * 1e-9 : 0; }
double Row::busbw() const { return algbw() * bus_factor(collective, world); }

std::string table(std::span<const Row> rows) {
  std::string text = "collective\tranks\tsize (B)\tcount\ttype\tredop\troot\ttime (us)\talgbw (GB/s)\tbusbw (GB/s)\t#wrong\n";
  for (const Row& row : rows) {
    text += fmt::format("{}\t{}\t{}\t{}\tfloat\t{}\t{}\t", row.collective, row.world, row.bytes, row.count, redop_of(row), root_of(row));
    text += row.refused.empty() ? fmt::format("{:.2f}\t{:.4f}\t{:.4f}\t{}\n", row.seconds * 1e6, row.algbw(), row.busbw(), row.wrong)
                                : fmt::format("refused: {}\n", row.refused);
  }
  return text;
}

SuiteTable threads_table(std::span<const ThreadsRow> rows) {
  SuiteTable table{"Threads of a Gloo group",
                   "All figures of this report are of groups with one thread, which yields to ranks that compute (scheduling policy batch). PyTorch's "
                   "own groups have two threads of ordinary scheduling; here are both, in turns in the same processes.",
                   {{"ranks", "", true}, {"all_reduce", "B", true}, {"time", "us", true}, {"with PyTorch's threads", "us", true}, {"ratio", "", true}},
                   {}, false};
  for (const ThreadsRow& row : rows)
    table.rows.push_back({{std::to_string(row.world), std::to_string(row.bytes), fmt::format("{:.1f}", row.seconds * 1e6),
                           fmt::format("{:.1f}", row.pytorch_s * 1e6), fmt::format("{:.2f}", row.seconds / row.pytorch_s)}});
  return table;
}

std::vector<SuiteTable> tables(std::span<const Row> rows) {
  std::vector<SuiteTable> all;
  if (rows.empty()) return all;
  all.push_back(short_table(rows));
  for (const std::string_view collective : collective_names()) {
    if (const std::vector<Row> some = of(rows, collective); !some.empty()) all.push_back(whole_table(collective, some));
  }
  return all;
}

std::vector<SuiteChart> charts(std::span<const Row> rows) {
  std::vector<SuiteChart> all{
      by_size(rows, "Bus bandwidth against size",
              "What a link must carry for the size, by the time that it took: reckoned as nccl-tests does, so that numbers of ranks can be compared with "
              "each other.",
              {"bus bandwidth", "GB/s", true}, [](const Row& row) { return row.busbw(); }),
      by_size(rows, "Time against size", "Of one call: the mean over the timed ones, of the rank that took longest.", {"time", "us", true},
              [](const Row& row) { return row.seconds * 1e6; })};
  std::erase_if(all, [](const SuiteChart& chart) { return chart.panels.empty(); });
  return all;
}

}  // namespace lockstep::collectives
