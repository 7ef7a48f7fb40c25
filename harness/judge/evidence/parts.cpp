#include "harness/judge/evidence/parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "harness/answer/results/results.h"
#include "harness/plan/config/trainer_spec.h"

namespace lockstep {

const Record* find_record(const StepRecords& rank, Phase phase, std::string_view name) {
  const auto is_it = [&](const Record& record) { return record.phase == phase && record.name == name; };
  const auto found = std::ranges::find_if(rank.records, is_it);
  return found == rank.records.end() ? nullptr : &*found;
}

std::vector<const Record*> records_of(const StepRecords& rank, Phase phase) {
  std::vector<const Record*> list;
  for (const Record& record : rank.records)
    if (record.phase == phase) list.push_back(&record);
  return list;
}

std::vector<int64_t> sample_ids(const StepRecords& rank) {
  std::vector<int64_t> ids;
  for (const Record* record : records_of(rank, Phase::samples))
    ids.insert(ids.end(), record->ids.begin(), record->ids.end());
  return ids;
}

std::vector<SampleRow> sample_rows(const StepOfRun& step, Phase phase, std::string_view name) {
  std::vector<SampleRow> rows;
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    for (const Record* record : records_of(step.ranks[rank], phase)) {
      const std::size_t count = record->ids.size();
      if (record->name != name || count == 0 || record->shape.empty() || record->shape[0] != std::ssize(record->ids))
        continue;
      const auto values = values_of(*record);
      if (!values) continue;
      const std::size_t width = values->size() / count;
      for (std::size_t i = 0; i < count; ++i) {
        const auto begin = values->begin() + static_cast<std::ptrdiff_t>(i * width);
        rows.push_back(
            {record->ids[i], static_cast<int>(rank), i, {begin, begin + static_cast<std::ptrdiff_t>(width)}});
      }
    }
  }
  return rows;
}

std::map<int64_t, SampleRow> rows_by_sample(const StepOfRun& step, Phase phase, std::string_view name) {
  std::map<int64_t, SampleRow> rows;
  for (SampleRow& row : sample_rows(step, phase, name)) rows.try_emplace(row.id, std::move(row));
  return rows;
}

std::string form_text(const Record& record) {
  return fmt::format("{} [{}]", name_of(record.dtype), fmt::join(record.shape, ", "));
}

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
    elements += elements_of(parts.front().record->shape);
  }
  for (auto one = places.begin(); one != places.end(); ++one) {
    for (auto other = std::next(one); other != places.end(); ++other) {
      if (overlap(*one->second.front().record, *other->second.front().record)) return false;
    }
  }
  return elements == elements_of(first.placement->whole);
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
  if (elements_of(part.shape) == 0) return;
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
    values = values && keeps_values(*part);
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
  whole.payload.resize(static_cast<std::size_t>(elements_of(whole.shape)) * size_of(whole.dtype));
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
  return const_cast<Record*>(find_record(rank, phase, name));
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

static TraceReader open_rank(const std::string& dir, int rank) {
  const std::string path = fmt::format("{}/rank-{}.trace", dir, rank);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    throw TraceError(fmt::format(
        "{}: no such trace; a run writes one for each rank unless its trace level is off", path));
  }
  return TraceReader(path);
}

/// What a header declares of the whole run. What a rank declares of itself may be a mistake that is to be found: its precision, its optimizer.
static std::string shared_facts(const TraceHeader& header) {
  if (!header.declared) return "";
  Declared shared = *header.declared;
  shared.optimizer.reset();
  std::erase_if(shared.parameters, [](const DeclaredParameters& each) { return each.role == "other"; });
  shared.precision.clear();
  shared.clip_norm = shared.base_rate = shared.average_decay = 0;
  shared.accumulation = 1;
  return to_json(shared).dump();
}

RunReader::RunReader(const std::string& dir) : dir_(dir) {
  readers_.push_back(open_rank(dir, 0));
  const int world_size = header().world_size;
  is_ours_ = find_trainer_spec(header().trainer) != nullptr;
  for (int rank = 1; rank < world_size; ++rank) readers_.push_back(open_rank(dir, rank));
  for (int rank = 0; rank < world_size; ++rank) {
    const TraceHeader& each = readers_[static_cast<std::size_t>(rank)].header();
    if (each.config_hash != header().config_hash) {
      throw TraceError(
          fmt::format("{}/rank-{}.trace: belongs to another run than rank 0's: its config hash is {}, and "
                      "rank 0's is {}",
                      dir, rank, each.config_hash, header().config_hash));
    }
    if (shared_facts(each) != shared_facts(header())) {
      throw TraceError(fmt::format("{}/rank-{}.trace: its header differs from rank 0's", dir, rank));
    }
    if (each.rank == rank && each.world_size == world_size) continue;
    throw TraceError(fmt::format("{}/rank-{}.trace: written by rank {} of {}, where rank {} of {} belongs",
                                 dir, rank, each.rank, each.world_size, rank, world_size));
  }
}

