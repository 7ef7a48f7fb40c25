#include "harness/trainers/comm/preflight_check.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <sstream>
#include <stdexcept>

#include <torch/csrc/distributed/c10d/FileStore.hpp>

namespace lockstep {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

double wall_clock_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// A line a fact: its name, a tabulator, its value.
std::vector<uint8_t> bytes_of(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += name + "\t" + value + "\n";
  return {text.begin(), text.end()};
}

Facts facts_in(const std::vector<uint8_t>& bytes) {
  Facts facts;
  std::istringstream lines(std::string(bytes.begin(), bytes.end()));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t tab = line.find('\t');
    facts.emplace_back(line.substr(0, tab), line.substr(tab + 1));
  }
  return facts;
}

/// "0.5", "2": without the zeros of std::to_string.
std::string in_short(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

std::string key_of(int rank) { return "preflight/" + std::to_string(rank); }

/// The value that most ranks have; of equally many that of the lowest rank.
std::string most_common(const std::vector<std::string>& values) {
  std::string best = values.front();
  for (const std::string& value : values) {
    if (std::ranges::count(values, value) > std::ranges::count(values, best)) best = value;
  }
  return best;
}

class Preflight {
 public:
  Preflight(const GlooOptions& options, const PreflightOptions& check)
      : options_(options), check_(check), path_(preflight_path(options)) {
    store_ = c10::make_intrusive<c10d::FileStore>(path_, -1);
    store_->setTimeout(std::chrono::milliseconds(static_cast<int64_t>(check.wait_s * 1000)));
  }

  void answer(const Identity& identity) {
    Facts facts = identity.facts;
    facts.insert(facts.begin(), {"world size", std::to_string(options_.world_size)});
    const int64_t times = store_->add("preflight/count/" + std::to_string(options_.rank), 1);
    facts.emplace_back("clock", std::to_string((identity.clock ? identity.clock() : wall_clock_s()) - written_s()));
    if (times > 1) {
      const std::string problem = "rank " + std::to_string(options_.rank) + " joined twice";
      store_->set("preflight/problem", std::vector<uint8_t>(problem.begin(), problem.end()));
      throw std::runtime_error("preflight check: " + problem);
    }
    store_->set(key_of(options_.rank), bytes_of(facts));
  }

  void compare() {
    std::vector<Facts> all;
    for (int rank = 0; rank < options_.world_size; ++rank) all.push_back(facts_of(rank));
    for (std::size_t fact = 0; fact < all.front().size(); ++fact) {
      std::vector<std::string> values;
      for (const Facts& facts : all) values.push_back(fact < facts.size() ? facts[fact].second : "");
      const std::string& name = all.front()[fact].first;
      name == "clock" ? compare_clocks(values) : compare_values(name, values);
    }
  }

 private:
  /// When the store's file was written last, by the clock of who holds the file.
  double written_s() const {
    struct stat status {};
    if (::stat(path_.c_str(), &status) != 0) return wall_clock_s();
    return static_cast<double>(status.st_mtim.tv_sec) + 1e-9 * static_cast<double>(status.st_mtim.tv_nsec);
  }

  /// Looks for word of a rank that joined twice while it waits: the one that should have come in its place never will.
  Facts facts_of(int rank) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(check_.wait_s);
    while (!store_->check({key_of(rank)})) {
      if (store_->check({"preflight/problem"})) {
        const std::vector<uint8_t> problem = store_->get("preflight/problem");
        throw std::runtime_error("preflight check: " + std::string(problem.begin(), problem.end()));
      }
      refuse_other_world(rank);
      if (std::chrono::steady_clock::now() > until)
        throw std::runtime_error("preflight check: rank " + std::to_string(rank) + " did not join within " + in_short(check_.wait_s) + " s");
      try {
        store_->wait({key_of(rank)}, std::chrono::milliseconds(20));
      } catch (const std::exception&) {
        continue;  // not there yet
      }
    }
    return facts_in(store_->get(key_of(rank)));
  }

  /// Names a rank that has come and counts other ranks than most do: `missing` may be one that only it waits for.
  void refuse_other_world(int missing) {
    std::map<std::string, std::vector<int>> worlds;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      if (rank == missing || !store_->check({key_of(rank)})) continue;
      worlds[facts_in(store_->get(key_of(rank))).front().second].push_back(rank);
    }
    if (worlds.size() < 2) return;
    const auto size = [](const auto& world) { return world.second.size(); };
    const auto fewest = std::ranges::min_element(worlds, {}, size), most = std::ranges::max_element(worlds, {}, size);
    if (size(*fewest) < size(*most)) refuse(fewest->second.front(), "world size", fewest->first, most->first);
  }

  [[noreturn]] void refuse(int rank, const std::string& name, const std::string& value, const std::string& expected) const {
    throw std::runtime_error("preflight check: rank " + std::to_string(rank) + " has " + name + " " + value + " where most have " + expected);
  }

  void compare_values(const std::string& name, const std::vector<std::string>& values) const {
    const std::string expected = most_common(values);
    for (std::size_t rank = 0; rank < values.size(); ++rank) {
      if (values[rank] != expected) refuse(static_cast<int>(rank), name, values[rank], expected);
    }
  }

  /// Each says how far its clock is from the one by which the file was written.
  void compare_clocks(const std::vector<std::string>& values) const {
    std::vector<double> offsets;
    for (const std::string& value : values) offsets.push_back(std::stod(value));
    std::vector<double> sorted = offsets;
    std::ranges::sort(sorted);
    const double middle = sorted[sorted.size() / 2];
    for (std::size_t rank = 0; rank < offsets.size(); ++rank) {
      if (std::abs(offsets[rank] - middle) <= check_.most_skew_s) continue;
      throw std::runtime_error("preflight check: rank " + std::to_string(rank) + " has a clock that is " +
                               in_short(offsets[rank] - middle) + " s from the others'");
    }
  }

  const GlooOptions& options_;
  const PreflightOptions& check_;
  const std::string path_;
  c10::intrusive_ptr<c10d::FileStore> store_;
};

}  // namespace

std::string preflight_path(const GlooOptions& options) { return options.store_path + "-preflight"; }

void run_preflight_check(const GlooOptions& options, const Identity& identity, const PreflightOptions& check) {
  Preflight preflight(options, check);
  preflight.answer(identity);
  preflight.compare();
}

}  // namespace lockstep
