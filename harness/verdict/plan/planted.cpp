#include "harness/verdict/plan/planted.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "harness/verdict/config/field.h"

namespace lockstep {
namespace {

bool is_number(const std::string& text) { return !text.empty() && text.back() >= '0' && text.back() <= '9'; }

}  // namespace

std::vector<std::string_view> split_words(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(at), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::vector<Setting> settings_of(std::string_view text, const TrainerSpec& trainer, const Place& place, Problems& problems) {
  SettingsReader reader("", problems);
  reader.read_for(trainer);
  std::vector<Setting> settings;
  for (const std::string_view part : split_words(text, ' ')) {
    const std::size_t sign = std::min(part.find('='), part.size() - 1);
    Entry one;
    one.key = std::string(part.substr(0, sign));
    one.place = place;
    one.value = read_yaml(std::string(part.substr(sign + 1)), place.source, problems);
    one.value.place = place;
    if (std::optional<Setting> setting = reader.setting(one)) settings.push_back(std::move(*setting));
  }
  return settings;
}

bool is_closed_form(double factor, double form) { return std::abs(factor - form) < 1e-9 * std::abs(form); }

int64_t shown_at(const MutantEntry& entry, int64_t step, int64_t epoch_steps) {
  if (!entry.at_epoch || epoch_steps <= 0) return step + entry.step_offset;
  const int64_t first = std::max<int64_t>(step, 1);
  return (first + epoch_steps - 1) / epoch_steps * epoch_steps + entry.step_offset;
}

int64_t steps_per_epoch(const RunConfig& config) {
  const std::optional<SampleCounts> samples = spec_of(config).counted_samples(config);
  if (!samples) return 0;
  const int64_t batch = config.layout.global_batch();
  return config.data.drop_last ? samples->train / batch : (samples->train + batch - 1) / batch;
}

std::optional<PlantedFault> first_planted(const RunConfig& config) {
  std::optional<PlantedFault> first;
  for (const MutantConfig* mutant : {&config.mutant, &config.second_mutant}) {
    if (mutant->name == "none") continue;
    const MutantEntry* entry = find_mutant(mutant->name);
    if (entry == nullptr) throw ConfigError("unknown mutant " + in_quotes(mutant->name));
    const PlantedFault fault{entry, *mutant, shown_at(*entry, mutant->step, steps_per_epoch(config))};
    if (!first || fault.step < first->step) first = fault;
  }
  return first;
}

std::vector<std::string> right_causes(const PlantedFault& fault, int world_size) {
  constexpr std::string_view kUnexplained = "unexplained";
  std::vector<std::string> all;
  for (const std::string_view code : split_words(fault.entry->causes, ' ')) all.emplace_back(code);
  const bool admits = std::find(all.begin(), all.end(), kUnexplained) != all.end();
  if (!fault.entry->draws.factor || !admits) return all;
  const double factor = fault.mutant.factor;
  std::vector<std::string> right;
  for (const std::string& code : all) {
    const bool times = code.find("-times-") != std::string::npos && is_closed_form(factor, world_size);
    const bool over = code.find("-over-") != std::string::npos && is_closed_form(factor, 1.0 / world_size);
    const bool flipped = code.find("flipped") != std::string::npos && is_closed_form(factor, -1);
    if (times || over || flipped) right.push_back(code);
  }
  return right.empty() ? std::vector<std::string>{std::string(kUnexplained)} : right;
}

bool names_place(const PlantedFault& fault, const std::string& phase, const std::string& where) {
  const std::vector<std::string_view> phases = split_words(fault.entry->phase, '|');
  if (!phases.empty() && std::find(phases.begin(), phases.end(), phase) == phases.end()) return false;
  if (fault.entry->where.empty()) return true;
  for (const std::string_view part : split_words(fault.entry->where, '|')) {
    std::string wanted(part);
    if (const std::size_t at = wanted.find("$tensor"); at != std::string::npos) {
      wanted.replace(at, std::string_view("$tensor").size(), fault.mutant.tensor);
    }
    if (!where.starts_with(wanted)) continue;
    // "bucket 1" must not be mistaken for "bucket 12", nor a tensor for one whose name goes on.
    const char next = where.size() > wanted.size() ? where[wanted.size()] : ' ';
    const bool goes_on = part.find("$tensor") != std::string_view::npos
                             ? std::isalnum(static_cast<unsigned char>(next)) || next == '_' || next == '.'
                             : is_number(wanted) && next >= '0' && next <= '9';
    if (!goes_on) return true;
  }
  return false;
}

std::string drawn_words(const MutantEntry& entry, const MutantConfig& mutant) {
  std::string text = fmt::format("step {}", mutant.step);
  if (entry.draws.rank) text += fmt::format(", rank {}", mutant.rank);
  if (entry.draws.tensor) text += ", " + mutant.tensor;
  if (entry.draws.bit) text += fmt::format(", bit {}", mutant.bit);
  if (entry.draws.factor) text += fmt::format(", factor {:.6g}", mutant.factor);
  return text;
}

}  // namespace lockstep
