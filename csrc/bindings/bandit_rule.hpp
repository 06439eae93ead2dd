#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "core/bandit.hpp"
#include "core/error.hpp"

namespace cuvee::bindings {

inline bandit::Rule rule_of(std::string_view name) {
  using bandit::Rule;
  constexpr std::array<std::pair<std::string_view, Rule>, 4> kRules{
      {{"exp3", Rule::exp3}, {"bounded", Rule::bounded}, {"odm", Rule::odm}, {"doremi", Rule::doremi}}};
  for (const auto& [known, rule] : kRules)
    if (name == known) return rule;
  throw std::invalid_argument(msg("rule must be one of exp3, bounded, odm, doremi, but got ", name));
}

/// Settings as Python gives them.
inline bandit::Step step_of(std::string_view rule, double eta, double gamma, double decay,
                            std::pair<double, double> quantiles, double rate, double max_collision) {
  return {.rule = rule_of(rule),
          .eta = eta,
          .gamma = gamma,
          .decay = decay,
          .low = quantiles.first,
          .high = quantiles.second,
          .rate = rate,
          .max_collision = max_collision};
}

}  // namespace cuvee::bindings
