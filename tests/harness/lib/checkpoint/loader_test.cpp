#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <functional>
#include <iterator>
#include <regex>
#include <vector>

#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/lib/checkpoint/group.h"
#include "harness/lib/checkpoint/loader.h"
#include "harness/lib/checkpoint/manifest.h"
#include "harness/lib/checkpoint/state.h"
#include "tests/support/checkpoint_ranks.h"
#include "tests/support/said.h"

namespace lockstep::checkpoint {
namespace {

using namespace support;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kRootText = kRoot;

/// Steps 10 and 11, each on two ranks.
class Loader : public testing::Test {
 protected:
  Loader() {
    save_on(disk_, 10, 2);
    save_on(disk_, 11, 2);
  }
  void put(const std::string& name, std::string bytes) {
    disk_.put_file(kRootText + "/" + name, std::move(bytes));
  }
  std::string bytes(const std::string& name) const { return *disk_.bytes(kRootText + "/" + name); }
  /// What all ranks are told, which must be the same.
  LoadOutcome load_all(const LoadOptions& options = load_options()) {
    std::vector<LoadOutcome> outcomes = load_on(disk_, 2, options);
    EXPECT_EQ(outcomes[0].loaded, outcomes[1].loaded);
    EXPECT_EQ(outcomes[0].problem, outcomes[1].problem);
    EXPECT_EQ(outcomes[0].refused, outcomes[1].refused);
    EXPECT_EQ(outcomes[0].remarks, outcomes[1].remarks);
    return outcomes[0];
  }
  MemoryStorage disk_ = empty_disk();
};

/// A manifest with one field changed, its checksum made to fit again.
std::string changed(const std::string& text, const std::function<void(nlohmann::json&)>& change) {
  nlohmann::json json = nlohmann::json::parse(text);
  change(json);
  json.erase("checksum");
  return canonical_text(json);
}

/// What was loaded and what was said, without what another save has otherwise: hashes, and numbers of three digits and more.
std::string text_of(const LoadOutcome& outcome) {
  std::string text = outcome.loaded == Loaded::loaded  ? outcome.name
                     : outcome.loaded == Loaded::fresh ? "a fresh start"
                                                       : "refused";
  if (!outcome.problem.empty()) text += "; problem: " + outcome.problem;
  for (const std::string& refused : outcome.refused) text += "; refused: " + refused;
  for (const std::string& remark : outcome.remarks) text += "; remark: " + remark;
  return std::regex_replace(std::regex_replace(text, std::regex("[0-9a-f]{16,}"), "HEX"), std::regex("[0-9]{3,}"), "N");
}

TEST_F(Loader, TakesTheNewestThatIsWholeAndSaysWhatIsWrongWithOthers) {
  lockstep::support::Said said;
  const MemoryStorage whole(disk_);
  const std::string latest = bytes("latest"), shard_0 = "epoch_1_step_11/rank-0-of-2.safetensors",
                    shard_1 = "epoch_1_step_11/rank-1-of-2.safetensors";
  std::string none;
  const std::string save_10 = manifest_from(bytes("epoch_1_step_10/manifest.json"), none).save_id,
                    save_11 = manifest_from(bytes("epoch_1_step_11/manifest.json"), none).save_id;
  const auto loaded = [&](const std::string& what, const std::function<void()>& change, const std::string& name = "",
                          const std::string& root = "") {
    for (const std::string& path : whole.paths())
      if (const auto kept = whole.bytes(path)) disk_.put_file(path, *kept);
    change();
    LoadOptions options = load_options();
    options.name = name;
    if (!root.empty()) options.root = root;
    said(what, text_of(load_all(options)));
  };
  const auto pointer = [&](const std::string& text) { return [=, this] { put("latest", text); }; };
  const auto points = [&](const std::string& name, const std::string& save, int64_t step) {
    return pointer(to_text(Pointer{name, save, step}));
  };
  loaded("whole", [] {});
  loaded("an empty pointer", pointer(""));
  loaded("half a pointer", pointer(latest.substr(0, 20)));
  loaded("a pointer that is behind", points("epoch_1_step_10", save_10, 10));
  loaded("a pointer to nothing", points("epoch_9_step_99", std::string(32, 'a'), 99));
  loaded("a pointer without a save_id", points("epoch_1_step_10", std::string(32, 'x'), 10));
  loaded("no pointer", [&] { disk_.take(kRootText + "/latest"); });
  for (const char* name : {"", "latest"}) {
    const std::string asked = *name == '\0' ? "" : ", asked for";
    loaded("a pointer to another name" + asked, points("epoch_1_step_10", save_11, 11), name);
    loaded("a pointer to another step" + asked, points("epoch_1_step_11", save_11, 10), name);
  }
  loaded("not committed", [&] { disk_.take(kRootText + "/epoch_1_step_11/commit.json"); });
  loaded("a damaged shard", [&] {
    std::string shard = bytes(shard_1);
    shard.back() ^= 1;
    put(shard_1, shard);
  });
  loaded("a shard of another step", [&] { put(shard_0, bytes("epoch_1_step_10/rank-0-of-2.safetensors")); });
  loaded("a shard of another rank", [&] { put(shard_0, bytes(shard_1)); });
  loaded("no shard", [&] { disk_.take(kRootText + "/" + shard_0); });
  loaded("what a pointer names has no checksum", [&] { put("epoch_1_step_11/commit.json", "{}"); }, "latest");
  loaded("a name", [] {}, "epoch_1_step_10");
  loaded("the latest", [] {}, "latest");
  loaded("the best", [] {}, "best_model");
  loaded("a name that is not there", [] {}, "epoch_7_step_70");
  loaded("a name that is damaged", [&] { put("epoch_1_step_10/manifest.json", "{"); }, "epoch_1_step_10");
  loaded("no checkpoints", [&] { disk_.put_file("/run/data/train.ts", "x"); }, "", "/run/data");
  loaded("a checkpoint itself", [] {}, "", kRootText + "/epoch_1_step_11");
  loaded("a file", [&] { disk_.put_file("/run/data/train.ts", "x"); }, "", "/run/data/train.ts");
  loaded("a newer format", [&] {
    put("epoch_1_step_11/commit.json",
        changed(bytes("epoch_1_step_11/commit.json"), [](nlohmann::json& json) { json["format_version"] = 3; }));
  });
}
TEST_F(Loader, NamesAChangedFieldOfTheManifest) {
  const std::string path = "epoch_1_step_11/manifest.json", text = bytes(path);
  using Json = nlohmann::json;
  const std::function<void(Json&)> changes[] = {
      [](Json& json) { json["step"] = 12; },
      [](Json& json) { json["epoch"] = 2; },
      [](Json& json) { json["sequence"] = 7; },
      [](Json& json) { json["save_id"] = std::string(32, '0'); },
      [](Json& json) { json["config_hash"] = "x"; },
      [](Json& json) { json["world_size"] = 3; },
      [](Json& json) { json["world_size"] = -1; },
      [](Json& json) { json["format"] = "x"; },
      [](Json& json) { json["more"] = 1; },
      [](Json& json) { json.erase("files"); },
      [](Json& json) { json["files"][1]["name"] = "rank-0-of-2.safetensors"; },
      [](Json& json) { json["files"][1]["hash"] = "0"; },
      [](Json& json) { json["files"][1]["length"] = 1; },
      [](Json& json) { json["kinds"]["parameters"]["tensors"][0]["dtype"] = "F8"; },
      [](Json& json) { json["kinds"]["moments"]["tensors"][0]["slices"][1][0] = 8; },
      [](Json& json) { json["kinds"].erase("patience"); },
      [](Json& json) { json["kinds"]["patience"]["values"]["checks_left"] = 4; },
      [](Json& json) { json["writer"]["process"] = "x"; },
  };
  lockstep::support::Said said;
  for (const auto& change : changes) {
    put(path, changed(text, change));
    const LoadOutcome outcome = load_all();
    EXPECT_EQ(outcome.manifest.step, 10);
    said(std::to_string(&change - changes), text_of(outcome));
  }
  // The same change with the checksum left as it was.
  put(path, replaced(text, "\"step\": 11", "\"step\": 12"));
  said("the checksum left", text_of(load_all()));
}

TEST_F(Loader, RefusesEveryFlippedBitAndEveryTruncation) {
  for (const char* name :
       {"manifest.json", "commit.json", "rank-0-of-2.safetensors", "rank-1-of-2.safetensors"}) {
    const std::string path = std::string("epoch_1_step_11/") + name, text = bytes(path);
    AloneGroup alone;
    LoadOptions options = load_options();
    int64_t accepted = 0;
    // A sample; the lab tries them all.
    for (std::size_t byte = 0; byte < text.size(); byte += 7) {
      std::string damaged = text;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << (byte % 8)));
      put(path, damaged);
      accepted += load(options, disk_, alone).manifest.step == 11 ? 1 : 0;
    }
    for (std::size_t length = 0; length < text.size(); length += 31) {
      put(path, text.substr(0, length));
      accepted += load(options, disk_, alone).manifest.step == 11 ? 1 : 0;
    }
    put(path, text + "x");
    accepted += load(options, disk_, alone).manifest.step == 11 ? 1 : 0;
    EXPECT_EQ(accepted, 0) << name;
    put(path, text);
    EXPECT_EQ(load(options, disk_, alone).manifest.step, 11);
  }
}

