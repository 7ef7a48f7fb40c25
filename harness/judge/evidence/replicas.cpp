#include "harness/judge/evidence/parts.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "harness/judge/trace/record.h"

namespace lockstep {
namespace {

/// Buffers may be a rank's own, as statistics of its rows are.
bool is_parameter(const Record& record) {
  return record.phase == Phase::parameters && !record.is_scalar && !record.name.starts_with("buffer/");
}

std::vector<const Record*> parameters_of(const StepRecords& rank) {
  std::vector<const Record*> all;
  for (const Record& record : rank.records) {
    if (is_parameter(record)) all.push_back(&record);
  }
  return all;
}

/// The record of that name; ranks record in one order as a rule, so that the search is short.
const Record* named(const std::vector<const Record*>& all, const std::string& name, std::size_t guess) {
  if (guess < all.size() && all[guess]->name == name) return all[guess];
  const auto found = std::ranges::find(all, name, [](const Record* record) -> const std::string& { return record->name; });
  return found == all.end() ? nullptr : *found;
}

/// Does the rank hold the parameters that rank 0 holds? True of a rank that recorded none. Tensors of one shape that
/// nobody calls alike are shards, unless they have the same bits.
bool is_replica(const StepRecords& first, const StepRecords& rank) {
  const std::vector<const Record*> expected = parameters_of(first), actual = parameters_of(rank);
  if (expected.empty() || actual.empty()) return true;
  if (expected.size() != actual.size()) return false;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Record* other = named(actual, expected[i]->name, i);
    if (!other || other->shape != expected[i]->shape) return false;
    if (!expected[i]->replicated && other->stats.hash != expected[i]->stats.hash) return false;
  }
  return true;
}

/// Do all ranks have local gradients of the same names and shapes, and do ranks hold parts of what these belong to? Ranks that hold
/// parts of what they compute with, as tensor-parallel ones do, have gradients of those parts.
bool have_whole_gradients_of_shards(const StepOfRun& step) {
  using Shapes = std::map<std::string, std::vector<int64_t>>;
  const auto shapes_of = [](const StepRecords& rank, Phase phase) {
    Shapes shapes;
    for (const Record& record : rank.records) {
      if (record.phase == phase && !record.is_scalar) shapes[record.name] = record.shape;
    }
    return shapes;
  };
  const Shapes gradients = shapes_of(step.ranks[0], Phase::local_gradients);
  bool holds_parts = false;
  for (const StepRecords& rank : step.ranks) {
    if (shapes_of(rank, Phase::local_gradients) != gradients) return false;
    for (const auto& [name, shape] : shapes_of(rank, Phase::parameters)) {
      const auto gradient = gradients.find(name);
      holds_parts = holds_parts || (gradient != gradients.end() && gradient->second != shape);
    }
  }
  return holds_parts;
}

/// Does the rank hold the parts of parameters that the other one holds?
bool holds_same_parts(const StepOfRun& step, std::size_t other, std::size_t rank) {
  if (step.parts.empty()) return true;
  for (const Record& first : step.parts[other]) {
    if (first.phase != Phase::parameters) continue;
    const auto same = [&](const Record& each) {
      return each.phase == first.phase && each.name == first.name && *each.placement == *first.placement;
    };
    if (std::ranges::none_of(step.parts[rank], same)) return false;
  }
  return true;
}

/// The declared group of rank 0; nothing if none is declared.
std::optional<std::vector<int>> declared_replicas(const StepOfRun& step) {
  if (!step.declared || step.declared->replicas.empty()) return std::nullopt;
  for (const std::vector<int>& ranks : step.declared->replicas) {
    if (std::ranges::find(ranks, 0) != ranks.end()) return ranks;
  }
  return std::vector<int>{};
}

}  // namespace

