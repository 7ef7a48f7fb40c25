// Any bytes are a trace or a TraceError; what the writer wrote comes back whole, and damaged it never comes
// back changed.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <xxhash.h>

#include "harness/verdict/trace/format.h"
#include "harness/verdict/trace/reader.h"
#include "harness/verdict/trace/trace_error.h"
#include "harness/verdict/trace/writer.h"
#include "tests/support/temp_folder.h"

namespace {

using namespace lockstep;

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
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
