#include "core/tally.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

namespace cuvee {
namespace {

TEST(Tally, CountsRowsAndSums) {
  const std::vector<i32> source{2, 0, 2, 2};
  const std::vector<i64> values{5, -1, i64{1} << 40, 7};
  std::vector<i64> rows(3), sums(3);
  tally(source, values, rows, sums);
  EXPECT_EQ(rows, (std::vector<i64>{1, 0, 3}));
  EXPECT_EQ(sums, (std::vector<i64>{-1, 0, (i64{1} << 40) + 12}));
}

TEST(Tally, RefusesSourcesOutOfRangeBeforeItCounts) {
  std::vector<i64> rows(2), sums(2);
  EXPECT_THROW(tally(std::vector<i32>{0, 2}, std::vector<i64>{1, 1}, rows, sums), std::out_of_range);
  EXPECT_THROW(tally(std::vector<i32>{0, -1}, std::vector<i64>{1, 1}, rows, sums), std::out_of_range);
  EXPECT_THROW(tally(std::vector<i32>{0}, std::vector<i64>{1, 1}, rows, sums), std::invalid_argument);
  EXPECT_EQ(rows, (std::vector<i64>{0, 0}));
}

TEST(TallyValues, IsExactInAnyOrder) {
  const std::vector<i32> source{1, 0, 1};
  const std::vector<float> values{0.1F, 1e6F, -3, 0x1p-23F, 0.3F, 2.5F};
  std::vector<i64> counts(3);
  std::vector<double> sums(3);
  tally_values(source, values, {}, counts, sums);
  EXPECT_EQ(counts, (std::vector<i64>{2, 4, 0}));
  EXPECT_EQ(sums, (std::vector<double>{-3 + 0x1p-23, double{0.1F} + 1e6 + double{0.3F} + 2.5, 0}));
  std::vector<i64> counts_again(3);
  std::vector<double> sums_again(3);
  const std::vector<float> reversed(values.rbegin(), values.rend());
  tally_values(source, reversed, {}, counts_again, sums_again);
  EXPECT_EQ(sums, sums_again);
}

TEST(TallyValues, LeavesOutMaskedValuesAndKeepsBadOnesToTheirSource) {
  const std::vector<i32> source{0, 1, 2};
  const std::vector<float> values{1, std::numeric_limits<float>::quiet_NaN(), 2, 0x1p23F, 3, 4};
  std::vector<i64> counts(3);
  std::vector<double> sums(3);
  tally_values(source, values, std::vector<u8>{1, 0, 1, 1, 0, 1}, counts, sums);
  EXPECT_EQ(counts, (std::vector<i64>{1, 2, 1}));
  EXPECT_EQ(sums[0], 1);
  EXPECT_TRUE(std::isnan(sums[1]));
  EXPECT_EQ(sums[2], 4);
}

TEST(TallyValues, RefusesWhatDoesNotFit) {
  std::vector<i64> counts(2);
  std::vector<double> sums(2);
  EXPECT_THROW(tally_values(std::vector<i32>{0, 2}, std::vector<float>{1, 1}, {}, counts, sums), std::out_of_range);
  EXPECT_THROW(tally_values(std::vector<i32>{0, 1}, std::vector<float>{1, 1, 1}, {}, counts, sums),
               std::invalid_argument);
  EXPECT_THROW(tally_values(std::vector<i32>{}, std::vector<float>{1}, {}, counts, sums), std::invalid_argument);
  EXPECT_THROW(tally_values(std::vector<i32>{0}, std::vector<float>{1}, std::vector<u8>{1, 1}, counts, sums),
               std::invalid_argument);
}

TEST(FixedSum, CarriesWhatItsLowPartCannotHold) {
  FixedSum total;
  for (int n = 0; n < 100000; ++n) total.add(-0.9999F);
  EXPECT_EQ(total.value(), -100000 * double{0.9999F});
  FixedSum twice = total;
  twice.add(total);
  EXPECT_EQ(twice.value(), 2 * total.value());
  EXPECT_EQ(twice.count, 200000);
}

TEST(GatherLengths, ReadsEachSourcesPart) {
  const std::vector<i32> lengths{10, 11, 20, 21, 22};
  const std::vector<i64> offsets{0, 2, 5};
  std::vector<i32> out(3);
  gather_lengths(std::vector<i32>{1, 0, 1}, std::vector<i64>{2, 1, 0}, lengths, offsets, out);
  EXPECT_EQ(out, (std::vector<i32>{22, 11, 20}));
  EXPECT_THROW(gather_lengths(std::vector<i32>{0, 0, 0}, std::vector<i64>{2, 0, 0}, lengths, offsets, out),
               std::out_of_range);
  EXPECT_THROW(gather_lengths(std::vector<i32>{2, 0, 0}, std::vector<i64>{0, 0, 0}, lengths, offsets, out),
               std::out_of_range);
  EXPECT_THROW(
      gather_lengths(std::vector<i32>{0, 0, 0}, std::vector<i64>{0, 0, 0}, lengths, std::vector<i64>{0, 2}, out),
      std::invalid_argument);
}

}  // namespace
}  // namespace cuvee
