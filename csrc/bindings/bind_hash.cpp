#include <pybind11/stl.h>

#include <optional>
#include <string>

#include "arrays.hpp"
#include "bindings.hpp"
#include "core/hash.hpp"

namespace cuvee::bindings {
namespace {

// A view of any C-contiguous buffer, held while it lives.
class BufferView {
 public:
  explicit BufferView(const py::object& owner) {
    if (PyObject_GetBuffer(owner.ptr(), &view_, PyBUF_SIMPLE) != 0) throw py::error_already_set();
  }
  ~BufferView() { PyBuffer_Release(&view_); }
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_;
};

void update(Digest& digest, const py::object& data) {
  const BufferView view(data);
  const py::gil_scoped_release nogil;  // below: the buffer's bytes only
  digest.update(view.bytes());
}

std::string hash_once(const py::object& data) {
  Digest digest;
  update(digest, data);
  return digest.hex();
}

u64 key_of(const std::string& purpose, u64 seed, const std::string& name, std::optional<u64> epoch) {
  return key64(purpose, seed, name, epoch.value_or(kNoEpoch));
}

}  // namespace

void bind_hash(py::module_& m) {
  m.attr("ENDLESS") = kEndless;
  m.attr("ORDER_FORMAT") = kOrderFormat;
  m.def("xxh3_128", &hash_once, py::arg("data"), "Return the 128-bit XXH3 of a buffer as 32 hex digits.");
  m.def("key64", &key_of, py::arg("purpose"), py::kw_only(), py::arg("seed"), py::arg("name") = "",
        py::arg("epoch") = py::none(), "Return the 64-bit key of (purpose, seed, name, epoch).");
  py::classh<Digest>(m, "Digest", py::is_final(), "Streaming 128-bit XXH3.")
      .def(py::init<>())
      .def("update", &update, py::arg("data"))
      .def("hexdigest", &Digest::hex);
}

}  // namespace cuvee::bindings
