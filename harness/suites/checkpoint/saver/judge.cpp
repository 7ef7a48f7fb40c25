#include "harness/suites/checkpoint/saver/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/lib/checkpoint/saver.h"
#include "harness/lib/checkpoint/state.h"
#include "harness/lib/checkpoint/storage.h"

namespace lockstep::saver {
namespace {

using checkpoint::even_slice;
using checkpoint::LoadOutcome;
using checkpoint::Placement;
using checkpoint::Section;
using checkpoint::Slice;
using checkpoint::State;
using checkpoint::Tensor;
namespace kind = checkpoint::kind;

Tensor floats(const std::string& name, int64_t count, double first, Placement placement = Placement::replicated,
              Slice slice = {}) {
  Tensor tensor;
  tensor.name = name;
  tensor.shape = {count};
  tensor.placement = placement;
  tensor.slice = slice;
  const Slice held = tensor.held();
  std::vector<float> values(static_cast<std::size_t>(held.end - held.begin));
  std::iota(values.begin(), values.end(), static_cast<float>(first) + static_cast<float>(held.begin));
  return checkpoint::owning(std::move(tensor), std::as_bytes(std::span(values)));
}

/// All but what each rank had for itself.
State shared_part(State state) {
  for (auto& [name, section] : state.sections) {
    section.rank_values = nlohmann::json::object();
    std::erase_if(section.tensors, [](const Tensor& tensor) { return tensor.placement == Placement::per_rank; });
  }
  return state;
}

/// What one rank had for itself.
State own_part(State state) {
  for (auto& [name, section] : state.sections) {
    section.values = nlohmann::json::object();
    std::erase_if(section.tensors, [](const Tensor& tensor) { return tensor.placement != Placement::per_rank; });
  }
  return state;
}

std::string first_difference(const State& expected, const State& seen) {
  const std::vector<std::string> differences = checkpoint::state_differences(expected, seen);
  return differences.empty() ? "" : differences.front();
}

}  // namespace

std::string in_words(const Content& content) {
  return content.writer == 0 ? fmt::format("step {}", content.step)
                             : fmt::format("step {} of writer {}", content.step, content.writer);
}

State state_of(const Content& content, int rank, int ranks) {
  State state;
  const double base = static_cast<double>(1000 * content.step + 200 * content.writer);
  const int64_t tag = 100 * content.step + content.writer;
  state[kind::parameters].tensors = {floats("w", 12, base), floats("bias", 3, base + 20)};
  for (const char* name : {"first_moment/w", "second_moment/w"}) {
    state[kind::moments].tensors.push_back(
        floats(name, content.floats, base + 40, Placement::sharded, even_slice(content.floats, rank, ranks)));
  }
  state[kind::optimizer_step].values["updates"] = tag;
  state["stream/dropout"].rank_values["words"] = {tag, rank};
  if (content.few_kinds) return state;
  state[kind::scheduler].values["rate"] = static_cast<double>(tag) / 1024;
  state[kind::accumulation].values["micro_batches"] = tag;
  state[kind::accumulation].tensors = {floats("gradient/w", 2, base + 100 + rank, Placement::per_rank)};
  checkpoint::put_position(state, {.epoch = content.step / 10,
                                   .samples = 97,
                                   .seed = tag,
                                   .permutation_hash = std::to_string(tag),
                                   .cursor = tag % 97});
  state["stream/noise"].values["counter"] = tag;
  state[kind::best_metric].values["recall"] = tag;
  state[kind::patience].values["checks_left"] = tag;
  state[kind::loss_scale].values["scale"] = tag;
  state[kind::averaged_weights].tensors = {floats("w", 12, base + 60)};
  state[kind::normalisers].values["mean"] = tag;
  state[kind::control_values].values["rate"] = tag;
  state[kind::cached_controls].values["rate"] = tag;
  return state;
}

std::shared_ptr<const State> Contents::state(const Content& content, int rank, int ranks) {
  const std::lock_guard lock(mutex_);
  auto& state = states_[{content, rank, ranks, false}];
  if (!state) state = std::make_shared<const State>(state_of(content, rank, ranks));
  return state;
}

std::shared_ptr<const State> Contents::shared(const Content& content, int rank, int ranks) {
  const std::lock_guard lock(mutex_);
  auto& state = states_[{content, rank, ranks, true}];
  if (!state) state = std::make_shared<const State>(shared_part(state_of(content, rank, ranks)));
  return state;
}

std::string difference(Contents& contents, const Content& content, int saved_by, const LoadOutcome& loaded, int rank,
                       int ranks) {
  if (saved_by == ranks) return first_difference(*contents.state(content, rank, ranks), loaded.state);
  std::string found = first_difference(*contents.shared(content, rank, ranks), loaded.state);
  if (!found.empty()) return found;
  if (loaded.of_ranks.size() != static_cast<std::size_t>(saved_by))
    return fmt::format("parts of {} ranks expected, found {}", saved_by, loaded.of_ranks.size());
  for (int old = 0; old < saved_by; ++old) {
    State seen = loaded.of_ranks[static_cast<std::size_t>(old)], expected = own_part(*contents.state(content, old, saved_by));
    for (auto& [name, section] : seen.sections) expected.sections.try_emplace(name);
    found = first_difference(expected, seen);
    if (!found.empty()) return fmt::format("what rank {} had: {}", old, found);
  }
  return "";
}

/// Is every kind that the rank loaded that of one of these, and not all of the same?
static bool is_mixture(Contents& contents, const std::vector<Content>& known, const LoadOutcome& loaded, int rank,
                       int ranks) {
  std::vector<bool> used(known.size());
  for (const auto& [name, section] : loaded.state.sections) {
    bool found = false;
    for (std::size_t i = 0; i < known.size() && !found; ++i) {
      const auto expected = loaded.of_ranks.empty() ? contents.state(known[i], rank, ranks)
                                                    : contents.shared(known[i], rank, ranks);
      const Section* theirs = expected->find(name);
      State one, other;
      one.sections[name] = theirs == nullptr ? Section{} : *theirs;
      other.sections[name] = section;
      found = theirs != nullptr && checkpoint::state_differences(one, other).empty();
      if (found) used[i] = true;
    }
    if (!found) return false;
  }
  return std::ranges::count(used, true) > 1;
}

namespace {

using checkpoint::LoadOutcome;
using checkpoint::MemoryStorage;
using checkpoint::SaveOptions;
using checkpoint::SaveOutcome;
using checkpoint::State;

constexpr int kLeftoversWriter = 7;
constexpr std::size_t kSceneBlock_bytes = 96;

void write_over(State& state) {
  for (auto& [name, section] : state.sections) {
    for (checkpoint::Tensor& tensor : section.tensors) {
      auto* bytes = static_cast<std::vector<std::byte>*>(const_cast<void*>(tensor.keeps.get()));
      std::ranges::fill(*bytes, std::byte{0xee});
    }
  }
}

}  // namespace

SaveOutcome save_as(checkpoint::Saver& saver, const Scene& scene, const checkpoint::SaveRequest& request,
                    const State& state) {
  if (!scene.async) return saver.save(request, state);
  State mine = checkpoint::snapshot_of(state);
  saver.save_async(request, mine);
  write_over(mine);
  return *saver.wait();
}

namespace {

/// A save that ends at the first operation whose kind is this, on rank 0.
void leave_unfinished(MemoryStorage& disk, const Scene& scene, int64_t step, int ranks, Contents& contents) {
  SaveCase how{{{.step = step, .writer = kLeftoversWriter}, ranks, kLeftoversWriter}, &scene};
  MemoryStorage probe(disk);
  const SaveEnd whole = save_scheduled(probe, how, contents);
  // Before the gather at which all have installed it: under its final name, and no commit record.
  int64_t at = 0;
  int gathers = 0;
  for (const checkpoint::OperationKind kind : whole.kinds[0]) {
    if (kind == checkpoint::OperationKind::gather && ++gathers == 3) break;
    ++at;
  }
  how.script = {.injected = scheduler::InjectedFault::end_all, .at = at};
  save_scheduled(disk, how, contents);
}

}  // namespace

std::span<const Scene> scenes() {
  static const auto kScenes = std::to_array<Scene>({
      {.name = "fresh", .words = "the first one", .no_root = true},
      {.name = "over_older", .words = "over an older one", .before = {9, 10}},
      {.name = "same_step", .words = "over the same step", .before = {11}},
      {.name = "retention", .words = "with retention", .before = {8, 9, 10}, .keep_last = 1},
      {.name = "best", .words = "the best one, with retention", .before = {8, 9, 10}, .keep_last = 2, .best = true},
      {.name = "leftovers", .words = "after saves that ended", .before = {9, 10}, .leftovers = true},
      {.name = "async", .words = "asynchronous", .before = {9, 10}, .keep_last = 2, .async = true},
  });
  return kScenes;
}

const Scene& scene_named(std::string_view name) {
  const auto found = std::ranges::find(scenes(), name, &Scene::name);
  LOCKSTEP_CHECK(found != scenes().end(), "a scene that is named stands in the table");
  return *found;
}

SaveOptions options_of(const Scene& scene, int writer, const checkpoint::Planted& planted, std::string_view root) {
  SaveOptions options;
  options.root = root;
  options.config_hash = kConfigHash;
  options.keep_last = scene.keep_last;
  options.deadline_s = kDeadline_s;
  options.block_bytes = kSceneBlock_bytes;
  options.process = writer + 1;
  options.nonce = [writer] { return hex16(static_cast<uint64_t>(writer + 1)); };
  options.planted = planted;
  return options;
}

std::unique_ptr<MemoryStorage> disk_of(const Scene& scene, int ranks, Contents& contents) {
  auto disk = std::make_unique<MemoryStorage>();
  disk->put_folder(std::string(scene.no_root ? kParent : kRoot));
  Scene older = scene;
  older.async = older.best = false;
  older.keep_last = 8;
  int writer = 10;
  for (const int64_t step : scene.before) {
    Scene one = older;
    one.best = scene.best && step == scene.before.front();
    for (const SaveOutcome& outcome : save_scheduled(*disk, {{content_of(step), ranks, ++writer}, &one}, contents).told)
      LOCKSTEP_CHECK(outcome, "an older checkpoint of a scene is saved: " + outcome.problem);
  }
  if (scene.leftovers) {
    leave_unfinished(*disk, older, 12, ranks, contents);
    leave_unfinished(*disk, older, 10, ranks, contents);
  }
  return disk;
}

bool SaveEnd::any(checkpoint::Saved saved) const {
  bool found = false;
  for (std::size_t i = 0; i < told.size(); ++i) found = found || (!ended[i] && told[i].saved == saved);
  return found;
}

SaveEnd save_scheduled(Storage& disk, const SaveCase& how, Contents& contents) {
  struct Process {
    const SavingRun& run;
    std::unique_ptr<scheduler::ScheduledGroup> group;
    std::unique_ptr<scheduler::ScheduledProcess> hook;
  };
  std::vector<const SavingRun*> runs{&how};
  for (const SavingRun& rival : how.rivals) runs.push_back(&rival);
  int count = 0;
  for (const SavingRun* run : runs) count += run->ranks;
  std::vector<int> order = how.order;
  for (int process = 0; static_cast<int>(order.size()) < count; ++process) order.push_back(process);
  scheduler::Scheduler scheduler(count, order, how.scene->async ? scheduler::Engine::threads : scheduler::Engine::fibers);
  scheduler::SharedRun play{.scheduler = scheduler, .preemptions = how.preemptions, .notes_wanted = how.notes,
                            .bytes_wanted = how.bytes, .syncs_left_out = how.unsynced};
  play.preempted.resize(how.preemptions.size());
  std::vector<std::unique_ptr<scheduler::Meeting>> meetings;
  std::vector<Process> processes;
  for (const SavingRun* run : runs) {
    meetings.push_back(std::make_unique<scheduler::Meeting>(scheduler, static_cast<int>(processes.size()), run->ranks));
    for (int rank = 0; rank < run->ranks; ++rank) {
      const int index = static_cast<int>(processes.size());
      auto group = std::make_unique<scheduler::ScheduledGroup>(*meetings.back(), rank);
      auto hook = std::make_unique<scheduler::ScheduledProcess>(play, index, group.get(),
                                                                index == how.victim ? how.script : scheduler::Script{});
      processes.push_back({*run, std::move(group), std::move(hook)});
    }
  }
  if (how.script.injected == scheduler::InjectedFault::end_all) {
    std::vector<scheduler::ScheduledProcess*> job;
    for (const Process& process : processes) job.push_back(process.hook.get());
    processes[static_cast<std::size_t>(how.victim)].hook->ends_with(job);
  }
  SaveEnd end;
  end.told.resize(processes.size());
  end.then.resize(processes.size());
  scheduler.run([&](int process) {
    const auto at = static_cast<std::size_t>(process);
    const auto& [run, group, hook] = processes[at];
    checkpoint::Seam seam(*hook);
    checkpoint::HookedStorage storage(disk, seam);
    checkpoint::HookedGroup hooked(*group, seam);
    checkpoint::SaveOptions options = options_of(*how.scene, run.writer, how.planted, how.root);
    options.block_bytes = how.block_bytes;
    checkpoint::Saver saver(options, storage, hooked);
    end.told[at] = save_as(saver, *how.scene, {run.content.step / 10, run.content.step, how.scene->best},
                           *contents.state(run.content, group->rank(), run.ranks));
    if (how.then) {
      hook->relent();
      const Content next = then_content(*how.scene);
      end.then[at] = saver.save({next.step / 10, next.step, false}, *contents.state(next, group->rank(), run.ranks));
    }
    group->end();
  });
  for (const Process& process : processes) {
    end.ended.push_back(process.hook->ended());
    end.kinds.push_back(process.hook->kinds());
    end.acted = end.acted || process.hook->acted();
  }
  end.preempted = std::move(play.preempted);
  end.committed = std::move(play.committed);
  end.stalled = scheduler.stalled();
  end.notes = std::move(play.notes);
  return end;
}

std::string Setting::in_words() const {
  return fmt::format("A save {} by {}", how.scene->words, counted(how.ranks, "rank"));
}

SettingPtr setting_of(const Scene& scene, int ranks, const checkpoint::Planted& planted, Contents& contents,
                      std::size_t block_bytes, int64_t floats) {
  SaveCase how{{new_content(scene), ranks}, &scene};
  how.content.floats = floats;
  how.block_bytes = block_bytes;
  how.planted = planted;
  auto setting = std::make_shared<Setting>(Setting{how, disk_of(scene, ranks, contents), {}});
  MemoryStorage disk(*setting->disk);
  setting->operations = save_scheduled(disk, how, contents).kinds;
  return setting;
}

std::vector<LoadOutcome> load_scheduled(Storage& disk, int ranks, const std::string& name, std::string_view root) {
  std::vector<LoadOutcome> outcomes(static_cast<std::size_t>(ranks));
  checkpoint::LoadOptions options;
  options.root = root;
  options.name = name;
  options.config_hash = kConfigHash;
  options.deadline_s = kDeadline_s;
  if (ranks == 1) {
    checkpoint::AloneGroup alone;
    outcomes[0] = checkpoint::load(options, disk, alone);
    return outcomes;
  }
  scheduler::Scheduler scheduler(ranks);
  scheduler::Meeting meeting(scheduler, 0, ranks);
  scheduler.run([&](int rank) {
    scheduler::ScheduledGroup group(meeting, rank);
    outcomes[static_cast<std::size_t>(rank)] = checkpoint::load(options, disk, group);
    group.end();
  });
  return outcomes;
}

std::vector<std::string> rank_names(int ranks) {
  std::vector<std::string> names;
  for (int rank = 0; rank < ranks; ++rank) names.push_back(fmt::format("rank {}", rank));
  return names;
}

namespace {

using checkpoint::Loaded;
using checkpoint::Saved;

std::string expected_of(const std::vector<KnownSave>& known) {
  std::string text;
  for (const KnownSave& save : known) {
    if (save.may) text += (text.empty() ? "" : " or ") + in_words(save.content);
  }
  return text.empty() ? "none" : text;
}

/// The known save whose bits every rank has; -1 if there is none.
int save_in(Contents& contents, const std::vector<KnownSave>& known, const std::vector<LoadOutcome>& loaded,
            std::string& why) {
  const int ranks = static_cast<int>(loaded.size());
  for (std::size_t i = 0; i < known.size(); ++i) {
    std::string different;
    for (int rank = 0; rank < ranks && different.empty(); ++rank) {
      different = difference(contents, known[i].content, known[i].ranks, loaded[static_cast<std::size_t>(rank)], rank, ranks);
    }
    if (different.empty()) return static_cast<int>(i);
    if (loaded.front().manifest.step == known[i].content.step) why = different;
  }
  return -1;
}

}  // namespace

CaseVerdict Judgement::verdict() const {
  if (outcome == "not reached") return CaseVerdict::undecided;
  return fault ? CaseVerdict::fault : CaseVerdict::good;
}

Judgement judge_load(Contents& contents, const Allowed& allowed, const std::vector<LoadOutcome>& loaded) {
  const std::vector<KnownSave>& known = allowed.known;
  const int ranks = static_cast<int>(loaded.size());
  const std::string expected = expected_of(known);
  for (int rank = 0; rank < ranks; ++rank) {
    const LoadOutcome& outcome = loaded[static_cast<std::size_t>(rank)];
    if (outcome.loaded == loaded[0].loaded && outcome.problem == loaded[0].problem && outcome.name == loaded[0].name) continue;
    return {"mixed", true, fmt::format("rank 0 loads \"{}\" ({}), rank {} \"{}\" ({})", loaded[0].name, loaded[0].problem,
                                       rank, outcome.name, outcome.problem)};
  }
  if (loaded[0].loaded == Loaded::refused) {
    if (allowed.none_may) return {"refused, none was there", false, ""};
    return {"torn", true, fmt::format("{} expected; the load refuses: {}", expected, loaded[0].problem)};
  }
  if (loaded[0].loaded == Loaded::fresh)
    return {"lost work", true, fmt::format("{} expected; the load begins anew", expected)};
  std::string why = "no save has these bits";
  const int found = save_in(contents, known, loaded, why);
  if (found < 0) {
    std::vector<Content> all;
    for (const KnownSave& save : known) all.push_back(save.content);
    const bool mixed = is_mixture(contents, all, loaded[0], 0, ranks);
    return {mixed ? "mixed" : "silent", true,
            fmt::format("{} expected; the load takes {}, which is {}: {}", expected, loaded[0].name,
                        mixed ? "parts of several saves" : "none that was saved", why)};
  }
  const KnownSave& save = known[static_cast<std::size_t>(found)];
  if (!save.may)
    return {"lost work", true, fmt::format("{} expected; the load finds {}", expected, in_words(save.content))};
  return {found == 0 ? "whole, new" : "whole, old", false, "", found};
}

std::string told_problem(const std::vector<checkpoint::SaveOutcome>& told, const std::vector<bool>& ended) {
  const auto words = [](const checkpoint::SaveOutcome& outcome) {
    constexpr std::string_view kSaved[] = {"committed", "failed", "unknown"};
    std::string text(kSaved[static_cast<std::size_t>(outcome.saved)]);
    if (!outcome.problem.empty()) text += ": " + outcome.problem;
    if (outcome && !outcome.remarks.empty()) text += fmt::format(" (remarks: {})", fmt::join(outcome.remarks, "; "));
    return text;
  };
  const auto first = static_cast<std::size_t>(std::ranges::find(ended, false) - ended.begin());
  for (std::size_t rank = first; rank < told.size(); ++rank) {
    if (ended[rank] || words(told[first]) == words(told[rank])) continue;
    return fmt::format("rank {} was told \"{}\", rank {} \"{}\"", first, words(told[first]), rank, words(told[rank]));
  }
  return "";
}

Allowed Allowed::any() const {
  Allowed all{known};
  for (KnownSave& save : all.known) save.may = true;
  return all;
}

Allowed allowed_after(const Scene& scene, const SavingRun& saved, bool committed, bool failed) {
  Allowed allowed{{{saved.content, saved.ranks, !failed}}, scene.before.empty() && !committed};
  for (auto step = scene.before.rbegin(); step != scene.before.rend(); ++step)
    allowed.known.push_back({content_of(*step), saved.ranks, step == scene.before.rbegin() && !committed});
  return allowed;
}

namespace {

constexpr int kNextWriter = 5;

Judgement in_turn(Judgement judgement, std::string_view who) {
  if (judgement.fault) judgement.found = fmt::format("{}: {}", who, judgement.found);
  return judgement;
}

}  // namespace

Judgement judge_latest(Storage& disk, const Allowed& allowed, Contents& contents, std::string_view root) {
  if (checkpoint::read_pointer(disk, std::string(root), checkpoint::kLatest).missing) return {};
  return in_turn(judge_load(contents, allowed.any(), load_scheduled(disk, 1, std::string(checkpoint::kLatest), root)),
                 "a load of latest");
}

Judgement judge_next(Storage& disk, const Scene& scene, int ranks, Contents& contents, std::string_view root) {
  Scene next = scene;
  next.async = next.best = false;
  next.step = scene.step + 2;
  SaveCase how{{{.step = next.step, .writer = kNextWriter}, ranks, kNextWriter}, &next};
  how.root = root;
  how.unsynced = root != kRoot;
  for (const SaveOutcome& outcome : save_scheduled(disk, how, contents).told) {
    if (!outcome) return {"save failed", true, "the next save fails: " + outcome.problem};
  }
  const Judgement loaded = judge_load(contents, {{{how.content, ranks, true}}}, load_scheduled(disk, 1, "", root));
  if (loaded.fault) return in_turn(loaded, "after the next save");
  const checkpoint::Survey left = checkpoint::survey(disk, std::string(root), true);
  if (left.entries.size() > static_cast<std::size_t>(scene.keep_last))
    return {"not cleaned", true, fmt::format("after the next save at most {} checkpoints expected, found {}", scene.keep_last,
                                             left.entries.size())};
  return loaded;
}

Judgement judge_best(Storage& disk, const Scene& scene, const Allowed& allowed, int newest, Contents& contents,
                     std::string_view root) {
  if (!scene.best || newest < 0) return {};
  KnownSave best = newest == 0 ? allowed.known.front() : allowed.known.back();
  best.may = true;
  return in_turn(judge_load(contents, {{best}}, load_scheduled(disk, 1, std::string(checkpoint::kBest), root)),
                 "a load of best_model");
}

Judgement judge_disk(Storage& disk, const Scene& scene, int ranks, const Allowed& allowed, Contents& contents,
                     std::string_view root) {
  const int others = ranks == 1 ? 2 : ranks / 2;
  Judgement first;
  for (const int loading : {ranks, others}) {
    const Judgement found = judge_load(contents, allowed, load_scheduled(disk, loading, "", root));
    if (found.fault) return in_turn(found, fmt::format("{} ranks load", loading));
    if (loading == ranks) first = found;
  }
  if (const Judgement latest = judge_latest(disk, allowed, contents, root); latest.fault) return latest;
  if (const Judgement next = judge_next(disk, scene, others, contents, root); next.fault) return next;
  const Judgement best = judge_best(disk, scene, allowed, first.save, contents, root);
  return best.fault ? best : first;
}

}  // namespace lockstep::saver
