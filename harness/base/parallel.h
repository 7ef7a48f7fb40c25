#pragma once
// Independent pieces of work on a few threads.

#include <cstddef>
#include <functional>

namespace lockstep {

/// Calls work(0) … work(count - 1) on at most `jobs` threads. If some throw, the exception of the smallest
/// index is thrown once all have ended.
void parallel_for(std::size_t count, int jobs, const std::function<void(std::size_t)>& work);

}  // namespace lockstep
