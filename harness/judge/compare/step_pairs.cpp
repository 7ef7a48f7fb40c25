#include "harness/judge/compare/step_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "harness/base/json.h"
#include "harness/base/text.h"

namespace lockstep {

int64_t columns_of(const StepRecords& rank, const std::string& scores) {
  const Record* columns = find_record(rank, Phase::scores, "columns");
  if (columns && columns->shape.size() == 1) return columns->shape[0];
  const Record* record = find_record(rank, Phase::scores, scores);
  return record && record->shape.size() == 2 ? record->shape[1] : -1;
}

std::optional<double> mean_loss(const StepOfRun& step) {
  double sum = 0;
  for (const StepRecords& rank : step.ranks) {
    const Record* loss = find_record(rank, Phase::loss, "loss");
    if (!loss) return std::nullopt;
    sum += loss->value;
  }
  return sum / static_cast<double>(step.ranks.size());
}

const TrainerSpec* trainer_of(const RunReader& reference, const RunReader& cell) {
  const std::string& name = reference.header().trainer;
  return name == cell.header().trainer ? find_trainer_spec(name) : nullptr;
}

static std::string reward_column_name(int64_t column) {
  constexpr std::pair<int64_t, const char*> kNames[] = {
      {kRewardColumn, "reward"}, {kCostColumn, "cost"}, {kAdvantageColumn, "advantage"}, {kGroupColumn, "group"},
      {kRatioColumn, "ratio"}};
  const auto found = std::ranges::find(kNames, column, &std::pair<int64_t, const char*>::first);
  return found == std::end(kNames) ? "column " + std::to_string(column) : found->second;
}

const ScoreSpec& scores_of(const TrainerSpec* trainer) {
  static const ScoreSpec kOfAny{.column_name = &reward_column_name};
  return trainer == nullptr ? kOfAny : trainer->scores;
}

namespace {

constexpr std::string_view kScopes[] = {"process/", "worker ", "device "};

/// One stream of all ranks that have it.
struct Generators {
  std::vector<uint64_t> states;
  std::vector<int> ranks;
  double draws = 0;
  bool all_alike() const { return std::ranges::all_of(states, [&](uint64_t state) { return state == states.front(); }); }
};

/// With the ranks that recorded them.
std::vector<std::pair<int, const Record*>> records_of_generators(const StepOfRun& step) {
  std::vector<std::pair<int, const Record*>> all;
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank)
    for (const Record* record : records_of(step.ranks[rank], Phase::random))
      if (is_of_a_generator(record->name)) all.emplace_back(static_cast<int>(rank), record);
  return all;
}

std::map<std::string, Generators> generators_of(const StepOfRun& step) {
  std::map<std::string, Generators> all;
  for (const auto& [rank, record] : records_of_generators(step)) {
    Generators& one = all[record->name];
    one.states.push_back(record->stats.hash);
    one.ranks.push_back(rank);
    one.draws += record->value;
  }
  return all;
}

}  // namespace

std::string declared_state(const StepOfRun& step, const std::string& stream) {
  if (!step.declared) return "";
  // By its whole name, or by that without its scope.
  for (const std::string_view name : {std::string_view(stream), name_of_generator(stream)}) {
    if (const auto found = step.declared->streams.find(name); found != step.declared->streams.end()) return found->second;
  }
  return "";
}

/// Workers of one rank and of several, in one state.
static std::optional<Difference> same_state(const StepOfRun& b, const std::string& stream, const Generators& own,
                                     const Generators* reference) {
  const bool several = reference && reference->states.size() == own.states.size() && !reference->all_alike();
  if (own.states.size() < 2 || own.draws == 0 || !own.all_alike()) return std::nullopt;
  if (declared_state(b, stream) != "rank" && !several) return std::nullopt;
  const int world_size = static_cast<int>(b.ranks.size());
  return difference_at(b, Phase::random, std::ssize(own.states) == world_size ? kAllRanks : own.ranks.front(), stream,
                       DivergenceKind::value, "another state on each rank",
                       fmt::format("the state {} on {} ranks", hex16(own.states.front()), own.states.size()));
}

