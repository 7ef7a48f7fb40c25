#include "harness/cli/outcomes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace lockstep {

std::span<const OutcomePage> outcome_pages() {
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
       "gone on, at most one interval lost; 10 further steps bit-equal; saved within the grace, end equal",
       "trainer", "The resumed run agrees with the undisturbed one.", ""},
      // Ranks, collectives, launchers.
      {"missed; late; not told; left without a word; not on all ranks", "faults", "A fault was injected into a rank, and it was not reported, too late, or not to every survivor.",
       "Compare the threshold with the time in the sentence; a surviving rank must end with an error that names the failing one."},
      {"mistaken for another; named wrongly; named too late; named, and something besides", "faults", "Something was reported, and it names another rank, kind, step or cause than the one that was planted.", "The sentence has what was expected and what was said."},
      {"left behind", "faults", "A process of the run was still there after it had ended.", "Look for processes that leave the rank's process group."},
      {"false alarm", "faults, saver", "Nothing was planted, and something was reported.", "If the machine was loaded, run the trial alone; otherwise report it."},
      {"disturbed", "faults, trainer", "The machine killed a process of the trial at each attempt (out of memory, say): nothing was learnt of its subject.", "Give the machine more memory or fewer jobs (--jobs), and run it again."},
      {"not finished; too slow", "faults", "A control run that nothing disturbed did not finish in its time.", "The machine may be overloaded: run the trial alone."},
      {"named; named, all told", "faults", "The rank that failed was named, and every survivor was told.", ""},
      {"not found; planted, not found; planted, named wrongly; planted, never acts; planted, does harm", "all suites with planted mistakes",
       "A mistake was planted to see it found, and it was not, or under another name. The suite itself is wrong here, not what it tries.", "Do not trust this suite's silence; report it."},
      {"planted, found: ; planted, found and named; planted, harmless here; named at its first step; named at its first step, as one of several that fit; changed no bit",
       "all suites with planted mistakes", "A planted mistake was found as it must be, or does no harm in this search.", ""},
      {"every element right", "collectives", "Every element is what it has to be.", ""},
      {"wrong elements; did not end; refused by the backend", "collectives", "A collective gave wrong elements, did not end, or the backend does not offer it.", "The finding names collective, type, size and the first wrong element."},
      {"another rank; another GPU; a GPU twice; mistaken for a rank", "launchers", "Variables that a launcher sets were resolved to another rank or GPU.", "Compare the variables in the sentence with those of your launcher."},
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

}  // namespace

std::string outcome_text(const OutcomePage& page) {
  const bool of_suite = !page.suites.empty();
  std::string text = fmt::format("{} ({})\n\n{}\n", page.names, of_suite ? fmt::format("outcome; suites: {}", page.suites) : "verdict of a cell", page.what);
  if (!page.next.empty()) text += fmt::format("\nwhat to do\n{}\n", page.next);
  if (const std::string_view reports = reports_of(page); !reports.empty()) text += fmt::format("\nsimilar public reports\n{}\n", reports);
  if (of_suite && !page.next.empty()) text += "\nEach finding has its sentence, its timeline, and a script that repeats it (OUT/replay).\n";
  return text;
}

}  // namespace lockstep