TEST_F(Loader, BeginsAtStep0OnlyIfThatIsAskedFor) {
  LoadOptions options = load_options();
  options.root = "/run/none";
  EXPECT_THAT(load_all(options).problem,
              AllOf(HasSubstr("/run/none: no such folder"), HasSubstr("ask for a fresh start")));
  options.fresh_start = true;
  EXPECT_EQ(load_all(options).loaded, Loaded::fresh);
  // What was saved and is damaged, or gone, is no reason to begin anew.
  options.root = kRoot;
  for (const char* name : {"epoch_1_step_10/manifest.json", "epoch_1_step_11/manifest.json"}) put(name, "");
  EXPECT_THAT(load_all(options).problem, AllOf(HasSubstr("no checkpoint in it is whole"),
                                               HasSubstr("epoch_1_step_11: manifest.json: is empty"),
                                               HasSubstr("epoch_1_step_10: manifest.json: is empty")));
  for (const char* name : {"epoch_1_step_10", "epoch_1_step_11"}) disk_.take(kRootText + "/" + name);
  EXPECT_THAT(load_all(options).problem,
              HasSubstr("latest stands there and names epoch_1_step_11, but no checkpoint"));
  disk_.take(kRootText + "/latest");
  EXPECT_EQ(load_all(options).loaded, Loaded::fresh);
}