static std::optional<Difference> other_states(const StepOfRun& b, const std::string& stream, const Generators& own) {
  if (declared_state(b, stream) != "same" || own.all_alike()) return std::nullopt;
  std::map<uint64_t, int> votes;
  for (const uint64_t state : own.states) ++votes[state];
  const uint64_t most = std::ranges::max_element(votes, {}, [](const auto& each) { return each.second; })->first;
  const auto odd = std::ranges::find_if(own.states, [&](uint64_t state) { return state != most; }) - own.states.begin();
  return difference_at(b, Phase::random, own.ranks[static_cast<std::size_t>(odd)], stream, DivergenceKind::value,
                       "state " + hex16(most), "state " + hex16(own.states[static_cast<std::size_t>(odd)]));
}

/// Draws of all ranks for their rows make those of one process; of a stream that is the same on all ranks each makes them.
static std::optional<Difference> other_draws(const StepOfRun& b, const std::string& stream, const Generators& own,
                                      const Generators* reference, bool same_partition) {
  if (!reference) return std::nullopt;
  const std::string state = declared_state(b, stream);
  const bool by_rank = state == "same" && reference->draws / static_cast<double>(reference->states.size()) != own.draws / static_cast<double>(own.states.size());
  const bool same_layout = same_partition && reference->states.size() == own.states.size();
  const bool in_all = (state == "rank" || same_layout) && reference->draws != own.draws;
  if (!by_rank && !in_all) return std::nullopt;
  return difference_at(b, Phase::random, kAllRanks, stream, DivergenceKind::value,
                       fmt::format("{} draws", exact_number(reference->draws)),
                       fmt::format("{} draws", exact_number(own.draws)));
}

bool is_of_a_generator(std::string_view stream) {
  return stream.find('/') != std::string_view::npos &&
         std::ranges::any_of(kScopes, [&](std::string_view scope) { return stream.starts_with(scope); });
}

bool forward_draws_differ(const StepOfRun& a, const StepOfRun& b) {
  constexpr std::string_view kOfTheModel = "model";
  const auto taken = [&](const StepOfRun& step) {
    std::vector<std::tuple<int, uint64_t, double>> draws;
    for (const auto& [rank, record] : records_of_generators(step)) {
      const bool of_the_model = name_of_generator(record->name) == kOfTheModel;
      if (of_the_model && record->value > 0) draws.emplace_back(rank, record->stats.hash, record->value);
    }
    return draws;
  };
  const auto in_a = taken(a), in_b = taken(b);
  return a.ranks.size() == b.ranks.size() ? in_a != in_b : !in_a.empty() || !in_b.empty();
}

void remember_generators(GeneratorHistory& history, const StepOfRun& step) {
  for (const auto& [rank, record] : records_of_generators(step)) history[step.step][record->name][rank] = record->stats.hash;
}

std::string_view name_of_generator(std::string_view stream) { return stream.substr(stream.find('/') + 1); }

std::optional<Difference> generators_difference(const StepOfRun& a, const StepOfRun& b, bool same_partition) {
  const std::map<std::string, Generators> expected = generators_of(a);
  for (const auto& [stream, own] : generators_of(b)) {
    const auto found = expected.find(stream);
    const Generators* reference = found == expected.end() ? nullptr : &found->second;
    if (auto difference = same_state(b, stream, own, reference)) return difference;
    if (auto difference = other_states(b, stream, own)) return difference;
    if (auto difference = other_draws(b, stream, own, reference, same_partition)) return difference;
  }
  return std::nullopt;
}

