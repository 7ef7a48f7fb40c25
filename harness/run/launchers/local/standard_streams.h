#pragma once
// Standard input, output and error as every process may rely on them.

namespace lockstep {

/// Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed: else the next file that is opened
/// gets its number, and what is printed lands in that file. To be called before anything is opened.
void open_standard_streams();

}  // namespace lockstep