TEST_F(Loader, ReadsTheFormatThatDidNotSayWhichWasTheBest) {
  const auto earlier = [](nlohmann::json& json) {
    json["format_version"] = 1;
    json.erase("best");
  };
  const std::string manifest = changed(bytes("epoch_1_step_11/manifest.json"), earlier);
  put("epoch_1_step_11/manifest.json", manifest);
  put("epoch_1_step_11/commit.json", changed(bytes("epoch_1_step_11/commit.json"), [&](nlohmann::json& json) {
        earlier(json);
        json["manifest_length"] = manifest.size();
        json["manifest_hash"] = long_hash_in_hex(manifest);
      }));
  const LoadOutcome outcome = load_all();
  EXPECT_EQ(outcome.loaded, Loaded::loaded) << outcome.problem;
  EXPECT_EQ(outcome.name, "epoch_1_step_11");
  EXPECT_TRUE(outcome.refused.empty()) << outcome.refused.front();
}

TEST_F(Loader, RefusesAnotherRunsOrModelsCheckpoint) {
  lockstep::support::Said said;
  LoadOptions options = load_options();
  options.config_hash = "other";
  said("another run", text_of(load_all(options)));
  options.config_hash = "config";
  const auto expected = [&](const char* what, const std::function<void(State&)>& change) {
    State state = state_at(0, 0, 1);
    change(state);
    options.expected = &state;
    said(what, text_of(load_all(options)));
  };
  expected("the same", [](State&) {});
  expected("another shape", [](State& state) { state[kind::parameters].tensors[0].shape = {5, 3}; });
  expected("another type", [](State& state) { state[kind::parameters].tensors[0].dtype = "F64"; });
  expected("another name", [](State& state) { state[kind::parameters].tensors[0].name = "v"; });
  expected("a tensor less", [](State& state) { state[kind::parameters].tensors.pop_back(); });
  expected("a kind less", [](State& state) { state.sections.erase("patience"); });
}

