#include "harness/cli/session/background.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/run/job_queue.h"
#include "harness/run/libraries.h"
#include "harness/run/process_state.h"
#include "harness/run/rank_environment.h"
#include "harness/run/run_folder.h"
#include "harness/suites/engine/run_trials.h"

namespace lockstep {

/// Runs `command`, hands SIGTERM and SIGUSR1 on to it, waits for its end; then `$status` is its exit status.
static std::string batch_command(const std::string& command);

/// Job name, output, requeuing, each of `options`, and the change into this folder. Output is appended to OUT/job.log. Throws ConfigError
/// where Slurm has no way to write what a name or path holds.
static std::string batch_head(const std::string& out_dir, const std::string& name, const std::vector<std::string>& options);
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

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A scheduler is asked less and less often; a file costs nothing to ask.
constexpr int kFirstLook_ms = 500, kLastLook_ms = 8000, kFileLook_ms = 20;

constexpr std::size_t kLossesShown = 10, kStacksShown = 5, kLastWords = 3;

/// With what it prints on standard error.
Reply ask(std::vector<std::string> words) { return answer_of(std::move(words), {}, -1, Errors::with_the_rest); }

int finished_runs(const std::string& out_dir) {
  std::error_code error;
  int count = 0;
  for (fs::directory_iterator at(out_dir + "/runs", error), end; !error && at != end; at.increment(error))
    count += fs::exists(at->path() / "done", error) ? 1 : 0;
  return count;
}

/// Of ranks that hung: that there are stacks, and where.
std::string stacks_text(const std::string& out_dir) {
  std::vector<std::string> lines;
  std::error_code error;
  for (fs::directory_iterator at(out_dir + "/runs", error), end; !error && at != end; at.increment(error)) {
    const std::string run = at->path().string();
    for (const KeptStacks& kept : kept_stacks(run))
      lines.push_back(fmt::format("  rank {} of {} hung; its stacks: {} (lockstep explain {})\n", kept.rank, at->path().filename().string(), kept.path, run));
  }
  std::ranges::sort(lines);
  const std::size_t more = lines.size() - std::min(lines.size(), kStacksShown);
  lines.resize(lines.size() - more);
  if (more > 0) lines.push_back(fmt::format("  stacks of {} more: {}/runs/*/stacks-*.txt\n", more, out_dir));
  return fmt::format("{}", fmt::join(lines, ""));
}

/// The script's own note, since lockstep may have been killed before it could write one.
std::optional<int> noted_status(const std::string& out_dir) {
  const FileText file = read_file(out_dir + "/job.status", 64);
  int status = 0;
  const char* const end = file.text.data() + file.text.size();
  const auto read = std::from_chars(file.text.data(), end, status);
  // One that was cut short is no status 0.
  return read.ec == std::errc{} && read.ptr + 1 == end && *read.ptr == '\n' ? std::optional(status) : std::nullopt;
}

/// Of runs that nobody noted: how they were judged.
Session session_of_results(const std::string& out_dir, const std::string& problem) {
  std::error_code error;
  if (!fs::is_directory(out_dir, error)) throw ConfigError(out_dir + " is not a folder; give the folder of results (--out) of a run");
  const std::string path = out_dir + "/results.json";
  std::string unread;
  const std::optional<json> results = read_sealed(path, unread);
  if (!results) {
    throw ConfigError(fmt::format("{} {}, and {} {}: nothing has run or been judged there; `lockstep run CONFIG --out {}` does", session_file(out_dir), problem,
                                  path, unread, out_dir));
  }
  const JsonFields fields(*results, path);
  const json summary = fields.at<json>("summary");
  Session session;
  session.command = fields.value("rerun", "");
  session.of_trials = fields.has("laboratory");
  session.exit_code = JsonFields(summary, path).at<int>("exit_code");
  return session;
}

/// Has a detached process or a submitted job noted itself, and is this it?
bool is_noted(const std::string& out_dir) {
  if (!read_file(session_file(out_dir), 1 << 20)) return false;
  try {
    const Session noted = read_session(out_dir);
    if (!noted.job.empty()) return noted.job == batch_job(current_environment());
    Session self;
    self.be_this_process();
    return !noted.foreground && noted.process == self.process && noted.host == self.host && noted.space == self.space && noted.started == self.started;
  } catch (const ConfigError&) {
    return false;  // a damaged one is written anew
  }
}

}  // namespace

