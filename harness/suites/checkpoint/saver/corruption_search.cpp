// Corruption: every bit, every length, exchanged and stale blocks and files, forged fields, bad input; and clean loads.

#include <fmt/format.h>

#include <algorithm>

#include "harness/base/counted.h"
#include "harness/lib/checkpoint/names.h"
#include "harness/suites/checkpoint/saver/damage.h"
#include "harness/suites/checkpoint/saver/scene.h"
#include "harness/suites/checkpoint/saver/search.h"

namespace lockstep::saver {
namespace {

using checkpoint::LoadOutcome;
using checkpoint::MemoryStorage;

/// Of each of two moments: the newest checkpoint's files and the pointers have some 65,000 bytes.
constexpr int64_t kCorruptFixtureFloats = 7700;
/// A trial holds the flips of so many bytes, or so many lengths.
constexpr std::size_t kBytes_a_trial = 64;
constexpr int kCleanCheckpoints = 500, kLoadsOfEach = 20;

/// Counts cases that ended alike; faults are told one by one, the first few of a trial.
class CaseCounts {
 public:
  void add(const Judgement& judgement, const std::string& words) {
    if ((!judgement.fault || told_ >= kMostTold) && count_alike(cases_, judgement.outcome, judgement.verdict())) return;
    cases_.push_back(case_of(judgement, words));
    if (judgement.fault) ++told_;
  }
  std::vector<CaseResult> take() { return std::move(cases_); }

 private:
  static constexpr int kMostTold = 3;
  std::vector<CaseResult> cases_;
  int told_ = 0;
};

class CorruptionSearch final : public Suite {
 public:
  explicit CorruptionSearch(const SaverConfig& config) : config_(config), corrupt_fixture_(kCorruptFixtureFloats) {}

  std::string subject() const override { return "the saver library, its files damaged"; }

  std::vector<std::string> plan() const override {
    std::size_t bytes = 0;
    for (const std::string& path : corrupt_fixture_.files()) bytes += corrupt_fixture_.disk().bytes(path)->size();
    return {fmt::format("every one of {} bits, and every length, of {}", with_commas(static_cast<int64_t>(bytes * 8)),
                        counted(static_cast<int64_t>(corrupt_fixture_.files().size()), "file")),
            "blocks of 512 and 4,096 bytes exchanged, zeroed, and those of an older checkpoint",
            "files exchanged between ranks and steps, missing, longer",
            "each field of manifest, commit record and pointers changed or taken away, its seal made anew",
            "newer format, another config, unreadable files, folders that are no checkpoint",
            fmt::format("{} loads of what nothing befell, none of which may say a word",
                        with_commas(int64_t{kCleanCheckpoints} * kLoadsOfEach))};
  }

  std::vector<Trial> trials(const SuiteRun& run) override {
    std::vector<Trial> all;
    for (const std::string& path : corrupt_fixture_.files()) {
      const std::size_t length = corrupt_fixture_.disk().bytes(path)->size();
      std::vector<Trial> of_file;
      for (std::size_t begin = 0; begin < length; begin += kBytes_a_trial) {
        const std::size_t end = std::min(begin + kBytes_a_trial, length);
        of_file.push_back(flips(path, begin, end));
        of_file.push_back(lengths(path, begin, end));
      }
      append(all, of_file);
    }
    append(all, damages("block", block_damages(corrupt_fixture_)));
    append(all, damages("file", file_damages(corrupt_fixture_)));
    append(all, damages("field", field_damages(corrupt_fixture_)));
    append(all, damages("input", bad_inputs(corrupt_fixture_)));
    std::vector<Trial> clean;
    for (int i = 0; i < kCleanCheckpoints; ++i) clean.push_back(clean_loads(i));
    append(all, clean);
    if (config_.planted) add_blind(all);
    run.say(fmt::format("{} trials", with_commas(static_cast<int64_t>(all.size()))));
    return all;
  }

