#include "harness/judge/compare/led.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"

namespace lockstep {
namespace {

/// What a rank's loaders were asked for, by fetch; see rank-R.rows.json.
using Fetches = std::vector<std::vector<int64_t>>;
struct LoaderRows {
  int64_t rows = 0;
  std::vector<Fetches> asked;  ///< by rank
  bool trains = true;          ///< false: rank 0's batches of training are none of its; an evaluation's
};

std::vector<LoaderRows> loaders_of(const std::string& dir, int world_size) {
  std::vector<LoaderRows> loaders;
  for (int rank = 0; rank < world_size; ++rank) {
    const nlohmann::json json = rows_of(dir, rank);
    const auto all = json.find("loaders");
    if (all == json.end() || !all->is_array()) return {};
    loaders.resize(std::max(loaders.size(), all->size()));
    const auto taken = json_as<Fetches>(json.value("taken", nlohmann::json())).value_or(Fetches());
    for (std::size_t i = 0; i < all->size(); ++i) {
      const nlohmann::json& each = (*all)[i];
      if (!each.is_object()) return {};
      loaders[i].rows = json_as<int64_t>(each.value("rows", nlohmann::json())).value_or(0);
      loaders[i].asked.resize(static_cast<std::size_t>(world_size));
      loaders[i].asked[static_cast<std::size_t>(rank)] =
          json_as<Fetches>(each.value("asked", nlohmann::json())).value_or(Fetches());
      if (rank == 0 && !taken.empty())
        loaders[i].trains = std::ranges::find_first_of(loaders[i].asked[0], taken) != loaders[i].asked[0].end();
    }
  }
  return loaders;
}

/// All that ranks asked for, one fetch of each rank after the other.
Fetches in_turn(const LoaderRows& loader) {
  std::size_t whole = loader.asked.empty() ? 0 : loader.asked.front().size();
  for (const Fetches& rank : loader.asked) whole = std::min(whole, rank.size());
  Fetches all;
  for (std::size_t n = 0; n < whole; ++n) {
    all.emplace_back();
    for (const Fetches& rank : loader.asked) all.back().insert(all.back().end(), rank[n].begin(), rank[n].end());
  }
  return all;
}

/// Of ranks that hold one model together the first.
LoaderRows by_replica(LoaderRows loader) {
  std::vector<Fetches> kept;
  for (Fetches& rank : loader.asked)
    if (std::ranges::find(kept, rank) == kept.end()) kept.push_back(std::move(rank));
  loader.asked = std::move(kept);
  return loader;
}

std::vector<int64_t> joined(const Fetches& fetches) {
  std::vector<int64_t> all;
  for (const auto& each : fetches) all.insert(all.end(), each.begin(), each.end());
  return all;
}

/// The first fetch at which a row of the epoch comes again; -1: none does.
int64_t repeats_at(const std::vector<int64_t>& flow, std::size_t rows, std::size_t per_step) {
  std::set<int64_t> seen;
  for (std::size_t i = 0; i < flow.size(); ++i) {
    if (rows > 0 && i % rows == 0) seen.clear();
    if (!seen.insert(flow[i]).second) return static_cast<int64_t>(i / std::max<std::size_t>(per_step, 1));
  }
  return -1;
}

/// Are the rows beyond the first epoch those of the epoch before, in its order?
bool goes_again(const std::vector<int64_t>& flow, std::size_t rows, std::size_t end) {
  for (std::size_t i = rows; i < std::min(end, flow.size()); ++i)
    if (flow[i] != flow[i - rows]) return false;
  return true;
}

/// Two ranks that asked for the same rows in the same fetch: which, and how many; nothing if none did.
std::optional<std::pair<std::pair<std::size_t, std::size_t>, std::size_t>> shared_rows(const LoaderRows& loader,
                                                                                       std::size_t fetch) {
  for (std::size_t a = 0; a < loader.asked.size(); ++a) {
    for (std::size_t b = a + 1; b < loader.asked.size(); ++b) {
      if (fetch >= loader.asked[a].size() || fetch >= loader.asked[b].size()) continue;
      std::set<int64_t> rows(loader.asked[a][fetch].begin(), loader.asked[a][fetch].end());
      const auto count = static_cast<std::size_t>(
          std::ranges::count_if(loader.asked[b][fetch], [&](int64_t row) { return rows.contains(row); }));
      if (count > 0) return std::pair(std::pair(a, b), count);
    }
  }
  return std::nullopt;
}

/// The first fetch that holds the reference's rows and others, or some of them alone, behind equal ones: how an epoch
/// ends where its rows cannot be shared out evenly. 0: none.
std::size_t uneven_end(const Fetches& reference, const Fetches& run) {
  for (std::size_t n = 0; n < std::min(reference.size(), run.size()); ++n) {
    const std::multiset<int64_t> a(reference[n].begin(), reference[n].end()), b(run[n].begin(), run[n].end());
    if (a == b && !a.empty()) continue;
    return n > 0 && !a.empty() && !b.empty() && (std::ranges::includes(b, a) || std::ranges::includes(a, b)) ? n : 0;
  }
  return 0;
}

/// Ranks that take their share of the reference's rows in its order: every so many-th row, or a block of each fetch.
std::set<int> ranks_in_order(const std::vector<int64_t>& flow, const LoaderRows& run) {
  std::set<int> found;
  const std::size_t ranks = run.asked.size();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t per_fetch = run.asked[rank].empty() ? 0 : run.asked[rank].front().size();
    const std::vector<int64_t> own = joined(run.asked[rank]);
    bool strided = per_fetch > 0, blocks = strided;
    for (std::size_t i = 0; per_fetch > 0 && i < own.size() && (i / per_fetch + 1) * per_fetch * ranks <= flow.size();
         ++i) {
      strided = strided && own[i] == flow[i * ranks + rank];
      blocks = blocks && own[i] == flow[(i / per_fetch * ranks + rank) * per_fetch + i % per_fetch];
    }
    if (strided || blocks) found.insert(static_cast<int>(rank));
  }
  return found;
}

/// Does every rank begin with a piece of the reference's order? Then none has an order of its own.
bool takes_pieces(const std::vector<int64_t>& flow, const LoaderRows& run) {
  return std::ranges::all_of(run.asked, [&](const Fetches& rank) {
    return !rank.empty() && !std::ranges::search(flow, rank.front()).empty();
  });
}

/// Why a row comes again. `flow`: the reference's rows. `fetch`: the first that differs, of that step. `of_one`: ranks
/// that hold one model together took the same.
void tell_what_repeats(const std::vector<int64_t>& flow, const LoaderRows& ranks, bool of_one, std::size_t fetch,
                       std::size_t step, LedItem& item) {
  const auto shared = shared_rows(ranks, fetch);
  const bool alike =
      of_one || std::ranges::all_of(ranks.asked, [&](const Fetches& rank) { return rank == ranks.asked.front(); });
  const std::set<int> in_order = ranks_in_order(flow, ranks);
  const bool own_order =
      !alike && !takes_pieces(flow, ranks) && !in_order.empty() && in_order.size() < ranks.asked.size();
  item.code = alike       ? "shards-identical"
              : own_order ? "sampler-seed-differs"
              : shared    ? "shards-overlap"
                          : "sample-duplicated";
  item.text =
      alike ? "every rank takes the same rows"
      : own_order
          ? fmt::format("{} of {} ranks take their share of the reference's order, the others rows of another order",
                        in_order.size(), ranks.asked.size())
      : shared ? fmt::format("ranks {} and {} share {} of step {}", shared->first.first, shared->first.second,
                             counted(static_cast<int64_t>(shared->second), "row"), step)
               : fmt::format("a row comes twice, at step {}", item.first);
}

/// Do the ranks share out what the reference takes? `steps`: that were recorded.
void judge_loader(const LoaderRows& reference, const LoaderRows& run, std::size_t replicas, int64_t steps,
                  LedItem& item) {
  const Fetches fetches = in_turn(reference);
  if (fetches.empty() || run.asked.empty()) return;
  const std::vector<int64_t> a = joined(fetches);
  LoaderRows ranks = run;
  if (replicas < run.asked.size()) ranks = by_replica(run);
  const Fetches of_ranks = in_turn(ranks);
  const std::vector<int64_t> b = joined(of_ranks);
  if (b.empty()) return;
  const std::size_t per_fetch = fetches.front().size(),
                    per_step = std::max<std::size_t>(
                        1, fetches.size() / static_cast<std::size_t>(std::max<int64_t>(steps, 1))),
                    compared = std::min(
                        {a.size() / per_fetch, b.size() / per_fetch, static_cast<std::size_t>(steps) * per_step});
  item.steps = std::max(item.steps, steps);
  if (item.state == Mark::none) item.state = Mark::same;
  const auto loads_all = [&](const Fetches& rank) {
    return rank.size() >= fetches.size() && std::equal(fetches.begin(), fetches.end(), rank.begin());
  };
  if (std::ranges::all_of(run.asked, loads_all)) {
    item.text = "every rank loads the whole batch";
    return;
  }
  const auto of_fetch = [per_fetch](const std::vector<int64_t>& flow, std::size_t n) {
    const auto begin = flow.begin() + static_cast<std::ptrdiff_t>(n * per_fetch);
    return std::multiset<int64_t>(begin, begin + static_cast<std::ptrdiff_t>(per_fetch));
  };
  std::size_t first = 0;
  while (first < compared && of_fetch(a, first) == of_fetch(b, first)) ++first;
  if (reference.rows != run.rows && reference.rows > 0 && run.rows > 0) {
    // Each rank has its own part of the data, numbered by itself: only how many there are can be compared.
    item.text =
        fmt::format("data sets of {} rows here and of {} there: not compared by number", run.rows, reference.rows);
    item.state = Mark::none;
    return;
  }
  const std::size_t end = uneven_end(fetches, of_ranks);
  if (end > 0 && end < static_cast<std::size_t>(steps) * per_step) {
    const std::size_t there = fetches[end].size(), here = of_ranks[end].size();
    item.state = Mark::different;
    item.first = static_cast<int64_t>(end / per_step);
    item.code = here > there ? "padding-at-epoch-end" : "sample-dropped";
    item.text = fmt::format("the epoch ends at step {} with {}, the reference's with {}", item.first,
                            counted(static_cast<int64_t>(here), "row"), there);
    return;
  }
  if (first == compared) return;
  const bool repeats_there = repeats_at(a, static_cast<std::size_t>(reference.rows), per_fetch) >= 0;
  const int64_t again =
      repeats_at({b.begin(), b.begin() + static_cast<std::ptrdiff_t>(std::min(b.size(), compared * per_fetch))},
                 static_cast<std::size_t>(run.rows), per_fetch);
  const auto rows = static_cast<std::size_t>(std::max<int64_t>(run.rows, 0));
  const std::size_t looked_at = compared * per_fetch;
  if (again < 0 && rows > 0 && looked_at >= rows + per_fetch && !goes_again(a, rows, looked_at) &&
      goes_again(b, rows, looked_at)) {
    item.state = Mark::different;
    item.first = static_cast<int64_t>(rows / per_fetch / per_step);
    item.code = "set-epoch-forgotten";
    item.text =
        fmt::format("from step {} on in the order of the epoch before, where the reference has a new one", item.first);
    return;
  }
  if (again < 0) {
    item.text = fmt::format("in another order, from step {} on: every row once, on one rank", first / per_step);
    return;
  }
  if (repeats_there) {
    item.text = "drawn with repetition, other ones than the reference's";
    return;
  }
  item.state = Mark::different;
  item.first = again / static_cast<int64_t>(per_step);
  tell_what_repeats(a, ranks, replicas > 1 && ranks.asked.size() == 1, first, first / per_step, item);
}

}  // namespace

nlohmann::json rows_of(const std::string& dir, int rank) {
  const FileText file = read_file(fmt::format("{}/rank-{}.rows.json", dir, rank), uint64_t{256} << 20);
  const nlohmann::json json = file ? parse_json(file.text) : nlohmann::json();
  return json.is_object() ? json : nlohmann::json::object();
}

void judge_rows(const TracedRanks& reference, const TracedRanks& run, int takers, int64_t steps, LedItem& item) {
  const std::vector<LoaderRows> there = loaders_of(reference.dir, reference.count),
                                here = loaders_of(run.dir, run.count);
  for (std::size_t i = 0; i < std::min(there.size(), here.size()); ++i) {
    if (item.state == Mark::different) break;
    if (there[i].trains) judge_loader(there[i], here[i], static_cast<std::size_t>(takers), steps, item);
  }
}

}  // namespace lockstep
