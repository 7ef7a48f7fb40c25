#include "harness/verdict/evidence/align.h"

#include <sys/stat.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/verdict/config/trainer_spec.h"
#include "harness/verdict/results/results.h"

namespace lockstep {
namespace {

TraceReader open_rank(const std::string& dir, int rank) {
  const std::string path = fmt::format("{}/rank-{}.trace", dir, rank);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    throw TraceError(fmt::format(
        "{}: no such trace; a run writes one for each rank unless its trace level is off", path));
  }
  return TraceReader(path);
}

/// What a header declares of the whole run. What a rank declares of itself may be a mistake that is to be found: its precision, its optimizer.
std::string shared_facts(const TraceHeader& header) {
  if (!header.declared) return "";
  Declared shared = *header.declared;
  shared.optimizer.reset();
  std::erase_if(shared.parameters, [](const DeclaredParameters& each) { return each.role == "other"; });
  shared.precision.clear();
  shared.clip_norm = shared.base_rate = shared.average_decay = 0;
  shared.accumulation = 1;
  return to_json(shared).dump();
}

}  // namespace

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
  if (std::all_of(ended.begin(), ended.end(), [](bool one) { return one; })) return;
  const auto first = std::find(ended.begin(), ended.end(), true) - ended.begin();
  end_ = fmt::format("{}/rank-{}.trace ends before those of other ranks", dir_, first);
}

namespace {

using ShapesByName = std::map<std::string, std::vector<int64_t>>;

/// What stands before the name of a parameter or buffer.
constexpr std::string_view kKinds[] = {"buffer/", "first_moment/", "second_moment/"};
/// What wrappers of a model put before the names of its parameters.
constexpr std::string_view kWrappers[] = {"module.", "_orig_mod.", "_fsdp_wrapped_module."};

bool names_a_parameter(const Record& record) {
  switch (record.phase) {
    case Phase::local_gradients:
    case Phase::reduced_gradients:
    case Phase::applied_gradients:
    case Phase::parameters:
    case Phase::term_sums:
    case Phase::gradient_parts:
    case Phase::averaged_weights:
      return true;
    case Phase::snapshot:
    case Phase::optimizer_state:
      return record.name != "updates";
    default:
      return false;
  }
}

std::size_t name_begins(const Record& record) {
  if (record.phase == Phase::gradient_parts) return record.name.find('/') + 1;
  for (const std::string_view kind : kKinds) {
    if (record.name.starts_with(kind)) return kind.size();
  }
  return 0;
}

/// Takes the prefixes off that the header declares, each once, in their order.
void strip(StepRecords& rank, const Declared* declared) {
  if (!declared) return;
  if (!declared->strip_prefixes.empty()) rank.filled_by = 0;
  for (Record& record : rank.records) {
    if (!names_a_parameter(record)) continue;
    for (const std::string& prefix : declared->strip_prefixes) {
      const std::size_t begin = name_begins(record);
      if (record.name.compare(begin, prefix.size(), prefix) == 0) record.name.erase(begin, prefix.size());
    }
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
    else if (record.name.compare(begin, prefix.size(), prefix) == 0) record.name.erase(begin, prefix.size());
  }
}

/// Takes a wrapper's prefix off the names of parameters, if all of them have it: the same model, wrapped in the
/// one run and not in the other, has the same names then.
void unwrap(StepRecords& rank) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : kWrappers) {
      std::size_t parameters = 0;
      const bool all = std::all_of(rank.records.begin(), rank.records.end(), [&](const Record& record) {
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
  wholes_ = shapes_in(RunReader(reference_dir));
  const ShapesByName own = shapes_in(RunReader(dir_));
  prefix_ = prefix_between(own, wholes_);
  puts_prefix_ = !prefix_.empty();
  if (prefix_.empty()) prefix_ = prefix_between(wholes_, own);
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
  if (std::any_of(ended.begin(), ended.end(), [](bool one) { return one; })) {
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

std::string short_number(double value) { return fmt::format("{:.6g}", value); }

std::string exact_number(double value) { return fmt::format("{}", value); }

std::string expected_found(const std::string& expected, const std::string& actual) {
  double a = 0, b = 0;
  const auto whole = [](const std::string& text, double& number) {
    const char* end = text.data() + text.size();
    return std::from_chars(text.data(), end, number).ptr == end;
  };
  if (whole(expected, a) && whole(actual, b) && short_number(a) != short_number(b)) {
    return fmt::format("expected {}, found {}", short_number(a), short_number(b));
  }
  return fmt::format("expected {}, found {}", expected, actual);
}

std::string rank_text(int rank, int world_size) {
  if (rank == kRankUnknown && world_size > 1) return "rank unknown";
  if (rank < 0 && world_size > 1) return fmt::format("all {} ranks", world_size);
  return fmt::format("rank {}", std::max(rank, 0));
}

}  // namespace lockstep
