#include "harness/run/launchers/external/exit_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/base/atomic_file.h"
#include "harness/run/launchers/external/object_file.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr uint64_t kMostExitBytes = 1 << 16;

}  // namespace

std::string exit_file(const std::string& run_dir, int rank) { return fmt::format("{}/rank-{}.exit.json", run_dir, rank); }
std::string stop_file(const std::string& run_dir) { return run_dir + "/stop.json"; }

void write_exit(const std::string& run_dir, const RankExit& exit) {
  const json object = {{"start", exit.start}, {"rank", exit.rank}, {"code", exit.code},
                       {"signal", exit.signal}, {"told", exit.told}, {"orphaned", exit.orphaned}, {"ended_at", exit.ended_at},
                       {"attempt", exit.attempt}};
  write_object(exit_file(run_dir, exit.rank), object);
}

std::optional<RankExit> read_exit(const std::string& run_dir, int rank) {
  const auto exit = read_fields(exit_file(run_dir, rank), kMostExitBytes, [&](const JsonFields<>& object) {
    return RankExit{object.value("start", ""),       object.value("rank", rank),      object.value("code", 0),       object.value("signal", 0),
                    object.value("told", false), object.value("orphaned", false), object.value("ended_at", 0.0), object.value("attempt", "")};
  });
  return exit && exit->rank == rank ? exit : std::nullopt;
}

void write_stop(const std::string& run_dir, const StopWish& wish) {
  write_file_atomically(stop_file(run_dir), json{{"number", wish.number}, {"signal", wish.signal}}.dump() + "\n");
}

StopWish read_stop(const std::string& run_dir) {
  const auto wish = read_fields(stop_file(run_dir), kMostExitBytes, [](const JsonFields<>& object) { return StopWish{object.value("number", 0), object.value("signal", 0)}; });
  return wish.value_or(StopWish{});
}

}  // namespace lockstep