TEST_F(Loader, NamesEveryKindThatWasNotSaved) {
  for (const auto& [kind_name, section] : state_at(0, 0, 1).sections) {
    MemoryStorage disk = empty_disk();
    AloneGroup group;
    State lacking = state_at(3, 0, 1);
    lacking.sections.erase(kind_name);
    ASSERT_TRUE(Saver(save_options(), disk, group).save({0, 3}, lacking));
    const State expected = state_at(0, 0, 1);
    LoadOptions options = load_options();
    options.expected = &expected;
    EXPECT_THAT(load(options, disk, group).problem,
                HasSubstr(words_of(kind_name) + ": the run needs it, the checkpoint has none"));
  }
}

TEST_F(Loader, DoesNotTakeAnOlderOneForOneThatItMayNotRead) {
  FaultHook hook;
  HookedDisk hooked(disk_, hook);
  AloneGroup alone;
  LoadOptions options = load_options();
  ASSERT_TRUE(load(options, hooked, alone));
  const std::vector<std::string> all = hook.seen;
  for (std::size_t at = 0; at < all.size(); ++at) {
    if (!all[at].starts_with("open /run/checkpoints/epoch_1_step_11/")) continue;
    FaultHook fault;
    fault.fail_at = static_cast<int64_t>(at);
    fault.error = EACCES;
    HookedDisk refusing(disk_, fault);
    const LoadOutcome outcome = load(options, refusing, alone);
    EXPECT_EQ(outcome.loaded, Loaded::refused) << all[at];
    EXPECT_THAT(outcome.problem, AllOf(HasSubstr("epoch_1_step_11"), HasSubstr("Permission denied")));
  }
}

TEST_F(Loader, RefusesOnEveryRankWhenOneCannotRead) {
  FaultHook hook;
  HookedDisk hooked(disk_, hook);
  hook.dead_at = "rank-1-of-2.safetensors";
  std::vector<LoadOutcome> outcomes(2);
  run_ranks(2, [&](int rank, Group& group) {
    outcomes[static_cast<std::size_t>(rank)] =
        load(load_options(), rank == 1 ? static_cast<Storage&>(hooked) : disk_, group);
  });
  for (const LoadOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.loaded, Loaded::refused);
    EXPECT_THAT(outcome.problem, AllOf(HasSubstr("epoch_1_step_11: "), HasSubstr("Input/output error")));
  }
  EXPECT_EQ(outcomes[0].problem, outcomes[1].problem);
}

// What was saved on some ranks is loaded on others.

/// The state that a rank has after another number of ranks had saved: all but what each of those had for
/// itself.
State shared_part(int64_t step, int rank, int size) {
  State state = state_at(step, rank, size);
  for (auto& [kind, section] : state.sections) {
    section.rank_values = nlohmann::json::object();
    std::erase_if(section.tensors,
                  [](const Tensor& tensor) { return tensor.placement == Placement::per_rank; });
  }
  return state;
}

TEST(Reshard, GivesEveryNumberOfRanksTheSameState) {
  for (const int saved : {1, 2, 3, 4, 5, 8}) {
    MemoryStorage disk = empty_disk();
    ASSERT_TRUE(save_on(disk, 13, saved)[0]);
    for (const int size : {1, 2, 3, 4, 5, 8}) {
      const std::vector<LoadOutcome> loaded = load_on(disk, size);
      if (size == saved) {
        EXPECT_EQ(wrong_with(loaded, 13), "");
        continue;
      }
      for (int rank = 0; rank < size; ++rank) {
        const LoadOutcome& outcome = loaded[static_cast<std::size_t>(rank)];
        ASSERT_TRUE(outcome) << outcome.problem;
        EXPECT_THAT(state_differences(shared_part(13, rank, size), outcome.state), testing::IsEmpty())
            << saved << " to " << size;
        ASSERT_EQ(outcome.of_ranks.size(), static_cast<std::size_t>(saved));
        for (int old = 0; old < saved; ++old) {
          const State& theirs = outcome.of_ranks[static_cast<std::size_t>(old)];
          EXPECT_EQ(theirs.find("stream/dropout")->rank_values["words"], nlohmann::json({13, old}));
          EXPECT_EQ(floats_in(theirs.find(kind::accumulation)->tensors[0])[0], 13300 + old);
        }
      }
    }
  }
}

