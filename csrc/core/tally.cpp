#include "tally.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "error.hpp"

namespace cuvee {

namespace {

void check_sources(std::span<const i32> source, std::size_t sources) {
  const auto count = static_cast<i64>(sources);
  for (const i32 k : source)
    CUVEE_EXPECTS(k >= 0 && k < count, std::out_of_range, "source must be in 0..", count - 1, ", but got ", k);
}

}  // namespace

void tally(std::span<const i32> source, std::span<const i64> values, std::span<i64> rows, std::span<i64> sums) {
  CUVEE_EXPECTS(source.size() == values.size(), std::invalid_argument, "values must have ", source.size(),
                " entries, as source, but got ", values.size());
  check_sources(source, rows.size());
  for (std::size_t t = 0; t < source.size(); ++t) {
    const auto k = static_cast<u32>(source[t]);
    ++rows[k];
    sums[k] += values[t];
  }
}

void tally_values(std::span<const i32> source, std::span<const float> values, std::span<const u8> mask,
                  std::span<i64> counts, std::span<double> sums) {
  const std::size_t width = source.empty() ? 0 : values.size() / source.size();
  CUVEE_EXPECTS(values.size() == source.size() * width && values.size() < FixedSum::kMaxCount, std::invalid_argument,
                "values must have as many entries for each of ", source.size(), " source ids, fewer than ",
                FixedSum::kMaxCount, " in all, but got ", values.size());
  CUVEE_EXPECTS(mask.empty() || mask.size() == values.size(), std::invalid_argument, "mask must have ", values.size(),
                " entries, as values, but got ", mask.size());
  check_sources(source, counts.size());
  std::vector<FixedSum> totals(counts.size());
  for (std::size_t t = 0; t < source.size(); ++t) {
    FixedSum& total = totals[static_cast<u32>(source[t])];
    for (std::size_t at = t * width; at < (t + 1) * width; ++at)
      if (mask.empty() || mask[at] != 0) total.add(values[at]);
  }
  for (std::size_t k = 0; k < totals.size(); ++k) {
    counts[k] += totals[k].count;
    sums[k] += totals[k].value();
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
