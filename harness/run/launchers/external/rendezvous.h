#pragma once
// How ranks that somebody else has started find each other: by files in the run's folder, which all of them see.
//
// Each rank leaves rank-R.start.json. Rank 0 answers with rendezvous.json, which repeats every rank's nonce: a rank
// takes only an answer with its own, so that what an earlier start left behind is nobody's. When all have taken it rank 0 says so there, and
// all go on; or that one has left, and all leave. Where to meet is said by
// rank 0 alone, of itself, and after its port is bound: no launcher's MASTER_ADDR is relied on.

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/run/host.h"
#include "harness/run/rank_environment.h"

namespace lockstep {

/// What a rank says of itself; the address is of the interface that others shall use.
struct Arrival : HostIdentity {
  int rank = 0, world = 1;
  int local_rank = -1;
  std::string nonce;    ///< of this process alone
  std::string attempt;  ///< Watcher::attempt; empty: the command did not pass it on
  int port = 0;         ///< of doctor --nodes: where it listens
  int pid = 0;          ///< of the process that says so, and that forks the rank
  int process = 0;      ///< the rank's own; 0: it is not forked yet
  uint64_t pid_started = 0, process_started = 0;  ///< ProcessState::started
  std::string rank_environment;  ///< by whose word it is that rank
  std::string build, isa;
  std::string device;
  std::string accepted;  ///< rank 0's nonce, once this rank has taken its answer
  std::string problem;   ///< why it leaves nevertheless
};

struct Met {
  std::vector<Arrival> ranks;  ///< by rank; of a rank that is not 0 only the first and its own are set
  std::string start;           ///< the same on all ranks, and on no other start
  bool tcp = false;            ///< meet at host:port of rank 0, not by a file
  std::string host;            ///< of rank 0's socket
  int port = 0;
  int listening = -1;          ///< on rank 0, for TCP: that socket, which is the caller's
  bool one_host = true;
};

std::string start_file(const std::string& run_dir, int rank);

/// The file as it stands; an empty nonce if there is none yet, or none that can be read.
Arrival read_arrival(const std::string& run_dir, int rank);

/// A nonce, this host, the process, the rank environment, the GPU that is this rank's.
Arrival introduce(const RankEnvironment& rank_environment);

/// What is wrong, for a rank that is not 0, with what rank 0 has answered; empty: nothing.
using Examine = std::function<std::string(const Met& answer)>;

/// Asked while a rank waits; throws if it shall leave.
using StayOrThrow = std::function<void()>;

/// Meets the other ranks of the same attempt. `store`: "file", "tcp" or empty: TCP where there are several hosts. A rank for which `examine` finds
/// something wrong says so in its file and returns; all others throw what it said, so that nobody waits for it. Throws RendezvousError.
Met meet(const std::string& run_dir, Arrival mine, const std::string& store, double deadline_s, const Examine& examine = nullptr,
         const StayOrThrow& stay_or_throw = [] {});

/// Ranks that did not come, came twice, or are not of one world.
class RendezvousError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Says in its file, after the meeting, which process the rank is. `mine`: as it stands in Met::ranks.
void note_process(const std::string& run_dir, Arrival mine, int process);

/// How the ranks' programs or processors differ from rank 0's, in words; empty: not at all.
std::string difference_of_identity(const Arrival& first, const Arrival& mine);

/// Can this host reach rank 0's socket? Empty if so, else what went wrong and what to try.
std::string unreachable_text(const Met& met, const Arrival& mine, double deadline_s);

}  // namespace lockstep
