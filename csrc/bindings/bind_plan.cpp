#include <pybind11/stl.h>

#include <memory>
#include <string>

#include "arrays.hpp"
#include "bindings.hpp"
#include "core/plan.hpp"

namespace cuvee::bindings {
namespace {

std::vector<SourceSpec> specs_of(const Array<i64>& rows, const Array<i64>& caps, const Array<u64>& row_keys) {
  const auto n = in_vector(rows, "rows");
  const auto c = in_vector(caps, "caps");
  const auto keys = in_vector(row_keys, "row_keys");
  CUVEE_EXPECTS(c.size() == n.size() && keys.size() == n.size(), std::invalid_argument,
                "rows, caps and row_keys must be of one size, but got ", n.size(), ", ", c.size(), " and ",
                keys.size());
  std::vector<SourceSpec> specs(n.size());
  for (std::size_t k = 0; k < n.size(); ++k)
    specs[k] = {not_negative(n[k], "rows"), not_negative(c[k], "caps"), keys[k]};
  return specs;
}

std::unique_ptr<Plan> make_plan(const Array<i64>& rows, const Array<i64>& caps, const Array<double>& weights,
                                const Array<u64>& row_keys, u32 window, u64 window_key, i64 epoch_rows, bool stop,
                                bool shuffle, const std::string& isa) {
  const auto specs = specs_of(rows, caps, row_keys);
  const PlanSettings settings{window, window_key, not_negative(epoch_rows, "epoch_rows"), stop, shuffle};
  return std::make_unique<Plan>(settings, specs, in_vector(weights, "weights"), kernels_for(isa));
}

void add_sources(Plan& plan, const Array<i64>& rows, const Array<i64>& caps, const Array<u64>& row_keys) {
  plan.add_sources(specs_of(rows, caps, row_keys));
}

void set_weights(Plan& plan, i64 at, const Array<double>& weights, bool restart) {
  const auto values = in_vector(weights, "weights");
  const u64 slot = not_negative(at, "at");
  const py::gil_scoped_release nogil;  // below: raw spans only
  plan.set_weights(slot, values, restart);
}

void resize_source(Plan& plan, u32 source, i64 rows, i64 cap, i64 at_draw, i64 cycle) {
  plan.resize_source(SourceId{source}, not_negative(rows, "rows"), not_negative(cap, "cap"),
                     not_negative(at_draw, "at_draw"), not_negative(cycle, "cycle"));
}

void fill(const Plan& plan, i64 start, Array<i32> source, Array<i64> row, Array<i32> cycle, u32 threads) {
  const Position from{not_negative(start, "start")};
  const DrawColumns out{out_vector(source, "source"), out_vector(row, "row"), out_vector(cycle, "cycle")};
  const py::gil_scoped_release nogil;  // below: raw spans only
  plan.fill(from, out, threads);
}

// The GIL is kept: the work is shorter than giving it up and taking it again.
py::tuple at(const Plan& plan, i64 position) {
  const Draw draw = plan.at(Position{not_negative(position, "position")});
  return py::make_tuple(draw.source.value, draw.row, draw.cycle);
}

py::tuple at_each(const Plan& plan, const Array<i64>& positions) {
  const auto in = in_vector(positions, "positions");
  for (const i64 position : in) not_negative(position, "positions");
  auto source = empty<i32>(in.size());
  auto row = empty<i64>(in.size());
  auto cycle = empty<i32>(in.size());
  const DrawColumns out{out_vector(source, "source"), out_vector(row, "row"), out_vector(cycle, "cycle")};
  {
    const py::gil_scoped_release nogil;  // below: raw spans only
    plan.at(in, out);
  }
  return py::make_tuple(source, row, cycle);
}

Array<i32> sources_at(const Plan& plan, const Array<i64>& positions) {
  const auto in = in_vector(positions, "positions");
  for (const i64 position : in) not_negative(position, "positions");
  auto source = empty<i32>(in.size());
  const auto out = out_vector(source, "source");
  const py::gil_scoped_release nogil;  // below: raw spans only
  plan.sources_at(in, out);
  return source;
}

// Draws as named tuples (source, row, cycle, name): what tuple's own __new__ does, without a tuple between.
class NamedDraws {
 public:
  NamedDraws(const py::tuple& names, const py::type& kind)
      : names_(names), kind_(reinterpret_cast<PyTypeObject*>(kind.ptr())) {
    // a class written in Python: C's struct sequences are tuples of another make, and cannot be subclassed
    constexpr unsigned long kPythonClass = Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_BASETYPE;
    CUVEE_EXPECTS(PyType_IsSubtype(kind_, &PyTuple_Type) != 0 && (kind_->tp_flags & kPythonClass) == kPythonClass,
                  std::invalid_argument, "kind must be a named tuple, but got ", std::string(py::repr(kind)));
  }
  PyObject* make(u32 source, u64 row, u32 cycle) const {
    CUVEE_EXPECTS(source < names_.size(), std::invalid_argument, "names must name source ", source, ", but got ",
                  names_.size(), " names");
    PyObject* const draw = kind_->tp_alloc(kind_, 4);
    if (draw == nullptr) throw py::error_already_set();
    PyObject* const name = PyTuple_GET_ITEM(names_.ptr(), source);
    Py_INCREF(name);
    PyTuple_SET_ITEM(draw, 0, PyLong_FromUnsignedLong(source));
    PyTuple_SET_ITEM(draw, 1, PyLong_FromUnsignedLongLong(row));
    PyTuple_SET_ITEM(draw, 2, PyLong_FromUnsignedLong(cycle));
    PyTuple_SET_ITEM(draw, 3, name);
    return draw;
  }

