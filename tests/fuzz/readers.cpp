#include "tests/fuzz/readers.h"

#include <unistd.h>
#include <xxhash.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/base/text.h"
#include "harness/judge/trace/reader.h"
#include "harness/judge/trace/record.h"
#include "harness/judge/trace/writer.h"
#include "harness/lib/data/series.h"
#include "harness/lib/flight/dump.h"
#include "harness/lib/flight/judge.h"
#include "harness/plan/config/canonical.h"
#include "harness/plan/matrix/matrix.h"
#include "harness/plan/matrix/plan.h"
#include "harness/plan/matrix/read_matrix.h"
#include "scenarios/energy/spec.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

/// Any bytes as a config: a matrix, or ConfigError, and nothing else.
int config(const uint8_t* data, std::size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  Overrides overrides;
  // Lines behind a NUL are options, so that their readers are met too: the first is --only, the others are
  // --set.
  if (const std::size_t end = text.find('\0'); end != std::string::npos) {
    std::string rest = text.substr(end + 1);
    text.resize(end);
    overrides.only = rest.substr(0, rest.find('\n'));
    for (std::size_t at = rest.find('\n'); at != std::string::npos; at = rest.find('\n')) {
      rest.erase(0, at + 1);
      overrides.set.push_back(rest.substr(0, rest.find('\n')));
    }
  }
  try {
    Matrix matrix = parse_matrix(text, "fuzz.yaml", overrides);
    // Plans of a few hundred cells say as much as plans of a hundred thousand.
    if (matrix.cells.size() * matrix.seeds.size() > 300) return 0;
    const Plan plan = make_plan(matrix, "", {});
    for (const PlannedRun& run : plan.runs) {
      // What was accepted must survive its own file.
      const std::string json = canonical_json(run.config);
      const RunConfig back = run_config_from_json(json, "run.json");
      LOCKSTEP_CHECK(canonical_json(back) == json, "a config must survive its own JSON");
    }
  } catch (const ConfigError&) {
    return -1;
  }
  return 0;
}