namespace {

/// In words the first statistic that two have otherwise; empty if they agree. Norms may be summed in another order and
/// type; a tenth of a per cent is more than that.
std::string statistics_apart(const TensorStats& said, const TensorStats& other) {
  constexpr double kNormsApart = 1e-3;
  const auto apart = [](const char* what, auto x, auto y) { return fmt::format("{} {} and {}", what, x, y); };
  if (said.nonfinite != other.nonfinite) return apart("the counts of non-finite values", said.nonfinite, other.nonfinite);
  const bool sums_overflow = !std::isfinite(said.norm) || !std::isfinite(other.norm);
  if (!sums_overflow && std::abs(said.norm - other.norm) > kNormsApart * std::max(std::abs(said.norm), std::abs(other.norm))) return apart("the norms", said.norm, other.norm);
  if (said.min != other.min) return apart("the minima", said.min, other.min);
  if (said.max != other.max) return apart("the maxima", said.max, other.max);
  return "";
}

bool is_tensor(const Record& record) {
  return !record.is_scalar && record.phase != Phase::samples && record.phase != Phase::random && record.phase != Phase::collective;
}

/// What one record says against itself or its step; empty if nothing.
std::string against_itself(const Record& record, const std::unordered_set<int64_t>& samples) {
  const bool of_rows = record.phase == Phase::scores || record.phase == Phase::loss || record.phase == Phase::inputs;
  if (of_rows && !samples.empty()) {
    const auto strange = std::ranges::find_if_not(record.ids, [&](int64_t id) { return samples.contains(id); });
    if (strange != record.ids.end()) return fmt::format("row {} is of sample {}, which is not among the rank's samples of the step", strange - record.ids.begin(), *strange);
  }
  if (!record.has_stats || record.payload.empty() || !keeps_values(record)) return "";
  TensorStats of_values = tensor_stats({record.payload.data(), record.dtype, record.shape, {}});
  if (size_of(record.dtype) < 8 && record.dtype != DType::int32) {  // the file holds statistics of these in float32
    of_values.min = static_cast<float>(of_values.min);
    of_values.max = static_cast<float>(of_values.max);
  }
  const std::string apart = statistics_apart(record.stats, of_values);
  return apart.empty() ? "" : "recorded and of its values, " + apart;
}

/// What two records of one tensor say against each other; empty if nothing.
std::string against_each_other(const Record& a, const Record& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return "";
  const bool values = !a.payload.empty() && keeps_values(a) && keeps_values(b), same_values = values && a.payload == b.payload;
  if (a.stats.hash != b.stats.hash) return same_values ? "the values are the same and the hashes are not" : "";
  if (values && !same_values) return "the hashes are the same and the values are not";
  if (!a.ids.empty() && !b.ids.empty() && a.ids != b.ids) return "the hashes are the same and the sample ids of the rows are not";
  const std::string apart = a.has_stats && b.has_stats ? statistics_apart(a.stats, b.stats) : "";
  return apart.empty() ? "" : "the hashes are the same, " + apart;
}

bool records_phase(const StepRecords& rank, Phase phase) {
  return std::ranges::find(rank.records, phase, &Record::phase) != rank.records.end();
}

/// Has rank 0 recorded parameters and the optimizer's state, and nothing of a step that it made?
bool is_state_alone(const StepOfRun& step) {
  const Phase of_steps[] = {Phase::samples, Phase::local_gradients, Phase::reduced_gradients, Phase::loss};
  return std::ranges::none_of(of_steps, [&](Phase phase) { return records_phase(step.ranks[0], phase); });
}

void remember_samples(SampleHistory& history, const StepOfRun& step) {
  std::vector<std::vector<int64_t>>& by_rank = history[step.step];
  by_rank.clear();
  for (const int rank : ranks_with_rows(step)) by_rank.push_back(sample_ids(step.ranks[static_cast<std::size_t>(rank)]));
}

}  // namespace

void Contradictions::note(int64_t step, std::size_t rank, const Record& record, const std::string& what) {
  if (found_++ == 0) first_ = fmt::format("step {}, rank {}, {}, {}: {}", step, rank, name_of(record.phase), record.name, what);
}

void Contradictions::look(const StepOfRun& a, const StepOfRun& b, const std::string& name_a, const std::string& name_b) {
  for (const auto& [step, name] : {std::pair(&a, &name_a), std::pair(&b, &name_b)}) {
    for (std::size_t rank = 0; rank < step->ranks.size(); ++rank) {
      const std::vector<int64_t> ids = sample_ids(step->ranks[rank]);
      const std::unordered_set<int64_t> samples(ids.begin(), ids.end());
      const auto look_at = [&](const Record& record) {
        const std::string what = is_tensor(record) ? against_itself(record, samples) : "";
        if (!what.empty()) note(step->step, rank, record, fmt::format("in {}, {}", *name, what));
      };
      std::ranges::for_each(step->ranks[rank].records, look_at);
      if (rank < step->parts.size()) std::ranges::for_each(step->parts[rank], look_at);
    }
  }
  if (a.ranks.size() != b.ranks.size()) return;
  const std::vector<Record> none;
  for (std::size_t rank = 0; rank < a.ranks.size(); ++rank) {
    // What is put together has a hash of its own: those of the parts say what the tracer saw.
    for (const bool parts : {false, true}) {
      const auto list = [&](const StepOfRun& run) -> const std::vector<Record>& {
        return !parts ? run.ranks[rank].records : rank < run.parts.size() ? run.parts[rank] : none;
      };
      const std::vector<Record>&own = list(a), &others = list(b);
      for (std::size_t i = 0; i < own.size(); ++i) {
        const Record& record = own[i];
        if (!is_tensor(record)) continue;
        // Both runs record in one order as a rule.
        const bool in_place = i < others.size() && others[i].phase == record.phase && others[i].name == record.name;
        const Record* const other = in_place ? &others[i]
                                    : parts  ? find_part(b, rank, record.phase, record.name)
                                             : find_record(b.ranks[rank], record.phase, record.name);
        const bool same_place = other && (!parts || *other->placement == *record.placement);
        const std::string what = same_place ? against_each_other(record, *other) : "";
        if (!what.empty()) note(a.step, rank, record, what);
      }
    }
  }
}

