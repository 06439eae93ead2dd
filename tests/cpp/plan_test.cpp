#include "core/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "core/hash.hpp"

namespace cuvee {
namespace {

std::vector<SourceSpec> sources_of(const std::vector<u64>& rows, bool capped) {
  std::vector<SourceSpec> specs;
  specs.reserve(rows.size());
  for (const u64 n : rows)
    specs.push_back({n, capped ? n : kEndless, key64("rows", 1, std::to_string(specs.size()), 0)});
  return specs;
}

struct Columns {
  explicit Columns(std::size_t n) : source(n), row(n), cycle(n) {}
  DrawColumns view() { return {source, row, cycle}; }
  std::vector<i32> source;
  std::vector<i64> row;
  std::vector<i32> cycle;
};

Columns filled(const Plan& plan, u64 start, u64 count, u32 threads = 1) {
  Columns columns(count);
  plan.fill({start}, columns.view(), threads);
  return columns;
}

class EveryIsa : public testing::TestWithParam<std::string_view> {
 protected:
  static Plan plan(const std::vector<u64>& rows, const std::vector<double>& weights, bool capped,
                   PlanSettings settings = {}) {
    settings.windows_key = 99;
    return {settings, sources_of(rows, capped), weights, kernels_for(GetParam())};
  }
};

TEST_P(EveryIsa, RandomAccessEqualsStreamingInAnyCut) {
  for (const u32 window : {1u, 3u, 64u, 100u}) {
    const Plan p = plan({50, 7, 1000, 3}, {0.4, 0.1, 0.45, 0.05}, false, {.window = window, .epoch_rows = 333});
    const Columns whole = filled(p, 0, 3000);
    const Columns part = filled(p, 777, 1500, 2);
    for (u64 t = 0; t < 3000; ++t) {
      const Draw draw = p.at({t});
      ASSERT_EQ(static_cast<i32>(draw.source.value), whole.source[t]) << window << " at " << t;
      ASSERT_EQ(static_cast<i64>(draw.row), whole.row[t]);
      ASSERT_EQ(static_cast<i32>(draw.cycle), whole.cycle[t]);
      ASSERT_EQ(p.source_at({t}), draw.source);
      if (t >= 777 && t < 2277) {
        ASSERT_EQ(part.row[t - 777], whole.row[t]);
      }
    }
  }
}

TEST_P(EveryIsa, RenormalizeGivesEachRowOnce) {
  const std::vector<u64> rows{20, 1, 300, 77, 5};
  const Plan p = plan(rows, {0.5, 0.2, 0.1, 0.1, 0.1}, true);
  ASSERT_EQ(p.end(), 403u);
  const Columns all = filled(p, 0, 403);
  for (u32 k = 0; k < rows.size(); ++k) {
    std::vector<i64> drawn;
    for (std::size_t t = 0; t < all.source.size(); ++t)
      if (std::cmp_equal(all.source[t], k)) drawn.push_back(all.row[t]);
    std::ranges::sort(drawn);
    ASSERT_EQ(drawn.size(), rows[k]);
    for (u64 i = 0; i < rows[k]; ++i) ASSERT_EQ(drawn[i], static_cast<i64>(i));
  }
  EXPECT_LE(p.bound(), 1.7);
  EXPECT_EQ(p.exhaustions({kEndless}).size(), rows.size());
}

TEST_P(EveryIsa, StopEndsWithTheFirstEmptiedSource) {
  const Plan p = plan({30, 50}, {0.5, 0.5}, true, {.stop = true});
  const auto counts = p.counts({p.end()});
  EXPECT_EQ(counts[0], 30);
  EXPECT_EQ(p.ended_by(), 0);
  EXPECT_THROW(p.at({p.end()}), std::out_of_range);
}

TEST_P(EveryIsa, CountsAgreeWithDrawsAndStayNearTheWork) {
  Plan p = plan({100, 100, 100}, {0.2, 0.3, 0.5}, false, {.window = 16});
  p.set_weights(160, std::vector<double>{0.6, 0.0, 0.4}, false);
  p.set_weights(480, std::vector<double>{0.1, 0.8, 0.1}, false);
  const Columns all = filled(p, 0, 1000);
  std::vector<i64> counts(3);
  for (u64 t = 0; t <= 1000; ++t) {
    ASSERT_EQ(p.counts({t}), counts) << t;
    if (t % 16 == 0) {
      const auto work = p.work({t});
      double total = 0;
      for (u32 k = 0; k < 3; ++k) {
        ASSERT_LE(std::abs(static_cast<double>(counts[k]) - work[k]), p.bound() + 1e-9) << t;
        total += work[k];
      }
      ASSERT_NEAR(total, static_cast<double>(t), 1e-9);
    }
    if (t < 1000) ++counts[static_cast<u32>(all.source[t])];
  }
}

TEST_P(EveryIsa, DigestDoesNotDependOnThreads) {
  const Plan p = plan({5000, 900}, {0.9, 0.1}, false);
  const auto once = p.digest({3}, {300'003}, 1, [] {});
  EXPECT_EQ(once, p.digest({3}, {300'003}, 3, [] {}));
  EXPECT_NE(once, p.digest({4}, {300'003}, 1, [] {}));
}

TEST_P(EveryIsa, RewindingUndoesAChange) {
  Plan p = plan({100, 100}, {0.5, 0.5}, false);
  const auto before = p.digest({0}, {5000}, 1, [] {});
  p.set_weights(640, std::vector<double>{0.9, 0.1}, false);
  EXPECT_NE(before, p.digest({0}, {5000}, 1, [] {}));
  p.rewind(640);
  EXPECT_EQ(before, p.digest({0}, {5000}, 1, [] {}));
  EXPECT_EQ(p.last_change(), 0u);
}

TEST_P(EveryIsa, GoesOnFromASnapshot) {
  Plan p = plan({100, 40, 9}, {0.5, 0.3, 0.2}, false);
  p.set_weights(640, std::vector<double>{0.7, 0.0, 0.3}, false);
  p.set_weights(1280, std::vector<double>{0.2, 0.4, 0.4}, false);
  Plan taken = plan({100, 40, 9}, {0.5, 0.3, 0.2}, false);
  taken.restore(p.snapshot({kEndless}));
  EXPECT_EQ(p.digest({1280}, {9000}, 1, [] {}), taken.digest({1280}, {9000}, 1, [] {}));
  EXPECT_EQ(p.counts({2000}), taken.counts({2000}));
  EXPECT_EQ(p.work({1984}), taken.work({1984}));
  EXPECT_THROW(taken.at({1279}), std::out_of_range);
  const auto whole = p.snapshot({kEndless});
  for (std::size_t cut = 0; cut < whole.size(); cut += 7)
    EXPECT_THROW(taken.restore(std::span(whole).first(cut)), std::invalid_argument);
  for (std::size_t at = 0; at < whole.size(); at += 5) {
    auto damaged = whole;
    damaged[at] ^= std::byte{8};
    EXPECT_THROW(taken.restore(damaged), std::invalid_argument);
  }
  taken.rewind(0);  // nothing before it was taken up can go
  EXPECT_EQ(p.counts({2000}), taken.counts({2000}));
}

INSTANTIATE_TEST_SUITE_P(Plan, EveryIsa, testing::ValuesIn(instruction_sets()),
                         [](const auto& isa) { return std::string(isa.param); });

TEST(Plan, DigestingCanBeStopped) {
  struct Stop {};
  const Plan p({}, sources_of({10, 10}, false), std::vector<double>{1, 1}, kernels_for("auto"));
  EXPECT_THROW(p.digest({0}, {u64{1} << 40}, 1, [] { throw Stop{}; }), Stop);
}

TEST(Plan, RefusesWhatCannotBe) {
  const auto two = sources_of({10, 10}, false);
  const Kernels& kernels = kernels_for("auto");
  EXPECT_THROW(Plan({.window = 0}, two, std::vector<double>{1, 1}, kernels), std::invalid_argument);
  EXPECT_THROW(Plan({}, two, std::vector<double>{0, 0}, kernels), std::invalid_argument);
  EXPECT_THROW(Plan({}, two, std::vector<double>{-1, 2}, kernels), std::invalid_argument);
  EXPECT_THROW(Plan({}, two, std::vector<double>{1}, kernels), std::invalid_argument);
  Plan p({}, two, std::vector<double>{1, 1}, kernels);
  EXPECT_THROW(p.set_weights(65, std::vector<double>{1, 2}, false), std::invalid_argument);
  p.set_weights(64, std::vector<double>{1, 2}, false);
  EXPECT_THROW(p.set_weights(0, std::vector<double>{1, 2}, false), std::invalid_argument);
  EXPECT_THROW(p.set_weights(128, std::vector<double>{0, 0}, false), std::invalid_argument);
  EXPECT_EQ(p.last_change(), 64u);
}

TEST(Plan, IsReadWhileItGrows) {
  Plan p({}, sources_of(std::vector<u64>(200, 50), true), std::vector<double>(200, 1.0), kernels_for("auto"));
  std::vector<std::jthread> readers;
  readers.reserve(3);
  for (u32 t = 0; t < 3; ++t)
    readers.emplace_back([&p] {
      for (u64 i = 0; i < 200; ++i) filled(p, i * 50, 40);
    });
  EXPECT_EQ(p.end(), 10'000u);
}

}  // namespace
}  // namespace cuvee
