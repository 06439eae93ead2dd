#pragma once

#include <limits>
#include <numbers>

#include "logits.hpp"
#include "scalar.hpp"
#include "types.hpp"

namespace cuvee::logits_math {

// The arithmetic that a row of logits goes through, for the CPU's vectors and for CUDA alike: each operation rounds to
// float32 once, fma where it says so. What is summed first is fixed too, by the place in the row alone:
//
//   chunk (4096 logits): lane l of 256 sums logits l, l + 256, ... in order; then lanes l and l + 128 are added,
//                        l and l + 64, ..., l and l + 1.
//   panel (32 chunks):   each chunk is scaled to the panel's maximum; then chunks c and c + 16 are added, ...
//   row:                 panels are joined in order.
//
// So every instruction set, number of threads and device gives the same bits.

inline constexpr u32 kLanes = 256;
inline constexpr u32 kLines = 16;  // logits of each lane in a chunk
inline constexpr u32 kChunk = kLines * kLanes;
inline constexpr u32 kChunks = 32;
inline constexpr u32 kPanel = kChunks * kChunk;

inline constexpr float kLowest = std::numeric_limits<float>::lowest();
inline constexpr float kFloor = -87.25F;  // e^x of all x below is 0 here, and no step on the way is denormal
inline constexpr auto kLog2E = std::numbers::log2e_v<float>;
inline constexpr auto kMinusLn2 = -std::numbers::ln2_v<float>;
// Adding it rounds to a whole number n and leaves n + 126 in the low bits: the exponent of 2^(n - 1).
inline constexpr float kWhole = 0x1.8p+23F + 126;
inline constexpr u32 kExponent = 23;
// 2 e^r = 2 + r (k1 + r (k2 + ...)) for |r| < ln(2)/2, within 1e-7; 2 exactly at 0.
inline constexpr float k1 = 0x1.fffff6p+0F;
inline constexpr float k2 = 0x1.fffdc4p-1F;
inline constexpr float k3 = 0x1.555a6ep-2F;
inline constexpr float k4 = 0x1.573adp-4F;
inline constexpr float k5 = 0x1.0fa7d8p-6F;

CUVEE_HOST_DEVICE inline float fused(float a, float b, float c) noexcept { return __builtin_fmaf(a, b, c); }

/// The larger one; b where either is NaN.
CUVEE_HOST_DEVICE inline float larger(float a, float b) noexcept { return a > b ? a : b; }

CUVEE_HOST_DEVICE inline float widened(float x) noexcept { return x; }
CUVEE_HOST_DEVICE inline float widened(Brain x) noexcept {
  return __builtin_bit_cast(float, static_cast<u32>(x) << 16);
}
CUVEE_HOST_DEVICE inline float widened(Half x) noexcept {
  constexpr u32 kInfinite = 0x7f800000, kOne = u32{1} << kExponent;
  const u32 sign = (static_cast<u32>(x) & 0x8000U) << 16;
  const u32 size = (static_cast<u32>(x) & 0x7fffU) << 13;
  u32 wide = size + 112 * kOne;
  if (size >= 31 * kOne) wide = size | kInfinite;                                                            // or NaN
  if (size < kOne) wide = __builtin_bit_cast(u32, __builtin_bit_cast(float, size + 113 * kOne) - 0x1p-14F);  // denormal
  return __builtin_bit_cast(float, sign | wide);
}

/// e^x for kFloor <= x <= 0 or NaN; 1 at 0.
CUVEE_HOST_DEVICE inline float exp_down(float x) noexcept {
  const float shifted = fused(x, kLog2E, kWhole);
  const float r = fused(shifted - kWhole, kMinusLn2, x);
  const float series = fused(fused(fused(fused(fused(k5, r, k4), r, k3), r, k2), r, k1), r, 2);
  return series * __builtin_bit_cast(float, __builtin_bit_cast(u32, shifted) << kExponent);
}

/// What a part of a row is to its softmax. With top the largest logit (kLowest if all are lower), the sums of
/// e^(x - top), of (x - top) e^(x - top) and of (x - top)^2 e^(x - top).
struct Moments {
  float top = kLowest;
  float sum = 0;
  float first = 0;
  float second = 0;
};

/// The same part with its sums taken against a larger `top`.
CUVEE_HOST_DEVICE inline Moments against(float top, const Moments& part) noexcept {
  const float down = larger(kFloor, part.top - top);
  const float scale = exp_down(down);
  return {top, scale * part.sum, scale * fused(down, part.sum, part.first),
          scale * fused(down, fused(down, part.sum, part.first + part.first), part.second)};
}

/// Both parts as one.
CUVEE_HOST_DEVICE inline Moments joined(const Moments& a, const Moments& b) noexcept {
  const float top = larger(b.top, a.top);
  const Moments x = against(top, a), y = against(top, b);
  return {top, x.sum + y.sum, x.first + y.first, x.second + y.second};
}

/// What one token's logits say.
struct Signals {
  float entropy;
  float varentropy;
  float log_prob;
};

/// The signals of a row in nats, `target` being the logit of its target. NaN where the softmax has no value: a logit
/// is NaN or +infinity, or all are -infinity.
CUVEE_HOST_DEVICE inline Signals signals_of(const Moments& row, float target) noexcept {
  constexpr auto kNone = static_cast<float>(scalar_math::kNaN);
  if (!(row.sum >= 1)) return {kNone, kNone, kNone};  // the largest logit alone gives 1
  const double sum = row.sum;
  const double log_sum = scalar_math::log(sum);
  const double mean = row.first / sum;
  const double variance = row.second / sum - mean * mean;
  return {static_cast<float>(log_sum - mean), static_cast<float>(variance > 0 ? variance : 0),
          static_cast<float>(static_cast<double>(target) - row.top - log_sum)};
}

}  // namespace cuvee::logits_math
