#include "cuda/tally.hpp"
#include "cuda_bindings.hpp"
#include "tensors.hpp"

namespace cuvee::bindings {
namespace {

void queue_tally(const py::object& source, const py::object& values, const py::object& mask, const py::object& totals,
                 const py::object& counts, const py::object& sums, u64 stream) {
  constexpr auto kDevice = dlpack::Device::cuda;
  constexpr u64 kParts = sizeof(FixedSum) / sizeof(i64);
  const Tensor ids(source, "source", kDevice, {dlpack::kInt32});
  const Tensor amounts(values, "values", kDevice, {dlpack::kFloat32});
  const Tensor counted(counts, "counts", kDevice, {dlpack::kInt64});
  const u64 sources = counted.size();
  cuda::ValueArrays arrays{
      .source = {ids.elements<const i32>(ids.size(), "source"), ids.size()},
      .values = {amounts.elements<const float>(amounts.size(), "values"), amounts.size()},
      .mask = nullptr,
      .totals = {Tensor(totals, "totals", kDevice, {dlpack::kInt64}).elements<FixedSum>(kParts * sources, "totals"),
                 sources},
      .counts = counted.elements<i64>(sources, "counts"),
      .sums = Tensor(sums, "sums", kDevice, {dlpack::kFloat64}).elements<double>(sources, "sums")};
  if (!mask.is_none())
    arrays.mask = Tensor(mask, "mask", kDevice, {dlpack::kBool}).elements<const u8>(amounts.size(), "mask");
  const py::gil_scoped_release nogil;  // a full queue makes a launch wait
  cuda::tally_values(arrays, {stream});
}

}  // namespace

void bind_cuda_tally(py::module_& m) {
  m.def("tally_values", &queue_tally, py::arg("source"), py::arg("values"), py::arg("mask"), py::arg("totals"),
        py::arg("counts"), py::arg("sums"), py::kw_only(), py::arg("stream"),
        "Queue the counts and sums of values per source into the last two tensors; totals (int64, 4 per source) is "
        "working memory; mask may be None.");
}

}  // namespace cuvee::bindings