std::string Contradictions::sentence() const {
  if (found_ == 0) return "";
  return fmt::format(" A problem of the traces, which contradict themselves: {}{}.", first_, found_ > 1 ? fmt::format(" (and {} more)", found_ - 1) : "");
}

/// The next step of a run becomes its current one, and that the one before.
void StepPairs::read(bool of_a) {
  std::optional<StepOfRun>&step = of_a ? step_a_ : step_b_, &before = of_a ? before_a_ : before_b_;
  std::swap(before, step);
  step = (of_a ? a_ : b_).next(std::exchange(step, std::nullopt));
  if (!step) return;
  remember_samples(of_a ? samples_a_ : samples_b_, *step);
  if (!of_a) remember_generators(generators_b_, *step);
}

void StepPairs::pass_by(bool of_a) {
  const int64_t number = (of_a ? step_a_ : step_b_)->step;
  read(of_a);
  if (number < 0) return;  // initial parameters are no step
  open_gap_ = true;
  after_gap_ = true;
  if (!alone_.empty() && alone_.back().of_a == of_a && alone_.back().last == number - 1) {
    alone_.back().last = number;
  } else {
    alone_.push_back({number, number, of_a});
  }
}

/// Goes on until both are at one step; false where one has ended before.
bool StepPairs::pair_up() {
  const std::size_t gaps = alone_.size();
  while (step_a_ && step_b_ && step_a_->step != step_b_->step) {
    pass_by(step_a_->step < step_b_->step);
  }
  if (!step_a_ || !step_b_) {
    // No step of both lies behind these: they belong to the end.
    alone_.resize(gaps);
    count_rest();
    return false;
  }
  for (std::optional<StepOfRun>* before : {&before_a_, &before_b_}) {
    if (after_gap_ && *before && (*before)->step != step_a_->step - 1) before->reset();
  }
  return true;
}

/// How far the run goes on that has not ended: its steps from the one at which the pairs stopped.
void StepPairs::count_rest() {
  if (rest_ > 0 || step_a_.has_value() == step_b_.has_value()) return;
  last_of_rest_ = (step_a_ ? step_a_ : step_b_)->step;
  rest_ = 1;
  std::optional<StepOfRun> step;
  while ((step = (step_a_ ? a_ : b_).next(std::move(step)))) last_of_rest_ = step->step, ++rest_;
}

bool StepPairs::next() {
  if (asked_reached_) return false;
  read(true);
  read(false);
  after_gap_ = false;
  if (!pair_up()) return false;
  // What a resumed run wrote first may be the state that it begins with.
  if (!begun_ && is_state_alone(*step_a_) != is_state_alone(*step_b_)) {
    const bool of_a = !is_state_alone(*step_a_);
    read(!of_a);
    pass_by(of_a);
    if (!pair_up()) return false;
  }
  begun_ = true;
  if (most_steps_ > 0 && step_a_->step >= most_steps_) {
    asked_reached_ = true;
    return false;
  }
  last_ = step_a_->step;
  if (!ours_) contradictions_.look(*step_a_, *step_b_, a_.dir(), b_.dir());
  if (last_ >= 0) ++compared_;  // What comes before the first step (initial parameters) is no step.
  const auto has_parameters = [](const StepOfRun& step) { return records_phase(step.ranks[0], Phase::parameters); };
  if (open_gap_ && has_parameters(*step_a_) && has_parameters(*step_b_)) open_gap_ = false;
  return true;
}