/// Ranks without an element of it have an empty slice in the midst of the others', of which their files hold nothing.
TEST(Reshard, GivesATensorThatHasFewerElementsThanRanks) {
  const auto state_of = [](int rank, int size) {
    State state;
    state[kind::parameters].tensors = {floats("b", {4}, 7, Placement::sharded, even_slice(4, rank, size))};
    return state;
  };
  for (const int saved : {1, 5, 8}) {
    MemoryStorage disk = empty_disk();
    run_ranks(saved, [&](int rank, Group& group) {
      Saver saver(save_options(), disk, group);
      EXPECT_TRUE(saver.save({0, 1}, state_of(rank, saved)));
    });
    for (const int size : {1, 3, 8}) {
      const std::vector<LoadOutcome> loaded = load_on(disk, size);
      for (int rank = 0; rank < size; ++rank) {
        const LoadOutcome& outcome = loaded[static_cast<std::size_t>(rank)];
        ASSERT_TRUE(outcome) << saved << " to " << size << ": " << outcome.problem;
        EXPECT_THAT(state_differences(state_of(rank, size), outcome.state), testing::IsEmpty()) << saved << " to " << size;
      }
    }
  }
}

TEST(Reshard, GivesTheSliceThatARankAsksFor) {
  MemoryStorage disk = empty_disk();
  ASSERT_TRUE(save_on(disk, 13, 3)[0]);
  State expected = state_at(0, 0, 1);
  Tensor& moment = expected[kind::moments].tensors[0];
  moment.slice = {4, 11};
  expected[kind::moments].tensors[1].placement = Placement::replicated;
  LoadOptions options = load_options();
  options.expected = &expected;
  const std::vector<LoadOutcome> loaded = load_on(disk, 1, options);
  ASSERT_TRUE(loaded[0]) << loaded[0].problem;
  const Section& moments = *loaded[0].state.find(kind::moments);
  EXPECT_EQ(floats_in(moments.tensors[0]),
            (std::vector<float>{13104, 13105, 13106, 13107, 13108, 13109, 13110}));
  EXPECT_EQ(moments.tensors[1].bytes.size(), 15 * sizeof(float));
}

/// Planted: ranks save their moments from one element further on.
TEST(Reshard, NamesMomentsThatAreOneElementOff) {
  for (const int saved : {1, 2, 3, 5, 8}) {
    MemoryStorage disk = empty_disk();
    run_ranks(saved, [&](int rank, Group& group) {
      State state = state_at(13, rank, saved);
      for (Tensor& moment : state[kind::moments].tensors)
        moment = floats(moment.name, moment.shape, 13101, Placement::sharded, moment.slice);
      Saver saver(save_options(), disk, group);
      EXPECT_TRUE(saver.save({1, 13}, state));
    });
    for (const int size : {1, 2, 3, 5, 8}) {
      const LoadOutcome outcome = load_on(disk, size)[0];
      ASSERT_TRUE(outcome) << outcome.problem;
      const State expected = size == saved ? state_at(13, 0, size) : shared_part(13, 0, size);
      EXPECT_THAT(state_differences(expected, outcome.state),
                  testing::ElementsAre(testing::StartsWith("moments: first_moment/w differs in "),
                                       testing::StartsWith("moments: second_moment/w differs in ")))
          << saved << " to " << size;
    }
  }
}

