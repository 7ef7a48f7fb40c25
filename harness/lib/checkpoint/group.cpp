#include "harness/lib/checkpoint/group.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <vector>

#include "harness/base/machine.h"
#include "harness/base/text.h"

namespace lockstep::checkpoint {

Gathered HookedGroup::all_gather(const std::string& label, const std::string& mine, double deadline_s) {
  const Operation operation{
      .number = seam_.next_number(), .kind = OperationKind::gather, .path = label, .bytes = mine};
  const Intervention wanted = seam_.hook().before(operation);
  Gathered all;
  if (!wanted.error || wanted.performed) all = inner_.all_gather(label, mine, deadline_s);
  if (wanted.error) all = {{}, fmt::format("gather '{}' failed: {}", label, wanted.error.message())};
  seam_.hook().after(operation, wanted.error);
  return all;
}

std::string agree(Group& group, const std::string& label, const std::string& problem, double deadline_s) {
  const Gathered all = group.all_gather(label, problem, deadline_s);
  if (!all) return all.problem;
  std::string text;
  for (std::size_t rank = 0; rank < all.texts.size(); ++rank) {
    if (all.texts[rank].empty()) continue;
    text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", rank, all.texts[rank]);
  }
  return text;
}

/// One gather after the other: the last rank to come hands out what all brought.
struct ThreadRendezvous::Table {
  explicit Table(int size) : labels(static_cast<std::size_t>(size)), texts(labels.size()) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> labels, texts;  ///< of the gather that is open
  std::vector<std::string> handed_out;     ///< of the one before
  int arrived = 0;
  uint64_t rounds = 0, progress = 0;
  std::string broken;  ///< why no gather can succeed any more

  void end(const std::string& why) {
    if (broken.empty()) broken = why;
    changed.notify_all();
  }
  /// The label that another rank came with, or nothing.
  std::string other_label() const {
    for (std::size_t rank = 1; rank < labels.size(); ++rank) {
      if (labels[rank] != labels[0]) {
        return fmt::format("rank 0 is at '{}' and rank {} at '{}'", labels[0], rank, labels[rank]);
      }
    }
    return "";
  }
};

class ThreadRendezvous::Member final : public Group {
 public:
  Member(Table& table, int rank) : table_(table), rank_(rank) {}
  ~Member() override {
    const std::lock_guard lock(table_.mutex);
    table_.end(fmt::format("rank {} ended", rank_));
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(table_.texts.size()); }
  void progress() override {
    const std::lock_guard lock(table_.mutex);
    ++table_.progress;
    table_.changed.notify_all();
  }

  Gathered all_gather(const std::string& label, const std::string& mine, double deadline_s) override {
    const Turns::GivenUp waits;
    std::unique_lock lock(table_.mutex);
    if (!table_.broken.empty()) return {{}, table_.broken};
    table_.labels[static_cast<std::size_t>(rank_)] = label;
    table_.texts[static_cast<std::size_t>(rank_)] = mine;
    const uint64_t round = table_.rounds;
    if (++table_.arrived == size()) {
      if (const std::string problem = table_.other_label(); !problem.empty()) {
        table_.end(problem);
        return {{}, problem};
      }
      table_.arrived = 0;
      ++table_.rounds;
      table_.handed_out = table_.texts;
      table_.changed.notify_all();
      return {table_.handed_out, ""};
    }
    ++table_.progress;
    while (table_.rounds == round && table_.broken.empty()) {
      const uint64_t seen = table_.progress;
      const auto moved = [&] {
        return table_.rounds != round || !table_.broken.empty() || table_.progress != seen;
      };
      if (!table_.changed.wait_for(lock, std::chrono::duration<double>(deadline_s), moved)) {
        table_.end(fmt::format("no other rank gave a sign of progress for {:g} s (at '{}')", deadline_s, label));
      }
    }
    // Who left after this round has still given what it brought.
    if (table_.rounds != round) return {table_.handed_out, ""};
    return {{}, table_.broken};
  }

