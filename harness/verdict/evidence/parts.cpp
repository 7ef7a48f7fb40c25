#include "harness/verdict/evidence/parts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace lockstep {
namespace {

struct Part {
  int rank = 0;
  Record* record = nullptr;
};
/// By where they begin: the ranks that hold that part.
using Places = std::map<std::vector<int64_t>, std::vector<Part>>;
using Subject = std::pair<Phase, std::string>;

bool is_part(const Record& record) { return record.placement && record.placement->shard; }

/// What each rank has for itself, whatever the others have.
bool is_own(Phase phase) {
  return phase == Phase::local_gradients || phase == Phase::gradient_parts || phase == Phase::inputs;
}

int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

bool overlap(const Record& a, const Record& b) {
  for (std::size_t d = 0; d < a.shape.size(); ++d) {
    const int64_t begin_a = a.placement->offset[d], begin_b = b.placement->offset[d];
    if (begin_a + a.shape[d] <= begin_b || begin_b + b.shape[d] <= begin_a) return false;
  }
  return true;
}

/// Do the parts fit one tensor, and fill it?
bool fill(const Places& places) {
  const Record& first = *places.begin()->second.front().record;
  int64_t elements = 0;
  for (const auto& [offset, parts] : places) {
    for (const Part& part : parts) {
      const Record& each = *part.record;
      if (each.dtype != first.dtype || each.placement->whole != first.placement->whole) return false;
      if (each.shape != parts.front().record->shape) return false;
    }
    elements += count_of(parts.front().record->shape);
  }
  for (auto one = places.begin(); one != places.end(); ++one) {
    for (auto other = std::next(one); other != places.end(); ++other) {
      if (overlap(*one->second.front().record, *other->second.front().record)) return false;
    }
  }
  return elements == count_of(first.placement->whole);
}

/// Copies a part's values to their places in the whole's.
void place(const Record& part, std::vector<std::byte>& whole) {
  const std::vector<int64_t>&shape = part.shape, &extents = part.placement->whole, &offset = part.placement->offset;
  if (shape.empty() || part.payload.empty()) {
    std::ranges::copy(part.payload, whole.begin());
    return;
  }
  const std::size_t last = shape.size() - 1, size = size_of(part.dtype), run = static_cast<std::size_t>(shape[last]) * size;
  std::vector<int64_t> at(shape.size(), 0);
  for (std::size_t from = 0; from < part.payload.size(); from += run) {
    int64_t to = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) to = to * extents[i] + offset[i] + at[i];
    std::memcpy(&whole[static_cast<std::size_t>(to) * size], &part.payload[from], run);
    for (std::size_t i = last; i-- > 0;) {
      if (++at[i] < shape[i]) break;
      at[i] = 0;
    }
  }
}

void add_statistics(const Record& part, TensorStats& whole, bool& any) {
  whole.norm = std::hypot(whole.norm, part.stats.norm);
  whole.nonfinite += part.stats.nonfinite;
  if (count_of(part.shape) == 0) return;
  whole.min = any ? std::min(whole.min, part.stats.min) : part.stats.min;
  whole.max = any ? std::max(whole.max, part.stats.max) : part.stats.max;
  any = true;
}

void hash_whole(Record& record) {
  record.stats.hash = tensor_hash({record.payload.data(), record.dtype, record.shape, {}});
  record.hashed = Hashed::whole;
}

/// Of one part of each place; they fill the tensor.
Record whole_of(const std::vector<const Record*>& parts) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15ULL;
  Record whole = *parts.front();
  whole.shape = whole.placement->whole;
  whole.replicated = !is_own(whole.phase);
  whole.payload.clear();
  whole.stats = {};
  bool values = true, any = false, along_rows = true;
  uint64_t of_rows = 0, of_parts = 0;
  for (const Record* part : parts) {
    whole.has_stats = whole.has_stats && part->has_stats;
    add_statistics(*part, whole.stats, any);
    values = values && part->payload.size() == static_cast<std::size_t>(count_of(part->shape)) * size_of(part->dtype);
    along_rows = along_rows && std::equal(part->shape.begin() + (part->shape.empty() ? 0 : 1), part->shape.end(),
                                          whole.shape.begin() + (whole.shape.empty() ? 0 : 1), whole.shape.end());
    of_rows += part->stats.hash;
    of_parts = (of_parts + part->stats.hash) * kOdd;
    for (const int64_t offset : part->placement->offset) of_parts = (of_parts + static_cast<uint64_t>(offset) + 1) * kOdd;
  }
  if (!whole.has_stats) whole.stats = {};
  whole.stats.hash = along_rows ? of_rows : of_parts;
  whole.hashed = along_rows ? Hashed::rows : Hashed::parts;
  if (!values) return whole;
  whole.payload.resize(static_cast<std::size_t>(count_of(whole.shape)) * size_of(whole.dtype));
  for (const Record* part : parts) place(*part, whole.payload);
  hash_whole(whole);
  return whole;
}

