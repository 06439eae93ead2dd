#pragma once

#include <pybind11/stl.h>

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "arrays.hpp"
#include "core/shingles.hpp"

namespace cuvee::bindings {

/// Texts as Arrow holds them: text i is values[offsets[i], offsets[i + 1]), in UTF-8.
using Packed = std::pair<Array<u8>, Array<i64>>;
using Texts = std::variant<py::list, Packed>;

inline TextView view_of(PyObject* text, py::ssize_t index) {
  if (!PyUnicode_Check(text))
    throw py::type_error(msg("text ", index, " must be a str, but got ", Py_TYPE(text)->tp_name));
#if PY_VERSION_HEX < 0x030C0000
  if (PyUnicode_READY(text) != 0) throw py::error_already_set();
#endif
  const auto length = static_cast<u64>(PyUnicode_GET_LENGTH(text));
  switch (PyUnicode_KIND(text)) {
    case PyUnicode_1BYTE_KIND:
      return {PyUnicode_DATA(text), length, Encoding::kLatin1};
    case PyUnicode_2BYTE_KIND:
      return {PyUnicode_DATA(text), length, Encoding::kUcs2};
    default:
      return {PyUnicode_DATA(text), length, Encoding::kUcs4};
  }
}

/// Views of texts where they lie, and what keeps them there. Made and destroyed under the GIL, read without.
class HeldTexts {
 public:
  explicit HeldTexts(const Texts& texts) {
    if (const auto* list = std::get_if<py::list>(&texts)) {
      owner_ = py::reinterpret_steal<py::object>(PyList_AsTuple(list->ptr()));  // the list may change meanwhile
      views_.reserve(static_cast<std::size_t>(PyTuple_GET_SIZE(owner_.ptr())));
      for (py::ssize_t i = 0; i < PyTuple_GET_SIZE(owner_.ptr()); ++i)
        views_.push_back(view_of(PyTuple_GET_ITEM(owner_.ptr(), i), i));
    } else {
      view_packed(std::get<Packed>(texts));
    }
  }
  std::span<const TextView> views() const { return views_; }
  std::size_t size() const { return views_.size(); }

 private:
  void view_packed(const Packed& packed) {
    const auto values = in_vector(packed.first, "values");
    const auto offsets = in_vector(packed.second, "offsets");
    CUVEE_EXPECTS(!offsets.empty() && offsets.front() >= 0 && std::ranges::is_sorted(offsets) &&
                      std::cmp_less_equal(offsets.back(), values.size()),
                  std::invalid_argument, "offsets must rise from 0 to at most ", values.size());
    views_.reserve(offsets.size() - 1);
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
      views_.push_back({values.data() + offsets[i], static_cast<u64>(offsets[i + 1] - offsets[i]), Encoding::kUtf8});
  }

  py::object owner_;
  std::vector<TextView> views_;
};

inline ShingleRule rule_of(u32 size, bool characters, bool lowercase) { return {size, characters, lowercase}; }

}  // namespace cuvee::bindings
