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

static Planted group_factors(const std::string& code, float context, float action, float head,
                             float temperature) {
  return {code, code, "local gradients", "", 0, nullptr, on_local([=](ToyStep& it) {
            scale(it, "context", context);
            scale(it, "action", action);
            scale(it, "energy_head", head);
            scale(it, "temperature", temperature);
          })};
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
  return {code, code, "reduced gradients", "", step, nullptr, on_reduced(step == 0 ? fault : late(fault))};
}

static Planted updated(const std::string& code, std::function<void(RunConfig&)> config,
                       std::function<void(const ToyStep&, ToyUpdate&)> change, int64_t step = 0) {
  return {code, code, "parameters", "", step, std::move(config), on_parameters([=](ToyStep& it) {
            if (it.step < step) return;
            for (ToyRank& rank : it.ranks) {
              ToyUpdate how = toy_update_of(it, rank);
              change(it, how);
              toy_apply(it, rank, how);
            }
          })};
}

/// Recomputes the row losses of all ranks under other targets or another temperature.
static ToyFault losses_by(std::function<std::vector<double>(const ToyRank&)> of) {
  return [of](ToyStep& it) {
    for (ToyRank& rank : it.ranks) {
      rank.row_losses = of(rank);
      toy_loss(rank);
    }
  };
}

static CollectiveRecord& call(ToyRank& rank, const std::string& tag) {
  return *std::find_if(rank.collectives.begin(), rank.collectives.end(),
                       [&](const CollectiveRecord& each) { return each.tag == tag; });
}

float flipped(float value, int bit) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ (uint32_t{1} << bit));
}

static std::vector<Planted> forward_faults() {
  return {
      {"local-negatives", "local-negatives", "energies", "energies", 0, nullptr, on_forward([](ToyStep& it) {
         for (ToyRank& rank : it.ranks) {
           rank.columns = rank.samples;
           rank.energies.clear();
           for (const int64_t id : rank.samples)
             for (const int64_t column : rank.columns)
               rank.energies.push_back(toy_energy(id, column, it.step));
         }
       })},
      {"candidates-misordered", "candidates-misordered", "energies", "", 0, nullptr,
       on_forward([](ToyStep& it) {
         for (ToyRank& rank : it.ranks)
           for (std::size_t row = 0; row < 2; ++row)
             std::rotate(rank.energies.begin() + static_cast<std::ptrdiff_t>(6 * row),
                         rank.energies.begin() + static_cast<std::ptrdiff_t>(6 * row + 1),
                         rank.energies.begin() + static_cast<std::ptrdiff_t>(6 * row + 6));
       })},
      {"sample-content", "sample-content", "energies", "", 2, nullptr, on_forward([](ToyStep& it) {
         if (it.step != 2) return;
         const int64_t id = it.ranks[1].samples[0];
         for (ToyRank& rank : it.ranks)
           for (std::size_t row = 0; row < 2; ++row)
             for (std::size_t j = 0; j < 6; ++j)
               if (rank.samples[row] == id || rank.columns[j] == id) rank.energies[6 * row + j] += 0.3F;
       })},
      {"mask-ignored", "mask-ignored", "energies", "", 0, [](RunConfig& c) { energy(c).data.min_context = 10; },
       on_forward([](ToyStep& it) {
         for (ToyRank& rank : it.ranks)
           for (std::size_t j = 0; rank.rank < 2 && j < 6; ++j)
             rank.energies[j] += 0.1F + 0.01F * static_cast<float>(j);
       })},
      {"candidates-in-low-precision", "candidates-in-low-precision", "energies", "", 0, nullptr,
       on_forward([](ToyStep& it) {
         for (ToyRank& rank : it.ranks)
           for (std::size_t i = 0; i < rank.energies.size(); ++i)
             rank.energies[i] += 1e-3F * toy_value("e", i, static_cast<uint64_t>(rank.rank), 3) +
                                 (i % 2 == 0 ? 3e-4F : -3e-4F);
       })},
      {"label-offset", "label-offset", "loss", "loss", 0, nullptr,
       on_forward(
           losses_by([](const ToyRank& rank) { return toy_row_losses(rank, rank.temperature, {0, 1}); }))},
      {"temperature-applied-twice", "temperature-applied-twice", "loss", "loss", 0, nullptr,
       on_forward(losses_by([](const ToyRank& rank) {
         return toy_row_losses(rank, rank.temperature * rank.temperature, toy_targets(rank));
       }))},
      {"rows-left-out", "rows-left-out", "loss", "loss", 0, nullptr, on_forward([](ToyStep& it) {
         for (ToyRank& rank : it.ranks) rank.loss = rank.row_weight * rank.row_losses[0];
       })},
      {"loss-times-world",
       "loss-times-world",
       "loss",
       "loss",
       0,
       nullptr,
       {nullptr,
        [](ToyStep& it) {
          for (ToyRank& rank : it.ranks) rank.loss *= 3;
        },
        [](ToyStep& it) { scale(it, "", 3); }, nullptr, nullptr}},
      {"loss-over-world",
       "loss-over-world",
       "loss",
       "loss",
       0,
       nullptr,
       {nullptr,
        [](ToyStep& it) {
          for (ToyRank& rank : it.ranks) rank.loss /= 3;
        },
        [](ToyStep& it) { scale(it, "", 1 / 3.0F); }, nullptr, nullptr}},
  };
}

