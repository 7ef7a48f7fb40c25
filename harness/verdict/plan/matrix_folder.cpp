#include "harness/verdict/plan/matrix_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "harness/base/errors.h"
#include "harness/base/json_text.h"
#include "harness/base/read_file.h"

namespace lockstep {

namespace fs = std::filesystem;

void check_out_dir(const Matrix& matrix, const std::string& out_dir) {
  std::error_code error;
  if (fs::exists(out_dir, error) && !fs::is_directory(out_dir, error)) {
    throw ConfigError(fmt::format("{}: is a file, not an output folder", out_dir));
  }
  const fs::path path = fs::path(out_dir) / "matrix.json";
  const FileText file = read_file(path.string());
  if (file.missing) return;
  const nlohmann::json json = parse_json(file.text);
  const auto name = json.is_object() ? json.find("name") : json.end();
  if (!json.is_object() || name == json.end() || !name->is_string()) {
    throw ConfigError(fmt::format("{}: is malformed; remove it if the folder is {}'s, or give another --out",
                                  path.string(), matrix.name));
  }
  if (name->get<std::string>() != matrix.name) {
    throw ConfigError(
        fmt::format("{}: contains the results of the matrix {}, but this config is {}; give another --out", out_dir,
                    name->get<std::string>(), matrix.name));
  }
}

std::string default_out_dir(const Matrix& matrix) { return "out/" + matrix.name; }

std::string matrix_stamp(const Matrix& matrix) {
  return nlohmann::json{{"name", matrix.name}, {"file", matrix.file}, {"schema_version", 1}}.dump(2) + "\n";
}

}  // namespace lockstep