void RunReader::find_end(const std::vector<bool>& ended) {
  ended_ = true;
  // What a rank itself says of its end tells more than that the others go on.
  for (std::size_t rank = 0; rank < readers_.size(); ++rank) {
    if (!ended[rank] || readers_[rank].finished()) continue;
    end_ = fmt::format("{}/rank-{}.trace {}{}", dir_, rank,
                       readers_[rank].end().starts_with("cut") ? "is " : "", readers_[rank].end());
    return;
  }
  if (std::ranges::all_of(ended, [](bool one) { return one; })) return;
  const auto first = std::ranges::find(ended, true) - ended.begin();
  end_ = fmt::format("{}/rank-{}.trace ends before those of other ranks", dir_, first);
}

namespace {

using ShapesByName = std::map<std::string, std::vector<int64_t>>;

/// What stands before the name of a parameter or buffer.
constexpr std::string_view kKinds[] = {"buffer/", "first_moment/", "second_moment/"};
/// What wrappers of a model put before the names of its parameters.
constexpr std::string_view kWrappers[] = {"module.", "_orig_mod.", "_fsdp_wrapped_module."};

bool names_a_parameter(const Record& record) {
  constexpr Phase kOfParameters[] = {Phase::snapshot,   Phase::local_gradients, Phase::reduced_gradients, Phase::applied_gradients,
                                     Phase::parameters, Phase::term_sums,       Phase::gradient_parts,    Phase::optimizer_state,
                                     Phase::averaged_weights};
  return std::ranges::find(kOfParameters, record.phase) != std::end(kOfParameters) && record.name != kUpdates;
}

std::size_t name_begins(const Record& record) {
  if (record.phase == Phase::gradient_parts) return record.name.find('/') + 1;
  for (const std::string_view kind : kKinds) {
    if (record.name.starts_with(kind)) return kind.size();
  }
  return 0;
}

/// Takes the prefix off the parameter's name that begins there.
void take_off(Record& record, std::string_view prefix, std::size_t begin) {
  if (record.name.compare(begin, prefix.size(), prefix) == 0) record.name.erase(begin, prefix.size());
}

/// Takes the prefixes off that the header declares, each once, in their order.
void strip(StepRecords& rank, const Declared* declared) {
  if (!declared) return;
  if (!declared->strip_prefixes.empty()) rank.filled_by = 0;
  for (Record& record : rank.records) {
    if (!names_a_parameter(record)) continue;
    for (const std::string& prefix : declared->strip_prefixes) take_off(record, prefix, name_begins(record));
  }
}

/// Equal parts of a tensor that is split over ranks along one dimension?
bool is_split_of(const std::vector<int64_t>& part, const std::vector<int64_t>& whole, int64_t ranks) {
  if (part.size() != whole.size() || part == whole) return false;
  const auto [first, other] = std::ranges::mismatch(part, whole);
  return *first * ranks == *other && std::equal(first + 1, part.end(), other + 1);
}

/// Parameters may be in pieces, whatever a tracer says of them: of a name for which a rank has another shape than rank 0, or all ranks have parts
/// of what the reference (`wholes`) has, and of flat tensors without a name of their own, no rank holds what the others hold.
void find_pieces(std::vector<StepRecords>& ranks, const ShapesByName& wholes) {
  std::set<std::string> pieces;
  for (const StepRecords& rank : ranks) {
    for (std::size_t i = 0; i < rank.records.size(); ++i) {
      const Record& record = rank.records[i];
      if (record.phase != Phase::parameters) continue;
      const std::vector<Record>& first = ranks[0].records;
      const auto is_same = [&](const Record& each) { return each.phase == record.phase && each.name == record.name; };
      const auto other = i < first.size() && is_same(first[i]) ? first.begin() + static_cast<std::ptrdiff_t>(i) : std::ranges::find_if(first, is_same);
      const auto whole = wholes.find(record.name);
      const bool is_split = whole != wholes.end() && !record.placement && is_split_of(record.shape, whole->second, std::ssize(ranks));
      const bool is_other = is_split || (other != first.end() && !record.placement && !other->placement && other->shape != record.shape);
      if (is_other || (record.name.starts_with("unnamed ") && record.shape.size() == 1)) pieces.insert(record.name);
    }
  }
  if (pieces.empty()) return;
  for (StepRecords& rank : ranks) {
    rank.filled_by = 0;
    for (Record& record : rank.records) {
      if (names_a_parameter(record) && !record.is_scalar && pieces.contains(record.name.substr(name_begins(record)))) record.replicated = false;
    }
  }
}

/// Puts the prefix before the name of each parameter, or takes it off.
void rename(StepRecords& rank, const std::string& prefix, bool puts) {
  rank.filled_by = 0;
  for (Record& record : rank.records) {
    constexpr std::string_view kRate = "learning_rate/";
    const bool is_rate = record.phase == Phase::control && record.name.starts_with(kRate);
    if (!is_rate && !names_a_parameter(record)) continue;
    const std::size_t begin = is_rate ? kRate.size() : name_begins(record);
    if (puts) record.name.insert(begin, prefix);
    else take_off(record, prefix, begin);
  }
}

/// Takes a wrapper's prefix off the names of parameters, if all of them have it: the same model, wrapped in the
/// one run and not in the other, has the same names then.
void unwrap(StepRecords& rank) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : kWrappers) {
      std::size_t parameters = 0;
      const bool all = std::ranges::all_of(rank.records, [&](const Record& record) {
        if (!names_a_parameter(record)) return true;
        ++parameters;
        return record.name.compare(name_begins(record), prefix.size(), prefix) == 0;
      });
      if (!all || parameters == 0) continue;
      for (Record& record : rank.records) {
        if (names_a_parameter(record)) record.name.erase(name_begins(record), prefix.size());
      }
      rank.filled_by = 0;
      again = true;
    }
  }
}

