#include "harness/run/launchers/external/object_file.h"

#include <nlohmann/json.hpp>

#include "harness/base/atomic_file.h"
#include "harness/base/read_file.h"

namespace lockstep {

using nlohmann::json;

std::optional<json> read_object(const std::string& path, uint64_t most_bytes) {
  const FileText file = read_file(path, most_bytes);
  if (!file) return std::nullopt;
  json object = parse_json(file.text);
  if (!object.is_object()) return std::nullopt;
  return object;
}

void write_object(const std::string& path, const json& object, OpenFor purpose) {
  write_file_atomically(path, object.dump(2, ' ', false, json::error_handler_t::replace) + "\n", real_files(), purpose);
}

}  // namespace lockstep
