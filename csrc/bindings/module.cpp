#include <pybind11/pybind11.h>

#include "bindings.hpp"

PYBIND11_MODULE(_core, m, pybind11::mod_gil_not_used(), pybind11::multiple_interpreters::per_interpreter_gil()) {
  m.doc() = "Compiled core: arrays in, arrays out. Import cuvee, not this module.";
  cuvee::bindings::bind_hash(m);
  cuvee::bindings::bind_bijection(m);
  cuvee::bindings::bind_tally(m);
  cuvee::bindings::bind_logits(m);
  cuvee::bindings::bind_scalar(m);
  cuvee::bindings::bind_pack(m);
  cuvee::bindings::bind_plan(m);
  cuvee::bindings::bind_bandit(m);
  cuvee::bindings::bind_minhash(m);
  cuvee::bindings::bind_containment(m);
}
