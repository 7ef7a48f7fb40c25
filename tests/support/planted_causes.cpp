#include "tests/support/planted_causes.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "harness/plan/config/canonical.h"
#include "scenarios/energy/spec.h"

namespace lockstep::support {

RunConfig toy_config() {
  RunConfig config;
  config.layout = {3, 2};
  config.steps = 8;
  config.schedule = Schedule::cosine;
  config.lr = 0.05;
  energy(config).data.min_context = energy(config).data.context_steps;
  return config;
}

RunConfig alone(RunConfig config) {
  config.layout = {1, 6};
  return config;
}

ForcedInputs toy_runs(const std::string& folder, const RunConfig& reference, const RunConfig& config,
                      const ToyFaults& faults, const std::string& trainer, const std::string& reference_trainer) {
  ForcedInputs inputs;
  toy_run(inputs.run_a = folder + "/reference", reference, false, {}, reference_trainer);
  toy_run(inputs.forced_reference = folder + "/forced-reference", reference, true, {}, reference_trainer);
  toy_run(inputs.run_b = folder + "/cell", config, false, faults, trainer);
  toy_run(inputs.forced_cell = folder + "/forced-cell", config, true, faults, trainer);
  inputs.reference_config = &reference;
  inputs.cell_config = &config;
  return inputs;
}

void scale(ToyStep& it, const std::string& group, float factor) {
  for (ToyRank& rank : it.ranks) {
    for (auto& [name, values] : rank.local) {
      if (!name.starts_with(group)) continue;
      for (float& value : values) value *= factor;
    }
  }
}

ToyFaults on_local(ToyFault fault) { return {nullptr, nullptr, std::move(fault), nullptr, nullptr}; }
ToyFaults on_samples(ToyFault fault) { return {std::move(fault), nullptr, nullptr, nullptr, nullptr}; }
static ToyFaults on_forward(ToyFault fault) { return {nullptr, std::move(fault), nullptr, nullptr, nullptr}; }
static ToyFaults on_reduced(ToyFault fault) { return {nullptr, nullptr, nullptr, std::move(fault), nullptr}; }
static ToyFaults on_parameters(ToyFault fault) {
  return {nullptr, nullptr, nullptr, nullptr, std::move(fault)};
}

/// From step 1 on.
ToyFault late(const ToyFault& fault) {
  return [fault](ToyStep& it) {
    if (it.step >= 1) fault(it);
  };
}

/// At that step alone.
static ToyFault at(int64_t step, const ToyFault& fault) {
  return [=](ToyStep& it) {
    if (it.step == step) fault(it);
  };
}

static ToyFault each(const std::function<void(ToyRank&)>& fault) {
  return [fault](ToyStep& it) {
    for (ToyRank& rank : it.ranks) fault(rank);
  };
}

static Planted planted(const std::string& code, const std::string& phase, const std::string& where, int64_t step,
                       ToyFaults faults, std::function<void(RunConfig&)> config = nullptr) {
  return {code, code, phase, where, step, std::move(config), std::move(faults)};
}

static Planted named(const std::string& name, Planted fault) {
  fault.name = name;
  return fault;
}

static Planted group_factors(const std::string& code, float context, float action, float head, float temperature,
                             std::function<void(RunConfig&)> config = nullptr) {
  const auto scaled = [=](ToyStep& it) {
    scale(it, "context", context);
    scale(it, "action", action);
    scale(it, "energy_head", head);
    scale(it, "temperature", temperature);
  };
  return planted(code, "local gradients", "", 0, on_local(scaled), std::move(config));
}

static double squares_of(const Tensors& gradients) {
  double squares = 0;
  for (const auto& [name, values] : gradients)
    for (const float value : values) squares += static_cast<double>(value) * value;
  return squares;
}

/// Every rank's reduced gradients, made anew from the local ones.
static ToyFault reduced_as(std::function<float(const ToyStep&, const std::string&, std::size_t)> value) {
  return [value](ToyStep& it) {
    for (const auto& [name, size] : toy_parameters()) {
      std::vector<float> made;
      for (std::size_t i = 0; i < size; ++i) made.push_back(value(it, name, i));
      for (ToyRank& rank : it.ranks) rank.reduced[name] = made;
    }
  };
}

static float mean(const ToyStep& it, const std::string& name, std::size_t i) {
  double sum = 0;
  for (const ToyRank& rank : it.ranks) sum += rank.local.at(name)[i];
  return static_cast<float>(sum / static_cast<double>(it.ranks.size()));
}

static Planted reduced(const std::string& code,
                       std::function<float(const ToyStep&, const std::string&, std::size_t)> value,
                       int64_t step = 0) {
  ToyFault fault = reduced_as(std::move(value));
  return planted(code, "reduced gradients", "", step, on_reduced(step == 0 ? fault : late(fault)));
}

static Planted updated(const std::string& code, std::function<void(RunConfig&)> config,
                       std::function<void(const ToyStep&, ToyUpdate&)> change, int64_t step = 0) {
  const auto other = [=](ToyStep& it) {
    if (it.step < step) return;
    for (ToyRank& rank : it.ranks) {
      ToyUpdate how = toy_update_of(it, rank);
      change(it, how);
      toy_apply(it, rank, how);
    }
  };
  return planted(code, "parameters", "", step, on_parameters(other), std::move(config));
}

/// Recomputes the row losses of all ranks under other targets or another temperature.
static ToyFault losses_by(std::function<std::vector<double>(const ToyRank&)> of) {
  return each([of](ToyRank& rank) {
    rank.row_losses = of(rank);
    toy_loss(rank);
  });
}

static CollectiveRecord& call(ToyRank& rank, const std::string& tag) {
  return *std::find_if(rank.collectives.begin(), rank.collectives.end(),
                       [&](const CollectiveRecord& each) { return each.tag == tag; });
}

float flipped(float value, int bit) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ (uint32_t{1} << bit));
}

