#pragma once

#include <pybind11/pybind11.h>

namespace cuvee::bindings {

void bind_cuda_bandit(pybind11::module_& m);
void bind_cuda_logits(pybind11::module_& m);
void bind_cuda_tally(pybind11::module_& m);

}  // namespace cuvee::bindings
