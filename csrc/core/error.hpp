#pragma once

#include <concepts>
#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace cuvee {

/// Joins its arguments as an output stream would.
template <class... Parts>
std::string msg(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Throws `Error` with a message of the form `NAME must be RULE, but got VALUE` unless `condition` holds.
#define CUVEE_EXPECTS(condition, Error, ...)                  \
  do {                                                        \
    if (!(condition)) throw Error(::cuvee::msg(__VA_ARGS__)); \
  } while (0)

/// Converts between integer types; throws std::overflow_error if the value does not fit.
template <std::integral To, std::integral From>
To narrow(From value, const char* name) {
  CUVEE_EXPECTS(std::in_range<To>(value), std::overflow_error, name, " must fit in ", 8 * sizeof(To), " bits, but got ",
                value);
  return static_cast<To>(value);
}

}  // namespace cuvee
