#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "harness/base/text.h"
#include "harness/lib/flight/dump.h"
#include "harness/lib/flight/judge.h"

/// Whatever the bytes of a flight record: they are refused with a reason, or judged beside a sound record in words that are fit for a terminal.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::flight;
  const auto require = [](bool condition) {
    if (!condition) std::abort();
  };
  try {
    const Recorded sound{1, 2, {{0, "0:default_pg", 1, "all_reduce", "", "Float", -1, 0, {5}, 0, 0, State::started}}};
    Records records;
    records.read = {recorded_from(value_of(std::string_view(reinterpret_cast<const char*>(data), size)), 0), sound};
    for (const std::string& line : in_words(judge(records))) require(!line.empty() && line.size() < 20'000 && lockstep::unclean_character(line).empty() && line.find('\n') == std::string::npos);
    return 0;
  } catch (const std::runtime_error& error) {
    require(*error.what() != '\0' && std::string_view(error.what()).find("json.exception") == std::string_view::npos);
    return -1;
  }
}