static std::vector<Planted> forward_faults() {
  const auto energies = [](const std::string& code, ToyFault fault, int64_t step = 0) {
    return planted(code, "energies", code == "local-negatives" ? "energies" : "", step, on_forward(std::move(fault)));
  };
  const auto loss = [](const std::string& code, ToyFault fault) {
    return planted(code, "loss", "loss", 0, on_forward(std::move(fault)));
  };
  const auto loss_scaled = [](const std::string& code, float factor) {
    const ToyFault forward = each([factor](ToyRank& rank) { rank.loss *= factor; });
    return planted(code, "loss", "loss", 0,
                   {nullptr, forward, [factor](ToyStep& it) { scale(it, "", factor); }, nullptr, nullptr});
  };
  std::vector<Planted> faults = {
      energies("local-negatives", [](ToyStep& it) {
        for (ToyRank& rank : it.ranks) {
          rank.columns = rank.samples;
          rank.energies.clear();
          for (const int64_t id : rank.samples)
            for (const int64_t column : rank.columns) rank.energies.push_back(toy_energy(id, column, it.step));
        }
      }),
      energies("candidates-misordered", each([](ToyRank& rank) {
        for (auto row = rank.energies.begin(); row != rank.energies.end(); row += 6) std::rotate(row, row + 1, row + 6);
      })),
      energies("sample-content", at(2, [](ToyStep& it) {
        const int64_t id = it.ranks[1].samples[0];
        for (ToyRank& rank : it.ranks)
          for (std::size_t row = 0; row < 2; ++row)
            for (std::size_t j = 0; j < 6; ++j)
              if (rank.samples[row] == id || rank.columns[j] == id) rank.energies[6 * row + j] += 0.3F;
      }), 2),
      energies("mask-ignored", each([](ToyRank& rank) {
        for (std::size_t j = 0; rank.rank < 2 && j < 6; ++j)
          rank.energies[j] += 0.1F + 0.01F * static_cast<float>(j);
      })),
      energies("candidates-in-low-precision", each([](ToyRank& rank) {
        for (std::size_t i = 0; i < rank.energies.size(); ++i)
          rank.energies[i] += 1e-3F * toy_value("e", i, static_cast<uint64_t>(rank.rank), 3) +
                              (i % 2 == 0 ? 3e-4F : -3e-4F);
      })),
      loss("label-offset",
           losses_by([](const ToyRank& rank) { return toy_row_losses(rank, rank.temperature, {0, 1}); })),
      loss("temperature-applied-twice", losses_by([](const ToyRank& rank) {
        return toy_row_losses(rank, rank.temperature * rank.temperature, toy_targets(rank));
      })),
      loss("rows-left-out", each([](ToyRank& rank) { rank.loss = rank.row_weight * rank.row_losses[0]; })),
      loss_scaled("loss-times-world", 3),
      loss_scaled("loss-over-world", 1 / 3.0F),
  };
  faults[3].config = [](RunConfig& c) { energy(c).data.min_context = 10; };
  return faults;
}

