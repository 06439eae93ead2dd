#pragma once

#include <span>

#include "scalar.hpp"

// The update of the sampling weights: scores -> log weights -> probabilities. One text for CPU and GPU: `update` is
// written over a team (one thread here, blocks of threads in cuda/bandit.cu) that visits the sources and reduces over
// them in one fixed order, so that both give the same bits.

namespace cuvee::bandit {

inline constexpr u32 kChunk = 1024;  // sources that are reduced by one tree, by one block of a GPU
inline constexpr u32 kMaxSources = 65536;
inline constexpr u32 kMaxChunks = kMaxSources / kChunk;

inline constexpr double kMaxScore = 1e150;  // larger ones are cut: no sum or ratio below overflows
inline constexpr double kMaxGain = 500;     // one update changes no log weight by more
inline constexpr double kDepth = 30;        // `bounded`: the largest log weight less the smallest, so that all recover
inline constexpr double kLeast = 1e-30;     // stands for a probability of 0 where one is divided by or scaled

/// How scores move the log weights; python/cuvee/bandits cites the papers.
enum class Rule : i32 {
  exp3,     // log w += eta score / p / K
  bounded,  // likewise, the scores scaled to [0, 1] by running quantiles
  odm,      // state = decay state + (1 - decay) score / p; log w = eta state
  doremi,   // log w += eta max(score, 0); state = log of the probabilities
};

/// What one update does; the same for all sources.
struct Step {
  Rule rule = Rule::exp3;
  double eta = 0;            // learning rate
  double gamma = 0;          // share of the uniform distribution, 0..1
  double decay = 0;          // odm
  double low = 0, high = 1;  // bounded: the quantiles, as shares
  double rate = 0;           // bounded: how fast the quantiles move
  double max_collision = 1;  // least entropy, as the largest sum of squared probabilities; 1 = none
};

/// The sources' arrays, on CPU or GPU, each of K entries.
struct Arms {
  double* state;         // log weights; under odm the moving average of rewards
  double* p;             // probabilities in force; replaced by the new ones
  double* summary;       // [4]: running low and high quantile, updates they have seen, sum of squares before the floor
  const double* scores;  // not finite = nothing seen: the source keeps its state
  const i64* rows;       // rows of each source since the last update, 0 = no estimate; null = every score counts
  const double* floor;   // least probability; null = 0
  const double* cap;     // greatest probability; null = 1
  u32 count;             // K
};

/// Pairs of `values` half of `size`, a power of two, apart are combined until one is left: the order of every
/// reduction. Missing values are the identity, so that a shorter tree gives the same bits.
template <class Combine>
CUVEE_HOST_DEVICE inline void halve(double* values, u32 present, const Combine& combine) {
  u32 half = 1;
  while (half < present) half *= 2;
  for (half /= 2; half > 0; half /= 2) {
    const u32 pairs = present - half < half ? present - half : half;
    for (u32 i = 0; i < pairs; ++i) values[i] = combine(values[i], values[i + half]);
    present = half;
  }
}

CUVEE_HOST_DEVICE inline double add(double a, double b) { return a + b; }
CUVEE_HOST_DEVICE inline double larger(double a, double b) { return a < b ? b : a; }
CUVEE_HOST_DEVICE inline double smaller(double a, double b) { return b < a ? b : a; }
CUVEE_HOST_DEVICE inline double within(double x, double low, double high) { return larger(low, smaller(x, high)); }

CUVEE_HOST_DEVICE inline bool is_finite(double x) { return x > -scalar_math::kInfinity && x < scalar_math::kInfinity; }

/// A reduction's result: sums first, then maxima.
template <int kSums, int kMaxima>
struct Reduced {
  double value[kSums + kMaxima];
};

CUVEE_HOST_DEVICE inline bool counts(const Arms& arms, u32 k) {
  return is_finite(arms.scores[k]) && (arms.rows == nullptr || arms.rows[k] > 0);
}

CUVEE_HOST_DEVICE inline double score_of(const Arms& arms, u32 k) {
  return within(arms.scores[k], -kMaxScore, kMaxScore);
}

/// The running quantiles of the scores, and where a score lies between them.
struct Scale {
  double low, high, updates;

