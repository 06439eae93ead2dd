#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <optional>
#include <span>

#include "core/error.hpp"
#include "core/types.hpp"

namespace cuvee::bindings {

namespace py = pybind11;

/// The one gate for arrays: exact dtype, C-contiguous, never converted or copied.
template <class T>
using Array = py::array_t<T, py::array::c_style>;

template <class T>
std::span<const T> in_vector(const Array<T>& array, const char* name) {
  CUVEE_EXPECTS(array.ndim() == 1, std::invalid_argument, name, " must be 1-D, but got ", array.ndim(), "-D");
  return {array.data(), static_cast<std::size_t>(array.size())};
}

template <class T>
std::span<T> out_vector(Array<T>& array, const char* name) {
  CUVEE_EXPECTS(array.ndim() == 1, std::invalid_argument, name, " must be 1-D, but got ", array.ndim(), "-D");
  CUVEE_EXPECTS(array.writeable(), std::invalid_argument, name, " must be writeable, but got a read-only array");
  return {array.mutable_data(), static_cast<std::size_t>(array.size())};
}

/// A mask that may be left out: nothing then.
inline std::span<const u8> in_mask(const std::optional<Array<bool>>& mask, const char* name) {
  if (!mask) return {};
  const auto flags = in_vector(*mask, name);
  return {reinterpret_cast<const u8*>(flags.data()), flags.size()};
}

template <class T>
Array<T> empty(std::size_t size) {
  return Array<T>(static_cast<py::ssize_t>(size));
}

template <class T, class From>
Array<T> as_array(const std::vector<From>& values) {
  Array<T> array = empty<T>(values.size());
  std::copy(values.begin(), values.end(), array.mutable_data());
  return array;
}

/// A position or slot that a user gave: at least 0.
inline u64 not_negative(i64 value, const char* name) {
  CUVEE_EXPECTS(value >= 0, std::out_of_range, name, " must be at least 0, but got ", value);
  return static_cast<u64>(value);
}

}  // namespace cuvee::bindings
