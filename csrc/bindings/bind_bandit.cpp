#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "bandit_rule.hpp"
#include "bindings.hpp"

namespace cuvee::bindings {
namespace {

using Bound = std::optional<Array<double>>;

std::vector<double> copy_of(const Bound& bound, const char* name) {
  if (!bound) return {};
  const auto values = in_vector(*bound, name);
  return {values.begin(), values.end()};
}

template <class T>
T* same_size(std::span<T> values, std::size_t size, const char* name) {
  CUVEE_EXPECTS(values.size() == size, std::invalid_argument, name, " must have ", size, " entries, but got ",
                values.size());
  return values.data();
}

// Settings of an update, and the arrays that it moves: the caller's, bound once, so that an update takes two.
class WeightRule {
 public:
  WeightRule(bandit::Step step, Array<double> state, Array<double> p, Array<double> summary, const Bound& floor,
             const Bound& cap)
      : step_(step),
        state_(std::move(state)),
        p_(std::move(p)),
        summary_(std::move(summary)),
        floor_(copy_of(floor, "floor")),
        cap_(copy_of(cap, "cap")) {
    const auto out = out_vector(state_, "state");
    arms_ = {.state = out.data(),
             .p = same_size(out_vector(p_, "p"), out.size(), "p"),
             .summary = same_size(out_vector(summary_, "summary"), 4, "summary"),
             .scores = nullptr,
             .rows = nullptr,
             .floor = floor_.empty() ? nullptr : same_size(std::span<const double>(floor_), out.size(), "floor"),
             .cap = cap_.empty() ? nullptr : same_size(std::span<const double>(cap_), out.size(), "cap"),
             .count = narrow<u32>(out.size(), "sources")};
  }

  double& eta() { return step_.eta; }
  double& gamma() { return step_.gamma; }

  double update(const Array<double>& scores, const std::optional<Array<i64>>& rows) const {
    bandit::Arms arms = arms_;
    arms.scores = same_size(in_vector(scores, "scores"), arms.count, "scores");
    if (rows) {
      const auto given = in_vector(*rows, "counts");
      arms.rows = same_size(given, arms.count, "counts");
      for (const i64 n : given) CUVEE_EXPECTS(n >= 0, std::invalid_argument, "counts must be at least 0, but got ", n);
    }
    bandit::update(step_, arms);
    return arms.summary[3];
  }

 private:
  bandit::Step step_;
  Array<double> state_, p_, summary_;
  std::vector<double> floor_, cap_;
  bandit::Arms arms_{};
};

WeightRule make_rule(const std::string& rule, Array<double> state, Array<double> p, Array<double> summary, double eta,
                     double gamma, double decay, std::pair<double, double> quantiles, double rate, double max_collision,
                     const Bound& floor, const Bound& cap) {
  return {step_of(rule, eta, gamma, decay, quantiles, rate, max_collision),
          std::move(state),
          std::move(p),
          std::move(summary),
          floor,
          cap};
}

void limit(Array<double>& p, const Bound& floor, const Bound& cap) {
  const auto out = out_vector(p, "p");
  const auto low = floor ? in_vector(*floor, "floor") : std::span<const double>();
  const auto high = cap ? in_vector(*cap, "cap") : std::span<const double>();
  if (floor) same_size(low, out.size(), "floor");
  if (cap) same_size(high, out.size(), "cap");
  bandit::keep_limits(out, low, high);
}

}  // namespace

void bind_bandit(py::module_& m) {
  m.attr("MAX_BANDIT_SOURCES") = bandit::kMaxSources;
  m.def("limit", &limit, py::arg("p").noconvert(), py::kw_only(), py::arg("floor").noconvert(),
        py::arg("cap").noconvert(),
        "Scale p by one factor and cut it to [floor, cap], in place, so that its sum is 1.");
  py::classh<WeightRule>(m, "WeightRule", py::is_final(), "How scores move the weights of sources.")
      .def(py::init(&make_rule), py::arg("rule"), py::kw_only(), py::arg("state").noconvert(), py::arg("p").noconvert(),
           py::arg("summary").noconvert(), py::arg("eta"), py::arg("gamma"), py::arg("decay") = 0.0,
           py::arg("quantiles") = std::pair(0.0, 1.0), py::arg("rate") = 0.0, py::arg("max_collision") = 1.0,
           py::arg("floor").noconvert() = py::none(), py::arg("cap").noconvert() = py::none())
      .def_property(
          "eta", [](WeightRule& self) { return self.eta(); }, [](WeightRule& self, double eta) { self.eta() = eta; })
      .def_property(
          "gamma", [](WeightRule& self) { return self.gamma(); },
          [](WeightRule& self, double gamma) { self.gamma() = gamma; })
      .def("update", &WeightRule::update, py::arg("scores").noconvert(), py::arg("rows").noconvert() = py::none(),
           "Update state, p and summary in place; return the sum of squares before the entropy floor.");
}

}  // namespace cuvee::bindings
