#include "tally.hpp"

#include <algorithm>
#include <utility>

#include "error.hpp"

namespace cuvee {

void tally(std::span<const i32> source, std::span<const i64> values, std::span<i64> rows, std::span<i64> sums) {
  CUVEE_EXPECTS(source.size() == values.size(), std::invalid_argument, "values must have ", source.size(),
                " entries, as source, but got ", values.size());
  const auto count = static_cast<u32>(rows.size());
  for (const i32 k : source)
    CUVEE_EXPECTS(k >= 0 && std::cmp_less(k, count), std::out_of_range, "source must be in 0..", i64{count} - 1,
                  ", but got ", k);
  for (std::size_t t = 0; t < source.size(); ++t) {
    const auto k = static_cast<u32>(source[t]);
    ++rows[k];
    sums[k] += values[t];
  }
}

void gather_lengths(std::span<const i32> source, std::span<const i64> row, std::span<const i32> lengths,
                    std::span<const i64> offsets, std::span<i32> out) {
  CUVEE_EXPECTS(source.size() == row.size(), std::invalid_argument, "row must have ", source.size(),
                " entries, as source, but got ", row.size());
  const auto sources = static_cast<i64>(offsets.size()) - 1;
  CUVEE_EXPECTS(sources >= 0 && offsets.front() == 0 && std::ranges::is_sorted(offsets) &&
                    std::cmp_equal(offsets.back(), lengths.size()),
                std::invalid_argument, "offsets must rise from 0 to ", lengths.size(),
                ", the number of lengths, but got ", sources < 0 ? i64{0} : offsets.back());
  for (std::size_t t = 0; t < source.size(); ++t) {
    const i64 k = source[t];
    CUVEE_EXPECTS(k >= 0 && k < sources, std::out_of_range, "source must be in 0..", sources - 1, ", but got ", k);
    const i64 rows = offsets[static_cast<u64>(k) + 1] - offsets[static_cast<u64>(k)];
    CUVEE_EXPECTS(row[t] >= 0 && row[t] < rows, std::out_of_range, "row must be in 0..", rows - 1, ", but got ",
                  row[t]);
    out[t] = lengths[static_cast<u64>(offsets[static_cast<u64>(k)] + row[t])];
  }
}

}  // namespace cuvee
