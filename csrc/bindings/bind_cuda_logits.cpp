#include "cuda/logits.hpp"
#include "cuda_bindings.hpp"
#include "logits_view.hpp"

namespace cuvee::bindings {
namespace {

/// The elements of a tensor that may be None: null then.
template <class T>
T* elements(const py::object& given, const char* name, dlpack::Type type, u64 size) {
  if (given.is_none()) return nullptr;
  return Tensor(given, name, dlpack::Device::cuda, {type}).elements<T>(size, name);
}

void queue_signals(const py::object& logits, const py::object& targets, const py::object& mask,
                   const py::object& entropy, const py::object& varentropy, const py::object& log_prob, u64 stream) {
  const Tensor tensor = logits_tensor(logits, dlpack::Device::cuda);
  const Logits view = logits_of(tensor);
  CUVEE_EXPECTS(!entropy.is_none() && !varentropy.is_none(), std::invalid_argument,
                "entropy and varentropy must be tensors, but got None");
  const u64 size = view.size();
  const cuda::TokenArrays arrays{.targets = elements<const i64>(targets, "targets", dlpack::kInt64, size),
                                 .mask = elements<const u8>(mask, "mask", dlpack::kBool, size),
                                 .entropy = elements<float>(entropy, "entropy", dlpack::kFloat32, size),
                                 .varentropy = elements<float>(varentropy, "varentropy", dlpack::kFloat32, size),
                                 .log_prob = elements<float>(log_prob, "log_prob", dlpack::kFloat32, size)};
  const py::gil_scoped_release nogil;  // a full queue makes a launch wait
  cuda::token_signals(view, arrays, {stream});
}

}  // namespace

void bind_cuda_logits(py::module_& m) {
  m.def("token_signals", &queue_signals, py::arg("logits"), py::arg("targets"), py::arg("mask"), py::arg("entropy"),
        py::arg("varentropy"), py::arg("log_prob"), py::kw_only(), py::arg("stream"),
        "Queue the signals of each row of logits into the last three tensors; targets, mask and log_prob may be None.");
}

}  // namespace cuvee::bindings
