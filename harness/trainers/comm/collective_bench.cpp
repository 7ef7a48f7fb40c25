#include "harness/trainers/comm/collective_bench.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <stdexcept>

#include "harness/trainers/comm/gloo.h"

namespace lockstep {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Element i of what a rank brings: whole numbers whose sums over some thousand ranks are exact in float32.
float brought(int rank, int64_t i) { return static_cast<float>((i * 7 + rank * 13 + 1) % 251); }

double steady_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What a rank brings to a call and what it gets of it.
struct Call {
  at::Tensor in, out;
};

}  // namespace

struct CollectiveBench::Impl {
  explicit Impl(const GlooOptions& options)
      : rank(options.rank),
        world(options.world_size),
        timeout(static_cast<int64_t>(options.timeout_s * 1000)),
        group(make_gloo_group(make_store(options), "collectives", options)) {}

  int rank, world;
  std::chrono::milliseconds timeout;
  c10::intrusive_ptr<c10d::ProcessGroup> group;

  using Run = void (Impl::*)(Call&);
  /// How many elements a rank brings and gets, in units of the whole count (or of one chunk of it), and what it should have got.
  struct Kind {
    std::string_view name;
    bool brings_all, gets_all;  ///< else a chunk
    Run run;
    float (*expected)(const Impl&, int64_t i, int64_t chunk);
    bool in_place = false;
    bool root_alone = false;    ///< gets anything that is defined
  };

  static float sum_at(const Impl& self, int64_t i) {
    float sum = 0;
    for (int r = 0; r < self.world; ++r) sum += brought(r, i);
    return sum;
  }
  int root() const { return world - 1; }

  template <typename Options>
  Options with_timeout() const {
    Options options;
    options.timeout = timeout;
    return options;
  }
  Tensors chunks(const at::Tensor& whole) const { return whole.view({world, -1}).unbind(0); }
  void finish(const c10::intrusive_ptr<c10d::Work>& work) const {
    if (work) work->wait(timeout);
  }

  void all_reduce(Call& call) {
    Tensors tensors{call.out};
    finish(group->allreduce(tensors, with_timeout<c10d::AllreduceOptions>()));
  }
  void reduce(Call& call) {
    Tensors tensors{call.out};
    auto options = with_timeout<c10d::ReduceOptions>();
    options.rootRank = root();
    finish(group->reduce(tensors, options));
  }
  void broadcast(Call& call) {
    Tensors tensors{call.out};
    auto options = with_timeout<c10d::BroadcastOptions>();
    options.rootRank = root();
    finish(group->broadcast(tensors, options));
  }
  void all_gather(Call& call) {
    std::vector<Tensors> out{chunks(call.out)};
    Tensors in{call.in};
    finish(group->allgather(out, in, with_timeout<c10d::AllgatherOptions>()));
  }
  void gather(Call& call) {
    std::vector<Tensors> out;
    if (rank == root()) out.push_back(chunks(call.out));
    Tensors in{call.in};
    auto options = with_timeout<c10d::GatherOptions>();
    options.rootRank = root();
    finish(group->gather(out, in, options));
  }
  void scatter(Call& call) {
    std::vector<Tensors> in;
    if (rank == root()) in.push_back(chunks(call.in));
    Tensors out{call.out};
    auto options = with_timeout<c10d::ScatterOptions>();
    options.rootRank = root();
    finish(group->scatter(out, in, options));
  }
  void reduce_scatter(Call& call) {
    std::vector<Tensors> in{chunks(call.in)};
    Tensors out{call.out};
    finish(group->reduce_scatter(out, in, with_timeout<c10d::ReduceScatterOptions>()));
  }
  void all_to_all(Call& call) {
    std::vector<int64_t> even;
    finish(group->all_to_all_single(call.out, call.in, even, even, with_timeout<c10d::AllToAllOptions>()));
  }
  void send_receive(Call& call) {
    Tensors in{call.in}, out{call.out};
    const auto sent = group->send(in, (rank + 1) % world, 0);
    finish(group->recv(out, (rank + world - 1) % world, 0));
    finish(sent);
  }
  void barrier(Call&) { finish(group->barrier(with_timeout<c10d::BarrierOptions>())); }

