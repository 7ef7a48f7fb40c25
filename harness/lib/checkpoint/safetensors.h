#pragma once
// The safetensors format: eight bytes of length, a JSON header, the tensors' bytes without a gap
// (https://huggingface.co/docs/safetensors).

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::checkpoint {

struct ShardTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  ///< bytes behind the header
};

struct ShardHeader {
  std::map<std::string, std::string> metadata;
  std::vector<ShardTensor> tensors;  ///< in the order of their bytes
  uint64_t data_bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
};

/// The longest header that readers of the format take.
inline constexpr uint64_t kMostHeaderBytes = 100'000'000;

/// Length and header, padded so that the data begin at a multiple of 8.
std::string encode_header(const ShardHeader& header);

/// The header at the head of a whole file; `data_begin`: where the tensors' bytes begin. Refuses all that the
/// format forbids, naming the tensor: unknown types, offsets with gaps or overlaps, lengths that do not fit
/// the shape, bytes behind the last tensor.
ShardHeader decode_header(std::string_view file, uint64_t& data_begin, std::string& problem);

}  // namespace lockstep::checkpoint