/// What all ranks hold together: see put_together.
void put_shared(const Places& places, StepOfRun& step) {
  std::vector<const Record*> first;
  for (const auto& [offset, parts] : places) first.push_back(parts.front().record);
  Record whole = whole_of(first);
  std::vector<Record> own(step.ranks.size(), whole);
  for (std::size_t rank = 1; rank < own.size(); ++rank) own[rank].payload.clear();
  std::size_t k = 0;
  for (const auto& [offset, parts] : places) {
    for (const Part& part : parts) {
      if (part.record->stats.hash == first[k]->stats.hash) continue;
      std::vector<const Record*> with_own = first;
      with_own[k] = part.record;
      own[static_cast<std::size_t>(part.rank)] = whole_of(with_own);
    }
    ++k;
  }
  for (std::size_t rank = 0; rank < own.size(); ++rank) step.ranks[rank].records.push_back(std::move(own[rank]));
}

/// What groups of ranks hold, each for itself; false if places have unequal numbers of holders.
bool put_own(const Places& places, StepOfRun& step) {
  const std::size_t groups = places.begin()->second.size();
  if (std::ranges::any_of(places, [&](const auto& each) { return each.second.size() != groups; })) return false;
  std::vector<int> bearers;
  for (std::size_t k = 0; k < groups; ++k) {
    std::vector<const Record*> parts;
    int bearer = places.begin()->second[k].rank;
    for (const auto& [offset, holders] : places) {
      parts.push_back(holders[k].record);
      bearer = std::min(bearer, holders[k].rank);
    }
    step.ranks[static_cast<std::size_t>(bearer)].records.push_back(whole_of(parts));
    bearers.push_back(bearer);
  }
  if (places.begin()->second.front().record->phase == Phase::local_gradients) step.bearers = std::move(bearers);
  return true;
}

}  // namespace

void put_together(StepOfRun& step) {
  std::vector<std::pair<Subject, Places>> subjects;  // in the order in which ranks recorded them
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    for (Record& record : step.ranks[rank].records) {
      if (record.placement && !record.placement->shard) {
        record.replicated = record.replicated || !is_own(record.phase);
        if (!record.payload.empty()) hash_whole(record);
      }
      if (!is_part(record)) continue;
      const Subject subject{record.phase, record.name};
      auto known = std::ranges::find(subjects, subject, &std::pair<Subject, Places>::first);
      if (known == subjects.end()) known = subjects.insert(subjects.end(), {subject, {}});
      known->second[record.placement->offset].push_back({static_cast<int>(rank), &record});
    }
  }
  if (subjects.empty()) return;
  // Records are moved while others still point at them: what is put together is kept apart until all is.
  StepOfRun made;
  made.ranks.resize(step.ranks.size());
  step.parts.resize(step.ranks.size());
  std::vector<std::vector<const Record*>> taken(step.ranks.size());
  for (const auto& [subject, places] : subjects) {
    if (!fill(places)) continue;
    if (!is_own(subject.first)) {
      put_shared(places, made);
    } else if (!put_own(places, made)) {
      continue;
    }
    for (const auto& [offset, parts] : places) {
      for (const Part& part : parts) taken[static_cast<std::size_t>(part.rank)].push_back(part.record);
    }
  }
  step.bearers = std::move(made.bearers);
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    std::vector<Record> kept, &wholes = made.ranks[rank].records;
    for (Record& record : step.ranks[rank].records) {
      if (std::ranges::find(taken[rank], &record) == taken[rank].end()) {
        kept.push_back(std::move(record));
        continue;
      }
      const auto whole = std::ranges::find_if(wholes, [&](const Record& each) { return each.phase == record.phase && each.name == record.name; });
      step.parts[rank].push_back(std::move(record));
      if (whole == wholes.end()) continue;
      kept.push_back(std::move(*whole));
      wholes.erase(whole);
    }
    std::ranges::move(wholes, std::back_inserter(kept));
    step.ranks[rank].records = std::move(kept);
  }
}

namespace {

constexpr std::string_view kMoments[] = {"first_moment/", "second_moment/"};
constexpr const char* kUpdates = "updates";

Record* find(StepRecords& rank, Phase phase, const std::string& name) {
  const auto found = std::ranges::find_if(rank.records, [&](const Record& each) { return each.phase == phase && each.name == name; });
  return found == rank.records.end() ? nullptr : &*found;
}

bool same(const Record& a, const Record& b) { return a.stats.hash == b.stats.hash && a.shape == b.shape && (!a.is_scalar || a.value == b.value); }

/// Names of the optimizers' state that not every rank holds alike.
std::set<std::string> unlike_state(StepOfRun& step) {
  std::set<std::string> names;
  for (const Phase phase : {Phase::snapshot, Phase::optimizer_state}) {
    std::vector<std::vector<const Record*>> by_rank(step.ranks.size());
    for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
      for (const Record& record : step.ranks[rank].records) {
        const auto begins = [&](std::string_view prefix) { return record.name.starts_with(prefix); };
        if (record.phase == phase && (record.name == kUpdates || std::ranges::any_of(kMoments, begins))) by_rank[rank].push_back(&record);
      }
      const auto alike = [](const Record* a, const Record* b) { return a->name == b->name && same(*a, *b); };
      if (std::ranges::equal(by_rank[0], by_rank[rank], alike)) continue;
      std::map<std::string, const Record*> own, first;
      for (const Record* record : by_rank[rank]) own[record->name] = record;
      for (const Record* record : by_rank[0]) first[record->name] = record;
      const auto note = [&](const auto& these, const auto& those) {
        for (const auto& [name, record] : these) {
          if (const auto other = those.find(name); other == those.end() || !same(*record, *other->second)) names.insert(name);
        }
      };
      note(own, first);
      note(first, own);
    }
  }
  return names;
}

