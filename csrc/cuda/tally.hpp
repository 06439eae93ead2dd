#pragma once

#include "core/tally.hpp"
#include "device.hpp"

namespace cuvee::cuda {

/// Values per row and their sums per source; all in device memory, `mask` may be null.
struct ValueArrays {
  DeviceSpan<const i32> source;  // of each row
  DeviceSpan<const float> values;
  const u8* mask;
  DeviceSpan<FixedSum> totals;  // working memory, one for each source; its values do not matter
  i64* counts;
  double* sums;
};

/// `cuvee::tally_values` on a GPU, the same bits: counts and sums are set, not added to. Nobody looks at sources
/// beforehand: rows of one outside totals.size are left out.
///
/// Returns when the launches are queued.
void tally_values(const ValueArrays& arrays, Stream stream);

}  // namespace cuvee::cuda
