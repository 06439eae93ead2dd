// The loops over logits, compiled once for each instruction set: logits_<isa>.cpp defines CUVEE_ISA and includes this
// file. Everything here is in a namespace of that name and has no linkage, so that no instruction leaks into shared
// inline code.
#include <algorithm>

#include "logits_kernels.hpp"

#if defined(__AVX512F__) || defined(__AVX2__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12 warns of its own intrinsics
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

// clang-format off: Lanes come first
#include "logits_lanes.hpp"
// clang-format on

namespace cuvee::CUVEE_ISA {
namespace {

using logits_math::kChunk, logits_math::kChunks, logits_math::kFloor, logits_math::kLanes, logits_math::kLowest,
    logits_math::Moments;

constexpr u32 kWidth = 16;
constexpr u32 kGroups = kLanes / kWidth;

/// logits_math::exp_down.
inline Lanes exp_down(Lanes x) {
  const Lanes whole = splat(logits_math::kWhole);
  const Lanes shifted = fused(x, splat(logits_math::kLog2E), whole);
  const Lanes r = fused(shifted - whole, splat(logits_math::kMinusLn2), x);
  using namespace logits_math;
  Lanes series = splat(k5);
  for (const float k : {k4, k3, k2, k1, 2.0F}) series = fused(series, r, splat(k));
  return series * exponent(shifted);
}

struct Sums {
  Lanes sum, first, second;
};

inline Sums operator+(const Sums& a, const Sums& b) { return {a.sum + b.sum, a.first + b.first, a.second + b.second}; }

inline Moments folded(float top, const Sums& sums) {
  return {top, fold_sum(sums.sum), fold_sum(sums.first), fold_sum(sums.second)};
}

template <class T>
inline float top_of(const T* x, u32 lines) {
  Lanes top[4] = {splat(kLowest), splat(kLowest), splat(kLowest), splat(kLowest)};
  for (u32 at = 0; at < lines * kLanes; at += 4 * kWidth)
    for (u32 k = 0; k < 4; ++k) top[k] = larger(load(x + at + k * kWidth), top[k]);  // passes by NaN
  return fold_larger(larger(larger(top[0], top[1]), larger(top[2], top[3])));
}

/// Moments of the logits x[0, lines * kLanes).
template <class T>
Moments whole_lines(const T* x, u32 lines) {
  constexpr int kNear = sizeof(T) > 2 ? 2 : 3;  // of the next chunk: two of float32 fill the first cache
  const float top = top_of(x, lines);
  const Lanes tops = splat(top), floor = splat(kFloor);
  Sums lanes[kGroups];
  for (u32 group = 0; group < kGroups; ++group) {
    Sums sums{splat(0), splat(0), splat(0)};
    for (u32 line = 0; line < lines; ++line) {
      const T* const at = x + line * kLanes + group * kWidth;
      __builtin_prefetch(at + kChunk, 0, kNear);
      const Lanes down = larger(floor, load(at) - tops);  // NaN stays NaN
      const Lanes power = exp_down(down);
      const Lanes product = power * down;
      sums = {sums.sum + power, sums.first + product, fused(product, down, sums.second)};
    }
    lanes[group] = sums;
  }
  for (u32 width = kGroups / 2; width > 0; width /= 2)
    for (u32 group = 0; group < width; ++group) lanes[group] = lanes[group] + lanes[group + width];
  return folded(top, lanes[0]);
}

/// Moments of the last chunk, count < kChunk logits: what is missing of the last line has probability 0.
template <class T>
Moments last_chunk(const T* x, u32 count) {
  float padded[kChunk];
  T rest[kWidth] = {};
  const u32 whole = count / kWidth * kWidth;
  const u32 end = (count + kLanes - 1) / kLanes * kLanes;
  for (u32 at = 0; at < whole; at += kWidth) store(padded + at, load(x + at));
  if (whole < count) {
    std::copy(x + whole, x + count, rest);
    store(padded + whole, load(rest));
  }
  std::fill(padded + count, padded + end, -__builtin_inff());
  return whole_lines(padded, end / kLanes);
}

/// The chunks of a panel as one.
Moments joined_chunks(const float (&parts)[4][kChunks]) {
  Lanes top = splat(kLowest);
  for (u32 at = 0; at < kChunks; at += kWidth) top = larger(load(parts[0] + at), top);
  const float panel_top = fold_larger(top);
  Sums halves_of_panel[2];
  for (u32 half = 0; half < 2; ++half) {
    const u32 at = half * kWidth;
    const Lanes sum = load(parts[1] + at), first = load(parts[2] + at), second = load(parts[3] + at);
    const Lanes down = larger(splat(kFloor), load(parts[0] + at) - splat(panel_top));
    const Lanes scale = exp_down(down);  // as logits_math::against
    halves_of_panel[half] = {scale * sum, scale * fused(down, sum, first),
                             scale * fused(down, fused(down, sum, first + first), second)};
  }
  return folded(panel_top, halves_of_panel[0] + halves_of_panel[1]);
}

template <class T>
Moments panel(const T* x, u32 count) {
  float parts[4][kChunks];
  const u32 chunks = (count + kChunk - 1) / kChunk;
  for (u32 c = 0; c < kChunks; ++c) {
    Moments part;
    if (c < chunks)
      part = count - c * kChunk >= kChunk ? whole_lines(x + c * kChunk, kChunk / kLanes)
                                          : last_chunk(x + c * kChunk, count - c * kChunk);
    parts[0][c] = part.top;
    parts[1][c] = part.sum;
    parts[2][c] = part.first;
    parts[3][c] = part.second;
  }
  return joined_chunks(parts);
}

}  // namespace

extern const LogitsKernels kLogitsKernels;
const LogitsKernels kLogitsKernels{CUVEE_ISA_NAME, panel<float>, panel<Half>, panel<Brain>};

}  // namespace cuvee::CUVEE_ISA