static std::vector<Planted> gradient_faults() {
  const float third = 1 / 3.0F;
  const auto accumulated = [](int64_t steps) { return [steps](RunConfig& c) { c.accumulation = steps; }; };
  const auto local = [](const std::string& code, const std::string& where, int64_t step, ToyFault fault) {
    return planted(code, "local gradients", where, step, on_local(step == 0 ? fault : at(step, fault)));
  };
  return {
      group_factors("gather-without-gradient", 0, 0, 1, 1),
      group_factors("gather-own-slice", third, third, 1, 1),
      group_factors("gather-own-slice-times-world", 1, 1, 3, 3),
      group_factors("candidates-detached", 1, 0, 1, 1),
      group_factors("gather-averaged", 1, third, 1, 1),
      group_factors("temperature-reduced-twice", 1, 1, 1, 3),
      group_factors("head-counted-twice", 1, 1, 2, 2),
      group_factors("temperature-detached", 1, 1, 1, 0),
      group_factors("context-detached", 0, 1, 1, 1),
      group_factors("sign-flipped", -1, -1, -1, -1),
      group_factors("gradient-times-world", 3, 3, 3, 3),
      group_factors("gradient-over-world", third, third, third, third),
      group_factors("accumulation-not-scaled", 2, 2, 2, 2, accumulated(2)),
      named("a factor that is no closed form", group_factors("constant-factor", 3.7F, 3.7F, 3.7F, 3.7F)),
      named("two closed forms of one number", group_factors("unexplained", 3, 3, 3, 3, accumulated(3))),
      local("gather-backward-sliced", "action_encoder.weight", 0, each([](ToyRank& rank) {
        for (std::size_t i = 0; i < 12; ++i)
          rank.local["action_encoder.weight"][i] += toy_value("sliced", i, static_cast<uint64_t>(rank.rank), 9);
      })),
      local("bit-flip", "context_encoder.weight", 1, [](ToyStep& it) {
        float& value = it.ranks.back().local["context_encoder.weight"][0];
        value = flipped(value, 22);
      }),
      named("bit-flip of an exponent", local("bit-flip", "energy_head.key", 1, [](ToyStep& it) {
        float& value = it.ranks[0].local["energy_head.key"][0];
        value = flipped(value, 30);
      })),
      local("non-finite", "energy_head.key", 2,
            [](ToyStep& it) { it.ranks[1].local["energy_head.key"][0] = std::nanf(""); }),
  };
}

static Tensors kept_before(const ToyStep& it, std::size_t rank, int64_t step) {
  return toy_step(*it.config, step, {}).ranks[rank].local;
}

/// The forced step before.
static int64_t forced_before(int64_t step) { return step == 4 ? 2 : step - 1; }

