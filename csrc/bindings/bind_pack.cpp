#include <array>

#include "arrays.hpp"
#include "bindings.hpp"

// A draw as one Python int, so that samplers can hand it to worker processes that know no plan.
//   compact (below 2^63): (cycle + 1) * 2^54 + source * 2^38 + row      cycle + 1 < 2^9, source < 2^16, row < 2^38
//   wide (from 2^127 on): 2^127 + cycle * 2^96 + source * 2^64 + row
namespace cuvee::bindings {
namespace {

constexpr u32 kRowBits = 38;
constexpr u32 kSourceBits = 16;
constexpr u32 kCycleBits = 9;
constexpr u64 kWideMark = u64{1} << 63;

py::object pack_one(u64 source, u64 row, u64 cycle) {
  if (row >> kRowBits == 0 && source >> kSourceBits == 0 && (cycle + 1) >> kCycleBits == 0)
    return py::int_((cycle + 1) << (kRowBits + kSourceBits) | source << kRowBits | row);
  const py::int_ high(kWideMark | cycle << 32 | source);
  return high << py::int_(64) | py::int_(row);
}

py::list pack(const Array<i32>& source, const Array<i64>& row, const Array<i32>& cycle) {
  const auto sources = in_vector(source, "source");
  const auto rows = in_vector(row, "row");
  const auto cycles = in_vector(cycle, "cycle");
  CUVEE_EXPECTS(rows.size() == sources.size() && cycles.size() == sources.size(), std::invalid_argument,
                "source, row and cycle must be of one size, but got ", sources.size(), ", ", rows.size(), " and ",
                cycles.size());
  py::list keys(sources.size());
  for (std::size_t t = 0; t < sources.size(); ++t)
    PyList_SET_ITEM(
        keys.ptr(), static_cast<py::ssize_t>(t),
        pack_one(static_cast<u64>(sources[t]), static_cast<u64>(rows[t]), static_cast<u64>(cycles[t])).release().ptr());
  return keys;
}

[[noreturn]] void refuse(const py::handle& key) {
  throw std::invalid_argument(msg("keys must be ints made by pack, but got ", std::string(py::repr(key))));
}

struct Unpacked {
  u64 source, row, cycle;
};

Unpacked unpack_wide(const py::handle& key) {
  const auto number = py::reinterpret_borrow<py::object>(key);
  const py::object top = number >> py::int_(64);
  const u64 high = PyLong_AsUnsignedLongLong(top.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse(key);
  }
  const u64 row = PyLong_AsUnsignedLongLongMask(number.ptr());
  if ((high & kWideMark) == 0) refuse(key);
  return {high & 0xffffffff, row, (high & ~kWideMark) >> 32};
}

Unpacked unpack_one(const py::handle& key) {
  if (!PyLong_CheckExact(key.ptr())) refuse(key);
  int overflow = 0;
  const i64 compact = PyLong_AsLongLongAndOverflow(key.ptr(), &overflow);
  if (overflow > 0) return unpack_wide(key);
  if (overflow < 0 || compact < 0) refuse(key);
  const auto bits = static_cast<u64>(compact);
  const u64 mark = bits >> (kRowBits + kSourceBits);
  if (mark == 0) refuse(key);  // a plain index: no key is that small
  return {bits >> kRowBits & ((u64{1} << kSourceBits) - 1), bits & ((u64{1} << kRowBits) - 1), mark - 1};
}

py::tuple unpack(const py::list& keys) {
  auto source = empty<i32>(keys.size());
  auto row = empty<i64>(keys.size());
  auto cycle = empty<i32>(keys.size());
  for (std::size_t t = 0; t < keys.size(); ++t) {
    const Unpacked draw = unpack_one(keys[t]);
    source.mutable_data()[t] = narrow<i32>(draw.source, "source");
    row.mutable_data()[t] = narrow<i64>(draw.row, "row");
    cycle.mutable_data()[t] = narrow<i32>(draw.cycle, "cycle");
  }
  return py::make_tuple(source, row, cycle);
}

}  // namespace

void bind_pack(py::module_& m) {
  m.def("pack", &pack, py::arg("source").noconvert(), py::arg("row").noconvert(), py::arg("cycle").noconvert(),
        "Return one Python int per draw.");
  m.def("unpack", &unpack, py::arg("keys"), "Return (source, row, cycle) of packed draws.");
}

}  // namespace cuvee::bindings