  std::vector<std::pair<std::string, std::string>> facts(const Measurements& m) const override {
    return {{"bits flipped, one at a time", with_commas(m.count("flips"))},
            {"lengths to which a file was cut", with_commas(m.count("cuts"))},
            {"blocks and files exchanged, stale, zeroed, missing or longer", with_commas(m.count("parts"))},
            {"fields changed or taken away", with_commas(m.count("fields"))},
            {"bad inputs", with_commas(m.count("inputs"))},
            {"damaged in all", fmt::format("{}; refused, or the older one loaded and said so: {}",
                                           with_commas(m.count("flips") + m.count("cuts") + m.count("parts") + m.count("fields") + m.count("inputs")), with_commas(m.count("noticed")))},
            {"forged with every seal made anew, and accepted", with_commas(m.count("forged"))},
            {"clean loads", fmt::format("{}, with a word about damage: {}", with_commas(m.count("clean")), with_commas(m.count("alarms")))}};
  }

  std::vector<std::string> notes(const Measurements&) const override {
    return {"What counts: the damaged checkpoint is refused and named, the older one is loaded and that is said, or, where only "
            "a pointer is damaged, the newest is loaded and that is said.",
            "A forger who makes the manifest's seal and the commit record anew changes what no file repeats, as a value; hashes "
            "find accidents and not intent. Such cases are counted and not claimed."};
  }

 private:
  void append(std::vector<Trial>& all, const std::vector<Trial>& some) const {
    const std::vector<Trial> sample = even_sample(some, static_cast<std::size_t>(config_.points));
    all.insert(all.end(), sample.begin(), sample.end());
  }

  void count(const Judgement& judgement) {
    if (judgement.outcome == "forged throughout, accepted")
      measured().add("forged");
    else if (!judgement.fault)
      measured().add("noticed");
  }

  Trial flips(const std::string& path, std::size_t begin, std::size_t end) {
    const std::string file = path.substr(path.rfind('/') + 1);
    Trial planned;
    planned = {fmt::format("flip:{}:{}-{}", file, begin, end), "one bit flipped", CorruptFixture::kind_of(path), 0.5};
    planned.run = [this, path, file, begin, end](Slot&) {
      CaseCounts counts;
      MemoryStorage disk(corrupt_fixture_.disk());
      const std::string whole = *corrupt_fixture_.disk().bytes(path);
      for (std::size_t bit = begin * 8; bit < end * 8; ++bit) {
        std::string bytes = whole;
        bytes[bit / 8] = static_cast<char>(static_cast<unsigned char>(bytes[bit / 8]) ^ (1U << (bit % 8)));
        disk.put_file(path, std::move(bytes));
        const Judgement judgement = corrupt_fixture_.judge(disk, CorruptFixture::look_at(path));
        counts.add(judgement, fmt::format("Bit {} of byte {} of {} is flipped", bit % 8, bit / 8, file));
        count(judgement);
        measured().add("flips");
      }
      return counts.take();
    };
    return planned;
  }

  Trial lengths(const std::string& path, std::size_t begin, std::size_t end) {
    const std::string file = path.substr(path.rfind('/') + 1);
    Trial planned;
    planned = {fmt::format("cut:{}:{}-{}", file, begin, end), "cut short", CorruptFixture::kind_of(path), 0.1};
    planned.run = [this, path, file, begin, end](Slot&) {
      CaseCounts counts;
      MemoryStorage disk(corrupt_fixture_.disk());
      const std::string whole = *corrupt_fixture_.disk().bytes(path);
      for (std::size_t length = begin; length < end; ++length) {
        disk.put_file(path, whole.substr(0, length));
        const Judgement judgement = corrupt_fixture_.judge(disk, CorruptFixture::look_at(path));
        counts.add(judgement, fmt::format("{} is cut to {} bytes", file, length));
        count(judgement);
        measured().add("cuts");
      }
      return counts.take();
    };
    return planned;
  }

