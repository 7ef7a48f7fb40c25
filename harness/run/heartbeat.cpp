#include "harness/run/heartbeat.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>
#include <utility>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

/// Reports and looks may meet: `changes` is odd while a report is written, so that a reader can tell a whole slot from half of two.
constexpr int kReadAttempts = 64;

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw MachineError(path + ": " + what + ": " + std::strerror(error));
}

off_t offset_of(int rank) { return static_cast<off_t>(sizeof(HeartbeatSlot)) * rank; }

}  // namespace

HeartbeatFile HeartbeatFile::create(const std::string& path, int world_size) {
  LOCKSTEP_CHECK(world_size >= 1, "a run has at least one rank");
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) fail(path, "cannot create", errno);
  HeartbeatFile file(descriptor, world_size);
  // Reserved now: on a full disk the first report would be lost.
  if (const int error = ::posix_fallocate(descriptor, 0, offset_of(world_size))) fail(path, "cannot reserve space", error);
  return file;
}

HeartbeatFile HeartbeatFile::open(const std::string& path, int world_size) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) fail(path, "cannot open", errno);
  HeartbeatFile file(descriptor, world_size);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || status.st_size != offset_of(world_size))
    throw MachineError(path + ": is not the heartbeat file of " + std::to_string(world_size) + " ranks");
  for (int rank = 0; rank < world_size; ++rank) file.own(rank) = file.slot(rank);
  return file;
}

HeartbeatFile::HeartbeatFile(HeartbeatFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), own_(std::move(other.own_)) {}

HeartbeatFile& HeartbeatFile::operator=(HeartbeatFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(own_, other.own_);
  return *this;
}

HeartbeatFile::~HeartbeatFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

HeartbeatSlot& HeartbeatFile::own(int rank) {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size(), "no such rank");
  return own_[static_cast<std::size_t>(rank)];
}

HeartbeatSlot HeartbeatFile::slot(int rank) const {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size(), "no such rank");
  HeartbeatSlot found;
  const ssize_t bytes = ::pread(descriptor_, &found, sizeof(found), offset_of(rank));
  return bytes == static_cast<ssize_t>(sizeof(found)) ? found : HeartbeatSlot{};
}

HeartbeatSlot HeartbeatFile::seen(int rank) const {
  HeartbeatSlot found = slot(rank);
  // A rank that was killed inside a report leaves an odd count for ever: then the last look has to do.
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    const HeartbeatSlot again = slot(rank);
    const bool whole = again.changes % 2 == 0 && std::memcmp(&again, &found, sizeof(found)) == 0;
    found = again;
    if (whole) break;
    if (attempt >= kReadAttempts / 4) std::this_thread::yield();  // one that lost its core within a report may need this one
  }
  if (found.changes == 0) found.step = -1;
  return found;
}

/// What cannot be written is lost: a rank must not fail because its progress cannot be seen.
void HeartbeatFile::put(int rank, std::size_t from, std::size_t bytes) const {
  const char* const slot = reinterpret_cast<const char*>(&own_[static_cast<std::size_t>(rank)]);
  [[maybe_unused]] const ssize_t written = ::pwrite(descriptor_, slot + from, bytes, offset_of(rank) + static_cast<off_t>(from));
}

void HeartbeatFile::report(int rank, int64_t step, const char* operation) { write(rank, step, operation, (own(rank).changes & ~uint64_t{1}) + 2); }

/// `changes`: an even count, which the slot has in the end.
void HeartbeatFile::write(int rank, int64_t step, const char* operation, uint64_t changes) {
  HeartbeatSlot& slot = own(rank);
  slot.step = step;
  std::strncpy(slot.operation, operation, sizeof(slot.operation) - 1);
  slot.changes = changes - 1;
  put(rank, 0, sizeof(slot));
  slot.changes = changes;
  put(rank, offsetof(HeartbeatSlot, changes), sizeof(slot.changes));
}

HeartbeatNote HeartbeatFile::note(int rank) const {
  const HeartbeatSlot slot = seen(rank);
  HeartbeatNote note;
  note.changes = slot.changes & ~uint64_t{1};  // one that is being written is noted again at the next look
  note.step = slot.step;
  note.operation = std::string(slot.operation, ::strnlen(slot.operation, sizeof(slot.operation)));
  note.resident_bytes = slot.resident_bytes;
  note.shown = slot.shown;
  note.entered = slot.entered;
  return note;
}

void HeartbeatFile::take(int rank, const HeartbeatNote& note) {
  HeartbeatSlot& slot = own(rank);
  slot.entered = note.entered;
  slot.resident_bytes = note.resident_bytes;
  slot.shown = note.shown;
  if (note.changes > 0) return write(rank, note.step, note.operation.c_str(), note.changes);
  put(rank, 0, sizeof(slot));
}

void HeartbeatFile::enter(int rank, HeartbeatGroup group) { ++own(rank).entered[static_cast<std::size_t>(group)]; }

void HeartbeatFile::resident(int rank, int64_t bytes) {
  own(rank).resident_bytes = bytes;
  put(rank, offsetof(HeartbeatSlot, resident_bytes), sizeof(int64_t));
}

void HeartbeatFile::show(int rank, double value) {
  own(rank).shown = std::bit_cast<uint64_t>(value) + 1;
  put(rank, offsetof(HeartbeatSlot, shown), sizeof(uint64_t));
}

void HeartbeatFile::announce(int rank, const ProcessId& process) {
  HeartbeatSlot& slot = own(rank);
  slot.process = process.pid;
  slot.process_space = process.space;
  slot.process_started = process.started;
  put(rank, 0, sizeof(slot));
}

std::optional<double> HeartbeatFile::shown(int rank) const {
  const uint64_t bits = slot(rank).shown;
  return bits == 0 ? std::nullopt : std::optional(std::bit_cast<double>(bits - 1));
}

ProcessId HeartbeatFile::process(int rank) const {
  const HeartbeatSlot slot = seen(rank);
  return {static_cast<int>(slot.process), slot.process_space, slot.process_started};
}

std::string HeartbeatFile::operation(int rank) const { return note(rank).operation; }

}  // namespace lockstep