/// All parameters that rank 0 first records.
ShapesByName shapes_in(RunReader&& run) {
  ShapesByName shapes;
  while (const std::optional<StepOfRun> step = shapes.empty() ? run.next() : std::nullopt) {
    for (const Record& record : step->ranks[0].records) {
      if (record.phase == Phase::parameters && !record.name.starts_with("buffer/")) shapes.emplace(record.name, record.shape);
    }
  }
  return shapes;
}

/// What stands before each of `shorter` in `longer`, and is a path of modules; empty if nothing does.
std::string prefix_between(const ShapesByName& shorter, const ShapesByName& longer) {
  if (shorter.empty() || shorter.size() != longer.size()) return "";
  const std::string &first = shorter.begin()->first, &other = longer.begin()->first;
  if (!other.ends_with("." + first)) return "";
  std::string prefix = other.substr(0, other.size() - first.size());
  const bool all = std::ranges::all_of(shorter, [&](const auto& each) { return longer.contains(prefix + each.first); });
  return all ? prefix : "";
}

}  // namespace

std::unique_ptr<const Declared> RunReader::declared_of_all() const {
  if (!header().declared) return nullptr;
  auto all = std::make_unique<Declared>(*header().declared);
  for (const TraceReader& reader : readers_) {
    if (!reader.header().declared) continue;
    for (const DeclaredParameters& each : reader.header().declared->parameters) {
      if (std::ranges::find(all->parameters, each.prefix, &DeclaredParameters::prefix) == all->parameters.end()) all->parameters.push_back(each);
    }
  }
  std::ranges::sort(all->parameters, {}, &DeclaredParameters::prefix);
  return all;
}

void RunReader::name_like(const std::string& reference_dir) {
  RunReader reference(reference_dir);
  const bool is_same_layout = reference.world_size() == world_size();
  const ShapesByName theirs = shapes_in(std::move(reference)), own = shapes_in(RunReader(dir_));
  prefix_ = prefix_between(own, theirs);
  puts_prefix_ = !prefix_.empty();
  if (prefix_.empty()) prefix_ = prefix_between(theirs, own);
  if (!is_same_layout) wholes_ = theirs;
}

std::optional<StepOfRun> RunReader::next(std::optional<StepOfRun> used) {
  if (ended_) return std::nullopt;
  std::vector<StepRecords> old;
  if (used) old = std::move(used->ranks);
  old.resize(readers_.size());
  StepOfRun step;
  step.declared = header().declared;
  std::vector<bool> ended(readers_.size(), false);
  for (std::size_t rank = 0; rank < readers_.size(); ++rank) {
    std::optional<StepRecords> records = readers_[rank].next(std::move(old[rank]));
    ended[rank] = !records;
    if (records) {
      strip(*records, header().declared.get());
      unwrap(*records);
      if (!prefix_.empty()) rename(*records, prefix_, puts_prefix_);
    }
    step.ranks.push_back(records ? std::move(*records) : StepRecords{});
  }
  if (std::ranges::any_of(ended, [](bool one) { return one; })) {
    find_end(ended);
    return std::nullopt;
  }
  find_pieces(step.ranks, wholes_);
  step.step = step.ranks[0].step;
  for (std::size_t rank = 1; rank < readers_.size(); ++rank) {
    if (step.ranks[rank].step == step.step) continue;
    ended_ = true;
    end_ = fmt::format("{}/rank-{}.trace continues with step {} where rank 0 has step {}", dir_, rank,
                       step.ranks[rank].step, step.step);
    return std::nullopt;
  }
  put_together(step);
  // Ranks of a trainer of ours each keep the whole state, or parts of it that say where they lie.
  if (!is_ours_) owners_.put_together(step);
  return step;
}

int first_or_all(const std::vector<int>& ranks, const StepOfRun& step) {
  if (ranks.empty()) return kRankUnknown;
  return ranks.size() > 1 && ranks.size() == step.ranks.size() ? kAllRanks : ranks.front();
}

std::string rank_text(int rank, int world_size) {
  if (rank == kRankUnknown && world_size > 1) return "rank unknown";
  if (rank < 0 && world_size > 1) return fmt::format("all {} ranks", world_size);
  return fmt::format("rank {}", std::max(rank, 0));
}

}  // namespace lockstep