static std::vector<Planted> gradient_faults() {
  const float third = 1 / 3.0F;
  std::vector<Planted> faults = {
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
  };
  faults.push_back(group_factors("accumulation-not-scaled", 2, 2, 2, 2));
  faults.back().config = [](RunConfig& c) { c.accumulation = 2; };
  faults.push_back(group_factors("constant-factor", 3.7F, 3.7F, 3.7F, 3.7F));
  faults.back().name = "a factor that is no closed form";
  faults.push_back(group_factors("unexplained", 3, 3, 3, 3));
  faults.back().name = "two closed forms of one number";
  faults.back().config = [](RunConfig& c) { c.accumulation = 3; };
  faults.push_back({"gather-backward-sliced", "gather-backward-sliced", "local gradients",
                    "action_encoder.weight", 0, nullptr, on_local([](ToyStep& it) {
                      for (ToyRank& rank : it.ranks)
                        for (std::size_t i = 0; i < 12; ++i)
                          rank.local["action_encoder.weight"][i] +=
                              toy_value("sliced", i, static_cast<uint64_t>(rank.rank), 9);
                    })});
  faults.push_back({"bit-flip", "bit-flip", "local gradients", "context_encoder.weight", 1, nullptr,
                    on_local([](ToyStep& it) {
                      float& value = it.ranks.back().local["context_encoder.weight"][0];
                      if (it.step == 1) value = flipped(value, 22);
                    })});
  faults.push_back({"bit-flip of an exponent", "bit-flip", "local gradients", "energy_head.key", 1, nullptr,
                    on_local([](ToyStep& it) {
                      float& value = it.ranks[0].local["energy_head.key"][0];
                      if (it.step == 1) value = flipped(value, 30);
                    })});
  faults.push_back({"non-finite", "non-finite", "local gradients", "energy_head.key", 2, nullptr,
                    on_local([](ToyStep& it) {
                      if (it.step == 2) it.ranks[1].local["energy_head.key"][0] = std::nanf("");
                    })});
  return faults;
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
  std::vector<Planted> faults = {
      reduced("gradient-sum-not-mean", over(3)),
      reduced("mean-taken-twice", over(1 / 3.0F)),
      reduced("divided-by-wrong-world", over(0.75F)),
      reduced("wrong-reduction-op",
              [](const ToyStep& it, const std::string& name, std::size_t i) {
                return std::max({it.ranks[0].local.at(name)[i], it.ranks[1].local.at(name)[i],
                                 it.ranks[2].local.at(name)[i]});
              }),
      reduced("rank-missing",
              [](const ToyStep& it, const std::string& name, std::size_t i) {
                return mean(it, name, i) - it.ranks[1].local.at(name)[i] / 3;
              }),
      reduced("rank-counted-twice",
              [](const ToyStep& it, const std::string& name, std::size_t i) {
                return mean(it, name, i) + it.ranks[2].local.at(name)[i] / 3;
              }),
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
  };
  faults.push_back({"gradient-not-reduced", "gradient-not-reduced", "reduced gradients", "", 0, nullptr,
                    on_reduced([](ToyStep& it) {
                      for (ToyRank& rank : it.ranks) rank.reduced = rank.local;
                    })});
  faults.push_back({"parameter-not-reduced", "parameter-not-reduced", "reduced gradients", "energy_head.key",
                    0, nullptr, on_reduced([](ToyStep& it) {
                      for (ToyRank& rank : it.ranks)
                        rank.reduced["energy_head.key"] = rank.local["energy_head.key"];
                    })});
  faults.push_back(
      {"buckets-swapped", "buckets-swapped", "reduced gradients", "", 0, nullptr, on_reduced([](ToyStep& it) {
         for (ToyRank& rank : it.ranks)
           std::swap(rank.reduced["energy_head.key"], rank.reduced["energy_head.query"]);
       })});
  faults.push_back({"message-corrupted on a rank", "message-corrupted", "reduced gradients",
                    "energy_head.key", 1, nullptr, on_reduced([](ToyStep& it) {
                      float& value = it.ranks.back().reduced["energy_head.key"][0];
                      if (it.step == 1 && it.ranks.size() > 1) value = flipped(value, 20);
                    })});
  faults.push_back({"clip-before-reduction", "clip-before-reduction", "reduced gradients", "", 0,
                    [](RunConfig& c) { c.clip_norm = 0.5; }, on_reduced([](ToyStep& it) {
                      std::vector<double> norms;
                      for (const ToyRank& rank : it.ranks) {
                        double squares = 0;
                        for (const auto& [name, values] : rank.local)
                          for (const float value : values) squares += static_cast<double>(value) * value;
                        norms.push_back(std::sqrt(squares));
                      }
                      reduced_as([norms](const ToyStep& step, const std::string& name, std::size_t i) {
                        double sum = 0;
                        for (std::size_t r = 0; r < norms.size(); ++r)
                          sum += std::min(1.0, 0.5 / (norms[r] + 1e-6)) * step.ranks[r].local.at(name)[i];
                        return static_cast<float>(sum / 3);
                      })(it);
                    })});
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
  std::vector<Planted> faults = {
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
  };
  faults.push_back({"parameter-not-updated", "parameter-not-updated", "parameters", "energy_head.query", 0,
                    nullptr, on_parameters([](ToyStep& it) {
                      for (ToyRank& rank : it.ranks)
                        rank.parameters["energy_head.query"] = it.before["energy_head.query"];
                    })});
  faults.push_back({"clip-on-local-norm", "clip-on-local-norm", "parameters", "", 0, sgd_clipped,
                    on_parameters([](ToyStep& it) {
                      for (ToyRank& rank : it.ranks) {
                        double squares = 0;
                        for (const auto& [name, values] : rank.local)
                          for (const float value : values) squares += static_cast<double>(value) * value;
                        ToyUpdate how = toy_update_of(it, rank);
                        how.factor = std::min(1.0, 0.3 / (std::sqrt(squares) + 1e-6));
                        toy_apply(it, rank, how);
                      }
                    })});
  return faults;
}

