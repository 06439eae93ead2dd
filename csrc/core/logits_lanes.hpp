// Sixteen float32 and what the loops over logits do with them. Included by logits_impl.hpp alone.

namespace cuvee::CUVEE_ISA {
namespace {

#if defined(__AVX512F__)

struct Lanes {
  __m512 v;
};

inline Lanes splat(float x) { return {_mm512_set1_ps(x)}; }
inline Lanes load(const float* x) { return {_mm512_loadu_ps(x)}; }
inline Lanes load(const Half* x) { return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)))}; }
inline Lanes load(const Brain* x) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline void store(float* to, Lanes a) { _mm512_storeu_ps(to, a.v); }
inline Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Lanes fused(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Lanes larger(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Lanes exponent(Lanes a) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a.v), logits_math::kExponent))};
}
/// Lanes l and l + 8 in one, by `join`.
template <class Join>
inline __m256 halves(Lanes a, Join join) {
  return join(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
}

#elif defined(__AVX2__)

struct Lanes {
  __m256 low, high;
};

inline Lanes splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes load(const float* x) { return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }
inline __m128i load_eight(const void* x) { return _mm_loadu_si128(static_cast<const __m128i*>(x)); }
inline Lanes load(const Half* x) { return {_mm256_cvtph_ps(load_eight(x)), _mm256_cvtph_ps(load_eight(x + 8))}; }
inline __m256 widened(__m128i brains) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(brains), 16));
}
inline Lanes load(const Brain* x) { return {widened(load_eight(x)), widened(load_eight(x + 8))}; }
inline void store(float* to, Lanes a) {
  _mm256_storeu_ps(to, a.low);
  _mm256_storeu_ps(to + 8, a.high);
}
inline Lanes operator+(Lanes a, Lanes b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Lanes operator-(Lanes a, Lanes b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Lanes operator*(Lanes a, Lanes b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Lanes fused(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Lanes larger(Lanes a, Lanes b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline __m256 exponent(__m256 a) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a), logits_math::kExponent));
}
inline Lanes exponent(Lanes a) { return {exponent(a.low), exponent(a.high)}; }
template <class Join>
inline __m256 halves(Lanes a, Join join) {
  return join(a.low, a.high);
}

#else

struct Lanes {
  float v[16];
};

template <class Make>
inline Lanes each(Make make) {
  Lanes out;
  for (u32 l = 0; l < 16; ++l) out.v[l] = make(l);
  return out;
}

inline Lanes splat(float x) {
  return each([=](u32) { return x; });
}
template <class T>
inline Lanes load(const T* x) {
  return each([=](u32 l) { return logits_math::widened(x[l]); });
}
inline void store(float* to, const Lanes& a) { std::copy(a.v, a.v + 16, to); }
inline Lanes operator+(const Lanes& a, const Lanes& b) {
  return each([&](u32 l) { return a.v[l] + b.v[l]; });
}
inline Lanes operator-(const Lanes& a, const Lanes& b) {
  return each([&](u32 l) { return a.v[l] - b.v[l]; });
}
inline Lanes operator*(const Lanes& a, const Lanes& b) {
  return each([&](u32 l) { return a.v[l] * b.v[l]; });
}
inline Lanes fused(const Lanes& a, const Lanes& b, const Lanes& c) {
  return each([&](u32 l) { return logits_math::fused(a.v[l], b.v[l], c.v[l]); });
}
inline Lanes larger(const Lanes& a, const Lanes& b) {
  return each([&](u32 l) { return logits_math::larger(a.v[l], b.v[l]); });
}
inline Lanes exponent(const Lanes& a) {
  return each(
      [&](u32 l) { return __builtin_bit_cast(float, __builtin_bit_cast(u32, a.v[l]) << logits_math::kExponent); });
}

#endif

// Lanes l and l + 8 are joined, then l and l + 4, l + 2 and l + 1.
#if defined(__AVX2__)

template <class Join>
inline float fold(__m256 eight, Join join) {
  const auto pair = [&](__m128 a, __m128 b) {
    return _mm256_castps256_ps128(join(_mm256_castps128_ps256(a), _mm256_castps128_ps256(b)));
  };
  const __m128 four = pair(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = pair(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(pair(two, _mm_shuffle_ps(two, two, 1)));
}

inline float fold_sum(Lanes a) {
  const auto join = [](__m256 x, __m256 y) { return _mm256_add_ps(x, y); };
  return fold(halves(a, join), join);
}
inline float fold_larger(Lanes a) {
  const auto join = [](__m256 x, __m256 y) { return _mm256_max_ps(x, y); };
  return fold(halves(a, join), join);
}

#else

template <class Join>
inline float fold(Lanes a, Join join) {
  for (u32 width = 8; width > 0; width /= 2)
    for (u32 l = 0; l < width; ++l) a.v[l] = join(a.v[l], a.v[l + width]);
  return a.v[0];
}
inline float fold_sum(const Lanes& a) {
  return fold(a, [](float x, float y) { return x + y; });
}
inline float fold_larger(const Lanes& a) {
  return fold(a, [](float x, float y) { return logits_math::larger(x, y); });
}

#endif

}  // namespace
}  // namespace cuvee::CUVEE_ISA