/// Any bytes as a flight record: refused with a reason, or judged with a sound record in words that are fit for a terminal.
int flight_record(const uint8_t* data, std::size_t size) {
  using namespace flight;
  try {
    const Recorded sound{1, 2, {{0, "0:default_pg", 1, "all_reduce", "", "Float", -1, 0, {5}, 0, 0, State::started}}};
    Records records;
    records.read = {recorded_from(value_of(std::string_view(reinterpret_cast<const char*>(data), size)), 0), sound};
    for (const std::string& line : in_words(judge(records))) {
      require(!line.empty() && line.size() < 20'000 && unclean_character(line).empty() && line.find('\n') == std::string::npos);
    }
    return 0;
  } catch (const std::runtime_error& error) {
    require(*error.what() != '\0' && std::string_view(error.what()).find("json.exception") == std::string_view::npos);
    return -1;
  }
}

/// Whatever the bytes: either a sound set of series or a ConfigError with problems that have a text.
int ts(const uint8_t* data, std::size_t size) {
  try {
    const SeriesSet set =
        parse_ts(std::string(reinterpret_cast<const char*>(data), size), "fuzz.ts");
    require(set.channels > 0 && !set.series.empty());
    require(set.labels.empty() || set.labels.size() == set.series.size());
    for (const auto& series : set.series) {
      require(!series.empty() && series.size() % static_cast<std::size_t>(set.channels) == 0);
      for (const float value : series) require(std::isfinite(value));
    }
    return 0;
  } catch (const ConfigError& error) {
    require(!error.problems().empty() && error.problems().size() <= 21);
    for (const auto& problem : error.problems()) {
      require(!problem.message.empty() && problem.line >= 0 && problem.column >= 0);
      require(problem.message.find('\n') == std::string::npos &&
              problem.message.find('\0') == std::string::npos);
    }
    return -1;
  }
}

// Any bytes are a trace or a TraceError; what the writer wrote comes back whole, or damaged never changed.

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// Reads, or gives nothing for a TraceError; any other exception ends the program.
bool readable(const std::string& bytes, Trace& trace) {
  try {
    trace = read_trace_bytes(bytes_of(bytes), "fuzz");
  } catch (const TraceError&) {
    return false;
  }
  if (trace.valid_bytes > bytes.size() || trace.finished != trace.end.empty()) std::abort();
  return true;
}

/// Takes the fuzzer's bytes as a stream of choices.
class Choices {
 public:
  Choices(const uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  uint64_t up_to(uint64_t most) {
    const uint64_t byte = next_ < size_ ? data_[next_++] : 0;
    return byte % (most + 1);
  }
  bool left() const { return next_ < size_; }

 private:
  const uint8_t* data_;
  std::size_t size_, next_ = 0;
};

void write_by_choice(const std::string& path, Choices& choices) {
  TraceWriter writer(path, {"fuzz", 0, static_cast<int>(1 + choices.up_to(8)), "fuzz",
                            static_cast<TraceLevel>(1 + choices.up_to(2)), "fuzz"});
  const std::vector<double> values = {1, -2, 3, 4, 5, 6, 7, 8};
  const std::vector<std::string> names = {"", "weight", std::string(200, 'n')};
  for (int64_t step = 0; choices.left() && step < 20; ++step) {
    writer.begin_step(step * 3);
    for (uint64_t records = choices.up_to(5); records > 0; --records) {
      const std::string& name = names[choices.up_to(2)];
      const auto phase = static_cast<Phase>(choices.up_to(12));
      const std::vector<int64_t> shape = {static_cast<int64_t>(choices.up_to(4)),
                                          static_cast<int64_t>(choices.up_to(2))};
      const std::vector<int64_t> ids(choices.up_to(3), -static_cast<int64_t>(choices.up_to(255)));
      const auto sharing = static_cast<Sharing>(choices.up_to(1));
      switch (choices.up_to(4)) {
        case 0:
          writer.samples(ids);
          break;
        case 1:
          writer.random(name, choices.up_to(255), choices.up_to(255));
          break;
        case 2:
          writer.scalar(phase, name, static_cast<double>(choices.up_to(255)), sharing);
          break;
        case 3:
          writer.tensor(phase, name, {values.data(), static_cast<DType>(choices.up_to(4)), shape, {}},
                        sharing, ids, static_cast<Keep>(choices.up_to(1)));
          break;
        default:
          writer.collective(
              {"all_reduce", "sum", name, "tag", 0, DType::float32, shape, 1, choices.up_to(255)});
      }
    }
    writer.end_step();
  }
  writer.finish();
}

/// A frame with a right checksum around any payload, so that the decoder is reached.
std::string framed(const std::string& before, const uint8_t* data, std::size_t size) {
  std::string out;
  ByteSink sink(out);
  sink.raw(frame_head(static_cast<uint32_t>(size), FrameType::step));
  sink.bytes(data, size);
  sink.raw(static_cast<uint64_t>(XXH3_64bits(out.data(), out.size())));
  return before + out;
}

const std::string& work_file() {
  static const std::string path =
      (std::filesystem::temp_directory_path() / ("trace-fuzz-" + std::to_string(::getpid()))).string();
  static const int registered = std::atexit([] { ::unlink(work_file().c_str()); });
  (void)registered;
  return path;
}

int trace(const uint8_t* data, std::size_t size) {
  Trace trace;
  const bool taken = readable(std::string(reinterpret_cast<const char*>(data), size), trace);

  Choices choices(data, size);
  write_by_choice(work_file(), choices);
  const std::string whole = read_text(work_file());
  if (!readable(whole, trace) || !trace.finished) std::abort();

  // A step frame of the fuzzer's own, where the end mark was.
  const std::string header = whole.substr(0, whole.size() - 17);
  Trace extended;
  readable(framed(header, data, size), extended);

  if (size < 3) return -1;
  const std::size_t place = (data[0] | static_cast<std::size_t>(data[1]) << 8) % whole.size();
  std::string damaged = whole;
  damaged[place] = static_cast<char>(damaged[place] ^ (data[2] | 1));
  // Nothing in a trace is without a checksum: damage is refused.
  if (readable(damaged, extended)) std::abort();
  if (place >= 12 && readable(whole.substr(0, place), extended) && extended.finished) std::abort();
  return taken ? 0 : -1;
}

/// A planted fault behind a small number of mutations: what the driver must find, save and replay.
int planted(const uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.find("[1") != std::string_view::npos && text.find("]\n") == std::string_view::npos) std::abort();
  return 0;
}

void write_step(TraceWriter& writer, int64_t step) {
  const std::vector<int64_t> ids = {step + 1, step + 4}, positions = {1, 4}, energies_shape = {2, 3},
                             gradient_shape = {3};
  const std::vector<float> energies = {0.5F, -1.0F, 2.0F, 0.0F, 1e-30F, 3.0F}, gradient = {1, -2, 4};
  writer.begin_step(step);
  writer.samples(ids);
  writer.random("context noise", 0x9e3779b97f4a7c15ULL * static_cast<uint64_t>(step + 1), 288);
  writer.scalar(Phase::control, "lr", 1e-3, Sharing::replicated);
  writer.tensor(Phase::scores, "energies", {energies.data(), DType::float32, energies_shape, positions},
                Sharing::own, ids);
  writer.scalar(Phase::loss, "loss", 3.1, Sharing::own);
  writer.tensor(Phase::local_gradients, "head.weight", {gradient.data(), DType::float32, gradient_shape, {}},
                Sharing::own, {}, Keep::whole);
  writer.collective({"reduce_gradients", "mean", "gradients", "bucket 0", -1, DType::float32, {3}, 7, 9});
  writer.tensor(Phase::reduced_gradients, "head.weight",
                {gradient.data(), DType::float32, gradient_shape, {}}, Sharing::replicated);
  writer.end_step();
}

std::string trace_of(const std::string& path, TraceLevel level, int rank, int64_t steps) {
  TraceWriter writer(path, {"0123456789abcdef", rank, 3, "energy", level, "emulated"});
  for (int64_t step = 0; step < steps; ++step) write_step(writer, step);
  writer.finish();
  return read_text(path);
}

}  // namespace

Reader reader_named(std::string_view name) {
  constexpr std::pair<std::string_view, Reader> kReaders[] = {
      {"config", config}, {"flight", flight_record}, {"planted", planted}, {"trace", trace}, {"ts", ts}};
  for (const auto& [each, reader] : kReaders) {
    if (each == name) return reader;
  }
  return nullptr;
}

void write_trace_corpus(const std::string& path) {
  const std::string folder = path + "/";
  std::filesystem::create_directories(folder);
  trace_of(folder + "empty.trace", TraceLevel::hash, 0, 0);
  trace_of(folder + "stats.trace", TraceLevel::stats, 1, 2);
  trace_of(folder + "full.trace", TraceLevel::full, 2, 2);
  const std::string whole = trace_of(folder + "hash.trace", TraceLevel::hash, 1, 3);
  write_text(folder + "cut.trace", whole.substr(0, whole.size() - 40));
  std::string damaged = whole;
  damaged[whole.size() / 2] = static_cast<char>(damaged[whole.size() / 2] ^ 1);
  write_text(folder + "damaged.trace", damaged);
}

}  // namespace lockstep