std::vector<int> ranks_reduced_together(const StepOfRun& step) {
  if (!step.bearers.empty()) return step.bearers;
  if (const auto declared = declared_replicas(step)) return *declared;
  std::vector<int> all(step.ranks.size());
  std::iota(all.begin(), all.end(), 0);
  const bool replicas =
      std::ranges::all_of(step.ranks, [&](const StepRecords& rank) { return is_replica(step.ranks[0], rank); });
  return replicas || have_whole_gradients_of_shards(step) ? all : std::vector<int>{};
}

/// Ranks that hold other parts of the same rows, or of the model, than the first rank of their declared group.
static std::set<int> ranks_of_split_rows(const StepOfRun& step) {
  const auto ids_of = [&](int rank) { return sample_ids(step.ranks[static_cast<std::size_t>(rank)]); };
  constexpr std::string_view kSplitting[] = {"context", "sequence", "tensor", "pipeline", "expert"};
  std::set<int> ranks;
  // Placements of what rows hold tell that a rank has another part of the same rows.
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    const auto is_later_part = [](const Record& record) {
      return record.phase == Phase::inputs && record.placement && record.placement->shard && record.placement->offset.size() > 1 &&
             std::any_of(record.placement->offset.begin() + 1, record.placement->offset.end(), [](int64_t offset) { return offset > 0; });
    };
    const bool in_parts = rank < step.parts.size() && std::ranges::any_of(step.parts[rank], is_later_part);
    if (in_parts || std::ranges::any_of(step.ranks[rank].records, is_later_part)) ranks.insert(static_cast<int>(rank));
  }
  if (!step.declared) return ranks;
  for (const auto& [name, members] : step.declared->groups) {
    if (std::ranges::none_of(kSplitting, [&](std::string_view word) { return name.starts_with(word); })) continue;
    for (const int rank : members) {
      if (rank != members.front() && ids_of(rank) == ids_of(members.front())) ranks.insert(rank);
    }
  }
  return ranks;
}

std::vector<int> ranks_with_rows(const StepOfRun& step) {
  if (const auto declared = declared_replicas(step)) return *declared;
  const std::set<int> split = ranks_of_split_rows(step);
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    if (split.contains(static_cast<int>(rank))) continue;
    const std::vector<int64_t> ids = sample_ids(step.ranks[rank]);
    const auto is_other_part = [&](int earlier) {
      const auto other = static_cast<std::size_t>(earlier);
      return !ids.empty() && sample_ids(step.ranks[other]) == ids &&
             !(is_replica(step.ranks[other], step.ranks[rank]) && holds_same_parts(step, other, rank));
    };
    if (std::ranges::none_of(ranks, is_other_part)) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

OtherForm local_gradient_of_another_form(const StepOfRun& step, const std::vector<int>& ranks, const StepOfRun& reference) {
  struct Form {
    const Record* record;
    int rank;
  };
  std::map<std::string, std::vector<Form>> by_name;
  for (const int rank : ranks) {
    for (const Record& record : step.ranks[static_cast<std::size_t>(rank)].records) {
      if (record.phase == Phase::local_gradients && !record.is_scalar) by_name[record.name].push_back({&record, rank});
    }
  }
  const auto alike = [](const Record& a, const Record& b) { return a.dtype == b.dtype && a.shape == b.shape; };
  for (const auto& [name, forms] : by_name) {
    const auto votes = [&](const Form& form) {
      return std::ranges::count_if(forms, [&](const Form& each) { return alike(*each.record, *form.record); });
    };
    const auto is_the_references = [&](const Form& form) {
      bool seen = false;
      for (const StepRecords& rank : reference.ranks) {
        const Record* record = find_record(rank, Phase::local_gradients, name);
        if (record && !alike(*record, *form.record)) return false;
        seen = seen || record;
      }
      return seen;
    };
    auto right = std::ranges::find_if(forms, is_the_references);
    if (right == forms.end()) right = std::ranges::max_element(forms, {}, votes);
    for (const Form& form : forms) {
      if (alike(*form.record, *right->record)) continue;
      return {form.rank, name, form_text(*right->record), form_text(*form.record), form.record->shape != right->record->shape};
    }
  }
  return {};
}

}  // namespace lockstep