TEST(StateDifferences, NameKindValueAndTensor) {
  const State expected = state_at(371, 0, 2);
  EXPECT_THAT(state_differences(expected, state_at(371, 0, 2)), testing::IsEmpty());
  State seen = state_at(371, 0, 2);
  put_position(seen, {.epoch = 37, .samples = 97, .seed = 7, .permutation_hash = "p", .cursor = 64});
  seen.sections.erase("patience");
  seen[kind::moments].tensors[0] =
      floats("first_moment/w", {3, 5}, 0, Placement::sharded, even_slice(15, 0, 2));
  seen[kind::cached_controls].values["rate"] = 0.25;
  EXPECT_THAT(
      state_differences(expected, seen),
      testing::ElementsAre("cached control values: rate 0.125 expected, 0.25 seen",
                           "moments: first_moment/w differs in 7 of 7 elements, first in element 0",
                           "early-stop patience: missing", "sampler cursor: sample 80 expected, 64 seen"));
}

TEST(StateDifferences, NameBothOfEveryTwoKindsThatAreMissing) {
  const State whole = state_at(371, 0, 2);
  for (auto first = whole.sections.begin(); first != whole.sections.end(); ++first) {
    for (auto second = std::next(first); second != whole.sections.end(); ++second) {
      State lacking = state_at(371, 0, 2);
      lacking.sections.erase(first->first);
      lacking.sections.erase(second->first);
      EXPECT_THAT(state_differences(whole, lacking),
                  testing::ElementsAre(words_of(first->first) + ": missing", words_of(second->first) + ": missing"));
    }
  }
}

TEST(StateKinds, AreNamedAndMany) {
  EXPECT_GE(kinds().size() + 1, 14u);
  EXPECT_EQ(words_of("stream/dropout"), "random stream dropout");
  EXPECT_EQ(words_of("loss_scale"), "loss scale");
}

TEST(EvenSlices, AreAllElementsOnce) {
  for (const int64_t count : {0, 1, 7, 15, 64}) {
    for (const int parts : {1, 2, 3, 8, 20}) {
      int64_t at = 0;
      for (int part = 0; part < parts; ++part) {
        const Slice slice = even_slice(count, part, parts);
        EXPECT_EQ(slice.begin, at);
        EXPECT_LE(slice.end - slice.begin, count / parts + 1);
        at = slice.end;
      }
      EXPECT_EQ(at, count);
    }
  }
}

/// Each group of ranks that are threads: by sockets, and by memory.
void meet(int size, const std::function<void(int rank, Group& group)>& body) {
  ThreadRendezvous meeting(size);
  lockstep::support::on_threads(size, [&](int rank) { body(rank, *meeting.group(rank)); });
}

class AnyGroup : public testing::TestWithParam<void (*)(int, const std::function<void(int, Group&)>&)> {};

TEST_P(AnyGroup, GivesEveryRankTheTextsOfAllRoundByRound) {
  for (const int size : {1, 2, 3, 8}) {
    GetParam()(size, [&](int rank, Group& group) {
      EXPECT_EQ(group.rank(), rank);
      EXPECT_EQ(group.size(), size);
      for (int round = 0; round < 200; ++round) {
        const Gathered all = group.all_gather("round", std::to_string(100 * round + rank), 20);
        ASSERT_TRUE(all) << all.problem;
        for (int other = 0; other < size; ++other) {
          EXPECT_EQ(all.texts[static_cast<std::size_t>(other)], std::to_string(100 * round + other));
        }
      }
    });
  }
}

TEST_P(AnyGroup, NamesARankThatHasEndedAtOnceAndForGood) {
  const double start_s = monotonic_s();
  GetParam()(4, [](int rank, Group& group) {
    ASSERT_TRUE(group.all_gather("first", "x", 20));
    if (rank == 2) return;
    EXPECT_THAT(group.all_gather("second", "x", 20).problem, HasSubstr("rank 2 ended"));
    EXPECT_THAT(group.all_gather("third", "x", 20).problem, HasSubstr("rank 2 ended"));
  });
  EXPECT_LT(monotonic_s() - start_s, 5);
}

INSTANTIATE_TEST_SUITE_P(Groups, AnyGroup, testing::Values(&run_ranks, &meet));

