#include "harness/verdict/config/seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "harness/verdict/config/field.h"

namespace lockstep {
namespace {

constexpr int64_t kMostSeeds = 10000;
constexpr int64_t kLargestSeed = 9007199254740991;  // 2^53 - 1, exact in every reader of JSON

constexpr std::string_view kForm = "seeds are written A..B, a,b,c, or one whole number";

std::string check(const std::vector<int64_t>& seeds) {
  std::unordered_set<int64_t> seen;
  for (const int64_t seed : seeds) {
    if (seed < 0 || seed > kLargestSeed) return fmt::format("seed {} is not in [0, 2^53)", seed);
    if (!seen.insert(seed).second) return fmt::format("seed {} is given twice", seed);
  }
  return "";
}

std::string parse_range(std::string_view first_text, std::string_view last_text,
                        std::vector<int64_t>& seeds) {
  int64_t first = 0, last = 0;
  if (!parse_integer(first_text, first) || !parse_integer(last_text, last)) return std::string(kForm);
  if (first < 0 || last > kLargestSeed) return "seeds must be in [0, 2^53)";
  if (last < first) return fmt::format("the seeds {}..{} end before they begin", first, last);
  if (last - first >= kMostSeeds) return fmt::format("more than {} seeds", kMostSeeds);
  for (int64_t seed = first; seed <= last; ++seed) seeds.push_back(seed);
  return "";
}

}  // namespace

std::string parse_seeds(std::string_view text, std::vector<int64_t>& seeds) {
  seeds.clear();
  const std::size_t dots = text.find("..");
  if (dots != std::string_view::npos) return parse_range(text.substr(0, dots), text.substr(dots + 2), seeds);
  while (true) {
    const std::size_t comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    int64_t seed = 0;
    if (!parse_integer(item, seed)) return std::string(kForm);
    seeds.push_back(seed);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return check(seeds);
}

void read_seeds(const YamlNode& node, std::vector<int64_t>& seeds, Problems& problems) {
  if (node.is_scalar()) {
    if (const std::string wrong = parse_seeds(node.text, seeds); !wrong.empty()) {
      problems.add(node.place, wrong == kForm ? fmt::format("{}, not {}", wrong, in_quotes(node.text)) : wrong);
    }
    return;
  }
  if (!node.is_sequence() || node.items.empty()) {
    problems.add(node.place, fmt::format("seeds must be 0..9, a list, or a number, not {}",
                                         node.is_sequence() ? "an empty list" : name_of(node.kind)));
    return;
  }
  seeds.clear();
  for (const YamlNode& item : node.items) {
    int64_t seed = 0;
    if (!item.is_scalar() || item.quoted || !parse_integer(item.text, seed)) {
      problems.add(item.place, fmt::format("a seed must be a whole number, not {}",
                                           item.is_scalar() ? in_quotes(item.text) : name_of(item.kind)));
      return;
    }
    seeds.push_back(seed);
  }
  if (const std::string wrong = check(seeds); !wrong.empty()) problems.add(node.place, wrong);
}

uint64_t mix_key(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

int64_t stream_seed(const RunConfig& config) {
  constexpr uint64_t kOtherDraws = 0x6f7468657264;  // "otherd"
  if (config.perturb != Perturbation::random_draws) return config.seed;
  return static_cast<int64_t>(mix_key(static_cast<uint64_t>(config.seed) ^ kOtherDraws));
}

uint64_t stream_base(RankSeed mode, int64_t seed, int rank) {
  return mix_key(static_cast<uint64_t>(seed) +
                 (mode == RankSeed::plus_rank ? static_cast<uint64_t>(rank) : 0));
}

uint64_t stream_row_key(uint64_t base, uint32_t purpose, int64_t step, uint64_t who) {
  return mix_key(mix_key(mix_key(base ^ static_cast<uint64_t>(purpose)) ^ static_cast<uint64_t>(step)) ^ who);
}

uint64_t stream_fingerprint(std::span<const uint64_t> row_keys) {
  uint64_t sum = 0;
  for (const uint64_t key : row_keys) sum += mix_key(key);
  return sum;
}

}  // namespace lockstep
