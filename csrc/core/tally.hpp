#pragma once

#include <span>

#include "types.hpp"

namespace cuvee {

/// Adds per source the number of entries to rows[source] and their values to sums[source]. Exact in any order.
/// Throws std::out_of_range for a source that is not below rows.size().
void tally(std::span<const i32> source, std::span<const i64> values, std::span<i64> rows, std::span<i64> sums);

/// out[t] = lengths[offsets[source[t]] + row[t]], the sources' lengths lying end to end.
void gather_lengths(std::span<const i32> source, std::span<const i64> row, std::span<const i32> lengths,
                    std::span<const i64> offsets, std::span<i32> out);

}  // namespace cuvee