  static const Kind& kind_of(std::string_view name) {
    static const std::array kKinds{
        Kind{"all_reduce", true, true, &Impl::all_reduce, [](const Impl& self, int64_t i, int64_t) { return sum_at(self, i); }, true},
        Kind{"reduce", true, true, &Impl::reduce, [](const Impl& self, int64_t i, int64_t) { return sum_at(self, i); }, true, true},
        Kind{"broadcast", true, true, &Impl::broadcast, [](const Impl& self, int64_t i, int64_t) { return brought(self.root(), i); }, true},
        Kind{"all_gather", false, true, &Impl::all_gather,
             [](const Impl&, int64_t i, int64_t chunk) { return brought(static_cast<int>(i / chunk), i % chunk); }},
        Kind{"gather", false, true, &Impl::gather,
             [](const Impl&, int64_t i, int64_t chunk) { return brought(static_cast<int>(i / chunk), i % chunk); }, false, true},
        Kind{"scatter", true, false, &Impl::scatter,
             [](const Impl& self, int64_t i, int64_t chunk) { return brought(self.root(), self.rank * chunk + i); }},
        Kind{"reduce_scatter", true, false, &Impl::reduce_scatter,
             [](const Impl& self, int64_t i, int64_t chunk) { return sum_at(self, self.rank * chunk + i); }},
        Kind{"all_to_all", true, true, &Impl::all_to_all,
             [](const Impl& self, int64_t i, int64_t chunk) { return brought(static_cast<int>(i / chunk), self.rank * chunk + i % chunk); }},
        Kind{"send_receive", true, true, &Impl::send_receive,
             [](const Impl& self, int64_t i, int64_t) { return brought((self.rank + self.world - 1) % self.world, i); }},
        Kind{"barrier", true, true, &Impl::barrier, nullptr, true}};
    const auto found = std::ranges::find(kKinds, name, &Kind::name);
    if (found == kKinds.end()) throw std::invalid_argument("no collective is called " + std::string(name));
    return *found;
  }

  Call prepared(const Kind& kind, int64_t count) const {
    Call call;
    const int64_t brings = kind.brings_all ? count : count / world, gets = kind.gets_all ? count : count / world;
    call.in = at::empty({brings}, at::kFloat);
    auto* in = call.in.mutable_data_ptr<float>();
    for (int64_t i = 0; i < brings; ++i) in[i] = brought(rank, i);
    call.out = kind.in_place ? call.in.clone() : at::full({gets}, -1, at::kFloat);
    return call;
  }

  void look(const Kind& kind, const Call& call, int64_t count, CollectiveTiming& timing) const {
    if (kind.expected == nullptr || (kind.root_alone && rank != root())) return;
    const int64_t chunk = std::max<int64_t>(count / world, 1);
    const auto* out = call.out.const_data_ptr<float>();
    for (int64_t i = 0; i < call.out.numel(); ++i) {
      const float expected = kind.expected(*this, i, chunk);
      if (out[i] == expected) continue;
      if (timing.wrong++ > 0) continue;
      timing.first_wrong = i;
      timing.got = out[i];
      timing.expected = expected;
    }
  }
};

CollectiveBench::CollectiveBench(const GlooOptions& options) : impl_(std::make_unique<Impl>(options)) {}
CollectiveBench::~CollectiveBench() = default;

CollectiveTiming CollectiveBench::time(std::string_view collective, int64_t count, int64_t calls, int64_t spoil) {
  const Impl::Kind& kind = Impl::kind_of(collective);
  CollectiveTiming timing;
  try {
    const auto checked_call = [&] {
      Call call = impl_->prepared(kind, count);
      (impl_.get()->*kind.run)(call);
      if (spoil >= 0 && spoil < call.out.numel()) call.out[spoil] += 1;
      impl_->look(kind, call, count, timing);
    };
    checked_call();
    Call call = impl_->prepared(kind, count);
    Call none;
    impl_->barrier(none);
    const double began = steady_s();
    for (int64_t k = 0; k < calls; ++k) (impl_.get()->*kind.run)(call);
    timing.seconds = (steady_s() - began) / static_cast<double>(std::max<int64_t>(calls, 1));
    checked_call();
  } catch (const c10::Error& error) {
    timing.error = error.what_without_backtrace();
  }
  return timing;
}

}  // namespace lockstep
