#include <cuda_fp16.h>

#include <algorithm>

#include "core/logits_math.hpp"
#include "logits.hpp"

namespace cuvee::cuda {
namespace {

using logits_math::kChunk, logits_math::kChunks, logits_math::kLanes, logits_math::kLines, logits_math::kLowest,
    logits_math::kPanel, logits_math::Moments;

constexpr u32 kWarp = 32;
constexpr u32 kWarps = 4;
constexpr u32 kAll = 0xffffffff;
constexpr u32 kEach = kLanes / kWarp;  // neighbouring lanes of a chunk that one thread sums
constexpr u32 kMostBlocks = 1 << 16;

// A logit and the 32-bit words that logits are kept in: one float32, or two of 16 bits, the first in the low half.
__device__ float as_float(float x) { return x; }
__device__ float as_float(Brain x) { return logits_math::widened(x); }
__device__ float as_float(Half x) { return __half2float(__ushort_as_half(static_cast<u16>(x))); }
__device__ u32 bits_of(float x) { return __float_as_uint(x); }
template <class T>
__device__ u32 bits_of(T x) {
  return static_cast<u16>(x);
}
__device__ float part_of(float, u32 word, u32) { return __uint_as_float(word); }
__device__ float part_of(Brain, u32 word, u32 part) {
  return __uint_as_float(part == 0 ? word << 16 : word & 0xffff0000);
}
__device__ float part_of(Half, u32 word, u32 part) { return as_float(Half{static_cast<u16>(word >> (16 * part))}); }

/// Of two words the larger parts, one instruction for both parts; NaN only where both are. The largest of a chunk is
/// found so, since logits of 16 bits arrive faster than one instruction more for each could be issued.
__device__ u32 larger_parts(float, u32 a, u32 b) {
  return __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
}
__device__ u32 larger_parts(Brain, u32 a, u32 b) {
  u32 result;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
__device__ u32 larger_parts(Half, u32 a, u32 b) {
  u32 result;
  asm("max.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

__device__ float missing(float) { return -static_cast<float>(scalar_math::kInfinity); }
__device__ Half missing(Half) { return Half{0xfc00}; }
__device__ Brain missing(Brain) { return Brain{0xff80}; }

/// The larger one; NaN where x is NaN. As logits_math::larger(floor, x), in one instruction.
__device__ float at_least(float floor, float x) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(floor), "f"(x));
  return result;
}

/// The logits of a chunk that one thread sums: those of its lanes, line by line, in registers.
template <class T>
struct Share {
  static constexpr u32 kParts = 4 / sizeof(T);  // of a word
  static constexpr u32 kWords = kEach / kParts;

  uint4 lines[kLines][kWords / 4];
  u32 count;  // of lines

  /// Reads x[0, size), size <= kChunk; what is missing of the last line has probability 0.
  __device__ Share(const T* x, u32 size) : count((size + kLanes - 1) / kLanes) {
    const bool aligned = reinterpret_cast<u64>(x) % sizeof(uint4) == 0;
#pragma unroll
    for (u32 line = 0; line < kLines; ++line) {
      const u32 at = line * kLanes + threadIdx.x % kWarp * kEach;
#pragma unroll
      for (u32 four = 0; four < kWords / 4; ++four)
        lines[line][four] = aligned && at + kEach <= size ? reinterpret_cast<const uint4*>(x + at)[four]
                                                          : gathered(x, at + four * 4 * kParts, size);
    }
  }

  /// The largest, at least kLowest; NaN is passed by.
  __device__ float largest() const {
    u32 most[4] = {lines[0][0].x, lines[0][0].y, lines[0][0].z, lines[0][0].w};
#pragma unroll
    for (u32 line = 0; line < kLines; ++line)
      if (line < count)
#pragma unroll
        for (u32 four = 0; four < kWords / 4; ++four) {
          const uint4& words = lines[line][four];
          most[0] = larger_parts(T{}, most[0], words.x);
          most[1] = larger_parts(T{}, most[1], words.y);
          most[2] = larger_parts(T{}, most[2], words.z);
          most[3] = larger_parts(T{}, most[3], words.w);
        }
    const u32 word = larger_parts(T{}, larger_parts(T{}, most[0], most[1]), larger_parts(T{}, most[2], most[3]));
    float top = kLowest;
#pragma unroll
    for (u32 part = 0; part < kParts; ++part) top = fmaxf(top, part_of(T{}, word, part));
    return top;
  }

  __device__ float get(u32 line, u32 k) const {
    const uint4& four = lines[line][k / (4 * kParts)];
    const u32 word = k / kParts % 4;
    return part_of(T{}, word == 0 ? four.x : word == 1 ? four.y : word == 2 ? four.z : four.w, k % kParts);
  }

 private:
  __device__ static uint4 gathered(const T* x, u32 at, u32 size) {
    u32 words[4] = {};
    for (u32 k = 0; k < 4 * kParts; ++k)
      words[k / kParts] |= bits_of(at + k < size ? x[at + k] : missing(T{})) << (16 * (k % kParts));
    return {words[0], words[1], words[2], words[3]};
  }
};

__device__ float warp_largest(float x) {
#pragma unroll
  for (u32 width = kWarp / 2; width > 0; width /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, width));
  return x;
}

/// Adds lanes l and l + kLanes / 2, ..., l and l + 1, thread t holding lanes kEach * t, ... At first threads that have
/// to add the same lanes share them out.
__device__ float warp_sum(float (&lanes)[kEach]) {
  static_assert(kEach == 8 && kWarp == 32);
#pragma unroll
  for (u32 step = 0; step < 3; ++step) {
    const u32 width = 16 >> step, kept = 4 >> step;
    const bool upper = (threadIdx.x & width) != 0;
#pragma unroll
    for (u32 k = 0; k < kept; ++k) {
      const float give = upper ? lanes[k] : lanes[k + kept];
      const float keep = upper ? lanes[k + kept] : lanes[k];
      lanes[k] = keep + __shfl_xor_sync(kAll, give, width);
    }
  }
  float sum = lanes[0];  // of lane l + (4, 2, 1 for the bits 16, 8, 4 of t)
  for (const u32 width : {2, 1, 16, 8, 4}) sum += __shfl_xor_sync(kAll, sum, width);
  return sum;
}

/// Moments of one chunk, by one warp.
template <class T>
__device__ Moments chunk_moments(const T* x, u32 size) {
  const Share<T> share(x, size);
  const float top = warp_largest(share.largest());
  float sum[kEach] = {}, first[kEach] = {}, second[kEach] = {};
#pragma unroll
  for (u32 line = 0; line < kLines; ++line)
    if (line < share.count)
#pragma unroll
      for (u32 k = 0; k < kEach; ++k) {
        const float down = at_least(logits_math::kFloor, share.get(line, k) - top);
        const float power = logits_math::exp_down(down);
        const float product = power * down;
        sum[k] += power;
        first[k] += product;
        second[k] = logits_math::fused(product, down, second[k]);
      }
  return {top, warp_sum(sum), warp_sum(first), warp_sum(second)};
}

/// The chunks of a panel as one, by one warp, each thread having one chunk.
__device__ Moments joined_chunks(const Moments& chunk) {
  Moments all = logits_math::against(warp_largest(chunk.top), chunk);
#pragma unroll
  for (u32 width = kWarp / 2; width > 0; width /= 2) {
    all.sum += __shfl_xor_sync(kAll, all.sum, width);
    all.first += __shfl_xor_sync(kAll, all.first, width);
    all.second += __shfl_xor_sync(kAll, all.second, width);
  }
  return all;
}

/// Moments of a row, by one block; right in the first warp alone.
template <class T>
__device__ Moments row_moments(const T* x, u64 vocabulary) {
  static_assert(kChunks == kWarp);
  __shared__ float4 chunks[kChunks];
  const u32 warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  Moments all;
  for (u64 at = 0; at < vocabulary; at += kPanel) {
    const u32 size = static_cast<u32>(min(u64{kPanel}, vocabulary - at));
    for (u32 chunk = warp; chunk < kChunks; chunk += kWarps) {
      const u32 begin = chunk * kChunk;
      Moments moments;
      if (begin < size) moments = chunk_moments(x + at + begin, min(kChunk, size - begin));
      if (lane == 0) chunks[chunk] = {moments.top, moments.sum, moments.first, moments.second};
    }
    __syncthreads();
    if (warp == 0) {
      const float4 chunk = chunks[lane];
      const Moments panel = joined_chunks({chunk.x, chunk.y, chunk.z, chunk.w});
      all = at == 0 ? panel : joined(all, panel);
    }
    __syncthreads();
  }
  return all;
}

// As many blocks to a multiprocessor as registers hold shares of a chunk.
template <class T>
__global__ void __launch_bounds__(kWarps* kWarp, 8 / sizeof(T)) signals_of_rows(Logits logits, TokenArrays arrays) {
  for (u64 t = blockIdx.x; t < logits.blocks * logits.rows; t += gridDim.x) {
    logits_math::Signals signals{0, 0, 0};
    const i64 target = arrays.targets == nullptr ? kNoTarget : arrays.targets[t];
    if (arrays.mask == nullptr || arrays.mask[t] != 0) {
      const auto block = static_cast<i64>(t / logits.rows), row = static_cast<i64>(t % logits.rows);
      const T* const x = static_cast<const T*>(logits.data) + block * logits.block_stride + row * logits.row_stride;
      const Moments moments = row_moments(x, logits.vocabulary);
      const bool inside = target >= 0 && target < static_cast<i64>(logits.vocabulary);
      if (threadIdx.x == 0) signals = signals_of(moments, inside ? as_float(x[target]) : scalar_math::kNaN);
    }
    if (threadIdx.x == 0) {
      arrays.entropy[t] = signals.entropy;
      arrays.varentropy[t] = signals.varentropy;
      if (arrays.log_prob != nullptr) arrays.log_prob[t] = target == kNoTarget ? 0 : signals.log_prob;
    }
  }
}

}  // namespace

void token_signals(const Logits& logits, const TokenArrays& arrays, Stream stream) {
  CUVEE_EXPECTS(logits.vocabulary > 0, std::invalid_argument, "vocabulary must be at least 1, but got 0");
  if (logits.size() == 0) return;
  const auto grid = static_cast<u32>(std::min<u64>(logits.size(), kMostBlocks));
  const auto queue = reinterpret_cast<cudaStream_t>(stream.handle);
  switch (logits.type) {
    case LogitType::f32:
      signals_of_rows<float><<<grid, kWarps * kWarp, 0, queue>>>(logits, arrays);
      break;
    case LogitType::f16:
      signals_of_rows<Half><<<grid, kWarps * kWarp, 0, queue>>>(logits, arrays);
      break;
    case LogitType::bf16:
      signals_of_rows<Brain><<<grid, kWarps * kWarp, 0, queue>>>(logits, arrays);
      break;
  }
  CUVEE_CUDA_TRY(cudaGetLastError());
}

}  // namespace cuvee::cuda