  std::vector<Trial> damages(std::string_view kind, const std::vector<Damage>& all) {
    std::vector<Trial> trials;
    const std::string counter = kind == "field" ? "fields" : kind == "input" ? "inputs" : "parts";
    for (const Damage& damage : all) {
      Trial planned;
      planned = {damage.name, damage.failure, damage.place, 0.001};
      planned.run = [this, damage, counter](Slot&) {
        const Judgement judgement = damage.judge(corrupt_fixture_);
        count(judgement);
        measured().add(counter);
        return std::vector<CaseResult>{case_of(judgement, damage.words)};
      };
      trials.push_back(std::move(planned));
    }
    return trials;
  }

  /// A checkpoint of its own, loaded by other numbers of ranks and by its names.
  Trial clean_loads(int number) {
    Trial planned;
    planned = {fmt::format("clean:{}", number), "nothing", "clean loads", 0.02};
    planned.run = [this, number](Slot&) {
      CaseCounts counts;
      Contents contents;
      Scene scene{.name = "clean", .words = "", .best = number % 3 == 0};
      SaveCase how;
      how.scene = &scene;
      how.content = {.step = 1 + number, .writer = number % 5, .floats = 5 + number % 60};
      how.ranks = 1 + number % 4;
      MemoryStorage disk;
      disk.put_folder(std::string(kRoot));
      const SaveEnd saved = save_scheduled(disk, how, contents);
      const std::string own = checkpoint::checkpoint_name(how.content.step / 10, how.content.step);
      for (int i = 0; i < kLoadsOfEach; ++i) {
        const int ranks = 1 + i % 5;
        const std::string name = i % 4 == 1 ? std::string(checkpoint::kLatest) : i % 4 == 2 ? own : "";
        const std::vector<LoadOutcome> loaded = load_scheduled(disk, ranks, name);
        Judgement judgement = judge_load(contents, {{how.content, how.ranks, true}}, false, loaded);
        const bool alarm = judgement.fault || !saved.told[0] || !loaded[0].refused.empty() || !loaded[0].remarks.empty();
        if (alarm) measured().add("alarms");
        if (alarm && !judgement.fault) judgement = {"false alarm", true, "a clean load tells of damage"};
        counts.add(judgement, fmt::format("{} ranks load {}, which {} saved", ranks, own, counted(how.ranks, "rank")));
        measured().add("clean");
      }
      return counts.take();
    };
    return planned;
  }

  /// Damage that no hash can show: the comparison with what was saved must see it, or the search is blind.
  void add_blind(std::vector<Trial>& all) {
    Trial planned;
    planned = {"planted:sealed_damage", "planted: seals that fit damaged values", "manifest.json", 0.01};
    planned.run = [this](Slot&) {
      // As if the seals had not been looked at: a damaged manifest, and all that is said of it made anew.
      std::vector<Damage> forged = field_damages(corrupt_fixture_);
      std::erase_if(forged, [](const Damage& each) { return !each.name.starts_with("forged-"); });
      const auto accepted = std::ranges::find_if(
          forged, [&](const Damage& each) { return each.judge(corrupt_fixture_).outcome == "forged throughout, accepted"; });
      const bool found = accepted != forged.end();
      return std::vector<CaseResult>{{found ? "planted, found: silent" : "planted, not found",
                                      found ? CaseVerdict::planted : CaseVerdict::fault, 1,
                                      found ? "a value that is another, with every seal made anew: " + accepted->words +
                                                  ". The load takes it, and the comparison with what was saved shows it"
                                            : "no forged value shows that the comparison sees what hashes do not",
                                      {}}};
    };
    all.push_back(std::move(planned));
  }

  const SaverConfig config_;
  const CorruptFixture corrupt_fixture_;
};

}  // namespace

std::unique_ptr<Suite> make_corruption_search(const SaverConfig& config) { return std::make_unique<CorruptionSearch>(config); }

}  // namespace lockstep::saver
