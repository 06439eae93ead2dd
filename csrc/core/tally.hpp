#pragma once

#include <span>

#include "scalar.hpp"
#include "types.hpp"

namespace cuvee {

/// Adds per source the number of entries to rows[source] and their values to sums[source]. Exact in any order.
/// Throws std::out_of_range for a source that is not below rows.size().
void tally(std::span<const i32> source, std::span<const i64> values, std::span<i64> rows, std::span<i64> sums);

/// A sum of float32 in fixed point, two integers of 2^-kHighBits and 2^-kLowBits: the same bits in any order, so for
/// any number of threads, ranks and blocks of a GPU. Exact for values from 2^-23 to 2^23; what is smaller is cut off at
/// 2^-46, and one that is larger or no number makes the sum NaN.
struct FixedSum {
  static constexpr u64 kMaxCount = u64{1} << 28;
  static constexpr int kHighBits = 12;
  static constexpr int kLowBits = 46;

  i64 count = 0;
  i64 high = 0;
  i64 low = 0;
  i64 outside = 0;  // values that are too large or no number

  CUVEE_HOST_DEVICE void add(float value) noexcept {
    ++count;
    if (!(value > -0x1p23F && value < 0x1p23F)) {
      ++outside;
      return;
    }
    const float scaled = value * (1 << kHighBits);
    const auto whole = static_cast<i64>(scaled);
    high += whole;
    low +=
        static_cast<i64>((scaled - static_cast<float>(whole)) * static_cast<float>(i64{1} << (kLowBits - kHighBits)));
  }

  CUVEE_HOST_DEVICE void add(const FixedSum& other) noexcept {
    count += other.count;
    high += other.high;
    low += other.low;
    outside += other.outside;
  }

  CUVEE_HOST_DEVICE double value() const noexcept {
    if (outside > 0) return scalar_math::kNaN;
    constexpr i64 kCarry = i64{1} << (kLowBits - kHighBits);
    const i64 carry = low / kCarry;
    return static_cast<double>(high + carry) / (1 << kHighBits) +
           static_cast<double>(low - carry * kCarry) / static_cast<double>(i64{1} << kLowBits);
  }
};

/// Adds per source the number of values to counts[source] and their sum to sums[source]. source[t] is that of the
/// values[t * width, (t + 1) * width), width = values.size() / source.size(); those whose `mask` is 0 do not count, an
/// empty mask takes all. Throws std::out_of_range for a source that is not below counts.size().
void tally_values(std::span<const i32> source, std::span<const float> values, std::span<const u8> mask,
                  std::span<i64> counts, std::span<double> sums);

/// out[t] = lengths[offsets[source[t]] + row[t]], the sources' lengths lying end to end.
void gather_lengths(std::span<const i32> source, std::span<const i64> row, std::span<const i32> lengths,
                    std::span<const i64> offsets, std::span<i32> out);

}  // namespace cuvee
