#include "harness/lib/checkpoint/part.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace lockstep::checkpoint {
namespace {

std::string form(const std::string& dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

int64_t elements_of(const std::vector<int64_t>& shape) {
  Tensor tensor;
  tensor.shape = shape;
  return tensor.elements();
}

const Tensor* expected_tensor(const PartRequest& request, const std::string& kind, const std::string& name) {
  const Section* const section = request.expected == nullptr ? nullptr : request.expected->find(kind);
  if (section == nullptr) return nullptr;
  for (const Tensor& tensor : section->tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

/// How this rank wants a tensor that is one for all ranks.
Tensor wanted(const TensorEntry& entry, const std::string& kind, const PartRequest& request) {
  Tensor tensor;
  tensor.name = entry.name;
  tensor.dtype = entry.dtype;
  tensor.shape = entry.shape;
  tensor.placement = entry.placement;
  tensor.slice = even_slice(elements_of(entry.shape), request.rank, request.world_size);
  if (const Tensor* const expected = expected_tensor(request, kind, entry.name)) {
    tensor.placement = expected->placement;
    tensor.slice = expected->slice;
  }
  return tensor;
}

/// Which elements of it each file holds.
std::vector<Slice> slices_of(const TensorEntry& entry, int world_size) {
  if (entry.placement == Placement::sharded) return entry.slices;
  std::vector<Slice> slices(static_cast<std::size_t>(world_size));
  slices[0] = {0, elements_of(entry.shape)};
  return slices;
}

/// An empty slice, as ranks have of a tensor with fewer elements than ranks, overlaps nothing.
bool overlap(const Slice& a, const Slice& b) { return std::max(a.begin, b.begin) < std::min(a.end, b.end); }

std::string tensor_misfit(const std::string& where, const TensorEntry& entry, const Tensor& expected) {
  if ((entry.placement == Placement::per_rank) != (expected.placement == Placement::per_rank)) {
    return fmt::format("{}: {} expected, found {}", where, name_of(expected.placement),
                       name_of(entry.placement));
  }
  if (entry.placement == Placement::per_rank) {
    if (entry.dtype == expected.dtype) return "";
    return fmt::format("{}: {} expected, found {}", where, expected.dtype, entry.dtype);
  }
  const std::string needed = form(expected.dtype, expected.shape), found = form(entry.dtype, entry.shape);
  return needed == found ? "" : fmt::format("{}: {} expected, found {}", where, needed, found);
}

std::string kind_misfit(const std::string& words, const KindEntry& entry, const Section& expected) {
  for (const Tensor& tensor : expected.tensors) {
    const auto found = std::find_if(entry.tensors.begin(), entry.tensors.end(),
                                    [&](const TensorEntry& other) { return other.name == tensor.name; });
    if (found == entry.tensors.end()) {
      return fmt::format("{}: {}: the run needs it, the checkpoint has none", words, tensor.name);
    }
    if (std::string problem = tensor_misfit(words + ": " + tensor.name, *found, tensor); !problem.empty())
      return problem;
  }
  for (const TensorEntry& tensor : entry.tensors) {
    const bool needed = std::any_of(expected.tensors.begin(), expected.tensors.end(),
                                    [&](const Tensor& other) { return other.name == tensor.name; });
    if (!needed)
      return fmt::format("{}: {}: the checkpoint has it, the run does not know it", words, tensor.name);
  }
  for (const auto& [name, value] : expected.values.items()) {
    if (!entry.values.contains(name)) {
      return fmt::format("{}: {}: the run needs it, the checkpoint has none", words, name);
    }
  }
  return "";
}

/// Puts a wanted range together from the files that hold it.
std::string gather_bytes(const TensorEntry& entry, const std::string& key, const std::vector<Slice>& slices,
                         const std::map<int, ReadShard>& shards, Tensor& tensor) {
  const std::size_t element = element_bytes(entry.dtype).value_or(1);
  const Slice held = tensor.held();
  std::shared_ptr<char[]> own;
  const std::size_t bytes = static_cast<std::size_t>(held.end - held.begin) * element;
  for (std::size_t rank = 0; rank < slices.size(); ++rank) {
    const Slice& slice = slices[rank];
    if (!overlap(slice, held)) continue;
    const ReadShard& shard = shards.at(static_cast<int>(rank));
    const ShardTensor* stored = nullptr;
    const std::span<const std::byte> all = shard.tensor(key, &stored);
    const std::size_t expected = static_cast<std::size_t>(slice.end - slice.begin) * element;
    if (stored == nullptr)
      return fmt::format("{}: the manifest says that it is in rank {}'s file", key, rank);
    if (stored->dtype != entry.dtype || all.size() != expected) {
      return fmt::format("{}: {} bytes of {} expected in rank {}'s file, found {} of {}", key, expected,
                         entry.dtype, rank, all.size(), stored->dtype);
    }
    const Slice common = {std::max(slice.begin, held.begin), std::min(slice.end, held.end)};
    const std::span<const std::byte> part =
        all.subspan(static_cast<std::size_t>(common.begin - slice.begin) * element,
                    static_cast<std::size_t>(common.end - common.begin) * element);
    if (common == held) {
      tensor.bytes = part;
      tensor.keeps = shard.bytes;
      return "";
    }
    if (!own) own = std::shared_ptr<char[]>(new char[bytes]);
    std::memcpy(own.get() + static_cast<std::size_t>(common.begin - held.begin) * element, part.data(),
                part.size());
  }
  tensor.bytes = {reinterpret_cast<const std::byte*>(own.get()), own ? bytes : 0};
  tensor.keeps = own;
  return "";
}

/// What one rank had for itself.
std::string take_own(const std::string& kind, const TensorEntry& entry, int rank,
                     const std::map<int, ReadShard>& shards, Section& section) {
  const std::string key = kind + "/" + entry.name;
  const ReadShard& shard = shards.at(rank);
  Tensor tensor;
  tensor.name = entry.name;
  tensor.dtype = entry.dtype;
  tensor.shape = entry.shapes.at(static_cast<std::size_t>(rank));
  tensor.placement = Placement::per_rank;
  const ShardTensor* stored = nullptr;
  tensor.bytes = shard.tensor(key, &stored);
  tensor.keeps = shard.bytes;
  if (stored == nullptr) return fmt::format("{}: the manifest says that it is in rank {}'s file", key, rank);
  if (form(stored->dtype, stored->shape) != form(tensor.dtype, tensor.shape)) {
    return fmt::format("{}: {} expected in rank {}'s file, found {}", key, form(tensor.dtype, tensor.shape),
                       rank, form(stored->dtype, stored->shape));
  }
  section.tensors.push_back(std::move(tensor));
  return "";
}

}  // namespace

std::string misfit(const Manifest& manifest, const State* expected) {
  if (expected == nullptr) return "";
  for (const auto& [kind, section] : expected->sections) {
    const auto found = manifest.kinds.find(kind);
    if (found == manifest.kinds.end()) return words_of(kind) + ": the run needs it, the checkpoint has none";
    if (std::string problem = kind_misfit(words_of(kind), found->second, section); !problem.empty())
      return problem;
  }
  for (const auto& [kind, entry] : manifest.kinds) {
    if (expected->find(kind) == nullptr)
      return words_of(kind) + ": the checkpoint has it, the run does not know it";
  }
  return "";
}

std::set<int> files_of_part(const Manifest& manifest, const PartRequest& request) {
  std::set<int> files;
  const bool same = manifest.world_size == request.world_size;
  for (const auto& [kind, entry] : manifest.kinds) {
    for (const TensorEntry& tensor : entry.tensors) {
      if (tensor.placement == Placement::per_rank) {
        for (int rank = 0; rank < manifest.world_size; ++rank) {
          if (!same || rank == request.rank) files.insert(rank);
        }
        continue;
      }
      const Slice held = wanted(tensor, kind, request).held();
      const std::vector<Slice> slices = slices_of(tensor, manifest.world_size);
      for (int rank = 0; rank < manifest.world_size; ++rank) {
        if (overlap(slices[static_cast<std::size_t>(rank)], held)) files.insert(rank);
      }
    }
  }
  return files;
}

Part part_of(const Manifest& manifest, const std::map<int, ReadShard>& shards, const PartRequest& request) {
  Part part;
  const bool same = manifest.world_size == request.world_size;
  if (!same) part.of_ranks.resize(static_cast<std::size_t>(manifest.world_size));
  for (const auto& [kind, entry] : manifest.kinds) {
    Section& section = part.state.sections[kind];
    section.values = entry.values;
    if (same) section.rank_values = entry.rank_values[static_cast<std::size_t>(request.rank)];
    for (std::size_t rank = 0; rank < part.of_ranks.size(); ++rank) {
      part.of_ranks[rank].sections[kind].rank_values = entry.rank_values[rank];
    }
    for (const TensorEntry& tensor : entry.tensors) {
      if (tensor.placement != Placement::per_rank) {
        Tensor own = wanted(tensor, kind, request);
        const std::vector<Slice> slices = slices_of(tensor, manifest.world_size);
        part.problem = gather_bytes(tensor, kind + "/" + tensor.name, slices, shards, own);
        section.tensors.push_back(std::move(own));
      } else if (same) {
        part.problem = take_own(kind, tensor, request.rank, shards, section);
      }
      for (int rank = 0; rank < manifest.world_size && !same && tensor.placement == Placement::per_rank;
           ++rank) {
        Section& theirs = part.of_ranks[static_cast<std::size_t>(rank)].sections[kind];
        if (part.problem.empty()) part.problem = take_own(kind, tensor, rank, shards, theirs);
      }
      if (!part.problem.empty()) return part;
    }
  }
  return part;
}

}  // namespace lockstep::checkpoint
