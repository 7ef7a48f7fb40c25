// `lockstep issue`: a text to paste into a bug report, and the smallest folder that has the same verdict. Neither names
// a user, a host or a folder of the machine.

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <pwd.h>
#include <unistd.h>

#include <filesystem>
#include <ostream>
#include <regex>
#include <set>
#include <sstream>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/machine.h"
#include "harness/base/text.h"
#include "harness/cli/commands.h"
#include "harness/judge/trace/reader.h"
#include "harness/run/job_queue.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Of each absolute path its last part: "…/train.py".
std::string without_folders(std::string_view text) {
  constexpr std::string_view kBefore = " \t\n\"'`=:;(,[{<>|&~", kEnds = " \t\n\"'`\\,;:()[]{}<>|&";
  std::string shown;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t end = text[at] == '/' ? std::min(text.find_first_of(kEnds, at), text.size()) : at;
    const std::string_view path = text.substr(at, end - at);
    const std::size_t last = path.rfind('/');
    const bool begins = at == 0 || kBefore.find(text[at - 1]) != std::string_view::npos;
    if (!begins || last == 0 || last == std::string_view::npos || path[1] == '/') {
      shown += text[at];
      continue;
    }
    shown += "…" + std::string(path.substr(last));
    at = end - 1;
  }
  return shown;
}

json read_json(const std::string& path) {
  const FileText file = read_file(path);
  json read = file ? parse_json(file.text) : json();
  return read.is_object() ? std::move(read) : json::object();
}

std::string text_at(const json& object, const char* key) {
  return json_as<std::string>(object.value(key, json())).value_or("");
}

