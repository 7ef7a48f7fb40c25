// Faults of what a step is given: rows, random streams, learning rate.

#include <algorithm>
#include <cmath>

#include "tests/support/planted_causes.h"

namespace lockstep::support {

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
