#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "core/containment.hpp"
#include "texts.hpp"

namespace cuvee::bindings {
namespace {

template <class To, class Values, class Part>
Array<To> column_of(const Values& values, Part part) {
  auto array = empty<To>(values.size());
  To* out = array.mutable_data();
  for (const auto& value : values) *out++ = static_cast<To>(part(value));
  return array;
}

void add(Containment& containment, const Texts& texts, u32 set) {
  const HeldTexts held(texts);
  const py::gil_scoped_release nogil;  // below: views only
  containment.add(held.views(), set);
}

py::tuple scan(Containment& containment, const Texts& texts, i64 first) {
  const HeldTexts held(texts);
  std::vector<Contained> found;
  {
    const py::gil_scoped_release nogil;  // below: views only
    found = containment.scan(held.views(), first);
  }
  return py::make_tuple(column_of<i64>(found, [](const Contained& c) { return c.document; }),
                        column_of<i64>(found, [](const Contained& c) { return c.evaluation; }),
                        column_of<double>(found, [](const Contained& c) { return c.share; }));
}

py::tuple best(const Containment& containment) {
  const auto found = containment.best();
  return py::make_tuple(column_of<i64>(found, [](const BestShare& b) { return b.shared; }),
                        column_of<i64>(found, [](const BestShare& b) { return b.shingles; }),
                        column_of<i64>(found, [](const BestShare& b) { return b.document; }),
                        column_of<bool>(found, [](const BestShare& b) { return b.contained; }));
}

Array<bool> is_short(const Containment& containment) {
  return column_of<bool>(containment.is_short(), [](bool flag) { return flag; });
}

}  // namespace

void bind_containment(py::module_& m) {
  using py::arg;
  py::classh<Containment>(m, "Containment", py::is_final(),
                          "Evaluation documents whose shingles lie within documents that stream by.")
      .def(py::init([](u32 size, bool characters, bool lowercase, double share, u32 threads) {
             return std::make_unique<Containment>(rule_of(size, characters, lowercase), share, threads);
           }),
           py::kw_only(), arg("size"), arg("characters"), arg("lowercase"), arg("share"), arg("threads") = 1)
      .def("add", &add, arg("texts"), py::kw_only(), arg("of_set"),
           "Add evaluation documents of a set; sets come in rising order, and all before the first source.")
      .def("begin_source", &Containment::begin_source, py::call_guard<py::gil_scoped_release>(),
           "Must be called before the documents of each source.")
      .def("scan", &scan, arg("texts"), py::kw_only(), arg("first"),
           "Look through documents numbered from `first` on; return (documents int64[m], the first evaluation document "
           "of each set that it contains int64[m], share float64[m]).")
      .def("best", &best,
           "Return of each evaluation document (shingles that one document has int64[n], shingles int64[n], that "
           "document int64[n], whether one of this source contains it bool[n]).")
      .def("is_short", &is_short, "Return which evaluation documents are shorter than a shingle, bool[n].");
}

}  // namespace cuvee::bindings
