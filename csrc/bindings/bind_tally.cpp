#include <pybind11/stl.h>

#include "arrays.hpp"
#include "bindings.hpp"
#include "core/tally.hpp"

namespace cuvee::bindings {
namespace {

py::tuple tally_sources(const Array<i32>& source, const Array<i64>& values, i64 k) {
  CUVEE_EXPECTS(k >= 0, std::invalid_argument, "k must be at least 0, but got ", k);
  const auto ids = in_vector(source, "source");
  const auto amounts = in_vector(values, "values");
  auto rows = as_array<i64>(std::vector<i64>(static_cast<std::size_t>(k)));
  auto sums = as_array<i64>(std::vector<i64>(static_cast<std::size_t>(k)));
  const auto rows_out = out_vector(rows, "rows");
  const auto sums_out = out_vector(sums, "sums");
  {
    const py::gil_scoped_release nogil;  // below: raw spans only
    tally(ids, amounts, rows_out, sums_out);
  }
  return py::make_tuple(rows, sums);
}

py::tuple tally_token_values(const Array<i32>& source, const Array<float>& values,
                             const std::optional<Array<bool>>& mask, i64 k) {
  CUVEE_EXPECTS(k >= 0, std::invalid_argument, "k must be at least 0, but got ", k);
  const auto ids = in_vector(source, "source");
  const auto amounts = in_vector(values, "values");
  const auto wanted = in_mask(mask, "mask");
  auto counts = as_array<i64>(std::vector<i64>(static_cast<std::size_t>(k)));
  auto sums = as_array<double>(std::vector<double>(static_cast<std::size_t>(k)));
  const auto counts_out = out_vector(counts, "counts");
  const auto sums_out = out_vector(sums, "sums");
  {
    const py::gil_scoped_release nogil;  // below: raw spans only
    tally_values(ids, amounts, wanted, counts_out, sums_out);
  }
  return py::make_tuple(counts, sums);
}

Array<i32> lengths_of_draws(const Array<i32>& source, const Array<i64>& row, const Array<i32>& lengths,
                            const Array<i64>& offsets) {
  const auto ids = in_vector(source, "source");
  const auto rows = in_vector(row, "row");
  const auto all = in_vector(lengths, "lengths");
  const auto starts = in_vector(offsets, "offsets");
  auto array = empty<i32>(ids.size());
  const auto out = out_vector(array, "out");
  const py::gil_scoped_release nogil;  // below: raw spans only
  gather_lengths(ids, rows, all, starts, out);
  return array;
}

}  // namespace

void bind_tally(py::module_& m) {
  m.def("tally", &tally_sources, py::arg("source").noconvert(), py::arg("values").noconvert(), py::kw_only(),
        py::arg("k"), "Return (rows, sums of values), each int64[k], per source id.");
  m.def("tally_values", &tally_token_values, py::arg("source").noconvert(), py::arg("values").noconvert(),
        py::arg("mask").noconvert() = py::none(), py::kw_only(), py::arg("k"),
        "Return (counts int64[k], sums float64[k]) of values per source id; the same bits in any order.");
  m.def("gather_lengths", &lengths_of_draws, py::arg("source").noconvert(), py::arg("row").noconvert(), py::kw_only(),
        py::arg("lengths").noconvert(), py::arg("offsets").noconvert(), "Return lengths[offsets[source] + row].");
}

}  // namespace cuvee::bindings
