#include "harness/cli/session/array.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "harness/base/errors.h"
#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr uint64_t kMostBytes = uint64_t{1} << 30;

std::string parts_file(const std::string& out_dir) { return out_dir + "/parts.json"; }

/// How many arrays come before the one that a run is in.
class Depths {
 public:
  explicit Depths(const Plan& plan) {
    for (const PlannedRun& run : plan.runs)
      if (!run.reused) runs_[run.id] = &run;
  }
  std::size_t of(const std::string& id) {
    const auto found = runs_.find(id);
    if (found == runs_.end()) return 0;
    if (const auto known = known_.find(id); known != known_.end()) return known->second;
    std::size_t depth = 0;
    for (const std::string& need : found->second->needs)
      if (runs_.contains(need)) depth = std::max(depth, of(need) + 1);
    return known_[id] = depth;
  }

 private:
  std::map<std::string, const PlannedRun*> runs_;
  std::map<std::string, std::size_t> known_;
};

}  // namespace

ArrayWish array_wish(const std::vector<std::string>& options) {
  ArrayWish wish;
  for (const std::string& option : options) {
    if (option != "--array" && !option.starts_with("--array=")) {
      wish.options.push_back(option);
      continue;
    }
    wish.wanted = true;
    if (option == "--array") continue;
    const std::string text = option.substr(std::string("--array=").size());
    const char* const end = text.data() + text.size();
    const bool limit = text.starts_with("%");
    const auto [at, error] = limit ? std::from_chars(text.data() + 1, end, wish.at_once) : std::from_chars_result{text.data(), std::errc{}};
    if (!limit || error != std::errc{} || at != end || wish.at_once < 1) {
      throw ConfigError(fmt::format("launcher slurm: '{}': each task is a run, and lockstep numbers them: use --array, or --array=%4 for four "
                                    "at once", option));
    }
  }
  return wish;
}

ArrayParts array_parts(const Plan& plan, std::size_t most_tasks) {
  LOCKSTEP_CHECK(most_tasks >= 1, "an array has a task");
  Depths depths(plan);
  std::vector<std::vector<std::string>> by_depth;
  for (const PlannedRun& run : plan.runs) {
    if (run.reused) continue;
    const std::size_t depth = depths.of(run.id);
    if (by_depth.size() <= depth) by_depth.resize(depth + 1);
    by_depth[depth].push_back(run.id);
  }
  ArrayParts parts;
  for (const std::vector<std::string>& ids : by_depth) {
    const std::size_t tasks = std::min(ids.size(), most_tasks);
    std::vector<std::vector<std::string>>& array = parts.emplace_back(tasks);
    for (std::size_t i = 0; i < ids.size(); ++i) array[i % tasks].push_back(ids[i]);
  }
  return parts;
}

void write_parts(const std::string& out_dir, const ArrayParts& parts) {
  write_file_atomically(parts_file(out_dir), json(parts).dump(1) + "\n");
}

std::vector<std::string> read_part(const std::string& out_dir, const std::string& part) {
  const FileText file = read_file(parts_file(out_dir), kMostBytes);
  const std::optional<ArrayParts> parts = file ? json_as<ArrayParts>(parse_json(file.text)) : std::nullopt;
  if (!parts) throw ConfigError(parts_file(out_dir) + ": " + (file ? "has no parts" : file.problem));
  std::size_t array = 0, task = 0;
  const char* const end = part.data() + part.size();
  const auto first = std::from_chars(part.data(), end, array);
  const bool dotted = first.ec == std::errc{} && first.ptr != end && *first.ptr == '.';
  const auto second = dotted ? std::from_chars(first.ptr + 1, end, task) : first;
  if (!dotted || second.ec != std::errc{} || second.ptr != end || array >= parts->size() || task >= (*parts)[array].size())
    throw ConfigError(fmt::format("--part {}: {} has no such part; lockstep itself sets it for the tasks of its arrays", part, parts_file(out_dir)));
  return (*parts)[array][task];
}

Plan plan_of_part(const Plan& plan, const std::vector<std::string>& ids, std::vector<std::string>& left_out) {
  const std::set<std::string> wanted(ids.begin(), ids.end());
  std::set<std::string> finished;
  for (const PlannedRun& run : plan.runs)
    if (run.reused) finished.insert(run.id);
  Plan part = plan;
  std::erase_if(part.runs, [&](const PlannedRun& run) {
    if (!wanted.contains(run.id)) return true;
    const bool possible = std::all_of(run.needs.begin(), run.needs.end(), [&](const std::string& need) { return finished.contains(need); });
    if (!possible) left_out.push_back(run.id);
    return !possible;
  });
  return part;
}

std::string array_script(const std::string& command, const std::string& out_dir, const std::string& name, std::size_t array, std::size_t tasks,
                         const ArrayWish& wish) {
  std::vector<std::string> options = {fmt::format("--array=0-{}{}", tasks - 1, wish.at_once > 0 ? fmt::format("%{}", wish.at_once) : "")};
  options.insert(options.end(), wish.options.begin(), wish.options.end());
  return batch_head(out_dir, fmt::format("{}-{}", name, array), options) +
         fmt::format(R"SH(task=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID
if ((${{SLURM_RESTART_COUNT:-0}} > 0)); then
  echo "$(date -u +%FT%TZ) task $task queued again by Slurm, restart $SLURM_RESTART_COUNT" | tee -a {}/losses >&2
fi
)SH", shell_quoted(out_dir)) +
         batch_command(fmt::format("{} --part {}.$SLURM_ARRAY_TASK_ID", command, array)) +
         R"SH(if [[ $status == 138 ]]; then scontrol requeue "$task"; fi
exit "$status"
)SH";
}

namespace {

/// A word of an #SBATCH line: Slurm takes quotes and backslashes there as a shell does between double quotes, and has nothing for a line break.
std::string sbatch_word(const std::string& word) {
  if (word.find('\n') != std::string::npos)
    throw ConfigError(fmt::format("launcher slurm: {} has a line break, which no option of sbatch can hold", shell_quoted(word)));
  if (shell_quoted(word) == word) return word;
  return "\"" + replaced(replaced(word, "\\", "\\\\"), "\"", "\\\"") + "\"";
}

/// A path in which Slurm shall replace nothing.
std::string sbatch_path(const std::string& path) {
  if (path.find('\\') != std::string::npos)
    throw ConfigError(fmt::format("launcher slurm: {} has a backslash, which Slurm takes out of paths of output: choose another folder", path));
  return sbatch_word(replaced(path, "%", "%%"));
}

}  // namespace

std::string batch_head(const std::string& out_dir, const std::string& name, const std::vector<std::string>& options) {
  std::string script = fmt::format("#!/bin/bash\n#SBATCH --job-name={}\n#SBATCH --output={} --open-mode=append\n#SBATCH --requeue\n",
                                   sbatch_word("lockstep-" + name), sbatch_path(out_dir + "/job.log"));
  for (const std::string& option : options) script += "#SBATCH " + sbatch_word(option) + "\n";
  return script + "\ncd " + shell_quoted(std::filesystem::current_path().string()) + "\n";
}

std::string batch_command(const std::string& command) {
  return "child=\ntrap 'kill -TERM $child' TERM\ntrap 'kill -USR1 $child' USR1\n" + command + R"SH( &
child=$!
while :; do
  wait "$child"
  status=$?
  kill -0 "$child" 2>/dev/null || break
done
# 138: warned by USR1 before the time was up; what was done is kept, and it waits for its next turn.
)SH";
}

}  // namespace lockstep
