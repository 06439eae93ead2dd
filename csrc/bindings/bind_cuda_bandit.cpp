#include <pybind11/stl.h>

#include <string>
#include <utility>

#include "bandit_rule.hpp"
#include "cuda/bandit.hpp"
#include "cuda_bindings.hpp"

namespace cuvee::bindings {
namespace {

namespace py = pybind11;

void update(u64 state, u64 p, u64 summary, u64 scores, u64 rows, u64 floor, u64 cap, u32 k, u64 workspace, u64 stream,
            const std::string& rule, double eta, double gamma, double decay, std::pair<double, double> quantiles,
            double rate, double max_collision) {
  using cuda::device_pointer;
  const bandit::Arms arms{.state = device_pointer<double>(state),
                          .p = device_pointer<double>(p),
                          .summary = device_pointer<double>(summary),
                          .scores = device_pointer<const double>(scores),
                          .rows = device_pointer<const i64>(rows),
                          .floor = device_pointer<const double>(floor),
                          .cap = device_pointer<const double>(cap),
                          .count = k};
  cuda::update_bandit(step_of(rule, eta, gamma, decay, quantiles, rate, max_collision), arms,
                      {device_pointer<double>(workspace), cuda::kBanditWorkspace}, {stream});
}

}  // namespace

void bind_cuda_bandit(py::module_& m) {
  m.attr("BANDIT_WORKSPACE") = cuda::kBanditWorkspace;
  m.def("update_bandit", &update, py::kw_only(), py::arg("state"), py::arg("p"), py::arg("summary"), py::arg("scores"),
        py::arg("rows"), py::arg("floor"), py::arg("cap"), py::arg("k"), py::arg("workspace"), py::arg("stream"),
        py::arg("rule"), py::arg("eta"), py::arg("gamma"), py::arg("decay") = 0.0,
        py::arg("quantiles") = std::pair(0.0, 1.0), py::arg("rate") = 0.0, py::arg("max_collision") = 1.0,
        "Queue one update: addresses of device memory (0 = none), float64 but for rows (int64), as WeightRule.update.");
}

}  // namespace cuvee::bindings
