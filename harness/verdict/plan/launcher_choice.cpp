#include "harness/verdict/plan/launcher_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/base/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kExternal = "external:";

std::vector<std::string_view> first_words() {
  std::vector<std::string_view> words = {"local", "slurm"};
  for (const NamedLauncher& launcher : named_launchers()) words.push_back(launcher.name);
  words.push_back(kExternal);
  return words;
}

std::string_view first_word(std::string_view text) { return text.substr(0, text.find_first_of(" \t")); }

}  // namespace

const std::vector<NamedLauncher>& named_launchers() {
  static const std::vector<NamedLauncher> launchers = {
      {"torchrun", "torchrun --standalone --nproc-per-node {ranks} {options} --no-python {rank_program} run {run} --prepared",
       "PyTorch contains it: python3 -m pip install torch, with its bin folder in PATH"},
      {"openmpi", "mpirun.openmpi --oversubscribe --bind-to none -np {ranks} {options} {rank_program} run {run} --prepared",
       "apt-get install openmpi-bin"},
      {"mpich", "mpirun.mpich -np {ranks} {options} {rank_program} run {run} --prepared", "apt-get install mpich"},
      {"srun", "srun --ntasks {ranks} --input none --mpi none --overlap --unbuffered {options} {rank_program} run {run} --prepared",
       "apt-get install slurm-client, on a machine of a Slurm cluster"},
  };
  return launchers;
}

std::string launcher_problem(std::string_view text, std::string& suggestion) {
  std::vector<std::string> words;
  if (!split_words(text, words)) return fmt::format("launcher '{}': a quote is not closed", text);
  if (text.starts_with(kExternal)) {
    for (const std::string_view needed : {"{rank_program}", "{run}"}) {
      if (text.find(needed) == std::string_view::npos)
        return fmt::format("launcher '{}': the command lacks {}; it needs {{ranks}}, {{rank_program}} run {{run}}", text, needed);
    }
    return "";
  }
  const std::vector<std::string_view> known = first_words();
  const std::string_view name = first_word(text);
  if (name == "local" && words.size() > 1) return fmt::format("launcher '{}': local takes no options", text);
  if (name != kExternal && std::find(known.begin(), known.end(), name) != known.end()) return "";
  suggestion = nearest(name, known);
  return fmt::format("launcher '{}' is unknown; known are {}COMMAND", name, fmt::join(known, ", "));
}

LauncherChoice launcher_choice(std::string_view text) {
  LauncherChoice choice;
  choice.name = std::string(first_word(text));
  if (text.starts_with(kExternal)) {
    choice.kind = LauncherChoice::Kind::external;
    choice.name = "external";
    split_words(text.substr(kExternal.size()), choice.words);
    return choice;
  }
  std::vector<std::string> options;
  split_words(text.substr(choice.name.size()), options);
  if (choice.name == "slurm") {
    choice.kind = LauncherChoice::Kind::slurm;
    choice.words = std::move(options);
    return choice;
  }
  const auto& launchers = named_launchers();
  const auto found = std::find_if(launchers.begin(), launchers.end(), [&](const NamedLauncher& s) { return s.name == choice.name; });
  if (found == launchers.end()) return choice;
  choice.kind = LauncherChoice::Kind::external;
  std::vector<std::string> words;
  split_words(found->command, words);
  for (std::string& word : words) {
    if (word == "{options}")
      choice.words.insert(choice.words.end(), options.begin(), options.end());
    else
      choice.words.push_back(std::move(word));
  }
  return choice;
}

void take_launcher(MatrixSource& source, const std::string& chosen, Problems& problems) {
  Place place = source.place_of("launcher");
  if (!chosen.empty()) {
    place = {problems.add_source("--launcher " + chosen)};
    source.matrix.launcher = chosen;
  }
  std::string suggestion;
  if (const std::string problem = launcher_problem(source.matrix.launcher, suggestion); !problem.empty())
    problems.add(place, problem, suggestion);
}

bool split_words(std::string_view text, std::vector<std::string>& words) {
  std::string word;
  bool begun = false;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word.push_back(c);
    } else if (c == '\'' || c == '"') {
      quote = c;
      begun = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (begun) words.push_back(std::move(word));
      word.clear();
      begun = false;
    } else {
      word.push_back(c);
      begun = true;
    }
  }
  if (begun) words.push_back(std::move(word));
  return quote == 0;
}

}  // namespace lockstep
