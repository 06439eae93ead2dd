#pragma once

#include <pybind11/pybind11.h>

namespace cuvee::bindings {

void bind_hash(pybind11::module_& m);
void bind_bijection(pybind11::module_& m);
void bind_tally(pybind11::module_& m);
void bind_logits(pybind11::module_& m);
void bind_scalar(pybind11::module_& m);
void bind_pack(pybind11::module_& m);
void bind_plan(pybind11::module_& m);
void bind_bandit(pybind11::module_& m);
void bind_minhash(pybind11::module_& m);
void bind_containment(pybind11::module_& m);

}  // namespace cuvee::bindings
