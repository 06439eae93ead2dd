#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "arrays.hpp"
#include "bindings.hpp"
#include "core/kernels.hpp"
#include "core/parallel.hpp"

namespace cuvee::bindings {
namespace {

u64 checked_size(i64 n) {
  CUVEE_EXPECTS(n >= 1 && static_cast<u64>(n) <= kMaxRows, std::invalid_argument, "n must be in 1..", kMaxRows,
                ", but got ", n);
  return static_cast<u64>(n);
}

Array<i64> permute(i64 n, u64 key, i64 start, std::optional<i64> stop, u32 threads, const std::string& isa) {
  const Bijection pi(checked_size(n), key);
  const i64 end = stop.value_or(n);
  CUVEE_EXPECTS(start >= 0 && start <= end && end <= n, std::out_of_range, "start and stop must be in order in 0..", n,
                ", but got ", start, " and ", end);
  const Kernels& kernels = kernels_for(isa);
  auto out = empty<i64>(static_cast<std::size_t>(end - start));
  auto* const values = reinterpret_cast<u64*>(out.mutable_data());
  const py::gil_scoped_release nogil;  // below: raw spans only
  split_over_threads(static_cast<u64>(end - start), threads, [&](u32, u64 first, u64 last) {
    kernels.permute(pi, static_cast<u64>(start) + first, last - first, values + first);
  });
  return out;
}

template <class Map>
Array<i64> map_each(i64 n, const Array<i64>& values, const char* name, const Map& map) {
  const auto in = in_vector(values, name);
  auto array = empty<i64>(in.size());
  const auto out = out_vector(array, "out");
  const py::gil_scoped_release nogil;  // below: raw spans only
  for (std::size_t t = 0; t < in.size(); ++t) {
    CUVEE_EXPECTS(in[t] >= 0 && in[t] < n, std::out_of_range, name, " must be in 0..", n - 1, ", but got ", in[t]);
    out[t] = static_cast<i64>(map(static_cast<u64>(in[t])));
  }
  return array;
}

Array<i64> permute_at(i64 n, const Array<i64>& index, u64 key) {
  const Bijection pi(checked_size(n), key);
  return map_each(n, index, "index", pi);
}

Array<i64> permute_inverse(i64 n, const Array<i64>& value, u64 key) {
  const Bijection pi(checked_size(n), key);
  return map_each(n, value, "value", [&](u64 v) { return pi.inverse(v); });
}

}  // namespace

void bind_bijection(py::module_& m) {
  py::tuple names(instruction_sets().size());
  for (std::size_t i = 0; const auto name : instruction_sets()) names[i++] = py::str(name.data(), name.size());
  m.attr("ISAS") = names;
  m.def("permute", &permute, py::arg("n"), py::kw_only(), py::arg("key"), py::arg("start") = 0,
        py::arg("stop") = py::none(), py::arg("threads") = 1, py::arg("isa") = "auto",
        "Return pi(start), ..., pi(stop-1), pi the keyed bijection of [0, n).");
  m.def("permute_at", &permute_at, py::arg("n"), py::arg("index").noconvert(), py::kw_only(), py::arg("key"),
        "Return pi(index).");
  m.def("permute_inverse", &permute_inverse, py::arg("n"), py::arg("value").noconvert(), py::kw_only(), py::arg("key"),
        "Return i with pi(i) = value.");
}

}  // namespace cuvee::bindings
