// results.json: written, read and described, all from results_description.h.

#include "harness/results/results.h"

#include <fmt/format.h>

#include <array>

#include "harness/base/json_text.h"
#include "harness/base/sealed_json.h"
#include "harness/results/results_description.h"

namespace lockstep {
namespace {

using namespace results_format;

constexpr auto kClaimStateNames = std::to_array<std::string_view>(
    {"holds", "does not hold", "undecided", "not testable here", "waiting"});
static_assert(kClaimStateNames.size() == static_cast<std::size_t>(ClaimState::waiting) + 1);

constexpr auto kLooksEndNames = std::to_array<std::string_view>({"decided", "most seeds", "budget"});
static_assert(kLooksEndNames.size() == static_cast<std::size_t>(LooksEnd::budget) + 1);

/// What a document must have before its content is looked at: a version that we know, its own checksum.
void check_document(const Json& document) {
  if (!document.is_object()) refuse("an object", document);
  const auto version = document.find("schema_version");
  if (version == document.end()) throw Unreadable("the key \"schema_version\" is missing");
  if (*version != kResultsSchemaVersion) {
    throw Unreadable(fmt::format("schema version {} is not known to this build, which reads version {}",
                                 version->dump(), kResultsSchemaVersion));
  }
  if (const std::string problem = seal_problem(document); !problem.empty())
    throw Unreadable(problem + "; `lockstep run` with its config writes it anew");
}

}  // namespace

std::string results_to_json(const Results& results) {
  Json document = usual<Results>().write(results);
  seal(document);
  // Ranks' last lines and messages may hold any bytes; what is not UTF-8 is replaced rather than refused.
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Results results_from_json(const std::string& text, const std::string& file_name) {
  try {
    JsonProblem problem;
    const Json document = parse_ordered_json(text, &problem);
    if (!problem.message.empty()) throw Unreadable(problem.text());
    check_document(document);
    Results results;
    usual<Results>().read(document, results);
    return results;
  } catch (const Unreadable& error) {
    throw std::runtime_error(file_name + ": " + error.text());
  }
}

std::string results_schema() {
  Definitions definitions;
  Json document = schema_of(described<Results>(), definitions);
  document["required"].push_back("checksum");
  document["properties"]["checksum"] = {
      {"type", "string"},
      {"pattern", "^[0-9a-f]{16}$"},
      {"description",
       "XXH3 of all other keys and values, whatever their order and layout; `lockstep` refuses a file that "
       "it does not fit."}};
  document["definitions"] = definitions.all();
  Json schema{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "results.json of lockstep"}};
  schema.update(document);
  return schema.dump(2) + "\n";
}

std::span<const std::string_view> claim_state_names() { return kClaimStateNames; }
std::span<const std::string_view> looks_end_names() { return kLooksEndNames; }
const char* name_of(LooksEnd end) { return kLooksEndNames[static_cast<std::size_t>(end)].data(); }
const char* name_of(ClaimState state) { return kClaimStateNames[static_cast<std::size_t>(state)].data(); }

}  // namespace lockstep