TEST(SocketGroup, CarriesLongTextsAndEmptyOnes) {
  run_ranks(3, [](int rank, Group& group) {
    const std::string mine = rank == 1 ? "" : std::string(3'000'000, static_cast<char>('a' + rank));
    const Gathered all = group.all_gather("long", mine, 20);
    ASSERT_TRUE(all) << all.problem;
    EXPECT_EQ(all.texts[0], std::string(3'000'000, 'a'));
    EXPECT_EQ(all.texts[1], "");
    EXPECT_EQ(all.texts[2], std::string(3'000'000, 'c'));
  });
}

TEST(SocketGroup, NamesARankThatGivesNoSign) {
  std::atomic<int> told{0};
  run_ranks(3, [&](int rank, Group& group) {
    if (rank == 1) {
      while (told < 2) ::sched_yield();
      return;
    }
    EXPECT_THAT(group.all_gather("written", "x", 0.05).problem,
                HasSubstr("rank 1 gave no sign of progress for 0.05 s"));
    ++told;
  });
}

TEST(SocketGroup, WaitsForARankThatShowsProgress) {
  run_ranks(2, [](int rank, Group& group) {
    const double start_s = monotonic_s();
    // For longer than the deadline rank 1 is at work and says so.
    while (rank == 1 && monotonic_s() - start_s < 1.5) group.progress();
    const Gathered all = group.all_gather("written", "x", 1);
    EXPECT_TRUE(all) << all.problem;
  });
}

TEST(SocketGroup, SaysWhoIsElsewhere) {
  run_ranks(2, [](int rank, Group& group) {
    EXPECT_THAT(group.all_gather(rank == 0 ? "here" : "there", "x", 20).problem, HasSubstr("'"));
  });
}

TEST(SocketGroup, HoldsProcessesTogetherAndNoticesOneThatIsKilled) {
  std::vector<std::unique_ptr<SocketGroup>> groups = make_socket_groups(2);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    groups[0]->close();
    if (groups[1]->all_gather("first", "child", 20)) ::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }
  groups[1]->close();
  const Gathered all = groups[0]->all_gather("first", "parent", 20);
  EXPECT_THAT(all.texts, ElementsAre("parent", "child"));
  EXPECT_THAT(groups[0]->all_gather("second", "parent", 20).problem, HasSubstr("rank 1 ended (at 'second')"));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
}

TEST(Agreement, IsTheSameTextOnAllRanks) {
  run_ranks(3, [](int rank, Group& group) {
    EXPECT_EQ(agree(group, "done", "", 20), "");
    EXPECT_EQ(agree(group, "done", rank == 1 ? "no space" : "", 20), "rank 1: no space");
  });
}

TEST(HookedGroup, CountsWithTheStorageAndFailsWhereItIsTold) {
  MemoryStorage disk;
  FaultHook hook;
  HookedDisk storage(disk, hook);
  AloneGroup alone;
  HookedGroup group(alone, storage.seam);
  int file = -1;
  storage.storage.create("/f", file);
  EXPECT_TRUE(group.all_gather("one", "x", 1));
  hook.fail_at = 2;
  hook.error = EIO;
  EXPECT_THAT(group.all_gather("two", "x", 1).problem, HasSubstr("gather 'two' failed: Input/output error"));
  EXPECT_THAT(hook.seen, ElementsAre("create /f", "gather 'one'", "gather 'two'"));
}

TEST(ThreadGroup, GivesUpOnARankThatStaysAway) {
  ThreadRendezvous meeting(2);
  const std::unique_ptr<Group> here = meeting.group(0), away = meeting.group(1);
  EXPECT_THAT(here->all_gather("written", "x", 0.01).problem, HasSubstr("no other rank gave a sign of progress"));
  EXPECT_THAT(away->all_gather("written", "x", 20).problem, HasSubstr("at 'written'"));
}

TEST(ThreadGroup, RefusesRanksAtOtherPlaces) {
  meet(2, [](int rank, Group& group) {
    const Gathered all = group.all_gather(rank == 0 ? "written" : "renamed", "x", 20);
    EXPECT_EQ(all.problem, "rank 0 is at 'written' and rank 1 at 'renamed'");
  });
}

}  // namespace
}  // namespace lockstep::checkpoint
