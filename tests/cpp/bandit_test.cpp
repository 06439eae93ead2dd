#include "core/bandit.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace cuvee::bandit {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// Numbers spread evenly over [low, high), in no order.
double spread(u64 i, double low, double high) {
  return low + (high - low) * 0x1p-32 * static_cast<double>((i * 2654435769) & 0xffffffff);
}

struct Sources {
  explicit Sources(std::size_t count) : state(count), p(count, 1.0 / static_cast<double>(count)), summary(4) {}

  void update(const Step& step, const std::vector<double>& scores, const std::vector<i64>& rows = {}) {
    bandit::update(step, {.state = state.data(),
                          .p = p.data(),
                          .summary = summary.data(),
                          .scores = scores.data(),
                          .rows = rows.empty() ? nullptr : rows.data(),
                          .floor = floor.empty() ? nullptr : floor.data(),
                          .cap = cap.empty() ? nullptr : cap.data(),
                          .count = static_cast<u32>(state.size())});
  }

  double sum() const { return std::accumulate(p.begin(), p.end(), 0.0); }

  std::vector<double> state, p, summary, floor, cap;
};

const Step kExp3{.rule = Rule::exp3, .eta = 0.3, .gamma = 0.1};
const Step kBounded{.rule = Rule::bounded, .eta = 0.3, .gamma = 0.1, .low = 0.1, .high = 0.9, .rate = 0.1};

TEST(Bandit, Exp3StepByHand) {
  Sources s(2);
  s.update(kExp3, {2, 1});
  // estimates 4 and 2; w = e^0.6, e^0.3
  const double share = std::exp(0.6) / (std::exp(0.6) + std::exp(0.3));
  EXPECT_NEAR(s.p[0], 0.9 * share + 0.05, 1e-15);
  EXPECT_NEAR(s.p[1], 0.9 * (1 - share) + 0.05, 1e-15);
  EXPECT_EQ(s.state[0], 0);
  EXPECT_NEAR(s.state[1], -0.3, 1e-15);
}

TEST(Bandit, SourcesWithoutScoreOrRowsKeepTheirWeight) {
  for (const Step& step : {kExp3, kBounded}) {
    Sources s(4);
    s.update(step, {1, kNone, 5, std::numeric_limits<double>::infinity()}, {3, 1, 0, 2});
    EXPECT_EQ(s.state[1], s.state[2]);
    EXPECT_EQ(s.state[1], s.state[3]);
    EXPECT_LT(s.state[1], s.state[0]);
  }
}

TEST(Bandit, OdmKeepsAMovingAverageOfRewards) {
  Sources s(2);
  const Step step{.rule = Rule::odm, .eta = 0.5, .gamma = 0.2, .decay = 0.9};
  s.update(step, {3, 1});
  EXPECT_NEAR(s.state[0], 0.1 * 3 / 0.5, 1e-15);
  EXPECT_NEAR(s.state[1], 0.1 * 1 / 0.5, 1e-15);
  const double share = 1 / (1 + std::exp(0.5 * (0.2 - 0.6)));
  EXPECT_NEAR(s.p[0], 0.8 * share + 0.1, 1e-15);
}

TEST(Bandit, DoremiStartsFromTheSmoothedWeights) {
  Sources s(2);
  const Step step{.rule = Rule::doremi, .eta = 1, .gamma = 1e-3};
  s.update(step, {0.4, -7});
  const double share = std::exp(0.4) / (std::exp(0.4) + 1);
  EXPECT_NEAR(s.p[0], 0.999 * share + 0.0005, 1e-15);
  EXPECT_NEAR(s.state[0], std::log(s.p[0]), 1e-15);
}

TEST(Bandit, QuantilesFollowTheScoresAndBoundThem) {
  Sources s(5);
  std::vector<double> scores(5);
  u64 drawn = 0;
  for (int t = 0; t < 5000; ++t) {
    for (double& x : scores) x = spread(++drawn, 100, 200);
    s.update(kBounded, scores);
  }
  EXPECT_NEAR(s.summary[0], 110, 12);
  EXPECT_NEAR(s.summary[1], 190, 12);
  for (const double w : s.state) EXPECT_GE(w, -kDepth);
  s.update(kBounded, {1e300, 150, 150, 150, 150});
  EXPECT_LT(s.summary[1], 220);  // one wild score moves the quantiles by a fraction of their distance
}

