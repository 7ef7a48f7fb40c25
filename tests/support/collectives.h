#pragma once
// The ten collectives of a process group: what a rank brings to each, and what it should get of it.

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstdint>
#include <vector>

namespace lockstep::support {

using Tensors = std::vector<at::Tensor>;
using Work = c10::intrusive_ptr<c10d::Work>;

/// Element i of what a rank brings: whole numbers, whose sums are the same in every order of adding.
inline float brought(int rank, int64_t i) { return static_cast<float>((i * 7 + rank * 13 + 1) % 251); }

struct Ranks {
  c10d::ProcessGroup& group;
  int rank = group.getRank(), world = group.getSize(), root = world - 1;
  int64_t count = 0;  ///< elements of the larger of what a rank brings and what it gets; a multiple of `world`
  at::Tensor in = {}, out = {};
  Tensors ins = {in}, outs = {out};  ///< themselves, and in chunks of a rank each
  Tensors in_chunks = {}, out_chunks = {};

  int64_t chunk() const { return count / world; }
  int previous() const { return (rank + world - 1) % world; }
  float sum_at(int64_t i) const {
    float sum = 0;
    for (int r = 0; r < world; ++r) sum += brought(r, i);
    return sum;
  }
  std::vector<Tensors> at_root(const Tensors& chunks) const {
    return rank == root ? std::vector<Tensors>{chunks} : std::vector<Tensors>{};
  }
  template <typename Options>
  Options rooted() const {
    Options options;
    options.rootRank = root;
    return options;
  }
};

struct Collective {
  const char* name;
  double bus;                 ///< busbw / algbw, in units of (V - 1) / V; 0: they are one (nccl-tests, PERFORMANCE.md)
  bool brings_all, gets_all;  ///< else a chunk
  bool in_place, root_alone;  ///< root_alone: others get nothing that is defined
  Work (*start)(Ranks& r);
  float (*expected)(const Ranks& r, int64_t i);  ///< null: it moves nothing

  double bus_factor(int world) const { return bus == 0 ? 1 : bus * (world - 1) / world; }
  void prepare(Ranks& r) const {
    r.in = at::empty({brings_all ? r.count : r.chunk()}, at::kFloat);
    for (int64_t i = 0; i < r.in.numel(); ++i) r.in.mutable_data_ptr<float>()[i] = brought(r.rank, i);
    r.out = in_place ? r.in.clone() : at::full({gets_all ? r.count : r.chunk()}, -1, at::kFloat);
    r.ins = {r.in};
    r.outs = {r.out};
    if (brings_all) r.in_chunks = r.in.view({r.world, -1}).unbind(0);
    if (gets_all) r.out_chunks = r.out.view({r.world, -1}).unbind(0);
  }
  void run(Ranks& r) const {
    if (const Work work = start(r)) work->wait();
  }
  /// The first element that this rank should not have; -1: every one is right.
  int64_t first_wrong(const Ranks& r) const {
    for (int64_t i = 0; expected != nullptr && (!root_alone || r.rank == r.root) && i < r.out.numel(); ++i) {
      if (r.out.const_data_ptr<float>()[i] != expected(r, i)) return i;
    }
    return -1;
  }
};

inline Work gather_all(Ranks& r) {
  std::vector<Tensors> out{r.out_chunks};
  return r.group.allgather(out, r.ins);
}
inline Work gather(Ranks& r) {
  std::vector<Tensors> out = r.at_root(r.out_chunks);
  return r.group.gather(out, r.ins, r.rooted<c10d::GatherOptions>());
}
inline Work scatter(Ranks& r) {
  std::vector<Tensors> in = r.at_root(r.in_chunks);
  return r.group.scatter(r.outs, in, r.rooted<c10d::ScatterOptions>());
}
inline Work reduce_scatter(Ranks& r) {
  std::vector<Tensors> in{r.in_chunks};
  return r.group.reduce_scatter(r.outs, in);
}
inline Work exchange(Ranks& r) {
  std::vector<int64_t> even;
  return r.group.all_to_all_single(r.out, r.in, even, even);
}
inline Work pass_on(Ranks& r) {
  const Work sent = r.group.send(r.ins, (r.rank + 1) % r.world, 0);
  r.group.recv(r.outs, r.previous(), 0)->wait();
  return sent;
}

inline const std::vector<Collective>& collectives() {
  const auto sum = [](const Ranks& r, int64_t i) { return r.sum_at(i); };
  const auto of_all = [](const Ranks& r, int64_t i) {
    return brought(static_cast<int>(i / r.chunk()), i % r.chunk());
  };
  static const std::vector<Collective> kAll{
      {"all_reduce", 2, true, true, true, false, [](Ranks& r) { return r.group.allreduce(r.outs); }, sum},
      {"reduce", 0, true, true, true, true,
       [](Ranks& r) { return r.group.reduce(r.outs, r.rooted<c10d::ReduceOptions>()); }, sum},
      {"broadcast", 0, true, true, true, false,
       [](Ranks& r) { return r.group.broadcast(r.outs, r.rooted<c10d::BroadcastOptions>()); },
       [](const Ranks& r, int64_t i) { return brought(r.root, i); }},
      {"all_gather", 1, false, true, false, false, gather_all, of_all},
      {"gather", 1, false, true, false, true, gather, of_all},
      {"scatter", 1, true, false, false, false, scatter,
       [](const Ranks& r, int64_t i) { return brought(r.root, r.rank * r.chunk() + i); }},
      {"reduce_scatter", 1, true, false, false, false, reduce_scatter,
       [](const Ranks& r, int64_t i) { return r.sum_at(r.rank * r.chunk() + i); }},
      {"all_to_all", 1, true, true, false, false, exchange,
       [](const Ranks& r, int64_t i) {
         return brought(static_cast<int>(i / r.chunk()), r.rank * r.chunk() + i % r.chunk());
       }},
      {"send_receive", 0, true, true, false, false, pass_on,
       [](const Ranks& r, int64_t i) { return brought(r.previous(), i); }},
      {"barrier", 0, true, true, true, false, [](Ranks& r) { return r.group.barrier(); }, nullptr}};
  return kAll;
}

}  // namespace lockstep::support