 private:
  const py::tuple& names_;
  PyTypeObject* kind_;
};

// The GIL is kept in both: the work is shorter than giving it up and taking it again.
py::object draw(const Plan& plan, i64 position, const py::tuple& names, const py::type& kind) {
  const Draw draw = plan.at(Position{not_negative(position, "position")});
  return py::reinterpret_steal<py::object>(NamedDraws(names, kind).make(draw.source.value, draw.row, draw.cycle));
}

py::list draw_list(const Plan& plan, i64 start, i64 stop, const py::tuple& names, const py::type& kind) {
  constexpr u64 kMost = u64{1} << 20;  // the GIL is kept
  const NamedDraws named(names, kind);
  const u64 first = not_negative(start, "start");
  const u64 count = not_negative(stop - std::min(start, stop), "stop");
  CUVEE_EXPECTS(count <= kMost, std::invalid_argument, "stop - start must be at most ", kMost, ", but got ", count);
  std::vector<i32> source(count), cycle(count);
  std::vector<i64> row(count);
  plan.fill({first}, {source, row, cycle}, 1);
  py::list draws(count);
  for (std::size_t t = 0; t < count; ++t)
    PyList_SET_ITEM(draws.ptr(), static_cast<py::ssize_t>(t),
                    named.make(static_cast<u32>(source[t]), static_cast<u64>(row[t]), static_cast<u32>(cycle[t])));
  return draws;
}

// Calls a method with the GIL released and returns its vector as an array.
template <class T, class Call>
Array<T> as_array_of(const Call& call) {
  const auto values = [&] {
    const py::gil_scoped_release nogil;
    return call();
  }();
  return as_array<T>(values);
}

std::string digest(const Plan& plan, i64 start, i64 stop, u32 threads) {
  const Position from{not_negative(start, "start")}, to{not_negative(stop, "stop")};
  const py::gil_scoped_release nogil;  // below: no Python object is touched, but for signals now and then
  return plan.digest(from, to, threads, [] {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  });
}

Array<i64> slots_of(const Plan& plan, const Array<i64>& draws, bool positions) {
  const auto in = in_vector(draws, "draws");
  for (const i64 draw : in) not_negative(draw, "draws");
  return as_array_of<i64>([&] { return positions ? plan.positions_of(in) : plan.slots_of(in); });
}

py::tuple exhaustions(const Plan& plan, i64 until) {
  const auto found = plan.exhaustions(Slot{not_negative(until, "until")});
  auto slots = empty<i64>(found.size());
  auto sources = empty<i32>(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    slots.mutable_data()[i] = static_cast<i64>(found[i].first);
    sources.mutable_data()[i] = static_cast<i32>(found[i].second.value);
  }
  return py::make_tuple(slots, sources);
}

py::bytes snapshot(const Plan& plan, i64 slot) {
  const auto bytes = plan.snapshot(Slot{not_negative(slot, "slot")});
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void restore(Plan& plan, const py::bytes& snapshot) {
  const std::string_view view = snapshot;
  plan.restore(std::as_bytes(std::span(view.data(), view.size())));
}

void bind_growing(py::classh<Plan>& plan) {
  plan.def("add_sources", &add_sources, py::kw_only(), py::arg("rows").noconvert(), py::arg("caps").noconvert(),
           py::arg("row_keys").noconvert(), "Append sources, with weight 0.")
      .def("set_weights", &set_weights, py::arg("at"), py::arg("weights").noconvert(), py::kw_only(),
           py::arg("restart") = false, "Start a segment with new weights at slot `at`.")
      .def(
          "restart", [](Plan& self, i64 slot) { self.restart(not_negative(slot, "at")); }, py::arg("at"),
          "Start the window grid anew at slot `at`.")
      .def("resize_source", &resize_source, py::arg("source"), py::kw_only(), py::arg("rows"), py::arg("cap"),
           py::arg("at_draw"), py::arg("cycle"), "Source has other rows from its draw `at_draw` on.")
      .def(
          "rewind", [](Plan& self, i64 slot) { self.rewind(not_negative(slot, "slot")); }, py::arg("slot"),
          "Drop the changes at slots >= `slot`.")
      .def("snapshot", &snapshot, py::arg("slot") = kEndless, "The plan at its last change at or before `slot`.")
      .def("restore", &restore, py::arg("snapshot"), "Go on from a snapshot.");
}

void bind_draws(py::classh<Plan>& plan) {
  plan.def("fill", &fill, py::arg("start"), py::kw_only(), py::arg("source").noconvert(), py::arg("row").noconvert(),
           py::arg("cycle").noconvert(), py::arg("threads") = 1, "Fill arrays with the draws from position `start` on.")
      .def("at", &at, py::arg("position"), "(source, row, cycle) at a position.")
      .def("draw", &draw, py::arg("position"), py::arg("names"), py::arg("kind"),
           "The draw at a position as a named tuple.")
      .def("draw_list", &draw_list, py::arg("start"), py::arg("stop"), py::arg("names"), py::arg("kind"),
           "The draws at positions start, ..., stop-1 as named tuples.")
      .def("at_each", &at_each, py::arg("positions").noconvert(),
           "(source, row, cycle) at each position, in any order.")
      .def("sources_at", &sources_at, py::arg("positions").noconvert(), "The source at each position, in any order.")
      .def(
          "source_at",
          [](const Plan& self, i64 position) { return self.source_at({not_negative(position, "position")}).value; },
          py::arg("position"), "The source at a position.")
      .def("digest", &digest, py::arg("start"), py::arg("stop"), py::kw_only(), py::arg("threads") = 1,
           "xxh3-128 of the draws.")
      .def(
          "window", [](const Plan& self, i64 position) { return self.window({not_negative(position, "position")}); },
          py::arg("position"), "(first, end) of the window that holds a position.");
}

void bind_accounts(py::classh<Plan>& plan) {
  const auto at_slot = [](auto method, const char* name) {
    return [method, name](const Plan& self, i64 slot) {
      return as_array_of<double>([&] { return (self.*method)(Slot{not_negative(slot, name)}); });
    };
  };
  plan.def(
          "counts",
          [](const Plan& self, i64 position) {
            return as_array_of<i64>([&] { return self.counts({not_negative(position, "position")}); });
          },
          py::arg("position"), "Draws per source before a position.")
      .def("work", at_slot(&Plan::work, "slot"), py::arg("slot"), "Work per source at a slot.")
      .def("rebased", at_slot(&Plan::rebased, "slot"), py::arg("slot"), "Work less the integral of the weight.")
      .def("weights", at_slot(&Plan::shares, "slot"), py::arg("slot"), "Shares in force at a slot.")
      .def(
          "slots_of", [](const Plan& self, const Array<i64>& draws) { return slots_of(self, draws, false); },
          py::arg("draws").noconvert(),
          "Per source the slot of its draws[source]-th draw; ENDLESS where there is none.")
      .def(
          "positions_of", [](const Plan& self, const Array<i64>& draws) { return slots_of(self, draws, true); },
          py::arg("draws").noconvert(),
          "Per source the position of its draws[source]-th draw; ENDLESS where there is none.")
      .def(
          "seen_all", [](const Plan& self, i64 start) { return self.seen_all({not_negative(start, "start")}); },
          py::arg("start"), "First slot at which every active source has given all its rows since `start`.")
      .def("exhaustions", &exhaustions, py::arg("until") = kEndless, "(slots, sources) emptied at slots <= until.");
}

}  // namespace

void bind_plan(py::module_& m) {
  py::classh<Plan> plan(m, "Plan", py::is_final(), "Segments and keys: everything needed to compute any draw.");
  plan.def(py::init(&make_plan), py::kw_only(), py::arg("rows").noconvert(), py::arg("caps").noconvert(),
           py::arg("weights").noconvert(), py::arg("row_keys").noconvert(), py::arg("window"), py::arg("window_key"),
           py::arg("epoch_rows") = 0, py::arg("stop") = false, py::arg("shuffle") = true, py::arg("isa") = "auto")
      .def_property_readonly("sources", &Plan::source_count)
      .def_property_readonly("end", &Plan::end)
      .def_property_readonly("ended_by", &Plan::ended_by)
      .def_property_readonly("last_change", &Plan::last_change)
      .def_property_readonly("bound", &Plan::bound)
      .def_property_readonly("segment_count", &Plan::segment_count)
      .def_property_readonly("nbytes", &Plan::bytes);
  bind_growing(plan);
  bind_draws(plan);
  bind_accounts(plan);
}

}  // namespace cuvee::bindings
