#include "harness/run/identity.h"

#include <fmt/format.h>
#include <sys/auxv.h>
#include <unistd.h>
#include <xxhash.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>
#include <vector>

#include "harness/base/errors.h"
#include "harness/base/hex.h"
#include "harness/base/read_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct HashStateFree {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};
using HashState = std::unique_ptr<XXH3_state_t, HashStateFree>;

void add_file(XXH3_state_t* state, const std::string& path) {
  const std::string problem = OpenFile(path).read_blocks(
      std::size_t{1} << 18,
      [state](std::string_view block) { XXH3_64bits_update(state, block.data(), block.size()); });
  if (problem.empty()) return;
  throw MachineError(fmt::format("{}: {}, so its runs cannot be told from others", path, problem));
}

/// What the build wrote about a rank program: LibTorch's version, the commit.
std::array<std::string, 2> version_lines(const std::string& rank_program) {
  const fs::path program = rank_program, name = program.filename().string() + ".version";
  FileText file = read_file((program.parent_path() / name).string(), kMostConfigBytes);
  if (!file) {
    file = read_file((program.parent_path().parent_path() / "share" / "lockstep" / name).string(),
                     kMostConfigBytes);
  }
  std::istringstream text(file.text);
  std::array<std::string, 2> lines;
  for (std::string& line : lines) std::getline(text, line);
  return lines;
}

#if defined(__x86_64__)
std::string processor() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  char vendor[13] = "unknown";
  if (__get_cpuid(0, &a, &b, &c, &d) != 0) {
    std::memcpy(vendor, &b, 4);
    std::memcpy(vendor + 4, &d, 4);
    std::memcpy(vendor + 8, &c, 4);
  }
  unsigned family = 0, model = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) {
    family = (a >> 8) & 0xf;
    model = (a >> 4) & 0xf;
    if (family == 15) family += (a >> 20) & 0xff;
    if (family == 6 || family >= 15) model += ((a >> 16) & 0xf) << 4;
  }
  return std::string(vendor) + " " + std::to_string(family) + "/" + std::to_string(model);
}

std::string vector_extensions() {
  std::string sets;
  const auto add = [&](const char* name, int there) {
    if (there != 0) sets += std::string(" ") + name;
  };
  __builtin_cpu_init();
  add("avx", __builtin_cpu_supports("avx"));
  add("avx2", __builtin_cpu_supports("avx2"));
  add("fma", __builtin_cpu_supports("fma"));
  add("avx512f", __builtin_cpu_supports("avx512f"));
  add("avx512bw", __builtin_cpu_supports("avx512bw"));
  add("avx512dq", __builtin_cpu_supports("avx512dq"));
  add("avx512vl", __builtin_cpu_supports("avx512vl"));
  add("avx512vnni", __builtin_cpu_supports("avx512vnni"));
  return sets;
}
#else
std::string processor() { return "not x86-64"; }
std::string vector_extensions() { return {}; }
#endif

}  // namespace

std::string program_path() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (!error) return path.string();
  const fs::path started_as = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  const fs::path whole = fs::canonical(started_as, error);
  return (error ? started_as : whole).string();
}

std::string rank_program_path() {
  const char* chosen = std::getenv("LOCKSTEP_RANK");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  return (fs::path(program_path()).parent_path() / "lockstep-rank").string();
}

std::string share_folder() {
  std::error_code error;
  const fs::path share = fs::path(program_path()).parent_path().parent_path() / "share" / "lockstep";
  return fs::is_directory(share, error) ? share.string() : "";
}

std::string libtorch_version(const std::string& rank_program) { return version_lines(rank_program)[0]; }

std::string commit_of_rank_program(const std::string& rank_program) {
  const std::string commit = version_lines(rank_program)[1];
  return commit.empty() ? "unknown commit" : commit;
}

std::string instruction_sets() {
  std::string text = processor() + vector_extensions();
  for (const char* name :
       {"ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA"}) {
    if (const char* value = std::getenv(name)) text += std::string(" ") + name + "=" + value;
  }
  return text;
}

std::string hash_of_file(const std::string& path) {
  const HashState state(XXH3_createState());
  XXH3_64bits_reset(state.get());
  add_file(state.get(), path);
  return hex16(XXH3_64bits_digest(state.get()));
}

BuildIdentity current_identity(const std::string& rank_program, const std::string& data_hash) {
  std::error_code error;
  return {fs::exists(rank_program, error) ? hash_of_file(rank_program) : hash_of_file("/proc/self/exe"),
          libtorch_version(rank_program), instruction_sets(), data_hash};
}

}  // namespace lockstep
