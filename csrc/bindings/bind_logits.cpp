#include <pybind11/stl.h>

#include "arrays.hpp"
#include "bindings.hpp"
#include "logits_view.hpp"

namespace cuvee::bindings {
namespace {

py::tuple signals_of_tokens(const py::object& logits, const std::optional<Array<i64>>& targets,
                            const std::optional<Array<bool>>& mask, u32 threads, const std::string& isa) {
  CUVEE_EXPECTS(threads > 0, std::invalid_argument, "threads must be at least 1, but got 0");
  const Tensor tensor = logits_tensor(logits, dlpack::Device::cpu);
  const Logits view = logits_of(tensor);
  const auto labels = targets ? in_vector(*targets, "targets") : std::span<const i64>{};
  const auto wanted = in_mask(mask, "mask");
  auto entropy = empty<float>(view.size());
  auto varentropy = empty<float>(view.size());
  auto log_prob = empty<float>(targets ? view.size() : 0);
  const SignalsOut out{out_vector(entropy, "entropy"), out_vector(varentropy, "varentropy"),
                       out_vector(log_prob, "log_prob")};
  {
    const py::gil_scoped_release nogil;  // below: raw spans and logits that `tensor` keeps
    token_signals(view, labels, wanted, out, threads, isa);
  }
  return py::make_tuple(entropy, varentropy, targets ? py::object(log_prob) : py::none());
}

}  // namespace

void bind_logits(py::module_& m) {
  m.def("token_signals", &signals_of_tokens, py::arg("logits"), py::arg("targets").noconvert() = py::none(),
        py::arg("mask").noconvert() = py::none(), py::kw_only(), py::arg("threads") = 1, py::arg("isa") = "auto",
        "Return (entropy, varentropy, log_prob of targets or None) of each row of logits, float32, in nats.");
}

}  // namespace cuvee::bindings