static std::vector<Planted> reduction_faults() {
  const auto over = [](float factor) {
    return
        [=](const ToyStep& it, const std::string& name, std::size_t i) { return factor * mean(it, name, i); };
  };
  // The mean with that share of what a rank gave added to it.
  const auto with_rank = [](std::size_t rank, float share) {
    return [=](const ToyStep& it, const std::string& name, std::size_t i) {
      return mean(it, name, i) + share * it.ranks[rank].local.at(name)[i];
    };
  };
  const auto on_ranks = [](const std::string& code, const std::string& where, int64_t step, ToyFault fault) {
    return planted(code, "reduced gradients", where, step, on_reduced(std::move(fault)));
  };
  std::vector<Planted> faults = {
      reduced("gradient-sum-not-mean", over(3)),
      reduced("mean-taken-twice", over(1 / 3.0F)),
      reduced("divided-by-wrong-world", over(0.75F)),
      reduced("wrong-reduction-op",
              [](const ToyStep& it, const std::string& name, std::size_t i) {
                return std::max({it.ranks[0].local.at(name)[i], it.ranks[1].local.at(name)[i],
                                 it.ranks[2].local.at(name)[i]});
              }),
      reduced("rank-missing", with_rank(1, -1 / 3.0F)),
      reduced("rank-counted-twice", with_rank(2, 1 / 3.0F)),
      reduced("reduced-in-low-precision",
              [](const ToyStep& it, const std::string& name, std::size_t i) {
                return std::bit_cast<float>((std::bit_cast<uint32_t>(mean(it, name, i)) + 0x7fff) &
                                            0xffff0000U);
              }),
      reduced(
          "stale-gradient",
          [](const ToyStep& it, const std::string& name, std::size_t i) {
            const float old = kept_before(it, 1, forced_before(it.step)).at(name)[i];
            return mean(it, name, i) + (old - it.ranks[1].local.at(name)[i]) / 3;
          },
          1),
      reduced(
          "gradients-not-zeroed",
          [](const ToyStep& it, const std::string& name, std::size_t i) {
            return mean(it, name, i) + mean(toy_step(*it.config, 0, {}), name, i);
          },
          1),
      reduced("unexplained", over(0.9F)),
      on_ranks("gradient-not-reduced", "", 0, each([](ToyRank& rank) { rank.reduced = rank.local; })),
      on_ranks("parameter-not-reduced", "energy_head.key", 0, each([](ToyRank& rank) {
        rank.reduced["energy_head.key"] = rank.local["energy_head.key"];
      })),
      on_ranks("buckets-swapped", "", 0, each([](ToyRank& rank) {
        std::swap(rank.reduced["energy_head.key"], rank.reduced["energy_head.query"]);
      })),
      named("message-corrupted on a rank", on_ranks("message-corrupted", "energy_head.key", 1, at(1, [](ToyStep& it) {
        float& value = it.ranks.back().reduced["energy_head.key"][0];
        if (it.ranks.size() > 1) value = flipped(value, 20);
      }))),
      on_ranks("clip-before-reduction", "", 0, reduced_as([](const ToyStep& it, const std::string& name, std::size_t i) {
        double sum = 0;
        for (const ToyRank& rank : it.ranks)
          sum += std::min(1.0, 0.5 / (std::sqrt(squares_of(rank.local)) + 1e-6)) * rank.local.at(name)[i];
        return static_cast<float>(sum / 3);
      })),
  };
  faults.back().config = [](RunConfig& c) { c.clip_norm = 0.5; };
  return faults;
}

static std::vector<Planted> update_faults() {
  const auto sgd_clipped = [](RunConfig& c) {
    c.optimizer = OptimizerKind::sgd;
    c.clip_norm = 0.3;
  };
  const auto decayed = [](RunConfig& c) { c.weight_decay = 0.1; };
  const auto adamw = [](RunConfig& c) {
    c.optimizer = OptimizerKind::adamw;
    c.weight_decay = 0.1;
  };
  using Update = ToyUpdate;
  return {
      updated("clip-missing", sgd_clipped, [](const ToyStep&, Update& how) { how.factor = 1; }),
      updated("clip-twice", sgd_clipped,
              [](const ToyStep& it, Update& how) {
                how.factor = std::min(1.0, 0.3 / (it.ranks[0].norm * std::sqrt(3.0) + 1e-6));
              }),
      updated("weight-decay-missing", decayed, [](const ToyStep&, Update& how) { how.decay = 0; }),
      updated("weight-decay-twice", adamw, [](const ToyStep&, Update& how) { how.decay *= 2; }),
      updated("decay-coupled", adamw, [](const ToyStep&, Update& how) { how.coupled = true; }),
      updated(
          "optimizer-state-lost", nullptr, [](const ToyStep&, Update& how) { how.zero_moments = true; }, 1),
      updated(
          "optimizer-counter-lost", nullptr, [](const ToyStep&, Update& how) { how.count = 1; }, 1),
      updated(
          "rate-not-applied", nullptr, [](const ToyStep& it, Update& how) { how.rate = it.config->lr; }, 1),
      updated("update-differs", nullptr,
              [](const ToyStep&, Update& how) {
                how.factor = 0.9;
                how.rate *= 1.3;
              }),
      planted("parameter-not-updated", "parameters", "energy_head.query", 0, on_parameters([](ToyStep& it) {
        for (ToyRank& rank : it.ranks) rank.parameters["energy_head.query"] = it.before["energy_head.query"];
      })),
      planted("clip-on-local-norm", "parameters", "", 0, on_parameters([](ToyStep& it) {
        for (ToyRank& rank : it.ranks) {
          ToyUpdate how = toy_update_of(it, rank);
          how.factor = std::min(1.0, 0.3 / (std::sqrt(squares_of(rank.local)) + 1e-6));
          toy_apply(it, rank, how);
        }
      }), sgd_clipped),
  };
}

