#pragma once
// The hash of a trace's tensors and frames for tracers that are not written in C++: a C interface to what lockstep's own writer uses.
// docs/trace.md has the definitions; numbers of dtypes are those of the file.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/// What the functions below do: raised when that changes.
int lockstep_hash_version(void);

/// XXH3_64bits, seed 0.
uint64_t lockstep_xxh3(const void* data, uint64_t bytes);

/// The hash of a contiguous tensor. `first_position`: of its first row in the whole tensor; -1: it is hashed in one piece.
uint64_t lockstep_tensor_hash(const void* data, int dtype, int dimensions, const int64_t* shape, int64_t first_position);

/// A tensor record's data up to its values: hash, norm, minimum, maximum and the count of values that are not finite, as the file has them.
/// Returns the bytes written into `record`, at most 42.
int lockstep_tensor_record(const void* data, int dtype, int dimensions, const int64_t* shape, int64_t first_position, unsigned char* record);

/// Of each row (dimension 0) its hash as a tensor of its own.
void lockstep_row_hashes(const void* data, int dtype, int dimensions, const int64_t* shape, uint64_t* hashes);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
