#pragma once
// As much of Python's pickle as PyTorch's flight records are written in: dictionaries, lists, tuples, texts, numbers.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lockstep::flight {

/// Protocol 2. Python's pickle.load gives the same value back: objects are dict, arrays are list.
std::string to_pickle(const nlohmann::json& value);

/// Protocols 0 to 5 as far as they are met in flight records: nothing is imported, and nothing called but PyTorch's own
/// builders of lists, whose argument is taken as it is. Tuples come as arrays, keys that are numbers as their digits. Takes less than
/// a GB and some seconds, whatever the bytes. Throws std::runtime_error if it is cut short or damaged (naming the offset), needs more than that, is nested
/// deeper, or stands for more values than any flight record.
nlohmann::json from_pickle(std::string_view bytes);

}  // namespace lockstep::flight
