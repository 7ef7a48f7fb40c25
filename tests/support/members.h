#pragma once
// How many members a struct has.

#include <cstddef>
#include <optional>

namespace lockstep::support {

template <class T>
inline constexpr bool is_optional = false;

template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

/// Converts to anything but an optional, which is made from what it holds, lest there be two ways.
struct Anything {
  template <class T>
    requires(!is_optional<T>)
  operator T() const;
};

/// Members of an aggregate, by trying how many initialisers it takes.
template <class T, class... Some>
constexpr std::size_t member_count() {
  if constexpr (requires { T{Some{}..., Anything{}}; }) {
    return member_count<T, Some..., Anything>();
  } else {
    return sizeof...(Some);
  }
}

}  // namespace lockstep::support
