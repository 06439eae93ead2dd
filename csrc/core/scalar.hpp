#pragma once

#include <cmath>
#include <limits>
#include <numbers>

#include "types.hpp"

#if defined(__CUDACC__)
#define CUVEE_HOST_DEVICE __host__ __device__
#else
#define CUVEE_HOST_DEVICE
#endif

namespace cuvee::scalar_math {

// exp, log, pow and cos of +, -, *, / alone: the same bits on every machine, within 2 ulp (4 for power).
// libm gives other last bits on other systems, and so do GPUs. Compile without contraction: g++ -ffp-contract=off,
// nvcc --fmad=false.

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kSmallestNormal = std::numeric_limits<double>::min();
// 33 bits: exact times any exponent
inline constexpr double kLn2High = 0x1.62e42fee00000p-1;  // NOLINT(modernize-use-std-numbers)
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
inline constexpr double kWholePart = 0x1.8p+52;  // adding it leaves the nearest whole number in a double's low bits

/// 2^k, k in -1022..1023.
CUVEE_HOST_DEVICE inline double power_of_two(i64 k) noexcept {
  return __builtin_bit_cast(double, static_cast<u64>(k + 1023) << 52);
}

/// The terms of atanh(s) / s - 1 from z^11 / 23 down, z = s^2, by Horner.
template <int odd>
CUVEE_HOST_DEVICE inline double log_series(double z, double inner) noexcept {
  const double outer = (inner + 1.0 / odd) * z;
  if constexpr (odd == 3) {
    return outer;
  } else {
    return log_series<odd - 2>(z, outer);
  }
}

/// Natural logarithm of x > 0; -infinity at 0, NaN below.
CUVEE_HOST_DEVICE inline double log(double x) noexcept {
  if (x != x || x < 0) return kNaN;
  if (x == 0) return -kInfinity;
  if (x == kInfinity) return x;
  i32 exponent = 0;
  if (x < kSmallestNormal) {
    x *= 0x1p54;
    exponent = -54;
  }
  const u64 bits = __builtin_bit_cast(u64, x);
  exponent += static_cast<i32>(bits >> 52) - 1022;
  double mantissa = __builtin_bit_cast(double, (bits & 0xfffffffffffff) | 0x3fe0000000000000);  // in [1/2, 1)
  if (mantissa < 0x1.6a09e667f3bcdp-1) {
    mantissa *= 2;
    --exponent;
  }
  // log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172
  const double s = (mantissa - 1) / (mantissa + 1);
  const double z = s * s;
  const double tail = exponent * kLn2Low + 2 * s * log_series<23>(z, 0);
  return exponent * kLn2High + (2 * s + tail);
}

/// x / n. A GPU divides slowly: there one step of Newton's method corrects the product with 1 / n, to the same bits
/// wherever no remainder underflows, and where one does, exp does not depend on them.
template <int n>
CUVEE_HOST_DEVICE inline double divided_by(double x) noexcept {
#if defined(__CUDA_ARCH__)
  constexpr double inverse = 1.0 / n;
  const double quotient = x * inverse;
  return fma(fma(-static_cast<double>(n), quotient, x), inverse, quotient);
#else
  return x / n;
#endif
}

/// The terms of e^r - 1 from r^n / n! down, by Horner. Unrolled: a loop would keep its callers' loops from becoming
/// vector code.
template <int n>
CUVEE_HOST_DEVICE inline double exp_series(double r, double inner) noexcept {
  const double outer = (inner + 1) * divided_by<n>(r);
  if constexpr (n == 1) {
    return outer;
  } else {
    return exp_series<n - 1>(r, outer);
  }
}

/// e^x = fraction * 2^exponent, fraction in (0.7, 1.5), for |x| < 1000. No branch: loops over it become vector code.
struct Exponential {
  double fraction;
  double exponent;  // a whole number
};

CUVEE_HOST_DEVICE inline Exponential exp_parts(double x) noexcept {
  const double turns = x * std::numbers::log2e + 0.5;
  const double nearest = (turns + kWholePart) - kWholePart;
  const u64 above = __builtin_bit_cast(u64, turns - nearest) >> 63;  // 1 where the nearest is not the floor
  const double k = nearest - __builtin_bit_cast(double, (0 - above) & 0x3ff0000000000000);
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| < 0.347
  return {1 + exp_series<14>(r, 0), k};
}

/// e^x; infinity above 709.78, 0 below -745.1.
CUVEE_HOST_DEVICE inline double exp(double x) noexcept {
  if (x != x) return x;
  if (x > 709.782712893384) return kInfinity;
  if (x < -745.1332191019412) return 0;
  const auto [fraction, exponent] = exp_parts(x);
  const i64 k = static_cast<i64>(exponent);
  const i64 half = k / 2;
  return fraction * power_of_two(half) * power_of_two(k - half);  // only the last product can round
}

/// exp(x) for |x| <= 700, the same bits, without a branch.
CUVEE_HOST_DEVICE inline double exp_moderate(double x) noexcept {
  const auto [fraction, exponent] = exp_parts(x);
  const u64 shift = __builtin_bit_cast(u64, exponent + kWholePart) << 52;
  return __builtin_bit_cast(double, __builtin_bit_cast(u64, fraction) + shift);
}

/// x^y for x > 0.
CUVEE_HOST_DEVICE inline double power(double x, double y) noexcept { return y == 1 ? x : exp(y * log(x)); }

/// cos(pi x).
inline double cos_pi(double x) noexcept {
  if (!std::isfinite(x)) return kNaN;
  double turn = std::fmod(std::fabs(x), 2.0);  // exact
  if (turn > 1) turn = 2 - turn;
  const bool negative = turn > 0.5;
  if (negative) turn = 1 - turn;
  const double angle = turn * std::numbers::pi;
  const double square = angle * angle;
  double series = 0;
  for (int n = 22; n >= 2; n -= 2) series = (series + 1) * (-square / (n * (n - 1)));
  return negative ? -(1 + series) : 1 + series;
}

}  // namespace cuvee::scalar_math
