// Stage 3, rows: keyed bijections in batches. Included by kernels_impl.hpp alone.

namespace cuvee::CUVEE_ISA {
namespace {

#if defined(__AVX512VBMI2__)

inline __m512i broadcast(u32 value) { return _mm512_set1_epi32(static_cast<int>(value)); }

inline __m512i round_hash(__m512i value, u32 key) {
  const __m512i h = _mm512_mullo_epi32(_mm512_xor_si512(value, broadcast(key)), broadcast(0x9e3779b1u));
  return _mm512_mullo_epi32(_mm512_xor_si512(h, _mm512_srli_epi32(h, 15)), broadcast(0x85ebca77u));
}

inline __m512i below(__m512i hash, __m512i columns) {
  const __m512i even = _mm512_mul_epu32(hash, columns);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(hash, 32), columns);
  return _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
}

// Stores eight places of the grid, `left` of them wanted at most; those beyond the size are walked on.
inline void store_places(const Bijection& pi, __m256i x, __m256i y, u64 left, u64* out) {
  const __m512i high = _mm512_sll_epi64(_mm512_cvtepu32_epi64(x), _mm_cvtsi32_si128(static_cast<int>(pi.shift())));
  const __m512i places = _mm512_or_si512(high, _mm512_cvtepu32_epi64(y));
  const auto valid = static_cast<__mmask8>(_bzhi_u32(0xff, static_cast<u32>(std::min<u64>(left, 8))));
  _mm512_mask_storeu_epi64(out, valid, places);
  u32 outside = _mm512_mask_cmpge_epu64_mask(valid, places, _mm512_set1_epi64(static_cast<i64>(pi.size())));
  for (; outside != 0; outside &= outside - 1) {
    u64& place = out[_tzcnt_u32(outside)];
    place = pi(place);
  }
}

// `first`, ... in kVectors vectors at once: one alone would wait for each of its multiplications.
template <u32 kVectors>
inline void permute_vectors(const Bijection& pi, u64 first, u64 count, u64* out) {
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i columns = broadcast(pi.columns());
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(pi.shift()));
  const __m128i down = _mm_cvtsi32_si128(static_cast<int>(32 - pi.shift()));
  const u32 mask = (u32{1} << pi.shift()) - 1;
  __m512i x[kVectors];
  __m512i y[kVectors];
  for (u32 v = 0; v < kVectors; ++v) {
    const u64 from = first + 16 * v;
    const __m512i sum = _mm512_add_epi32(broadcast(static_cast<u32>(from) & mask), lane);
    x[v] = _mm512_add_epi32(broadcast(static_cast<u32>(from >> pi.shift())), _mm512_srl_epi32(sum, shift));
    y[v] = _mm512_and_si512(sum, broadcast(mask));
  }
  for (u32 r = 0; r < pi.rounds(); r += 2) {
    const u32 even = pi.round_key(r);
    const u32 odd = pi.round_key(r + 1);
    for (u32 v = 0; v < kVectors; ++v) {
      const __m512i moved = _mm512_add_epi32(x[v], below(round_hash(y[v], even), columns));
      x[v] =
          _mm512_min_epu32(moved, _mm512_sub_epi32(moved, columns));  // the smaller one, as unsigned, is below columns
    }
    for (u32 v = 0; v < kVectors; ++v) y[v] = _mm512_xor_si512(y[v], _mm512_srl_epi32(round_hash(x[v], odd), down));
  }
  for (u32 v = 0; v < kVectors; ++v) {
    if (16 * v >= count) return;
    store_places(pi, _mm512_castsi512_si256(x[v]), _mm512_castsi512_si256(y[v]), count - 16 * v, out + 16 * v);
    if (16 * v + 8 >= count) return;
    store_places(pi, _mm512_extracti64x4_epi64(x[v], 1), _mm512_extracti64x4_epi64(y[v], 1), count - 16 * v - 8,
                 out + 16 * v + 8);
  }
}

void permute_places(const Bijection& pi, u64 first, u64 count, u64* out) {
  u64 done = 0;
  for (; done + 32 < count; done += 64) permute_vectors<4>(pi, first + done, count - done, out + done);
  for (; done < count; done += 16) permute_vectors<1>(pi, first + done, count - done, out + done);
}

#else

constexpr u32 kBatch = 256;

// At most kBatch places, before any walk; loops of one operation a line, for the vectoriser.
inline void permute_batch(const Bijection& pi, u64 first, u32 count, u64* out) {
  alignas(64) u32 x[kBatch];
  alignas(64) u32 y[kBatch];
  const u32 shift = pi.shift();
  const u32 mask = (u32{1} << shift) - 1;
  const u32 columns = pi.columns();
  const u32 lanes = (count + 15) & ~u32{15};
  const auto x0 = static_cast<u32>(first >> shift);
  const u32 y0 = static_cast<u32>(first) & mask;
  for (u32 t = 0; t < lanes; ++t) {
    x[t] = x0 + ((y0 + t) >> shift);
    y[t] = (y0 + t) & mask;
  }
  for (u32 r = 0; r < pi.rounds(); r += 2) {
    const u32 even = pi.round_key(r);
    const u32 odd = pi.round_key(r + 1);
    const u32 down = 32 - shift;
    for (u32 t = 0; t < lanes; ++t) {
      u32 moved = x[t] + Bijection::below(Bijection::round_hash(y[t], even), columns);
      moved = std::min(moved, moved - columns);  // the smaller one, as unsigned, is below columns
      x[t] = moved;
      y[t] ^= Bijection::round_hash(moved, odd) >> down;
    }
  }
  for (u32 t = 0; t < count; ++t) out[t] = static_cast<u64>(x[t]) << shift | y[t];
}

void permute_places(const Bijection& pi, u64 first, u64 count, u64* out) {
  const bool exact = static_cast<u64>(pi.columns()) << pi.shift() == pi.size();
  for (u64 done = 0; done < count; done += kBatch) {
    const auto batch = static_cast<u32>(std::min<u64>(kBatch, count - done));
    permute_batch(pi, first + done, batch, out + done);
    if (exact) continue;
    for (u32 t = 0; t < batch; ++t)
      if (out[done + t] >= pi.size()) out[done + t] = pi(out[done + t]);
  }
}

#endif

void permute(const Bijection& pi, u64 first, u64 count, u64* out) {
  if (pi.tabled())
    for (u64 t = 0; t < count; ++t) out[t] = pi(first + t);
  else
    permute_places(pi, first, count, out);
}

}  // namespace
}  // namespace cuvee::CUVEE_ISA
