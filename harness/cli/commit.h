#pragma once

namespace lockstep {

/// "commit 0123456789ab", with "+changes" if files that git tracks differed from it when this was built;
/// "unknown commit" outside a clone.
const char* build_commit();

}  // namespace lockstep