static std::vector<Planted> replica_and_ledger_faults() {
  const auto ledger = [](const std::string& code, const std::string& where, int64_t step, ToyFault fault) {
    return Planted{code, code, "collective", where, step, nullptr, on_forward(std::move(fault))};
  };
  return {
      {"replica-corrupted", "replica-corrupted", "parameters", "energy_head.key", 1, nullptr,
       on_parameters([](ToyStep& it) {
         float& value = it.ranks.back().parameters["energy_head.key"][0];
         if (it.step == 1) value = flipped(value, 10);
       })},
      {"buffers-not-synchronised", "buffers-not-synchronised", "parameters", "buffer/energy_mean", 0, nullptr,
       on_parameters([](ToyStep& it) { it.ranks[1].buffer += 0.5; })},
      {"replicas-drift", "replicas-drift", "parameters", "", 1, nullptr, on_parameters(late([](ToyStep& it) {
         for (auto& [name, values] : it.ranks[2].parameters) values[0] += 0.01F;
       }))},
      ledger("wrong-op", "all_reduce stats.energy", 1, late([](ToyStep& it) {
               for (ToyRank& r : it.ranks) call(r, "stats.energy").reduction = "max";
             })),
      ledger("wrong-root", "broadcast stats.buffer", 0,
             [](ToyStep& it) {
               for (ToyRank& r : it.ranks) call(r, "stats.buffer").root = 1;
               call(it.ranks[1], "stats.buffer").hash_in = call(it.ranks[0], "stats.buffer").hash_out;
             }),
      ledger("wrong-dtype", "all_reduce stats.energy", 1, late([](ToyStep& it) {
               for (ToyRank& r : it.ranks) call(r, "stats.energy").dtype = DType::float32;
             })),
      ledger("collective-order", "", 1, late([](ToyStep& it) {
               for (ToyRank& r : it.ranks)
                 std::swap(r.collectives.back(), r.collectives[r.collectives.size() - 2]);
             })),
      ledger("collective-missing", "all_reduce stats.energy", 0,
             [](ToyStep& it) {
               for (ToyRank& r : it.ranks)
                 std::erase_if(r.collectives,
                               [](const CollectiveRecord& c) { return c.tag == "stats.energy"; });
             }),
      ledger("collective-missing", "all_reduce stats.energy", 1, late([](ToyStep& it) {
               for (ToyRank& r : it.ranks)
                 std::erase_if(r.collectives, [](const CollectiveRecord& c) { return c.tag == "stats.energy"; });
             })),
      ledger("collective-extra", "broadcast stats.buffer", 0,
             [](ToyStep& it) {
               for (ToyRank& r : it.ranks) r.collectives.push_back(r.collectives.back());
             }),
      ledger("stale-buffer", "all_reduce stats.energy", 1, late([](ToyStep& it) {
               const auto old = static_cast<uint64_t>(it.step - 1);
               call(it.ranks[1], "stats.energy").hash_out = old * 19 + 5;
             })),
      ledger("broadcast-not-received", "broadcast stats.buffer", 0,
             [](ToyStep& it) {
               CollectiveRecord& c = call(it.ranks[2], "stats.buffer");
               c.hash_out = c.hash_in;
             }),
      ledger("message-corrupted", "all_gather loss.candidates", 2,
             [](ToyStep& it) {
               if (it.step == 2) call(it.ranks[1], "loss.candidates").hash_out ^= 1;
             }),
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
  return {
      {"shards-identical", "shards-identical", "samples", "", 0, nullptr, on_samples([](ToyStep& it) {
         for (ToyRank& rank : it.ranks) rank.samples = it.ranks[0].samples;
       })},
      {"shards-overlap", "shards-overlap", "samples", "", 0, nullptr, on_samples([](ToyStep& it) {
         const auto ranks = it.ranks;
         for (std::size_t r = 0; r < ranks.size(); ++r)
           it.ranks[r].samples.back() = ranks[(r + 1) % ranks.size()].samples.front();
       })},
      {"sample-dropped", "sample-dropped", "samples", "", 2, nullptr, on_samples([](ToyStep& it) {
         if (it.step == 2 && it.ranks.size() > 1) it.ranks[1].samples.pop_back();
       })},
      {"sample-duplicated", "sample-duplicated", "samples", "", 1, nullptr, on_samples([](ToyStep& it) {
         if (it.step == 1) it.ranks[1].samples[1] = it.ranks[1].samples[0];
       })},
      {"sample-replaced", "sample-replaced", "samples", "", 1, nullptr, on_samples([](ToyStep& it) {
         if (it.step == 1) it.ranks[1].samples[1] = 100;
       })},
      {"rank-behind-data", "rank-behind-data", "samples", "", 3, nullptr, on_samples([](ToyStep& it) {
         for (std::size_t k = 0; it.step >= 3 && k < 2; ++k)
           it.ranks[2].samples[k] = toy_sample(it.step - 1, 2 + 3 * static_cast<int64_t>(k), 6);
       })},
      {"set-epoch-forgotten", "set-epoch-forgotten", "samples", "", 4, nullptr, on_samples([](ToyStep& it) {
         for (ToyRank& rank : it.ranks)
           for (std::size_t k = 0; k < rank.samples.size(); ++k)
             rank.samples[k] = toy_sample(it.step % 4, rank.rank + 3 * static_cast<int64_t>(k), 6);
       })},
      {"shuffle-differs", "shuffle-differs", "samples", "", 0, nullptr, on_samples([](ToyStep& it) {
         for (ToyRank& rank : it.ranks)
           for (std::size_t k = 0; k < rank.samples.size(); ++k)
             rank.samples[k] = 6 * (it.step % 4) + rank.rank + 3 * static_cast<int64_t>(k);
       })},
      {"sampler-seed-differs", "sampler-seed-differs", "samples", "", 0, nullptr, on_samples([](ToyStep& it) {
         for (int64_t& id : it.ranks[1].samples) id = (id * 13 + 50) % 101;
       })},
  };
}

std::vector<Planted> stream_and_rate_faults() {
  return {
      {"same-stream-on-all-ranks", "same-stream-on-all-ranks", "random", "context_noise", 0, nullptr,
       on_samples([](ToyStep& it) { rekey(it, RankSeed::same, it.step); })},
      {"stream-keyed-by-rank", "stream-keyed-by-rank", "random", "context_noise", 0, nullptr,
       on_samples([](ToyStep& it) { rekey(it, RankSeed::plus_rank, it.step); })},
      {"stream-not-advanced", "stream-not-advanced", "random", "context_noise", 1, nullptr,
       on_samples(late([](ToyStep& it) { rekey(it, RankSeed::keyed, it.step - 1); }))},
      {"extra-draws", "extra-draws", "random", "dropout", 0, nullptr,
       on_samples([](ToyStep& it) { it.ranks[1].streams["dropout"].second += 4; })},
      {"draws-missing", "draws-missing", "random", "dropout", 0, nullptr,
       on_samples([](ToyStep& it) { it.ranks[1].streams.erase("dropout"); })},
      {"a stream that the reference lacks", "random-stream-differs", "random", "negatives", 0, nullptr,
       on_samples([](ToyStep& it) {
         for (ToyRank& rank : it.ranks) rank.streams["negatives"] = {77 + static_cast<uint64_t>(rank.rank), 4};
       })},
      {"random-stream-differs", "random-stream-differs", "random", "dropout", 0, nullptr,
       on_samples([](ToyStep& it) { it.ranks[1].streams["dropout"].first += 77; })},
      {"scheduler-stepped-per-rank", "scheduler-stepped-per-rank", "control", "learning_rate", 1, nullptr,
       on_samples([](ToyStep& it) {
         for (ToyRank& rank : it.ranks) rank.rate = learning_rate(*it.config, 3 * it.step);
       })},
      {"schedule-shifted", "schedule-shifted", "control", "learning_rate", 0, nullptr,
       on_samples([](ToyStep& it) {
         for (ToyRank& rank : it.ranks) rank.rate = learning_rate(*it.config, it.step + 1);
       })},
      {"rate-scaled-linear", "rate-scaled-linear", "control", "learning_rate", 0, nullptr,
       on_samples([](ToyStep& it) {
         for (ToyRank& rank : it.ranks) rank.rate *= 3;
       })},
      {"rate-scaled-sqrt", "rate-scaled-sqrt", "control", "learning_rate", 0, nullptr,
       on_samples([](ToyStep& it) {
         for (ToyRank& rank : it.ranks) rank.rate *= std::sqrt(3.0);
       })},
      {"rate-differs", "rate-differs", "control", "learning_rate", 0, nullptr, on_samples([](ToyStep& it) {
         for (ToyRank& rank : it.ranks) rank.rate *= 1.7;
       })},
  };
}

}  // namespace lockstep::support
