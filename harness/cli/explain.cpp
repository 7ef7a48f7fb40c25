#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <optional>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/lib/flight/dump.h"
#include "harness/lib/flight/judge.h"
#include "harness/run/process_state.h"

namespace lockstep {

static std::span<const OutcomePage> outcome_pages() {
  static constexpr auto kPages = std::to_array<OutcomePage>({
      // Matrices.
      {"identical", "", "Every recorded bit of the cell is that of its reference.", ""},
      {"within_envelope; within envelope", "", "The cell computes the same as its reference: what differs is rounding, within a tolerance that was measured.", ""},
      {"equivalent", "", "The cell's metric differs from its reference's by less than the margin, with the confidence that the config asks for.", ""},
      {"divergent", "", "The cell does not train the same as its reference.", "The sentence names step, phase, rank and tensor of the first difference, and `lockstep explain CAUSE` how to fix it."},
      {"inconclusive", "",
       "Nothing was found to differ, and what was recorded does not suffice to say that cell and reference are the same: no step began with the\n"
       "same weights on both sides, traces are cut short, or too few pairs of seeds for the margin. It is no finding (exit 5).",
       "The sentence says what is lacking. For a mechanism: give forced_steps, or traces of the same layout; for an outcome: more seeds. A config may\n"
       "expect it, of any question."},
      {"failed", "",
       "Of a matrix: a run of the cell died, hung or could not be read, so nothing was compared.",
       "The sentence names rank and reason; mend that, and run the same command again."},
      // Savers.
      {"torn", "program, saver, trainer",
       "A checkpoint that could be resumed stood there before the save. The save was disturbed, and now the resumption refuses: there is\n"
       "nothing left to go on from.",
       "Write the new checkpoint beside the old one, fsync it, and give it its name by a rename; delete the old one only after that and\n"
       "an fsync of the folder. Let a resumption try the next older checkpoint where the newest cannot be read."},
      {"lost work", "program, saver, trainer",
       "The save reported success, and a resumption begins at an older state; or a checkpoint stood there, and the resumption begins\n"
       "at step 0 without an error.",
       "Check what every write, fsync, close and rename returns, and report success after the last of them. If a power loss is the failure:\n"
       "fsync the file before the rename, and the folder after it. Let a resumption that finds a damaged checkpoint say so."},
      {"mixed", "program, saver",
       "The resumption took parts of two saves, for example the weights of one and the optimizer of another, or two ranks loaded\n"
       "different checkpoints.",
       "Make one rename the moment at which all parts become valid: a folder for each step, or a manifest that names all parts with their\n"
       "hashes. Ranks must agree on the checkpoint before they load it."},
      {"silent", "program, saver, trainer; faults: a control run that nothing disturbed",
       "The resumption took data that no save had saved (cut short, written over, zeros), or lost a part of the state, and ended with\n"
       "status 0. In the suite of faults the word has its good sense: a control run, and no alarm.",
       "Save a hash of each part and compare it when loading; take a part whose hash differs for missing."},
      {"damaged", "trainer", "A checkpoint that the run had committed cannot be read, or holds other bits.", "As for torn: look at the timeline for the operation that touched it."},
      {"unsteady", "program",
       "Nothing was made to fail, and two saves of the same state were resumed to different end results. The save may take what the training\n"
       "still changes: an asynchronous save that copies after training has gone on (a torn snapshot).",
       "Copy the state before the training goes on, or wait for the save before the next update. If the end result holds times, seeds or\n"
       "paths, leave them out of what is written to {resume}: nothing else is tried before two saves are alike."},
      {"save failed", "program, saver",
       "No failure was injected, and the save command reported an error: its writers disturb each other, or what a killed save left is in\n"
       "the way of the next one.",
       "Give each try and each writer a temporary name of its own, and clear leftovers of earlier tries when a save begins."},
      {"hang", "program, saver, trainer",
       "A command, a rank or a resumption did not end within its deadline.",
       "Look at the last operation of the timeline. A writer may wait for a rank that is gone: give every wait a time limit. If the\n"
       "program is only slow, raise the deadline."},
      {"not judged", "program",
       "What a power loss may leave does not follow from the recorded operations: the save wrote in a way that is not seen (a shared mapping,\n"
       "io_uring, a program of 32 bits), moved files in from elsewhere, or other files stood there than the operations make. It does not mean that\n"
       "the save survives a power loss.",
       "Write by write or pwrite into {out} for the trial, or set program.power_loss to 0 to leave the power loss out."},
      {"not reached", "program, saver, trainer, faults",
       "The run did not come to the operation or place at which the failure was to be injected: its order differs from run to run.",
       "Nothing is known of this trial. Run it again, or reduce the number of writers."},
      {"whole, new; whole, old; whole; whole, all saved; whole, others were refused", "program, saver",
       "The resumption has the new save, or the old one where that may be; nothing is missing.", ""},
      {"refused; refused, and named; refused, named; refused, none was there", "program, saver, trainer",
       "The resumption or the call ended with an error that says what is wrong, and no checkpoint was lost.", ""},
      {"newest loaded, and said so; older one loaded, and said so", "saver", "A damaged checkpoint was passed over, and the load says which one it took instead.", ""},
      {"not named; another name", "saver, trainer", "What was damaged or left out was refused, and the error names something else.",
       "Compare the error with the sentence of the finding; the part that is named must be the one that was changed."},
      {"changed", "saver", "A load changed the disk.", "Look at the timeline for the write."},
      {"not cleaned", "saver", "A later save left what a killed one had begun.", "Remove leftovers of tries that did not commit when a save begins."},
      {"told apart", "saver", "Ranks were told different ends of one save.", "Let all ranks gather what became of the save before any of them reports it."},
      {"forged throughout, accepted", "saver", "Bytes and all hashes of them were forged alike. A hash without a key cannot find that.", ""},
      // Resumptions of trainers.
      {"other bits; end differs; neither", "trainer",
       "The resumed run does not end with the bits of the run that was not stopped, or a checkpoint is neither the old nor the new one.",
       "The finding names the first step and tensor that differ. A part of the state is not saved: random streams, the data's order, the\n"
       "optimizer's moments, counters."},
      {"resume fails", "trainer", "A run ended with an error although it had to end well.",
       "The sentence has its last words."},
      {"none left; too many kept; latest is behind; not the best; other names", "trainer", "The checkpoints that stand there are not those that the run's settings promise.",
       "Compare checkpoint.every, keep_last and keep_best with the names in the sentence."},
      {"not in order", "trainer", "A run that was asked to stop did not save, report and end in this order within its grace.", "Compare the grace with the time of a save."},
      {"it had finished; undecided", "trainer",
       "Nothing was decided: the run had finished before the signal, or it ended with an error where nothing looked at what was left out.", "Take more steps."},
      {"same bits; end equal; old, end equal; new, end equal; begun anew, end equal; bit-equal; as documented; "
       "gone on, at most one interval lost; saved within the grace, end equal",
       "trainer", "The resumed run agrees with the undisturbed one.", ""},
      // Ranks.
      {"missed; late; not told; left without a word; not on all ranks", "faults", "A fault was injected into a rank, and it was not reported, too late, or not to every survivor.",
       "Compare the threshold with the time in the sentence; a surviving rank must end with an error that names the failing one."},
      {"mistaken for another; named wrongly", "faults", "Something was reported, and it names another rank, kind, step or cause than the one that was planted.", "The sentence has what was expected and what was said."},
      {"left behind", "faults", "A process of the run was still there after it had ended.", "Look for processes that leave the rank's process group."},
      {"false alarm", "faults, saver", "Nothing was planted, and something was reported.", "If the machine was loaded, run the trial alone; otherwise report it."},
      {"disturbed", "faults, trainer", "The machine killed a process of the trial at each attempt (out of memory, say): nothing was learnt of its subject.", "Give the machine more memory or fewer jobs (--jobs), and run it again."},
      {"not finished; too slow", "faults", "A control run that nothing disturbed did not finish in its time.", "The machine may be overloaded: run the trial alone."},
      {"named; named, all told", "faults", "The rank that failed was named, and every survivor was told.", ""},
      {"planted, not found; planted, does harm", "all suites with planted mistakes",
       "A mistake was planted to see it found, and it was not, or under another name. The suite itself is wrong here, not what it tries.", "Do not trust this suite's silence; report it."},
      {"planted, found: ; planted, harmless here",
       "all suites with planted mistakes", "A planted mistake was found as it must be, or does no harm in this search.", ""},
  });
  return kPages;
}

const OutcomePage* find_outcome_page(std::string_view outcome) {
  constexpr std::string_view kBetween = "; ";
  for (const OutcomePage& page : outcome_pages()) {
    for (std::size_t begin = 0; begin < page.names.size();) {
      const std::size_t end = std::min(page.names.find(kBetween, begin), page.names.size());
      const std::string_view name = page.names.substr(begin, end - begin);
      if (outcome == name || (name.ends_with(": ") && outcome.starts_with(name))) return &page;
      begin = end + kBetween.size();
    }
  }
  return nullptr;
}

namespace {

/// Public reports of what an outcome means: by a name that stands on its page.
struct OutcomeReports {
  std::string_view name, reports;
};
constexpr auto kReports = std::to_array<OutcomeReports>({
    {"torn", "Lightning-AI/pytorch-lightning#688, mosaicml/composer#686, pytorch/pytorch#84881"},
    {"lost work", "verl-project/verl#7952"},
    {"mixed", "petuum/adaptdl#70"},
    {"hang", "pytorch/gloo#520, pytorch/pytorch#97191, NVIDIA-NeMo/Automodel#2468"},
    {"other bits", "huggingface/accelerate#2016, huggingface/transformers#17032"},
    {"missed", "pytorch/pytorch#163546, ml-explore/mlx#4060"},
    {"depends on the layout", "huggingface/trl#2596"},
});

std::string_view reports_of(const OutcomePage& page) {
  for (const OutcomeReports& each : kReports) {
    if (find_outcome_page(each.name) == &page) return each.reports;
  }
  return "";
}

std::string outcome_text(const OutcomePage& page) {
  const bool of_suite = !page.suites.empty();
  std::string text = fmt::format("{} ({})\n\n{}\n", page.names, of_suite ? fmt::format("outcome; suites: {}", page.suites) : "verdict of a cell", page.what);
  if (!page.next.empty()) text += fmt::format("\nwhat to do\n{}\n", page.next);
  if (const std::string_view reports = reports_of(page); !reports.empty()) text += fmt::format("\nsimilar public reports\n{}\n", reports);
  if (of_suite && !page.next.empty()) text += "\nEach finding has its sentence, its timeline, and a script that repeats it (OUT/replay).\n";
  return text;
}

/// How lockstep judges, at length: what `explain` tells besides causes.
struct ExplainTopic {
  std::string_view name;
  std::string_view what;  ///< one line
  std::string_view text;
};

constexpr auto kTopics = std::to_array<ExplainTopic>({
    {"meaning", "Float64 twins: tell rounding from a different computation.",
     R"(At each forced step both sides load the same parameters, optimizer state, batch and random draws, and compute twice, each
with its own code, layout and reduction: as configured, and in float64. The float64 computation is the run's twin.

  meaning      compares the two twins, per tensor:
                   |g_cell - g| <= 1e-12 max(|g|, t) + 1e-14 T + 64 (2^-52 / u) e
               t: size of the terms that are summed to the tensor (one per logit and row); T: that of all tensors; e: distance
               of the reference from its own twin (at least that of its worst forced step, relative to t); u: the epsilon of
               the run's precision. A factor of 1.0000000001 on one tensor is found at the first forced step.
  arithmetic   compares a run with its own twin, which has the same ranks, rows and tensors:
                   |g_32 - g_64| <= 16 e + n u (8 max(|g|, t) + 4 T),  n = 4 for a single number, else 1
               This finds narrowed types and flipped bits, which do not occur in float64.

guaranteed       at a forced step, for every layout: a different computation is reported, and a difference in rounding alone
                 is not. The verdict says which of the two comparisons failed.
not guaranteed   what happens between forced steps; the result of further training; runs that lockstep did not make, which
                 have no twin (compare --repeat measures their tolerance).

`lockstep explain exact` describes the comparison without a tolerance. docs/meaning.md has the reasons, and a picture.
)"},
    {"exact", "Exact arithmetic: layouts that cannot change a bit.",
     R"(With `arithmetic: exact` each row's loss and gradient is computed separately, at shapes that no layout changes, and sums over
rows and ranks are integer sums that are rounded once. Two runs of one objective agree bit for bit at every step, for all
layouts; the first bit that differs is a finding, with step, phase, row and sample id, rank and tensor.

guaranteed       on one machine type and build, layouts of one objective give the same bits: any number of ranks, unequal
                 and empty ones, accumulation, emulated and real. A difference is not rounding.
not guaranteed   it is not your trainer's arithmetic: PyTorch's Reducer does not run, so its own faults are not found
                 (comparing emulated with real ranks in native arithmetic finds them). Objectives that depend on the layout,
                 such as local negatives, differ. Statistics over rows (norm) are refused.

With `trace: full` the runs keep their values, from which the cause of a difference is named, as at a forced step.
`certify: {exact: 100}` adds the first 100 steps of each cell in exact arithmetic to any matrix. At one layout, native and exact
arithmetic differ by rounding alone: configs/rounding.yaml shows how far that drives a run.
)"},
});

/// Null if there is none of that name.
const ExplainTopic* find_explain_topic(std::string_view name) {
  const auto found = std::ranges::find(kTopics, name, &ExplainTopic::name);
  return found == kTopics.end() ? nullptr : &*found;
}

std::string indented(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::string out;
  for (std::string line; std::getline(lines, line);) out += "    " + line + "\n";
  return out;
}

/// W as a word of a formula.
bool names_world_size(std::string_view text) {
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  for (std::size_t at = text.find('W'); at != std::string_view::npos; at = text.find('W', at + 1)) {
    const bool begins = at == 0 || !is_letter(text[at - 1]);
    if (begins && (at + 1 == text.size() || !is_letter(text[at + 1]))) return true;
  }
  return false;
}

/// One page: what it is, how it is recognised, a minimal example, how to fix it, public reports.
std::string explain_text(const CausePage& page) {
  std::string text = fmt::format("{} ({})\n\n{}\n\nhow it shows\n{}", page.code, page.family, page.what,
                                 indented(page.recognised));
  if (names_world_size(page.recognised)) text += "    (W is the world size, the number of ranks.)\n";
  if (!page.wrong.empty()) text += "\nwrong\n" + indented(page.wrong);
  if (!page.right.empty()) text += "\nright\n" + indented(page.right);
  text += fmt::format("\nhow to fix it\n{}", indented(page.remedy));
  if (!page.reports.empty())
    text += fmt::format("\nsimilar public reports\n{}", indented(page.reports));
  return text;
}

/// All codes with their first sentence, family by family.
std::string explain_list() {
  std::size_t width = 0;
  for (const CausePage& page : cause_pages()) width = std::max(width, page.code.size());
  std::string text;
  std::string_view family;
  for (const CausePage& page : cause_pages()) {
    if (page.family != family) text += fmt::format("{}{}\n", text.empty() ? "" : "\n", page.family);
    family = page.family;
    text += fmt::format("  {:<{}}  {}\n", page.code, width, page.what);
  }
  text += "\nverdicts of cells, and outcomes of suites\n";
  for (const OutcomePage& page : outcome_pages()) {
    if (page.suites.empty() || !page.next.empty()) text += fmt::format("  {}\n", page.names);
  }
  text += "\nhow lockstep judges\n";
  for (const ExplainTopic& topic : kTopics) text += fmt::format("  {:<{}}  {}\n", topic.name, width, topic.what);
  return text;
}

/// Of the folder of a run or of records: who is behind in what, by the flight records, lockstep's own or PyTorch's; and where ranks that
/// hung were.
int explain_folder(const std::string& folder, const Console& console) {
  namespace fs = std::filesystem;
  const fs::path path = fs::path(folder).has_filename() ? fs::path(folder) : fs::path(folder).parent_path();
  const bool of_records = path.filename() == "flight";
  const std::vector<KeptStacks> stacks = kept_stacks((of_records ? path.parent_path() : path).string());
  std::error_code unknown;
  const std::string records_folder = fs::is_directory(path / "flight", unknown) ? (path / "flight").string() : folder;
  std::optional<flight::Judgement> judgement;
  try {
    judgement = flight::judge(flight::read_records(records_folder));
  } catch (const std::runtime_error& error) {
    if (stacks.empty()) throw ConfigError(std::string("explain: ") + error.what());
  }
  if (judgement) {
    for (const std::string& line : flight::in_words(*judgement)) console.out << clean_line(line) << "\n";
  }
  for (const KeptStacks& kept : stacks) console.out << fmt::format("rank {}: {} (all of it: {})\n", kept.rank, clean_line(kept.words), clean_line(kept.path));
  if (!stacks.empty() || !judgement->findings.empty()) return kExitUnexpected;
  return judgement->clean() ? kExitAsExpected : kExitUndecided;
}

}  // namespace

int explain_command(const ExplainOptions& options, const Console& console) {
  if (options.code.empty()) {
    console.out << explain_list();
    return kExitAsExpected;
  }
  std::error_code unknown;
  const bool known_word = find_explain_topic(options.code) != nullptr || find_cause_page(options.code) != nullptr;
  if (!known_word && std::filesystem::is_directory(options.code, unknown)) return explain_folder(options.code, console);
  if (const ExplainTopic* topic = find_explain_topic(options.code)) {
    console.out << topic->text;
    return kExitAsExpected;
  }
  if (const CausePage* page = find_cause_page(options.code)) {
    console.out << explain_text(*page);
    return kExitAsExpected;
  }
  if (const OutcomePage* outcome = find_outcome_page(options.code)) {
    console.out << outcome_text(*outcome);
    return kExitAsExpected;
  }
  std::vector<std::string_view> known;
  for (const ExplainTopic& topic : kTopics) known.push_back(topic.name);
  for (const CausePage& page : cause_pages()) known.push_back(page.code);
  // A hundred names in an error help nobody: only the nearest is said.
  throw unknown_word("explain", fmt::format("there is no cause, topic, verdict or outcome '{}'; lockstep explain lists all", options.code),
                     options.code, known);
}

}  // namespace lockstep
