#include "core/tally.hpp"

#include <gtest/gtest.h>

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
