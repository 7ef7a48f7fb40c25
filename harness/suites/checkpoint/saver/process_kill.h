#pragma once
// Ranks that are processes on the machine's file system, one of which is killed: sockets close, locks go and pages stay as
// the kernel does it.

#include <string>
#include <vector>

#include "harness/lib/checkpoint/memory_storage.h"
#include "harness/suites/checkpoint/saver/kill.h"

namespace lockstep::saver {

/// `folder` is this call's own: it is emptied, and gets the scene's disk. SIGKILL comes before the point's operation. What
/// the ranks say at the end is judged as judge_save does.
Judgement judge_process_kill(const std::string& folder, const checkpoint::MemoryStorage& before, const Scene& scene, int ranks,
                             const KillPoint& point, Contents& contents);

/// The same with SIGSTOP: the others must give up on it within the deadline, and it is killed then.
Judgement judge_process_stop(const std::string& folder, const checkpoint::MemoryStorage& before, const Scene& scene, int ranks,
                             const KillPoint& point, Contents& contents);

}  // namespace lockstep::saver
