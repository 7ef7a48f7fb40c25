#include "harness/run/heartbeat.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>
#include <utility>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

// Reports and looks may meet: the text is stored word by word, and `changes` is odd while a report is being
// written, so that a reader can tell a whole text from half of two.
constexpr int kOperationWords = sizeof(HeartbeatSlot::operation) / sizeof(uint64_t);
using OperationWords = std::array<uint64_t, kOperationWords>;
constexpr int kReadAttempts = 64;

std::atomic_ref<uint64_t> word(HeartbeatSlot& slot, int i) {
  return std::atomic_ref<uint64_t>(reinterpret_cast<uint64_t*>(slot.operation)[i]);
}

std::size_t bytes_of(int world_size) { return sizeof(HeartbeatSlot) * static_cast<std::size_t>(world_size); }

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw MachineError(path + ": " + what + ": " + std::strerror(error));
}

HeartbeatSlot* map_slots(const std::string& path, int descriptor, int world_size) {
  void* memory = ::mmap(nullptr, bytes_of(world_size), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  const int error = errno;
  ::close(descriptor);
  if (memory == MAP_FAILED) fail(path, "cannot map", error);
  return static_cast<HeartbeatSlot*>(memory);
}

}  // namespace

HeartbeatFile HeartbeatFile::create(const std::string& path, int world_size) {
  LOCKSTEP_CHECK(world_size >= 1, "a run has at least one rank");
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) fail(path, "cannot create", errno);
  // Reserved now: a full disk would otherwise show itself as a SIGBUS at the first report.
  if (const int error = ::posix_fallocate(descriptor, 0, static_cast<off_t>(bytes_of(world_size)))) {
    ::close(descriptor);
    fail(path, "cannot reserve space", error);
  }
  HeartbeatSlot* slots = map_slots(path, descriptor, world_size);
  for (int r = 0; r < world_size; ++r) slots[r].step.store(-1, std::memory_order_release);
  return HeartbeatFile(slots, world_size);
}

HeartbeatFile HeartbeatFile::open(const std::string& path, int world_size) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) fail(path, "cannot open", errno);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes_of(world_size)) {
    ::close(descriptor);
    throw MachineError(path + ": is not the heartbeat file of " + std::to_string(world_size) + " ranks");
  }
  return HeartbeatFile(map_slots(path, descriptor, world_size), world_size);
}

HeartbeatFile::HeartbeatFile(HeartbeatFile&& other) noexcept
    : slots_(std::exchange(other.slots_, nullptr)), world_size_(std::exchange(other.world_size_, 0)) {}

HeartbeatFile& HeartbeatFile::operator=(HeartbeatFile&& other) noexcept {
  std::swap(slots_, other.slots_);
  std::swap(world_size_, other.world_size_);
  return *this;
}

HeartbeatFile::~HeartbeatFile() {
  if (slots_ != nullptr) ::munmap(slots_, bytes_of(world_size_));
}

void HeartbeatFile::report(int rank, int64_t step, const char* operation) {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size_, "no such rank");
  HeartbeatSlot& slot = slots_[rank];
  write(slot, step, operation, (slot.changes.load(std::memory_order_relaxed) & ~uint64_t{1}) + 2);
}

/// `changes`: an even count, which the slot has in the end.
void HeartbeatFile::write(HeartbeatSlot& slot, int64_t step, const char* operation, uint64_t changes) {
  OperationWords text{};
  std::memcpy(text.data(), operation, ::strnlen(operation, sizeof(HeartbeatSlot::operation) - 1));
  slot.changes.store(changes - 1, std::memory_order_seq_cst);
  for (int i = 0; i < kOperationWords; ++i)
    word(slot, i).store(text[static_cast<std::size_t>(i)], std::memory_order_release);
  slot.step.store(step, std::memory_order_release);
  slot.changes.store(changes, std::memory_order_release);
}

HeartbeatNote HeartbeatFile::note(int rank) const {
  HeartbeatNote note;
  note.changes = changes(rank) & ~uint64_t{1};  // one that is being written is noted again at the next look
  note.step = step(rank);
  note.operation = operation(rank);
  note.resident_bytes = resident(rank);
  note.shown = slots_[rank].shown.load(std::memory_order_acquire);
  for (std::size_t group = 0; group < kHeartbeatGroups; ++group)
    note.entered[group] = slots_[rank].entered[group].load(std::memory_order_acquire);
  return note;
}

void HeartbeatFile::take(int rank, const HeartbeatNote& note) {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size_, "no such rank");
  HeartbeatSlot& slot = slots_[rank];
  for (std::size_t group = 0; group < kHeartbeatGroups; ++group)
    slot.entered[group].store(note.entered[group], std::memory_order_release);
  slot.resident_bytes.store(note.resident_bytes, std::memory_order_release);
  slot.shown.store(note.shown, std::memory_order_release);
  if (note.changes > 0) write(slot, note.step, note.operation.c_str(), note.changes);
}

void HeartbeatFile::enter(int rank, HeartbeatGroup group) {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size_, "no such rank");
  slots_[rank].entered[static_cast<std::size_t>(group)].fetch_add(1, std::memory_order_release);
}

void HeartbeatFile::resident(int rank, int64_t bytes) {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size_, "no such rank");
  slots_[rank].resident_bytes.store(bytes, std::memory_order_release);
}

void HeartbeatFile::show(int rank, double value) {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size_, "no such rank");
  slots_[rank].shown.store(std::bit_cast<uint64_t>(value) + 1, std::memory_order_release);
}

std::optional<double> HeartbeatFile::shown(int rank) const {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size_, "no such rank");
  const uint64_t bits = slots_[rank].shown.load(std::memory_order_acquire);
  return bits == 0 ? std::nullopt : std::optional(std::bit_cast<double>(bits - 1));
}

uint64_t HeartbeatFile::entered(int rank, HeartbeatGroup group) const {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size_, "no such rank");
  return slots_[rank].entered[static_cast<std::size_t>(group)].load(std::memory_order_acquire);
}

int64_t HeartbeatFile::resident(int rank) const {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size_, "no such rank");
  return slots_[rank].resident_bytes.load(std::memory_order_acquire);
}

void HeartbeatFile::announce(int rank, int process) {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size_, "no such rank");
  slots_[rank].process.store(process, std::memory_order_release);
}

int HeartbeatFile::process(int rank) const {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size_, "no such rank");
  return static_cast<int>(slots_[rank].process.load(std::memory_order_acquire));
}

int64_t HeartbeatFile::step(int rank) const {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size_, "no such rank");
  return slots_[rank].step.load(std::memory_order_acquire);
}

uint64_t HeartbeatFile::changes(int rank) const {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size_, "no such rank");
  return slots_[rank].changes.load(std::memory_order_acquire);
}

std::string HeartbeatFile::operation(int rank) const {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size_, "no such rank");
  HeartbeatSlot& slot = slots_[rank];
  OperationWords text{};
  // A rank that was killed inside a report leaves an odd count for ever: then the last look has to do.
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    const uint64_t before = slot.changes.load(std::memory_order_acquire);
    for (int i = 0; i < kOperationWords; ++i)
      text[static_cast<std::size_t>(i)] = word(slot, i).load(std::memory_order_acquire);
    if (before % 2 == 0 && slot.changes.load(std::memory_order_acquire) == before) break;
    if (attempt >= kReadAttempts / 4) std::this_thread::yield();  // one that lost its core within a report may need this one
  }
  const char* bytes = reinterpret_cast<const char*>(text.data());
  return std::string(bytes, ::strnlen(bytes, sizeof(HeartbeatSlot::operation)));
}

}  // namespace lockstep
