#include <ostream>

#include "harness/cli/commands.h"
#include "harness/cli/session/suites.h"
#include "harness/cli/words.h"
#include "harness/verdict/results/document.h"
#include "harness/verdict/results/results.h"

namespace lockstep {

int schema_command(const SchemaOptions& options, const Console& console) {
  require_known(options.of, {"config", "results"}, "schema", "schema");
  const std::string text = options.of == "results" ? std::string(results_schema()) : every_config_schema();
  console.out << text << (text.empty() || text.back() != '\n' ? "\n" : "");
  return kExitAsExpected;
}

}  // namespace lockstep
