#include "harness/cli/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "harness/base/clean_text.h"
#include "harness/cli/commands.h"
#include "harness/cli/doctor/node_checks.h"
#include "harness/run/identity.h"

namespace lockstep {
namespace {

const char* word_of(Check::State state) {
  switch (state) {
    case Check::State::ok:
      return "ok";
    case Check::State::note:
      return "note";
    case Check::State::failed:
      return "not ok";
  }
  return "";
}

const char* colour_of(Check::State state) {
  switch (state) {
    case Check::State::ok:
      return "32";
    case Check::State::note:
      return "33";
    case Check::State::failed:
      return "31";
  }
  return "";
}

}  // namespace

std::string checks_text(const std::vector<Check>& checks, bool colour) {
  std::size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.name.size());
  std::string text;
  for (const Check& check : checks) {
    std::string word = fmt::format("{:<6}", word_of(check.state));
    if (colour) word = fmt::format("\x1b[{}m{}\x1b[0m", colour_of(check.state), word);
    text += fmt::format("{}  {:<{}}  {}\n", word, check.name, width, clean_line(check.text));
  }
  return text + (fit_to_run(checks) ? "fit to run\n" : "not fit to run: see above\n");
}

std::string checks_json(const std::vector<Check>& checks) {
  nlohmann::json list = nlohmann::json::array();
  for (const Check& check : checks) {
    list.push_back({{"name", check.name}, {"state", word_of(check.state)}, {"text", check.text}});
  }
  const nlohmann::json json = {{"checks", list}, {"fit_to_run", fit_to_run(checks)}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

bool fit_to_run(const std::vector<Check>& checks) {
  return std::none_of(checks.begin(), checks.end(),
                      [](const Check& c) { return c.state == Check::State::failed; });
}

int doctor_command(const DoctorOptions& options, const Console& console) {
  std::vector<Check> checks = machine_checks();
  for (Check& check : node_checks(see_node(".", rank_program_path()))) checks.push_back(std::move(check));
  checks.push_back(all_reduce_check(rank_program_path()));
  console.out << (options.json ? clean_json(checks_json(checks)) : checks_text(checks, console.out_colour));
  return fit_to_run(checks) ? kExitAsExpected : kExitMachine;
}

}  // namespace lockstep
