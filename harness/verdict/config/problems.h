#pragma once
// All mistakes of one reading, gathered and thrown at once.

#include <string>
#include <string_view>
#include <vector>

#include "harness/base/errors.h"

namespace lockstep {

/// Where something was said. Source 0 is the file; the others are options of the command line.
struct Place {
  int source = 0;
  int line = 0;    ///< from 1; 0: nowhere in particular
  int column = 0;  ///< from 1
};

class Problems {
 public:
  explicit Problems(std::string file) : sources_{std::move(file)} {}

  /// Names another source, such as "--set lr=x", and returns its number.
  int add_source(std::string name);
  void add(const Place& place, std::string message, std::string_view suggestion = {});
  bool empty() const { return found_.empty(); }
  std::size_t size() const { return found_.size(); }
  /// Everything found, in the order of places.
  std::vector<ConfigProblem> list() const;
  /// Throws ConfigError with everything found; returns if there was nothing.
  void throw_if_any() const;

 private:
  struct Found {
    Place place;
    std::string message;
    std::string suggestion;
  };
  std::vector<std::string> sources_;
  std::vector<Found> found_;
};

}  // namespace lockstep