static std::vector<Planted> replica_and_ledger_faults() {
  const auto ledger = [](const std::string& code, const std::string& where, int64_t step, ToyFault fault) {
    return planted(code, "collective", where, step, on_forward(step == 1 ? late(fault) : std::move(fault)));
  };
  const auto drop_energy = each([](ToyRank& r) {
    std::erase_if(r.collectives, [](const CollectiveRecord& c) { return c.tag == "stats.energy"; });
  });
  return {
      planted("replica-corrupted", "parameters", "energy_head.key", 1, on_parameters(at(1, [](ToyStep& it) {
        float& value = it.ranks.back().parameters["energy_head.key"][0];
        value = flipped(value, 10);
      }))),
      planted("buffers-not-synchronised", "parameters", "buffer/energy_mean", 0,
              on_parameters([](ToyStep& it) { it.ranks[1].buffer += 0.5; })),
      planted("replicas-drift", "parameters", "", 1, on_parameters(late([](ToyStep& it) {
        for (auto& [name, values] : it.ranks[2].parameters) values[0] += 0.01F;
      }))),
      ledger("wrong-op", "all_reduce stats.energy", 1,
             each([](ToyRank& r) { call(r, "stats.energy").reduction = "max"; })),
      ledger("wrong-root", "broadcast stats.buffer", 0, [](ToyStep& it) {
        for (ToyRank& r : it.ranks) call(r, "stats.buffer").root = 1;
        call(it.ranks[1], "stats.buffer").hash_in = call(it.ranks[0], "stats.buffer").hash_out;
      }),
      ledger("wrong-dtype", "all_reduce stats.energy", 1,
             each([](ToyRank& r) { call(r, "stats.energy").dtype = DType::float32; })),
      ledger("collective-order", "", 1,
             each([](ToyRank& r) { std::swap(r.collectives.back(), r.collectives[r.collectives.size() - 2]); })),
      ledger("collective-missing", "all_reduce stats.energy", 0, drop_energy),
      ledger("collective-missing", "all_reduce stats.energy", 1, drop_energy),
      ledger("collective-extra", "broadcast stats.buffer", 0,
             each([](ToyRank& r) { r.collectives.push_back(r.collectives.back()); })),
      ledger("stale-buffer", "all_reduce stats.energy", 1, [](ToyStep& it) {
        call(it.ranks[1], "stats.energy").hash_out = static_cast<uint64_t>(it.step - 1) * 19 + 5;
      }),
      ledger("broadcast-not-received", "broadcast stats.buffer", 0, [](ToyStep& it) {
        CollectiveRecord& c = call(it.ranks[2], "stats.buffer");
        c.hash_out = c.hash_in;
      }),
      ledger("message-corrupted", "all_gather loss.candidates", 2,
             at(2, [](ToyStep& it) { call(it.ranks[1], "loss.candidates").hash_out ^= 1; })),
  };
}

