#pragma once

#include <cmath>
#include <limits>

namespace cuvee::scalar_math {

// exp, log, pow and cos of +, -, *, / alone: the same bits on every machine, within 2 ulp (4 for power).
// libm gives other last bits on other systems. Compile without contraction.

inline constexpr double kLn2High = 0x1.62e42fee00000p-1;  // 33 bits: exact times any exponent
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

/// Natural logarithm of x > 0; -infinity at 0, NaN below.
inline double log(double x) noexcept {
  if (std::isnan(x) || x < 0) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return -std::numeric_limits<double>::infinity();
  if (std::isinf(x)) return x;
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // in [1/2, 1)
  if (mantissa < 0x1.6a09e667f3bcdp-1) {
    mantissa *= 2;
    --exponent;
  }
  // log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172
  const double s = (mantissa - 1) / (mantissa + 1);
  const double z = s * s;
  double series = 0;
  for (int odd = 23; odd >= 3; odd -= 2) series = (series + 1.0 / odd) * z;
  const double tail = exponent * kLn2Low + 2 * s * series;
  return exponent * kLn2High + (2 * s + tail);
}

/// e^x; infinity above 709.78, 0 below -745.1.
inline double exp(double x) noexcept {
  if (std::isnan(x)) return x;
  if (x > 709.782712893384) return std::numeric_limits<double>::infinity();
  if (x < -745.1332191019412) return 0;
  const double k = std::floor(x * 0x1.71547652b82fep+0 + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| < 0.347
  double series = 0;
  for (int n = 14; n >= 1; --n) series = (series + 1) * (r / n);
  return std::ldexp(1 + series, static_cast<int>(k));
}

/// x^y for x > 0.
inline double power(double x, double y) noexcept { return y == 1 ? x : exp(y * log(x)); }

/// cos(pi x).
inline double cos_pi(double x) noexcept {
  if (!std::isfinite(x)) return std::numeric_limits<double>::quiet_NaN();
  double turn = std::fmod(std::fabs(x), 2.0);  // exact
  if (turn > 1) turn = 2 - turn;
  const bool negative = turn > 0.5;
  if (negative) turn = 1 - turn;
  const double angle = turn * 0x1.921fb54442d18p+1;
  const double square = angle * angle;
  double series = 0;
  for (int n = 22; n >= 2; n -= 2) series = (series + 1) * (-square / (n * (n - 1)));
  return negative ? -(1 + series) : 1 + series;
}

}  // namespace cuvee::scalar_math