std::string StepPairs::text_of(const Alone& alone) const {
  const std::string& dir = alone.of_a ? a_.dir() : b_.dir();
  if (alone.first == alone.last) return fmt::format("step {} has no partner: only {} recorded it", alone.first, dir);
  return fmt::format("steps {} to {} have no partner: only {} recorded them", alone.first, alone.last, dir);
}

std::string StepPairs::gaps() const {
  constexpr std::size_t kTold = 3;
  std::vector<std::string> texts;
  for (const Alone& alone : alone_) {
    if (texts.size() == kTold) break;
    texts.push_back(text_of(alone));
  }
  if (alone_.size() > kTold) texts.push_back(fmt::format("{} further ranges of steps also have no partner", alone_.size() - kTold));
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::optional<Divergence> StepPairs::skipped_step(const Difference& difference) const {
  // Who resumes and lacks the records of before says nothing of a step that was left out; between steps of both it may.
  const bool inherited = difference.phase == Phase::scores || difference.phase == Phase::loss;
  if (!after_gap_ || compared_ < 2 || !inherited) return std::nullopt;
  const Alone& gap = alone_.back();
  Divergence missing;
  missing.step = gap.first;
  missing.phase = name_of(Phase::samples);
  missing.where = "the whole step";
  missing.kind = DivergenceKind::missing;
  missing.expected = gap.of_a ? "recorded" : "nothing";
  missing.actual = gap.of_a ? "nothing" : "recorded";
  missing.sentence = fmt::format("They first differ at step {}: {}, and at step {} they differ in {}.", gap.first, text_of(gap),
                                 difference.divergence.step, name_of(difference.phase));
  return missing;
}

std::string StepPairs::missing_end() const {
  if (asked_reached_) return "";
  if (step_a_ && step_b_) return "";
  const bool a_goes_on = step_a_.has_value(), b_goes_on = step_b_.has_value();
  const bool short_of_asked = most_steps_ > 0 && last_ + 1 < most_steps_;
  if (a_goes_on != b_goes_on) {
    const StepOfRun& further = a_goes_on ? *step_a_ : *step_b_;
    if (most_steps_ > 0 && further.step >= most_steps_) return "";
    return fmt::format("{} ends after step {}, and {} continues to step {}: {} of {} were compared", a_goes_on ? b_.dir() : a_.dir(), last_,
                       a_goes_on ? a_.dir() : b_.dir(), last_of_rest_, compared_, counted(compared_ + rest_, "step"));
  }
  if (short_of_asked) return fmt::format("both end after step {}, and {} steps were asked for", last_, most_steps_);
  return "";
}

std::string StepPairs::ends() const {
  std::vector<std::string> texts;
  for (const RunReader* run : {&a_, &b_}) {
    if (!run->end().empty()) texts.push_back(run->end());
  }
  if (texts.empty() || asked_reached_) return missing_end();
  return fmt::format("{}", fmt::join(texts, "; "));
}

std::string gaps_sentence(const std::string& gaps) {
  return gaps.empty() ? "" : fmt::format(" Not compared: {}.", gaps);
}

std::string StepPairs::judging_both() const {
  return fmt::format("lockstep compare {} {} --steps {}", shell_quoted(a_.dir()), shell_quoted(b_.dir()), last_ + 1);
}

void tell_of_missing_end(const std::string& missing_end, const std::string& ends, Mechanism& result) {
  if (missing_end.empty()) return;
  if (ends != missing_end) result.sentence += fmt::format(" {}.", missing_end);
  result.sentence += " Later steps were not compared.";
}

void agree_as_far(const StepPairs& pairs, VerdictKind verdict, const std::string& sentence, Mechanism& result) {
  const std::string ends = pairs.ends(), missing = pairs.missing_end();
  result.verdict = VerdictKind::inconclusive;
  if (pairs.compared() == 0) {
    result.sentence = fmt::format("Nothing could be compared: {}.", ends.empty() ? "both traces end before the first step" : ends);
    return;
  }
  result.sentence = sentence + (ends.empty() ? "" : ", up to the end of the shorter trace: " + ends) + ".";
  if (missing.empty() && pairs.gap_is_bridged()) result.verdict = verdict;
  tell_of_missing_end(missing, ends, result);
  if (!missing.empty()) result.decide = pairs.judging_both();
  result.sentence += gaps_sentence(pairs.gaps());
}

}  // namespace lockstep
