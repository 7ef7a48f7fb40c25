#include "harness/verdict/results/document.h"

#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "harness/base/json.h"
#include "harness/verdict/results/results_codec.h"

namespace lockstep {
namespace {

using namespace results_format;

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
  return dense_json(schema);
}

}  // namespace lockstep