void Session::be_this_process() {
  const ProcessId self = process_here(::getpid());
  host = host_name();
  process = self.pid;
  space = self.space;
  started = self.started;
}

std::string session_file(const std::string& out_dir) { return out_dir + "/session.json"; }

void write_session(const std::string& out_dir, const Session& session) {
  json object = {{"command", session.command}, {"host", session.host}, {"process", session.process},
                 {"job", session.job}, {"runs", session.runs}, {"of_trials", session.of_trials}};
  if (session.space != 0) object["space"] = hex16(session.space);
  if (session.started != 0) object["started"] = session.started;
  if (session.foreground) object["foreground"] = true;
  if (!session.arrays.empty()) object["arrays"] = session.arrays;
  if (session.exit_code) object["exit_code"] = *session.exit_code;
  seal(object);
  write_file_atomically(session_file(out_dir), object.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

Session read_session(const std::string& out_dir) {
  const FileText file = read_file(session_file(out_dir), 1 << 20);
  if (!file) return session_of_results(out_dir, file.problem);
  const json object = parse_json(file.text);
  if (!object.is_object()) throw ConfigError(session_file(out_dir) + " is not a session file; run again to write it anew");
  const JsonFields fields(object, session_file(out_dir));
  // One of an earlier lockstep, which may still run, has no checksum.
  if (const std::string problem = fields.has("checksum") ? seal_problem(object) : ""; !problem.empty())
    throw ConfigError(fmt::format("{} {}; run again to write it anew", session_file(out_dir), problem));
  Session session;
  session.command = fields.value("command", "");
  session.host = fields.value("host", "");
  session.process = fields.value("process", 0);
  session.job = fields.value("job", "");
  session.space = from_hex16(fields.value("space", "")).value_or(0);
  session.started = fields.value("started", uint64_t{0});
  session.runs = fields.value("runs", 0);
  session.of_trials = fields.value("of_trials", false);
  session.foreground = fields.value("foreground", false);
  session.arrays = fields.value("arrays", std::vector<std::string>());
  if (fields.has("exit_code")) session.exit_code = fields.at<int>("exit_code");
  if (!session.exit_code && !session.job.empty()) session.exit_code = noted_status(out_dir);
  return session;
}

void note_loss(const std::string& out_dir, const std::string& what) {
  std::FILE* file = std::fopen((out_dir + "/losses").c_str(), "ae");
  if (file == nullptr) return;  // it stands in the progress as well
  std::fprintf(file, "%s %s\n", utc_now().c_str(), what.c_str());
  std::fclose(file);
}

Session detach(const std::string& out_dir, Session session, const std::function<int()>& work) {
  (void)real_files().remove(out_dir + "/losses");
  std::array<int, 2> noted{};
  if (::pipe2(noted.data(), O_CLOEXEC) != 0) throw MachineError(std::string("pipe: ") + std::strerror(errno));
  const pid_t pid = ::fork();
  if (pid < 0) throw MachineError(std::string("fork: ") + std::strerror(errno));
  if (pid == 0) {
    ::setsid();
    const auto file = [&out_dir](const char* name) {
      return ::open((out_dir + name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    };
    ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    ::dup2(file("/run.out"), STDOUT_FILENO);
    ::dup2(file("/run.err"), STDERR_FILENO);
    session.be_this_process();
    write_session(out_dir, session);
    ::close(noted[0]);
    ::close(noted[1]);
    session.exit_code = work();
    write_session(out_dir, session);
    std::fflush(nullptr);
    ::_exit(*session.exit_code);
  }
  session.be_this_process();
  session.process = pid;
  session.started = process_state(pid).started;
  ::close(noted[1]);
  char byte = 0;
  while (::read(noted[0], &byte, 1) < 0 && errno == EINTR) {
  }
  ::close(noted[0]);
  return session;
}

int in_foreground(const std::string& out_dir, Session session, const std::function<int()>& work) {
  if (is_noted(out_dir)) return work();
  session.foreground = true;
  session.be_this_process();
  write_session(out_dir, session);
  session.exit_code = work();
  if (!is_noted(out_dir)) write_session(out_dir, session);  // a job may begin before whoever submitted it has noted it
  return *session.exit_code;
}

std::string job_script(const std::string& command, const std::string& out_dir, const std::string& name,
                       const std::vector<std::string>& options) {
  return batch_head(out_dir, name, options) +
         fmt::format(R"SH(status_file={}/job.status
rm -f "$status_file"
if ((${{SLURM_RESTART_COUNT:-0}} > 0)); then
  echo "$(date -u +%FT%TZ) queued again by Slurm, restart $SLURM_RESTART_COUNT; nodes that are down: $(sinfo -hN -t down,fail,no_respond -o '%N (%E)' | sort -u | tr '\n' ' ')" | tee -a {}/losses >&2
fi
)SH", shell_quoted(out_dir), shell_quoted(out_dir)) +
         batch_command(command + " >" + shell_quoted(out_dir) + "/run.out") +
         R"SH(if [[ $status == 138 ]] && scontrol requeue "$SLURM_JOB_ID"; then exit "$status"; fi
# Slurm itself has put it back into the queue: a node failed, or another job went before.
if [[ $(scontrol show job "$SLURM_JOB_ID") =~ Restarts=([0-9]+) ]] && ((BASH_REMATCH[1] > ${SLURM_RESTART_COUNT:-0})); then
  exit "$status"
fi
echo "$status" >"$status_file.new" && mv "$status_file.new" "$status_file"
exit "$status"
)SH";
}

std::string submit_script(const std::string& path, const std::string& script, const std::string& after) {
  write_file_atomically(path, script);
  std::vector<std::string> words = {"sbatch", "--parsable"};
  // Whatever becomes of that one: what it lacks is done here. If Slurm forgets it, this job is not to wait for ever.
  if (!after.empty()) words.insert(words.end(), {"--dependency=afterany:" + after, "--kill-on-invalid-dep=yes"});
  words.push_back(path);
  const Reply answer = ask(words);
  if (answer.status == 127) throw ConfigError("launcher slurm: sbatch is missing; apt-get install slurm-client, on a machine of a cluster");
  if (answer.status != 0) throw ConfigError(fmt::format("launcher slurm: sbatch {} says: {}", path, answer.text));
  return answer.text.substr(0, answer.text.find_first_of(";\n"));
}

std::string cancel_jobs(const std::vector<std::string>& jobs) {
  if (jobs.empty()) return "";
  const std::string which = fmt::format("{} {}", jobs.size() == 1 ? "the array" : "the arrays", fmt::join(jobs, ", "));
  std::vector<std::string> words = {"scancel"};
  words.insert(words.end(), jobs.begin(), jobs.end());
  const Reply answer = ask(words);
  if (answer.status == 0) return fmt::format("; {} that had been submitted {} cancelled", which, jobs.size() == 1 ? "is" : "are");
  return fmt::format("; {} had been submitted and scancel {}: {}", which,
                     answer.status == 127 ? "is not here" : fmt::format("says {}", answer.text), fmt::join(words, " "));
}

Session submit(const std::string& out_dir, Session session, const std::string& script) {
  for (const char* name : {"/job.status", "/losses"}) (void)real_files().remove(out_dir + name);
  session.job = submit_script(out_dir + "/job.sh", script, session.arrays.empty() ? "" : session.arrays.back());
  session.host = host_name();
  write_session(out_dir, session);
  return session;
}

std::string state_of(const std::string& out_dir, const Session& session) {
  if (session.exit_code) return "ended";
  if (session.job.empty()) {
    const bool here = session.host == host_name() && (session.space == 0 || session.space == process_space());
    if (!here) return "running";  // as far as can be seen from here
    return is_gone({session.process, session.space, session.started}) ? "lost" : "running";
  }
  std::vector<std::string> jobs = session.arrays;
  jobs.push_back(session.job);
  const Reply answer = ask({"squeue", "--noheader", "--jobs", fmt::format("{}", fmt::join(jobs, ",")), "--format", "%T"});
  if (answer.status == 0) {
    const auto any = [&answer](std::initializer_list<const char*> states) {
      return std::any_of(states.begin(), states.end(), [&](const char* state) { return answer.text.find(state) != std::string::npos; });
    };
    if (any({"RUNNING", "COMPLETING", "SUSPENDED"})) return "running";
    if (any({"PENDING", "REQUEUED", "REQUEUE_HOLD", "CONFIGURING"})) return "pending";
  }
  return noted_status(out_dir) ? "ended" : "lost";
}

std::optional<int> wait_for(const std::string& out_dir, const std::function<bool()>& give_up) {
  int pause_ms = kFirstLook_ms, waited_ms = 0, times_lost = 0;
  while (!give_up()) {
    const Session session = read_session(out_dir);
    if (session.exit_code) return session.exit_code;
    if (waited_ms >= pause_ms || session.job.empty()) {
      // A job that has just ended, or is about to be queued again, is in no list for a moment.
      times_lost = state_of(out_dir, session) == "lost" ? times_lost + 1 : 0;
      if (times_lost > (session.job.empty() ? 2 : 5)) return std::nullopt;
      waited_ms = 0;
      pause_ms = std::min(2 * pause_ms, kLastLook_ms);
    }
    ::poll(nullptr, 0, kFileLook_ms);
    waited_ms += kFileLook_ms;
  }
  return std::nullopt;
}

std::string last_words(const std::string& out_dir) {
  std::string text;
  for (const std::string& line : last_lines(out_dir + (read_session(out_dir).job.empty() ? "/run.err" : "/job.log"), kLastWords)) text += line + "\n";
  return text;
}

std::string session_text(const std::string& out_dir) {
  const Session session = read_session(out_dir);
  const std::string state = state_of(out_dir, session);
  std::string text = state + ": ";
  if (!session.job.empty()) {
    text += "Slurm job " + session.job;
  } else if (session.process == 0) {
    text += "by results.json";
  } else {
    text += fmt::format("process {} on {}{}", session.process, session.host, session.foreground ? ", in the foreground" : "");
  }
  if (!session.arrays.empty()) text += fmt::format(" after the array{} {}", session.arrays.size() == 1 ? "" : "s", fmt::join(session.arrays, ", "));
  const int finished = finished_runs(out_dir);
  if (session.of_trials) {
    text += fmt::format("; {} have run", counted(recorded_trials(out_dir), "trial"));
  } else {
    text += session.runs == 0 ? fmt::format("; {} have finished", counted(finished, "run"))
                              : fmt::format("; {} of {} runs have finished", std::min(finished, session.runs), session.runs);
  }
  if (session.exit_code) text += fmt::format("; exit status {}", *session.exit_code);
  if (state == "lost") text += "; it ended without a status: run the same command again to resume";
  text += "\n  " + session.command + "\n";
  text += stacks_text(out_dir);
  for (const std::string& line : last_lines(out_dir + "/losses", kLossesShown)) text += "  " + line + "\n";
  return text;
}

}  // namespace lockstep
