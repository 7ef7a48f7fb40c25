#include <cstdint>
#include <cstdlib>
#include <string_view>

/// A planted fault behind a small number of mutations: what the driver must find, save and replay.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (text.find("[1") != std::string_view::npos && text.find("]\n") == std::string_view::npos) std::abort();
  return 0;
}
