#include "harness/jobs/rank_checkpoints.h"

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/lib/data/sampler.h"
#include "harness/verdict/config/canonical.h"

namespace lockstep {
namespace {

/// Writes each operation down before it is done, so that the last one of a rank that ended is known too.
class OperationLog final : public checkpoint::Hook {
 public:
  explicit OperationLog(const std::string& path) : file_(path) {}
  checkpoint::Intervention before(const checkpoint::Operation& operation) override {
    const nlohmann::json line = {{"number", operation.number},
                                 {"kind", std::string(checkpoint::name_of(operation.kind))},
                                 {"words", checkpoint::in_words(operation)}};
    const std::lock_guard lock(mutex_);
    file_ << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n" << std::flush;
    return {};
  }

 private:
  std::mutex mutex_;
  std::ofstream file_;
};

checkpoint::Planted mistakes_in(const std::string& name) {
  checkpoint::Planted planted;
  planted.one_file_name = name == "one_file_name";
  return planted;
}

}  // namespace

struct RankCheckpoints::Hooked {
  Hooked(std::unique_ptr<checkpoint::Hook> own_hook, checkpoint::Group& saving)
      : hook(std::move(own_hook)), seam(*hook), storage(checkpoint::posix_storage(), seam), group(saving, seam) {}
  std::unique_ptr<checkpoint::Hook> hook;
  checkpoint::Seam seam;
  checkpoint::HookedStorage storage;
  checkpoint::HookedGroup group;
};

RankCheckpoints::RankCheckpoints(const std::string& run_dir, const nlohmann::json& planted, const RunConfig& config,
                                 int rank, RankGroups groups)
    : run_dir_(run_dir),
      not_saved_(planted.value("not_saved", "")),
      not_restored_(planted.value("not_restored", "")),
      config_hash_(training_hash(config)),
      unchecked_(planted.value("unchecked", false)),
      mistakes_(mistakes_in(planted.value("mistake", ""))),
      groups_(std::move(groups)) {
  std::unique_ptr<checkpoint::Hook> hook;
  if (planted.value("record", false)) {
    hook = std::make_unique<OperationLog>(run_dir + "/operations-" + std::to_string(rank) + ".jsonl");
  } else if (planted.value("rank", -1) == rank) {
    hook = std::make_unique<checkpoint::SignalAt>(planted.value("operation", int64_t{-1}), planted.value("signal", SIGKILL));
  }
  if (hook) hooked_ = std::make_unique<Hooked>(std::move(hook), *groups_.saving);
}

RankCheckpoints::~RankCheckpoints() = default;

CheckpointSetup RankCheckpoints::setup(const std::string& trace, const SamplerSteps& steps,
                                       const PreemptionSignals& signals) {
  CheckpointSetup setup;
  setup.root = run_dir_ + "/checkpoints";
  setup.storage = hooked_ ? static_cast<checkpoint::Storage*>(&hooked_->storage) : &checkpoint::posix_storage();
  setup.saving = hooked_ ? static_cast<checkpoint::Group*>(&hooked_->group) : groups_.saving.get();
  setup.agreeing = groups_.agreeing.get();
  setup.signals = &signals;
  setup.sampler = steps;
  setup.new_trace = trace + ".new";
  setup.trace = trace;
  setup.config_hash = config_hash_;
  setup.not_saved = not_saved_;
  setup.not_restored = not_restored_;
  setup.unchecked = unchecked_;
  setup.mistakes = mistakes_;
  return setup;
}

SamplerSteps sampler_steps(const RunConfig& config, int64_t samples) {
  const bool equal = config.rows == RowPartition::equal;
  const int64_t batch = config.layout.global_batch();
  const auto sampler = [&](int ranks, int64_t rows) {
    return DistributedSampler({samples, ranks, 0, static_cast<int>(rows), config.seed, config.data.shuffle,
                               config.data.drop_last, config.data.block});
  };
  const int64_t batches = equal ? sampler(config.layout.world_size, config.layout.rows_per_rank).batches_per_epoch()
                                : sampler(1, batch).batches_per_epoch();
  struct Permutation {
    DistributedSampler whole;
    int64_t epoch = -1;
    std::string hash;
  };
  const auto known = std::make_shared<Permutation>(Permutation{sampler(1, batch), -1, ""});
  const int64_t places = batches * batch;
  const auto hash_of = [known](int64_t epoch) {
    if (known->epoch != epoch) {
      known->hash = checkpoint::permutation_hash(known->whole.epoch_indices(epoch));
      known->epoch = epoch;
    }
    return known->hash;
  };
  SamplerSteps steps;
  steps.position_at = [=, seed = config.seed](int64_t step) {
    const int64_t epoch = step / batches;
    return checkpoint::SamplerPosition{epoch, places, seed, hash_of(epoch), step % batches * batch};
  };
  steps.step_at = [=](const checkpoint::SamplerPosition& position, std::string& problem) -> int64_t {
    if (position.samples != places) {
      problem = "sampler permutation: " + std::to_string(places) + " places of an epoch expected, found " +
                std::to_string(position.samples);
    } else if (!position.permutation_hash.empty() && position.permutation_hash != hash_of(position.epoch)) {
      problem = "sampler permutation: " + hash_of(position.epoch) + " expected, found " + position.permutation_hash;
    } else if (position.cursor % batch != 0) {
      problem = "sampler cursor: a multiple of " + std::to_string(batch) + " expected, found " +
                std::to_string(position.cursor);
    }
    return problem.empty() ? position.epoch * batches + position.cursor / batch : 0;
  };
  return steps;
}

}  // namespace lockstep
