#include "harness/lib/flight/ring.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <span>
#include <stdexcept>

#include "harness/base/numbers.h"
#include "harness/base/text.h"

namespace lockstep::flight {
namespace {

constexpr std::size_t kMostDimensions = 6;
constexpr uint64_t kMagic = 0x3130474e49524c46ULL;  // "FLRING01"

template <std::size_t N>
void put(std::array<char, N>& place, std::string_view text) {
  place.fill('\0');
  std::copy_n(text.data(), std::min(text.size(), N - 1), place.data());
}

template <std::size_t N>
std::string text_of(const std::array<char, N>& place) {
  return {place.data(), ::strnlen(place.data(), N)};
}

int64_t now_ns() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

struct Slot {
  std::atomic<uint64_t> written;  ///< id + 1 of the entry that stands here whole; 0: none, or one being written
  uint64_t sequence;
  std::array<char, 16> group, dtype;
  std::array<char, 24> op;
  std::array<char, 64> tag;
  int64_t step, created_ns, completed_ns;
  int32_t root;
  uint32_t dimensions;
  std::array<int64_t, kMostDimensions> shape;
  std::atomic<uint32_t> state;
};

}  // namespace

struct Ring::Memory {
  uint64_t magic;
  int32_t rank, world_size;
  std::atomic<uint64_t> next;
  std::array<Slot, kEntries> slots;
};

Ring::Ring(const std::string& path, int rank, int world_size) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) throw MachineError(path + ": cannot create: " + std::strerror(errno));
  // Reserved now: a full disk would otherwise show itself as a SIGBUS.
  const int error = ::posix_fallocate(file, 0, sizeof(Memory));
  void* const memory = error == 0 ? ::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  ::close(file);
  if (memory == MAP_FAILED) throw MachineError(path + ": cannot reserve and map it: " + std::strerror(error != 0 ? error : errno));
  memory_ = static_cast<Memory*>(memory);
  memory_->rank = rank;
  memory_->world_size = world_size;
  memory_->magic = kMagic;
}

Ring::~Ring() { ::munmap(memory_, sizeof(Memory)); }

uint64_t Ring::enter(const Entry& entry) {
  const uint64_t id = memory_->next.load(std::memory_order_relaxed);
  Slot& slot = memory_->slots[id % kEntries];
  slot.written.store(0, std::memory_order_seq_cst);
  slot.sequence = entry.sequence;
  put(slot.group, entry.group);
  put(slot.op, entry.op);
  put(slot.dtype, entry.dtype);
  put(slot.tag, entry.tag);
  slot.step = entry.step;
  slot.root = entry.root;
  slot.dimensions = static_cast<uint32_t>(std::min(entry.shape.size(), kMostDimensions));
  std::copy_n(entry.shape.begin(), slot.dimensions, slot.shape.begin());
  slot.created_ns = now_ns();
  slot.completed_ns = 0;
  slot.state.store(static_cast<uint32_t>(State::started), std::memory_order_relaxed);
  slot.written.store(id + 1, std::memory_order_release);
  memory_->next.store(id + 1, std::memory_order_release);
  return id;
}

void Ring::leave(uint64_t id) {
  Slot& slot = memory_->slots[id % kEntries];
  if (slot.written.load(std::memory_order_relaxed) != id + 1) return;
  slot.completed_ns = now_ns();
  slot.state.store(static_cast<uint32_t>(State::completed), std::memory_order_release);
}

