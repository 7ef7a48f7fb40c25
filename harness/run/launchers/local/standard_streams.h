#pragma once
// Standard input, output and error, and signals, as every process of ours may rely on them.

namespace lockstep {

/// Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed: else the next file that is opened
/// gets its number, and what is printed lands in that file. To be called before anything is opened. A file that grows beyond the limit of
/// `ulimit -f` is an error of its write from here on, and ends no process.
void open_standard_streams();

}  // namespace lockstep
