#include <pybind11/pybind11.h>

#include "cuda_bindings.hpp"

PYBIND11_MODULE(_cuda, m, pybind11::mod_gil_not_used(), pybind11::multiple_interpreters::per_interpreter_gil()) {
  m.doc() = "Kernels for GPUs: device memory and a stream in, nothing waited for. Import cuvee, not this module.";
  cuvee::bindings::bind_cuda_bandit(m);
  cuvee::bindings::bind_cuda_logits(m);
  cuvee::bindings::bind_cuda_tally(m);
}