/// Ranks that hold the parameter of that state, or all parameters if it counts updates; empty unless all hold it alike.
std::vector<std::size_t> holders_of_state(const StepOfRun& step, const std::string& state) {
  const std::string name = state == kUpdates ? "" : state.substr(state.find('/') + 1);
  std::map<std::string, const Record*> first;
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    std::size_t held = 0;
    for (const Record& record : step.ranks[rank].records) {
      if (record.phase != Phase::parameters || record.name.starts_with("buffer/") || (!name.empty() && record.name != name)) continue;
      const auto [known, is_new] = first.emplace(record.name, &record);
      if (!is_new && !same(*known->second, record)) return {};
      ++held;
    }
    if (held > 0) ranks.push_back(rank);
  }
  return ranks.size() > 1 ? ranks : std::vector<std::size_t>{};
}

/// Gives all these ranks the owner's record, or none to any of them.
void give(StepOfRun& step, Phase phase, const std::string& name, const std::vector<std::size_t>& ranks, std::optional<std::size_t> owner) {
  const Record* held = owner ? find(step.ranks[*owner], phase, name) : nullptr;
  const std::optional<Record> record = held ? std::optional(*held) : std::nullopt;
  for (const std::size_t rank : ranks) {
    StepRecords& records = step.ranks[rank];
    records.filled_by = 0;
    Record* own = find(records, phase, name);
    if (!record && own) records.records.erase(records.records.begin() + (own - records.records.data()));
    if (!record) continue;
    if (!own) own = &records.records.emplace_back();
    *own = *record;
    own->replicated = true;
    if (rank != ranks.front()) own->payload.clear();
  }
}

/// All these ranks have counted what the one has that counted most.
void count_most(StepOfRun& step, Phase phase, const std::vector<std::size_t>& ranks) {
  std::optional<std::size_t> most;
  for (const std::size_t rank : ranks) {
    const Record* count = find(step.ranks[rank], phase, kUpdates);
    if (count && count->is_scalar && (!most || count->value > find(step.ranks[*most], phase, kUpdates)->value)) most = rank;
  }
  if (most) give(step, phase, kUpdates, ranks, most);
}

}  // namespace

void OwnersState::put_together(StepOfRun& step) {
  for (const std::string& name : unlike_state(step)) {
    const std::vector<std::size_t> ranks = holders_of_state(step, name);
    if (ranks.empty()) continue;
    if (name == kUpdates) {
      for (const Phase phase : {Phase::snapshot, Phase::optimizer_state}) count_most(step, phase, ranks);
      continue;
    }
    const std::vector<uint64_t> last = std::exchange(last_[name], std::vector<uint64_t>(step.ranks.size(), 0));
    std::vector<std::size_t> holders, movers;
    for (const std::size_t rank : ranks) {
      const Record *before = find(step.ranks[rank], Phase::snapshot, name), *after = find(step.ranks[rank], Phase::optimizer_state, name);
      if (!after) continue;
      holders.push_back(rank);
      last_[name][rank] = after->stats.hash;
      if (before ? !same(*before, *after) : !last.empty() && last[rank] != after->stats.hash) movers.push_back(rank);
    }
    if (movers.empty() && holders.size() == 1) movers = holders;
    const bool one = std::ranges::all_of(movers, [&](std::size_t rank) { return last_[name][rank] == last_[name][movers.front()]; });
    if (!movers.empty()) owners_[name] = movers.front();
    const auto owner = one ? owners_.find(name) : owners_.end();
    for (const Phase phase : {Phase::snapshot, Phase::optimizer_state})
      give(step, phase, name, ranks, owner == owners_.end() ? std::nullopt : std::optional(owner->second));
  }
}

const Record* find_part(const StepOfRun& step, std::size_t rank, Phase phase, const std::string& name) {
  if (rank >= step.parts.size()) return nullptr;
  const auto found = std::ranges::find_if(step.parts[rank], [&](const Record& each) { return each.phase == phase && each.name == name; });
  return found == step.parts[rank].end() ? nullptr : &*found;
}

}  // namespace lockstep