std::vector<Planted> all_faults() {
  std::vector<Planted> all;
  for (const auto& family : {sample_faults(), stream_and_rate_faults(), forward_faults(), gradient_faults(),
                             reduction_faults(), update_faults(), replica_and_ledger_faults()}) {
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

// Faults of what a step is given: rows, random streams, learning rate.

static void rekey(ToyStep& it, RankSeed mode, int64_t step) {
  for (ToyRank& rank : it.ranks) {
    std::vector<uint64_t> keys;
    for (std::size_t row = 0; row < rank.samples.size(); ++row) {
      keys.push_back(
          stream_row_key(stream_base(mode, it.config->seed, rank.rank), 1, step,
                         mode == RankSeed::keyed ? static_cast<uint64_t>(rank.samples[row]) : row));
    }
    rank.streams["context_noise"].first = stream_fingerprint(keys);
  }
}

std::vector<Planted> sample_faults() {
  const auto rows = [](const std::string& code, int64_t step, ToyFault fault) {
    return planted(code, "samples", "", step, on_samples(std::move(fault)));
  };
  // The k-th row of each rank is what `of` says.
  const auto drawn = [](const std::function<int64_t(int64_t step, int64_t place)>& of) {
    return [of](ToyStep& it) {
      for (ToyRank& rank : it.ranks)
        for (std::size_t k = 0; k < rank.samples.size(); ++k)
          rank.samples[k] = of(it.step, rank.rank + 3 * static_cast<int64_t>(k));
    };
  };
  return {
      rows("shards-identical", 0, [](ToyStep& it) {
        for (ToyRank& rank : it.ranks) rank.samples = it.ranks[0].samples;
      }),
      rows("shards-overlap", 0, [](ToyStep& it) {
        const auto ranks = it.ranks;
        for (std::size_t r = 0; r < ranks.size(); ++r)
          it.ranks[r].samples.back() = ranks[(r + 1) % ranks.size()].samples.front();
      }),
      rows("sample-dropped", 2, at(2, [](ToyStep& it) {
        if (it.ranks.size() > 1) it.ranks[1].samples.pop_back();
      })),
      rows("sample-duplicated", 1, at(1, [](ToyStep& it) { it.ranks[1].samples[1] = it.ranks[1].samples[0]; })),
      rows("sample-replaced", 1, at(1, [](ToyStep& it) { it.ranks[1].samples[1] = 100; })),
      rows("rank-behind-data", 3, [](ToyStep& it) {
        for (std::size_t k = 0; it.step >= 3 && k < 2; ++k)
          it.ranks[2].samples[k] = toy_sample(it.step - 1, 2 + 3 * static_cast<int64_t>(k), 6);
      }),
      rows("set-epoch-forgotten", 4, drawn([](int64_t step, int64_t place) { return toy_sample(step % 4, place, 6); })),
      rows("shuffle-differs", 0, drawn([](int64_t step, int64_t place) { return 6 * (step % 4) + place; })),
      rows("sampler-seed-differs", 0, [](ToyStep& it) {
        for (int64_t& id : it.ranks[1].samples) id = (id * 13 + 50) % 101;
      }),
  };
}

std::vector<Planted> stream_and_rate_faults() {
  const auto random = [](const std::string& code, const std::string& stream, ToyFault fault, int64_t step = 0) {
    return planted(code, "random", stream, step, on_samples(step == 0 ? fault : late(fault)));
  };
  const auto rate = [](const std::string& code, const std::function<double(const ToyStep&)>& of, int64_t step = 0) {
    return planted(code, "control", "learning_rate", step, on_samples([of](ToyStep& it) {
      const double value = of(it);
      for (ToyRank& rank : it.ranks) rank.rate = value;
    }));
  };
  const auto times = [](double factor) {
    return [factor](const ToyStep& it) { return it.ranks[0].rate * factor; };
  };
  return {
      random("same-stream-on-all-ranks", "context_noise", [](ToyStep& it) { rekey(it, RankSeed::same, it.step); }),
      random("stream-keyed-by-rank", "context_noise", [](ToyStep& it) { rekey(it, RankSeed::plus_rank, it.step); }),
      random("stream-not-advanced", "context_noise", [](ToyStep& it) { rekey(it, RankSeed::keyed, it.step - 1); }, 1),
      random("extra-draws", "dropout", [](ToyStep& it) { it.ranks[1].streams["dropout"].second += 4; }),
      random("draws-missing", "dropout", [](ToyStep& it) { it.ranks[1].streams.erase("dropout"); }),
      named("a stream that the reference lacks", random("random-stream-differs", "negatives", each([](ToyRank& rank) {
        rank.streams["negatives"] = {77 + static_cast<uint64_t>(rank.rank), 4};
      }))),
      random("random-stream-differs", "dropout", [](ToyStep& it) { it.ranks[1].streams["dropout"].first += 77; }),
      rate("scheduler-stepped-per-rank", [](const ToyStep& it) { return learning_rate(*it.config, 3 * it.step); }, 1),
      rate("schedule-shifted", [](const ToyStep& it) { return learning_rate(*it.config, it.step + 1); }),
      rate("rate-scaled-linear", times(3)),
      rate("rate-scaled-sqrt", times(std::sqrt(3.0))),
      rate("rate-differs", times(1.7)),
  };
}

}  // namespace lockstep::support