 private:
  Table& table_;
  int rank_;
};

ThreadRendezvous::ThreadRendezvous(int size) : table_(std::make_unique<Table>(size)) {
  LOCKSTEP_CHECK(size >= 1, "a group has at least one rank");
}
ThreadRendezvous::~ThreadRendezvous() = default;

std::unique_ptr<Group> ThreadRendezvous::group(int rank) { return std::make_unique<Member>(*table_, rank); }

namespace {

// A packet is its kind and up to kMostBytes of text.
constexpr char kPart = 'D';      // of a rank's text; more follows
constexpr char kLastPart = 'E';  // of a rank's text
constexpr char kProgress = 'P';
constexpr char kLeaving = 'L';  // with the reason
constexpr std::size_t kMostBytes = 32768;
constexpr double kBetweenProgress_s = 0.05;

bool send_packet(int socket, char kind, std::string_view text) {
  std::string packet(1, kind);
  packet.append(text);
  ssize_t sent = 0;
  do {
    sent = ::send(socket, packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS; }

}  // namespace

SocketGroup::SocketGroup(int rank, const std::vector<int>& sockets) : rank_(rank), peers_(sockets.size()) {
  for (std::size_t peer = 0; peer < sockets.size(); ++peer) peers_[peer].socket = sockets[peer];
}

SocketGroup::~SocketGroup() { close(); }

void SocketGroup::close() {
  for (Peer& peer : peers_) {
    if (peer.socket >= 0) ::close(peer.socket);
    peer.socket = -1;
  }
  if (broken_.empty()) broken_ = "this rank has left the group";
}

/// Ends the group for this rank and lets the others know why.
std::string SocketGroup::leave(const std::string& problem) {
  for (const Peer& peer : peers_) {
    if (peer.socket >= 0) send_packet(peer.socket, kLeaving, std::string_view(problem).substr(0, kMostBytes));
  }
  broken_ = problem;
  close();
  return problem;
}

bool SocketGroup::busy(const Peer& peer, std::size_t length) const {
  return peer.socket >= 0 && (!peer.complete || peer.sent < length);
}

void SocketGroup::progress() {
  const double now_s = monotonic_s();
  if (!broken_.empty() || now_s - last_progress_s_ < kBetweenProgress_s) return;
  last_progress_s_ = now_s;
  for (const Peer& peer : peers_) {
    if (peer.socket >= 0) send_packet(peer.socket, kProgress, "");
  }
}

/// Takes one packet of a rank that has one. Returns why the group is at its end, or nothing.
std::string SocketGroup::receive(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  std::array<char, kMostBytes + 1> packet;
  ssize_t count = ::recv(peer.socket, packet.data(), packet.size(), MSG_DONTWAIT);
  // It left without reading all; what it sent before is still there.
  if (count < 0 && errno == ECONNRESET)
    count = ::recv(peer.socket, packet.data(), packet.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EINTR || would_wait())) return "";
  if (count <= 0) return fmt::format("rank {} ended (at '{}')", rank, label_);
  const std::string_view text(packet.data() + 1, static_cast<std::size_t>(count) - 1);
  peer.heard_s = monotonic_s();
  switch (packet[0]) {
    case kProgress:
      return "";
    case kLeaving:
      return std::string(text);
    default:
      peer.incoming.append(text);
      peer.complete = packet[0] == kLastPart;
      return "";
  }
}

/// Sends one packet of this rank's text to a rank that takes one.
std::string SocketGroup::send(int rank, const std::string& text) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const std::string_view part = std::string_view(text).substr(peer.sent, kMostBytes);
  const bool last = peer.sent + part.size() == text.size();
  if (send_packet(peer.socket, last ? kLastPart : kPart, part)) {
    peer.sent += part.size();
    return "";
  }
  // It is gone. What it said before it went is still to be read.
  return would_wait() || !peer.complete ? "" : receive(rank);
}

/// Waits until a rank has something for us, or takes something from us. Returns who has been silent for too
/// long, or nothing.
std::string SocketGroup::wait_for_peers(std::size_t length, double deadline_s) const {
  std::vector<pollfd> waiting;
  double oldest_s = monotonic_s();
  int silent = -1;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (!busy(peer, length)) continue;
    const int events = (peer.complete ? 0 : POLLIN) | (peer.sent < length ? POLLOUT : 0);
    waiting.push_back({peer.socket, static_cast<short>(events), 0});
    if (silent < 0 || peer.heard_s < oldest_s) {
      oldest_s = peer.heard_s;
      silent = static_cast<int>(rank);
    }
  }
  const double left_s = oldest_s + deadline_s - monotonic_s();
  if (left_s <= 0) {
    return fmt::format("rank {} gave no sign of progress for {:g} s (at '{}')", silent, deadline_s, label_);
  }
  ::poll(waiting.data(), waiting.size(), static_cast<int>(std::min(std::ceil(left_s * 1000), 1000.0)));
  return "";
}