  /// 0 at or below the low quantile, 1 at or above the high one, 1/2 while they are equal.
  CUVEE_HOST_DEVICE double operator()(double score) const {
    return high > low ? within((score - low) / (high - low), 0, 1) : 0.5;
  }
};

/// Each quantile moves by `rate` widths times how far the share of scores below it is from what it should be. A width
/// is the range of quantiles and scores, but at most twice that of the quantiles: one wild score moves them little.
template <class Team>
CUVEE_HOST_DEVICE Scale moved_scale(Team& team, const Step& step, const Arms& arms) {
  Scale scale{arms.summary[0], arms.summary[1], arms.summary[2]};
  const auto seen = team.template reduce<3, 2>([&](u32 k, double* out) {
    const bool counted = counts(arms, k);
    const double score = counted ? score_of(arms, k) : 0;
    out[0] = counted ? 1 : 0;
    out[1] = counted && score < scale.low ? 1 : 0;
    out[2] = counted && score < scale.high ? 1 : 0;
    out[3] = counted ? score : -scalar_math::kInfinity;
    out[4] = counted ? -score : -scalar_math::kInfinity;
  });
  const double n = seen.value[0];
  const double most = seen.value[3];
  const double least = -seen.value[4];
  if (n == 0) return scale;
  if (scale.updates == 0) return {least, most, 1};
  const double width = scale.high - scale.low;
  const double range = larger(scale.high, most) - smaller(scale.low, least);
  const double unit = step.rate * (width > 0 ? smaller(range, 2 * width) : range);
  scale.low += unit * (step.low - seen.value[1] / n);
  scale.high += unit * (step.high - seen.value[2] / n);
  if (scale.low > scale.high) scale.low = scale.high = 0.5 * (scale.low + scale.high);
  ++scale.updates;
  return scale;
}

/// A source's state after what its score says.
template <Rule rule>
CUVEE_HOST_DEVICE inline double learned(const Step& step, const Arms& arms, const Scale& scale, u32 k) {
  const double state = arms.state[k];
  const double score = score_of(arms, k);
  const double p = larger(arms.p[k], kLeast);
  if constexpr (rule == Rule::odm) return step.decay * state + (1 - step.decay) * (score / p);
  double gain;
  if constexpr (rule == Rule::doremi) {
    gain = step.eta * larger(score, 0);
  } else {
    gain = step.eta / arms.count * ((rule == Rule::bounded ? scale(score) : score) / p);
  }
  return state + within(gain, -kMaxGain, kMaxGain);
}

template <Rule rule>
CUVEE_HOST_DEVICE inline double log_weight(const Step& step, const Arms& arms, u32 k) {
  return rule == Rule::odm ? step.eta * arms.state[k] : arms.state[k];
}

/// e^x for x <= 0; 0 where it is less than any probability can show.
CUVEE_HOST_DEVICE inline double weight(double x) {
  return x < -kMaxGain ? 0 : scalar_math::exp_moderate(larger(x, -kMaxGain));
}

/// Writes p = (1 - gamma) w / sum(w) + gamma / K of the log weights in state; returns the largest log weight.
template <Rule rule, class Team>
CUVEE_HOST_DEVICE double soften(Team& team, const Step& step, const Arms& arms) {
  const double top =
      team.template reduce<0, 1>([&](u32 k, double* out) { out[0] = log_weight<rule>(step, arms, k); }).value[0];
  team.each([&](u32 k) { arms.p[k] = weight(log_weight<rule>(step, arms, k) - top); });  // becomes vector code
  const double sum = team.template reduce<1, 0>([&](u32 k, double* out) { out[0] = arms.p[k]; }).value[0];
  const double even = step.gamma / arms.count;
  const double share = (1 - step.gamma) / sum;
  team.each([&](u32 k) { arms.p[k] = share * arms.p[k] + even; });
  return top;
}

/// Mixes in as much of the uniform distribution as brings the sum of squares down to step.max_collision.
///
/// Its negative logarithm is the Renyi entropy of order 2, which Shannon's exceeds: both have that floor.
template <class Team>
CUVEE_HOST_DEVICE double keep_entropy(Team& team, const Step& step, const Arms& arms) {
  const double squares =
      team.template reduce<1, 0>([&](u32 k, double* out) { out[0] = arms.p[k] * arms.p[k]; }).value[0];
  if (squares <= step.max_collision) return squares;
  const double even = 1.0 / arms.count;
  const double keep = sqrt(larger(step.max_collision - even, 0) / (squares - even));
  team.each([&](u32 k) { arms.p[k] = keep * arms.p[k] + (1 - keep) * even; });
  return squares;
}

struct Limits {
  double low, high;
};

CUVEE_HOST_DEVICE inline Limits limits(const Arms& arms, u32 k) {
  return {arms.floor == nullptr ? 0.0 : arms.floor[k], arms.cap == nullptr ? 1.0 : arms.cap[k]};
}

/// Scales the probabilities by one factor and cuts them to [floor, cap], the factor such that their sum is 1.
///
/// Newton's method on the sum, which rises with the factor in straight pieces, kept within a bracket.
template <class Team>
CUVEE_HOST_DEVICE void keep_limits(Team& team, const Arms& arms) {
  if (arms.floor == nullptr && arms.cap == nullptr) return;
  double factor = 1, below = 0, above = scalar_math::kInfinity;
  for (int round = 0; round < 200; ++round) {
    const auto sums = team.template reduce<3, 0>([&](u32 k, double* out) {
      const auto [low, high] = limits(arms, k);
      const double p = larger(arms.p[k], kLeast);
      const bool cut = factor * p < low || factor * p > high;
      out[0] = cut ? within(factor * p, low, high) : 0;
      out[1] = cut ? 0 : p;
      out[2] = cut ? 1 : 0;
    });
    const double free = sums.value[1];
    if (factor == 1 && sums.value[2] == 0) return;  // nothing to do
    const double total = sums.value[0] + factor * free;
    if (total < 1) below = factor;
    if (total >= 1) above = factor;
    double next = free > 0 ? (1 - sums.value[0]) / free : -1;
    if (next == factor || total == 1) break;
    if (!(next > below && next < above)) next = above < scalar_math::kInfinity ? 0.5 * (below + above) : 4 * factor;
    if (next == below || next == above) break;
    factor = next;
  }
  team.each([&](u32 k) {
    const auto [low, high] = limits(arms, k);
    arms.p[k] = within(factor * larger(arms.p[k], kLeast), low, high);
  });
}

template <Rule rule, class Team>
CUVEE_HOST_DEVICE void update_by(Team& team, const Step& step, const Arms& arms) {
  Scale scale{};
  if constexpr (rule == Rule::bounded) scale = moved_scale(team, step, arms);
  team.each([&](u32 k) {
    const double next = learned<rule>(step, arms, scale, k);
    arms.state[k] = counts(arms, k) ? next : arms.state[k];
  });
  const double top = soften<rule>(team, step, arms);
  const double squares = keep_entropy(team, step, arms);
  keep_limits(team, arms);
  team.each([&](u32 k) {
    if constexpr (rule == Rule::exp3) arms.state[k] -= top;
    if constexpr (rule == Rule::bounded) arms.state[k] = larger(arms.state[k] - top, -kDepth);
    if constexpr (rule == Rule::doremi) arms.state[k] = scalar_math::log(larger(arms.p[k], kLeast));
  });
  team.once([&] {
    if constexpr (rule == Rule::bounded) {
      arms.summary[0] = scale.low;
      arms.summary[1] = scale.high;
      arms.summary[2] = scale.updates;
    }
    arms.summary[3] = squares;
  });
}

/// One update of `arms`. A team offers each(f), once(f) and reduce<sums, maxima>(f); all its threads call this alike.
template <class Team>
CUVEE_HOST_DEVICE void update(Team& team, Step step, Arms arms) {  // copies: what is stored cannot alias them
  switch (step.rule) {
    case Rule::exp3:
      return update_by<Rule::exp3>(team, step, arms);
    case Rule::bounded:
      return update_by<Rule::bounded>(team, step, arms);
    case Rule::odm:
      return update_by<Rule::odm>(team, step, arms);
    case Rule::doremi:
      return update_by<Rule::doremi>(team, step, arms);
  }
}

/// `update` on this CPU. Throws std::out_of_range unless 1 <= arms.count <= kMaxSources.
void update(const Step& step, const Arms& arms);

/// Scales probabilities by one factor and cuts them to [floor, cap], so that their sum is 1; an empty bound is none.
void keep_limits(std::span<double> p, std::span<const double> floor, std::span<const double> cap);

}  // namespace cuvee::bandit