/// What the text of a bug report must not name: folders, the user, and every host that has run a rank.
class Names {
 public:
  explicit Names(const std::string& out) {
    static const std::regex special(R"([.*+?^${}()|[\]\\])");
    const auto hide = [&](const std::string& name, const char* by) {
      if (name.size() > 2 && name != "root")
        hidden_.emplace_back("\\b" + std::regex_replace(name, special, "\\$&") + "\\b", by);
    };
    const passwd* const user = ::getpwuid(::geteuid());
    hide(user ? user->pw_name : "", "<user>");
    std::set<std::string> hosts{this_host().host};
    if (fs::is_directory(out + "/runs"))
      for (const fs::directory_entry& file : fs::recursive_directory_iterator(out + "/runs"))
        if (file.path().filename().string().ends_with(".hello.json"))
          hosts.insert(text_at(read_json(file.path().string()), "host"));
    for (const std::string& host : hosts) hide(host, "<host>");
  }
  std::string without(const std::string& text) const {
    std::string shown = without_folders(text);
    for (const auto& [name, by] : hidden_) shown = std::regex_replace(shown, name, by);
    return shown;
  }
  /// Of a command, and of a variable's name and value: also without what looks like a secret or a host.
  std::string without_secrets(const std::string& text) const {
    static const std::regex secret(
        R"(((?:token|key|secret|passw(?:or)?d|auth|bearer)(?:=| +))(?:'[^']*'|"[^"]*"|[^\s'"]+))", std::regex::icase),
        host(R"(((?:endpoint|addr|address|hosts?|nodelist|comm_id)(?:=| +)|://)[^\s'"/]+)", std::regex::icase);
    return without(std::regex_replace(std::regex_replace(text, secret, "$1<hidden>"), host, "$1<host>"));
  }
  /// Of each text in it.
  void hide_in(json& value) const {
    if (value.is_string()) value = without(value.get<std::string>());
    else if (value.is_structured())
      for (json& each : value) hide_in(each);
  }

 private:
  std::vector<std::pair<std::regex, const char*>> hidden_;
};

/// What was found, but for figures that depend on the number of steps.
json finding(const json& check) {
  return {check.value("verdict", json()), check.value("headline", json()), check.value("because", json())};
}

/// What a check's folder needs for its verdict, in a folder of its own.
class SmallFolder {
 public:
  SmallFolder(const std::string& from, const std::string& to, const json& check, const Names& names)
      : from_(from + "/runs"), to_(to), runs_(to + "/runs"), check_(check), names_(names) {}

  /// False: the runs kept do not show it.
  bool make() const {
    const std::string headline = text_at(check_, "headline");
    const std::size_t at = headline.find("step ");
    const bool whole = at == std::string::npos || !text_at(check_["asked"], "resumed").empty();
    const int64_t step = whole ? -1 : std::strtoll(headline.c_str() + at + 5, nullptr, 10),
                  last = std::numeric_limits<int64_t>::max();
    bool shows = false;
    for (const auto& [from, to] : {std::pair{step, step}, {int64_t{0}, step}, {int64_t{0}, last}}) {
      if (shows || (whole && to < last)) continue;
      write(from, to);
      shows = is_shown();
    }
    for (const fs::directory_entry& run : fs::directory_iterator(from_)) {
      const fs::path folder = runs_ / run.path().filename();
      if (!shows || leave_out(folder)) continue;
      for (int rank = 0; fs::exists(folder / fmt::format("rank-{}.trace", rank)); ++rank)
        leave_out(folder / fmt::format("rank-{}.trace", rank));
    }
    is_shown();
    for (const char* page : {"check.html", "check.md"}) fs::remove(to_ / page);
    return shows;
  }

 private:
  /// The steps between these, and weights before the first update.
  void write(int64_t first, int64_t last) const {
    fs::remove_all(to_);
    for (const fs::directory_entry& file : fs::recursive_directory_iterator(from_)) {
      const fs::path path = runs_ / file.path().lexically_relative(from_);
      const std::string name = path.filename().string();
      if (file.is_directory()) {
        fs::create_directories(path);
      } else if (name.ends_with(".trace")) {
        TraceReader trace(file.path().string());
        TraceWriter kept(path.string(), trace.header());
        while (const auto step = trace.next())
          if (step->step < 0 || (step->step >= first && step->step <= last)) kept.copy(*step);
        if (trace.finished()) kept.finish();
      } else if (name.ends_with(".probe.json") || name.ends_with(".rows.json") || name.ends_with(".operations.json")) {
        json said = read_json(file.path().string());
        said.erase("owner");
        if (said.contains("unrecorded") && said["unrecorded"].is_array())
          for (json& each : said["unrecorded"])
            if (each.is_object()) each.erase("by");
        names_.hide_in(said);
        write_file_atomically(path.string(), said.dump());
      }
    }
    json asked = check_["asked"];
    for (const char* key : {"reference", "run", "resume_with"})
      asked[key] = names_.without_secrets(text_at(asked, key));
    asked.update({{"folder", "."},
                  {"kept", true},
                  {"ranks", fmt::format("{},{}", ranks_of({"reference-float64", "whole"}),
                                        ranks_of({"run-float64", "whole"}))}});
    write_file_atomically((to_ / "check.json").string(), json({{"asked", asked}}).dump(2) + "\n");
  }

  int ranks_of(std::initializer_list<const char*> runs) const {
    int ranks = 0;
    for (const char* run : runs)
      while (fs::exists(from_ / run / fmt::format("rank-{}.trace", ranks))) ++ranks;
    return std::max(ranks, 1);
  }

  bool is_shown() const {
    std::ostringstream said;
    CheckOptions options;
    options.out = to_.string();
    options.kept = true;
    try {
      const int status = check_command(options, {said, said});
      return (status == kExitAsExpected || status == kExitUnexpected || status == kExitUndecided) &&
             finding(read_json(options.out + "/check.json")) == finding(check_);
    } catch (const std::exception&) {
      return false;  // what is kept is too little
    }
  }

  /// Removes a run or trace, if it is the same without.
  bool leave_out(const fs::path& what) const {
    const fs::path aside = to_ / "aside";
    fs::rename(what, aside);
    if (is_shown()) return fs::remove_all(aside) > 0;
    fs::rename(aside, what);
    return false;
  }

  fs::path from_, to_, runs_;
  const json& check_;
  const Names& names_;
};

std::string issue_text(const std::string& out, const json& check, const Names& names) {
  std::string text =
      fmt::format("### {}\n\n    {}\n\n", text_at(check, "headline"), names.without_secrets(text_at(check, "command")));
  for (const json& each : check.value("because", json::array())) text += json_as<std::string>(each).value_or("") + "\n";
  for (const json& fact : check.value("facts", json::array()))
    if (const std::string state = text_at(fact, "state"); state != "same" && state != "none")
      text += fmt::format("- {} {}: {}\n", state, text_at(fact, "name"), text_at(fact, "text"));
  text += fmt::format("\n| | |\n|---|---|\n| lockstep | {}, {} |\n", LOCKSTEP_VERSION, build_commit());
  for (const char* run : {"run-float64", "run-alone", "whole"}) {
    const std::string folder = fmt::format("{}/runs/{}/", out, run);
    const json probe = read_json(folder + "rank-0.probe.json"), hello = read_json(folder + "rank-0.hello.json");
    if (probe.empty()) continue;
    text += fmt::format("| probe, torch, Python | {}, {}, {} |\n| wrapper, ranks | {}, {} |\n", text_at(probe, "probe"),
                        text_at(probe, "torch"), text_at(hello, "python"), text_at(probe, "wrapper"),
                        probe.value("world_size", json()).dump());
    const json facts = read_json(folder + "run.json").value("provenance", json::object());
    for (const auto& [key, value] : facts.items())
      if (key == "isa" || key == "cores" || key.starts_with("env."))
        text += fmt::format("| {} |\n",
                            replaced(names.without_secrets(key + "=" + text_at(facts, key.c_str())), "=", " | "));
    break;
  }
  return names.without(text);
}

}  // namespace

int issue_command(const IssueOptions& options, const Console& console) {
  const json check = read_json(options.dir + "/check.json");
  if (text_at(check, "headline").empty() || !check.contains("asked"))
    throw ConfigError(
        fmt::format("{}: holds no check that was judged; lockstep check -- COMMAND makes one", options.dir));
  const std::string to = fs::path(options.to.empty() ? options.dir + "/issue" : options.to).lexically_normal().string();
  const json there = read_json(to + "/check.json").value("asked", json());
  const bool is_issue = there.is_object() && json_as<bool>(there.value("kept", json())).value_or(false);
  const std::string from = fs::weakly_canonical(options.dir).string() + "/", into = fs::weakly_canonical(to).string() + "/";
  if ((fs::exists(to) && !fs::is_empty(to) && !is_issue) || from.starts_with(into) || into.starts_with(from + "runs/"))
    throw ConfigError(fmt::format("--to {}: there is something else", to));
  if (!check["asked"].is_object() || !fs::is_directory(options.dir + "/runs"))
    throw ConfigError(fmt::format("{}: its runs are gone; lockstep check -- COMMAND makes them", options.dir));
  const Names names(options.dir);
  std::string text = issue_text(options.dir, check, names);
  const bool shows = SmallFolder(options.dir, to, check, names).make();
  uint64_t bytes = 0;
  for (const fs::directory_entry& file : fs::recursive_directory_iterator(to))
    bytes += file.is_regular_file() ? file.file_size() : 0;
  text +=
      shows ? fmt::format(
                  "\nThe same from the attached folder, without the trainer: `lockstep check --kept --out {}` ({:.3g} MB).\n",
                  fs::path(to).filename().string(), static_cast<double>(bytes) / 1e6)
            : "\nThe recorded runs do not show it again: the folder has what there is.\n";
  write_file_atomically(to + "/issue.md", text);
  console.out << clean_text(text);
  console.err << clean_line(fmt::format("attach {}: it holds weights and gradients of the step that differs", to))
              << "\n";
  return kExitAsExpected;
}

}  // namespace lockstep