Gathered SocketGroup::all_gather(const std::string& label, const std::string& mine, double deadline_s) {
  if (!broken_.empty()) return {{}, broken_};
  label_ = label;
  const std::string text = label + '\n' + mine;
  const double start_s = monotonic_s();
  for (Peer& peer : peers_) peer = {.socket = peer.socket, .heard_s = start_s};
  const auto any_busy = [&] {
    return std::any_of(peers_.begin(), peers_.end(),
                       [&](const Peer& peer) { return busy(peer, text.size()); });
  };
  while (any_busy()) {
    std::string problem;
    for (int rank = 0; rank < size() && problem.empty(); ++rank) {
      const Peer& peer = peers_[static_cast<std::size_t>(rank)];
      if (peer.socket < 0) continue;
      if (peer.sent < text.size()) problem = send(rank, text);
      if (problem.empty() && !peer.complete) problem = receive(rank);
    }
    if (problem.empty() && any_busy()) problem = wait_for_peers(text.size(), deadline_s);
    if (!problem.empty()) return {{}, leave(problem)};
  }
  Gathered all;
  for (int rank = 0; rank < size(); ++rank) {
    const std::string& theirs = rank == rank_ ? text : peers_[static_cast<std::size_t>(rank)].incoming;
    const std::size_t end = theirs.find('\n');
    if (end == std::string::npos || theirs.compare(0, end, label) != 0) {
      return {{},
              leave(fmt::format("rank {} is at '{}' and rank {} at '{}'", rank_, label, rank,
                                theirs.substr(0, end)))};
    }
    all.texts.push_back(theirs.substr(end + 1));
  }
  return all;
}

std::vector<std::unique_ptr<SocketGroup>> make_socket_groups(int size) {
  const std::size_t ranks = static_cast<std::size_t>(size);
  std::vector<std::vector<int>> sockets(ranks, std::vector<int>(ranks, -1));
  for (std::size_t low = 0; low < ranks; ++low) {
    for (std::size_t high = low + 1; high < ranks; ++high) {
      int pair[2] = {-1, -1};
      if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        const int error = errno;
        for (const auto& row : sockets) {
          for (const int open : row) {
            if (open >= 0) ::close(open);
          }
        }
        throw MachineError(fmt::format("no sockets for {} ranks: {}", size, std::strerror(error)));
      }
      sockets[low][high] = pair[0];
      sockets[high][low] = pair[1];
    }
  }
  std::vector<std::unique_ptr<SocketGroup>> groups;
  for (int rank = 0; rank < size; ++rank) {
    groups.push_back(std::make_unique<SocketGroup>(rank, sockets[static_cast<std::size_t>(rank)]));
  }
  return groups;
}

}  // namespace lockstep::checkpoint