TEST(Bandit, EntropyHasAFloor) {
  Step step = kExp3;
  step.max_collision = 0.4;
  Sources s(8);
  for (int t = 0; t < 500; ++t) s.update(step, {1, 0, 0, 0, 0, 0, 0, 0});
  const double squares = std::inner_product(s.p.begin(), s.p.end(), s.p.begin(), 0.0);
  EXPECT_NEAR(squares, 0.4, 1e-12);
  EXPECT_GT(s.summary[3], 0.7);
  EXPECT_NEAR(s.sum(), 1, 1e-12);
}

TEST(Bandit, FloorsAndCapsHold) {
  Sources s(4);
  s.floor = {0, 0.2, 0, 0.15};
  s.cap = {0.4, 1, 0.3, 1};
  for (int t = 0; t < 300; ++t) {
    s.update(kExp3, {9, 0, 3, 0});
    for (std::size_t k = 0; k < 4; ++k) EXPECT_TRUE(s.p[k] >= s.floor[k] && s.p[k] <= s.cap[k]) << k;
    ASSERT_NEAR(s.sum(), 1, 1e-12);
  }
  EXPECT_EQ(s.p[0], 0.4);
  s.cap = {0.25, 0.25, 0.25, 0.25};  // leaves one choice
  s.update(kExp3, {4, 0, 3, 0});
  EXPECT_EQ(s.p, s.cap);
}

TEST(Bandit, WildScoresLeaveFiniteProbabilities) {
  for (const Rule rule : {Rule::exp3, Rule::bounded, Rule::odm, Rule::doremi}) {
    Sources s(3);
    Step step = kBounded;
    step.rule = rule;
    step.decay = 0.9;
    for (int t = 0; t < 100; ++t) {
      s.update(step, {1e308, -1e308, t % 2 == 0 ? 5e-324 : kNone});
      for (const double p : s.p) ASSERT_TRUE(p >= 0.1 / 3 * (1 - 1e-12) && p <= 1) << static_cast<int>(rule);
      ASSERT_NEAR(s.sum(), 1, 1e-12);
    }
  }
}

// The tree as threads run it: all of `size` slots, the missing ones holding the identity.
double by_threads(std::vector<double> values, std::size_t size) {
  values.resize(size, 0);
  for (std::size_t half = size / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) values[i] += values[i + half];
  return values[0];
}

TEST(Bandit, AShortTreeGivesTheBitsOfAFullOne) {
  u64 drawn = 0;
  for (std::size_t present = 1; present <= 1024; present += present < 70 ? 1 : 53) {
    std::vector<double> values(present);
    for (double& x : values) x = spread(++drawn, 0, 1);
    const double expected = by_threads(values, kChunk);
    halve(values.data(), static_cast<u32>(present), add);
    EXPECT_EQ(std::bit_cast<u64>(values[0]), std::bit_cast<u64>(expected)) << present;
  }
}

TEST(Bandit, ManySources) {
  Sources s(kMaxSources);
  std::vector<double> scores(kMaxSources);
  u64 drawn = 0;
  for (int t = 0; t < 3; ++t) {
    for (double& x : scores) x = spread(++drawn, 0, 12);
    s.update(kBounded, scores);
    EXPECT_NEAR(s.sum(), 1, 1e-12);
  }
  EXPECT_THROW(Sources(kMaxSources + 1).update(kExp3, std::vector<double>(kMaxSources + 1)), std::out_of_range);
}

TEST(Scalar, ExpAndItsFormWithoutBranchesAgreeWithTheLibrary) {
  namespace sm = scalar_math;
  for (int i = -7450; i < 7090; i += 3) {
    const double x = 0.1 * i;
    EXPECT_NEAR(sm::exp(x) / std::exp(x), 1, x < -708 ? 1 : 1e-15) << x;
    if (std::fabs(x) <= 700) {
      EXPECT_EQ(std::bit_cast<u64>(sm::exp(x)), std::bit_cast<u64>(sm::exp_moderate(x))) << x;
    }
  }
  EXPECT_EQ(sm::exp(-745.2), 0);
  EXPECT_EQ(sm::exp(-745.1), 5e-324);
  for (int exponent = -1074; exponent < 1024; ++exponent) {
    const double x = std::ldexp(1.37, exponent);
    EXPECT_NEAR(sm::log(x), std::log(x), 4e-16 * std::fabs(std::log(x))) << x;
  }
}

}  // namespace
}  // namespace cuvee::bandit
