// Writes the seeds of trace_fuzz into a folder: tiny traces of the present format, whole and damaged.
//
//   trace_corpus DIR

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/verdict/trace/writer.h"
#include "tests/support/temp_folder.h"

namespace {

using namespace lockstep;

void write_step(TraceWriter& writer, int64_t step) {
  const std::vector<int64_t> ids = {step + 1, step + 4}, positions = {1, 4}, energies_shape = {2, 3},
                             gradient_shape = {3};
  const std::vector<float> energies = {0.5F, -1.0F, 2.0F, 0.0F, 1e-30F, 3.0F}, gradient = {1, -2, 4};
  writer.begin_step(step);
  writer.samples(ids);
  writer.random("context noise", 0x9e3779b97f4a7c15ULL * static_cast<uint64_t>(step + 1), 288);
  writer.scalar(Phase::control, "lr", 1e-3, Sharing::replicated);
  writer.tensor(Phase::scores, "energies", {energies.data(), DType::float32, energies_shape, positions},
                Sharing::own, ids);
  writer.scalar(Phase::loss, "loss", 3.1, Sharing::own);
  writer.tensor(Phase::local_gradients, "head.weight", {gradient.data(), DType::float32, gradient_shape, {}},
                Sharing::own, {}, Keep::whole);
  writer.collective({"reduce_gradients", "mean", "gradients", "bucket 0", -1, DType::float32, {3}, 7, 9});
  writer.tensor(Phase::reduced_gradients, "head.weight",
                {gradient.data(), DType::float32, gradient_shape, {}}, Sharing::replicated);
  writer.end_step();
}

std::string trace_of(const std::string& path, TraceLevel level, int rank, int64_t steps) {
  TraceWriter writer(path, {"0123456789abcdef", rank, 3, "energy", level, "emulated"});
  for (int64_t step = 0; step < steps; ++step) write_step(writer, step);
  writer.finish();
  return read_text(path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = std::string(argv[1]) + "/";
  std::filesystem::create_directories(folder);
  trace_of(folder + "empty.trace", TraceLevel::hash, 0, 0);
  trace_of(folder + "stats.trace", TraceLevel::stats, 1, 2);
  trace_of(folder + "full.trace", TraceLevel::full, 2, 2);
  const std::string whole = trace_of(folder + "hash.trace", TraceLevel::hash, 1, 3);
  write_text(folder + "cut.trace", whole.substr(0, whole.size() - 40));
  std::string damaged = whole;
  damaged[whole.size() / 2] = static_cast<char>(damaged[whole.size() / 2] ^ 1);
  write_text(folder + "damaged.trace", damaged);
}
