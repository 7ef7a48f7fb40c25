#include "harness/lib/flight/ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "harness/base/errors.h"

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

}  // namespace lockstep::flight