Recorded read_ring(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw std::runtime_error(path + ": cannot open: " + std::strerror(errno));
  struct stat status {};
  const bool whole = ::fstat(file, &status) == 0 && static_cast<std::size_t>(status.st_size) == sizeof(Ring::Memory);
  void* const memory = whole ? ::mmap(nullptr, sizeof(Ring::Memory), PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
  ::close(file);
  if (memory == MAP_FAILED) throw std::runtime_error(path + ": is no flight record of this version");
  const auto* const ring = static_cast<const Ring::Memory*>(memory);
  Recorded found{ring->rank, ring->world_size};
  const bool known = ring->magic == kMagic;
  for (const Slot& slot : ring->slots) {
    const uint64_t written = slot.written.load(std::memory_order_acquire);
    if (!known || written == 0) continue;
    Entry entry{written - 1, text_of(slot.group), slot.sequence, text_of(slot.op), text_of(slot.tag), text_of(slot.dtype),
                slot.root, slot.step, {}, slot.created_ns, slot.completed_ns,
                static_cast<State>(slot.state.load(std::memory_order_acquire))};
    entry.shape.assign(slot.shape.begin(), slot.shape.begin() + std::min<std::size_t>(slot.dimensions, kMostDimensions));
    if (slot.written.load(std::memory_order_acquire) == written) found.entries.push_back(std::move(entry));
  }
  ::munmap(memory, sizeof(Ring::Memory));
  if (!known) throw std::runtime_error(path + ": is no flight record");
  std::ranges::sort(found.entries, {}, &Entry::id);
  if (!found.entries.empty()) found.lost = found.entries.front().id;
  return found;
}

std::string ring_path(const std::string& run_dir, int rank) {
  return run_dir + "/flight-" + std::to_string(rank) + ".ring";
}

namespace {

constexpr std::size_t kMostPoints = 512, kFewestPoints = 40;
constexpr double kSurely = 4, kLeastShare = 0.02, kLeast_bytes = 1 << 20;

double slope_of(std::span<const int64_t> steps, std::span<const double> bytes) {
  std::vector<double> slopes;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (std::size_t j = i + 1; j < steps.size(); ++j)
      slopes.push_back((bytes[j] - bytes[i]) / static_cast<double>(steps[j] - steps[i]));
  }
  return median(std::move(slopes));
}

/// Mann and Kendall's S over its deviation without ties: ties make it smaller, so that it errs towards silence.
double trend_z(std::span<const double> bytes) {
  double score = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (std::size_t j = i + 1; j < bytes.size(); ++j) score += bytes[j] > bytes[i] ? 1 : bytes[j] < bytes[i] ? -1 : 0;
  }
  const auto n = static_cast<double>(bytes.size());
  return score / std::sqrt(n * (n - 1) * (2 * n + 5) / 18);
}

}  // namespace

void MemorySeries::add(int64_t step, int64_t bytes) {
  if (seen_++ % stride_ != 0) return;
  steps_.push_back(step);
  bytes_.push_back(static_cast<double>(bytes));
  if (steps_.size() < kMostPoints) return;
  // Every second one stays.
  for (std::size_t i = 0; i < steps_.size() / 2; ++i) {
    steps_[i] = steps_[2 * i];
    bytes_[i] = bytes_[2 * i];
  }
  steps_.resize(steps_.size() / 2);
  bytes_.resize(steps_.size());
  stride_ *= 2;
}

std::optional<Leak> leak_in(const std::vector<int64_t>& steps, const std::vector<double>& bytes) {
  const std::size_t first = steps.size() / 5;
  const std::span<const int64_t> at = std::span(steps).subspan(first);
  const std::span<const double> resident = std::span(bytes).subspan(first);
  if (at.size() < kFewestPoints) return std::nullopt;
  const double slope = slope_of(at, resident);
  const Leak leak{slope, trend_z(resident), slope * static_cast<double>(at.back() - at.front())};
  const std::size_t half = at.size() / 2;
  const double early = slope_of(at.first(half), resident.first(half)), late = slope_of(at.subspan(half), resident.subspan(half));
  // What fills up and then stays grows in one half alone.
  const bool goes_on = early > slope / 4 && late > slope / 4;
  const bool enough = leak.grown_bytes > kLeast_bytes && leak.grown_bytes > kLeastShare * resident.front();
  if (leak.z <= kSurely || !goes_on || !enough) return std::nullopt;
  return leak;
}

std::string in_words(const Leak& leak) {
  return fmt::format("memory grows by {:.3g} MB a step ({:.3g} MB over the steps that were looked at)", leak.bytes_a_step / 1e6,
                     leak.grown_bytes / 1e6);
}

}  // namespace lockstep::flight
