#include "bindings.hpp"
#include "core/scalar.hpp"

namespace cuvee::bindings {

void bind_scalar(pybind11::module_& m) {
  namespace py = pybind11;
  m.def("exp", &scalar_math::exp, py::arg("x"), "e**x, the same bits on every machine.");
  m.def("log", &scalar_math::log, py::arg("x"), "Natural logarithm, the same bits on every machine.");
  m.def("power", &scalar_math::power, py::arg("x"), py::arg("y"), "x**y for x > 0, the same bits on every machine.");
  m.def("cos_pi", &scalar_math::cos_pi, py::arg("x"), "cos(pi * x), the same bits on every machine.");
}

}  // namespace cuvee::bindings
