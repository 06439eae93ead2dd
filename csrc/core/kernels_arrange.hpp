// Stage 2: the shares of slots, permuted within windows, are the shares of positions. Included by kernels_impl.hpp
// alone.

namespace cuvee::CUVEE_ISA {
namespace {

// --- small windows: up to 256 slots lie on a grid of at most 16 x 16, so that x, y and all that a round can add to
// --- them fit bytes, and a round is a look-up in a table of 16

constexpr u32 kSmallWindow = 256;

struct RoundTables {
  alignas(16) std::uint8_t added[Bijection::kMaxRounds][16];  // by the other coordinate

  explicit RoundTables(const Bijection& pi) {
    if (pi.tabled())
      spread(pi);
    else
      hash(pi);
  }

 private:
  void spread(const Bijection& pi);
  void hash(const Bijection& pi);
};

// Up to 64 slots the key's stream holds the tables, 8 bytes a round.
inline void RoundTables::spread(const Bijection& pi) {
  constexpr u64 kLowBytes = 0x00ff00ff00ff00ff;
  const u64 columns = pi.columns();
  const u64 mask = ((u64{1} << pi.shift()) - 1) * 0x0101010101010101;
  for (u32 r = 0; r < pi.rounds(); r += 2) {
    const u64 z = pi.table(r);
    const u64 to_x = ((z & kLowBytes) * columns >> 8 & kLowBytes) | ((z >> 8 & kLowBytes) * columns & ~kLowBytes);
    const u64 to_y = pi.table(r + 1) & mask;
    for (u32 half = 0; half < 16; half += 8) {
      std::memcpy(added[r] + half, &to_x, 8);
      std::memcpy(added[r + 1] + half, &to_y, 8);
    }
  }
}

#if defined(__AVX512VBMI2__)

inline void RoundTables::hash(const Bijection& pi) {
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i columns = broadcast(pi.columns());
  const __m128i down = _mm_cvtsi32_si128(static_cast<int>(32 - pi.shift()));
  for (u32 r = 0; r < pi.rounds(); r += 2) {
    const __m512i to_x = below(round_hash(lane, pi.round_key(r)), columns);
    const __m512i to_y = _mm512_srl_epi32(round_hash(lane, pi.round_key(r + 1)), down);
    _mm_store_si128(reinterpret_cast<__m128i*>(added[r]), _mm512_cvtepi32_epi8(to_x));
    _mm_store_si128(reinterpret_cast<__m128i*>(added[r + 1]), _mm512_cvtepi32_epi8(to_y));
  }
}

#else

inline void RoundTables::hash(const Bijection& pi) {
  const u32 columns = pi.columns();
  const u32 down = 32 - pi.shift();
  for (u32 r = 0; r < pi.rounds(); r += 2) {
    u32 to_x[16];
    u32 to_y[16];
    for (u32 v = 0; v < 16; ++v) {
      const u32 hash = Bijection::round_hash(v, pi.round_key(r));
      to_x[v] = ((hash >> 16) * columns + ((hash & 0xffff) * columns >> 16)) >> 16;  // hash * columns / 2^32
      to_y[v] = Bijection::round_hash(v, pi.round_key(r + 1)) >> down;
    }
    for (u32 v = 0; v < 16; ++v) {
      added[r][v] = static_cast<std::uint8_t>(to_x[v]);
      added[r + 1][v] = static_cast<std::uint8_t>(to_y[v]);
    }
  }
}

#endif

#if defined(__AVX512VBMI2__)

using Bytes = __m512i;
inline Bytes load(const std::uint8_t* from) { return _mm512_load_si512(from); }
inline void store(std::uint8_t* to, Bytes v) { _mm512_store_si512(to, v); }
inline Bytes all(u32 value) { return _mm512_set1_epi8(static_cast<char>(value)); }
inline Bytes sum(Bytes a, Bytes b) { return _mm512_add_epi8(a, b); }
inline Bytes difference(Bytes a, Bytes b) { return _mm512_sub_epi8(a, b); }
inline Bytes smaller(Bytes a, Bytes b) { return _mm512_min_epu8(a, b); }
inline Bytes both(Bytes a, Bytes b) { return _mm512_and_si512(a, b); }
inline Bytes either(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
inline Bytes differing(Bytes a, Bytes b) { return _mm512_xor_si512(a, b); }
inline Bytes up(Bytes a, u32 bits) { return _mm512_sll_epi16(a, _mm_cvtsi32_si128(static_cast<int>(bits))); }
inline Bytes down(Bytes a, u32 bits) { return _mm512_srl_epi16(a, _mm_cvtsi32_si128(static_cast<int>(bits))); }
inline Bytes look_up(const std::uint8_t* table, Bytes at) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table))), at);
}

#elif defined(__AVX2__)

using Bytes = __m256i;
inline Bytes load(const std::uint8_t* from) { return _mm256_load_si256(reinterpret_cast<const Bytes*>(from)); }
inline void store(std::uint8_t* to, Bytes v) { _mm256_store_si256(reinterpret_cast<Bytes*>(to), v); }
inline Bytes all(u32 value) { return _mm256_set1_epi8(static_cast<char>(value)); }
inline Bytes sum(Bytes a, Bytes b) { return _mm256_add_epi8(a, b); }
inline Bytes difference(Bytes a, Bytes b) { return _mm256_sub_epi8(a, b); }
inline Bytes smaller(Bytes a, Bytes b) { return _mm256_min_epu8(a, b); }
inline Bytes both(Bytes a, Bytes b) { return _mm256_and_si256(a, b); }
inline Bytes either(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
inline Bytes differing(Bytes a, Bytes b) { return _mm256_xor_si256(a, b); }
inline Bytes up(Bytes a, u32 bits) { return _mm256_sll_epi16(a, _mm_cvtsi32_si128(static_cast<int>(bits))); }
inline Bytes down(Bytes a, u32 bits) { return _mm256_srl_epi16(a, _mm_cvtsi32_si128(static_cast<int>(bits))); }
inline Bytes look_up(const std::uint8_t* table, Bytes at) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table))), at);
}

#endif

#if defined(__AVX2__)

struct Ramp {
  alignas(64) std::uint8_t values[kSmallWindow]{};
  constexpr Ramp() {
    for (u32 t = 0; t < kSmallWindow; ++t) values[t] = static_cast<std::uint8_t>(t);
  }
};
constexpr Ramp kRamp;

// Whole vectors: what stands beyond the size is of no meaning.
inline void permute_bytes(const Bijection& pi, const RoundTables& tables, std::uint8_t* out) {
  const Bytes columns = all(pi.columns());
  for (u32 t = 0; t < pi.size(); t += sizeof(Bytes)) {
    const Bytes place = load(kRamp.values + t);
    Bytes x = both(down(place, pi.shift()), all(0xffu >> pi.shift()));
    Bytes y = both(place, all((1u << pi.shift()) - 1));
    for (u32 r = 0; r < pi.rounds(); r += 2) {
      const Bytes moved = sum(x, look_up(tables.added[r], y));
      x = smaller(moved, difference(moved, columns));
      y = differing(y, look_up(tables.added[r + 1], x));
    }
    store(out + t, either(up(x, pi.shift()), y));
  }
}

#else

inline void permute_bytes(const Bijection& pi, const RoundTables& tables, std::uint8_t* out) {
  for (u32 t = 0; t < pi.size(); ++t) {
    u32 x = t >> pi.shift();
    u32 y = t & ((1u << pi.shift()) - 1);
    for (u32 r = 0; r < pi.rounds(); r += 2) {
      x += tables.added[r][y];
      x = std::min(x, x - pi.columns());
      y ^= tables.added[r + 1][x];
    }
    out[t] = static_cast<std::uint8_t>(x << pi.shift() | y);
  }
}

#endif

// out[t] = pi(t) for t < pi.size() <= kSmallWindow; `out` has room for kSmallWindow.
inline void permute_small(const Bijection& pi, std::uint8_t* out) {
  if (pi.shuffled()) {
    for (u32 t = 0; t < pi.size(); ++t) out[t] = static_cast<std::uint8_t>(pi(t));
    return;
  }
  permute_bytes(pi, RoundTables(pi), out);
  if (pi.columns() << pi.shift() == pi.size()) return;
  for (u32 t = 0; t < pi.size(); ++t)
    if (out[t] >= pi.size()) out[t] = static_cast<std::uint8_t>(pi(out[t]));
}

// --- any window

void permute_window(const Bijection& pi, u16* out) {
  const auto length = static_cast<u32>(pi.size());
  if (length <= kSmallWindow) {
    alignas(64) std::uint8_t order[kSmallWindow];
    permute_small(pi, order);
    std::copy(order, order + length, out);
    return;
  }
  u64 order[256];
  for (u32 done = 0; done < length; done += 256) {
    const u32 count = std::min(length - done, 256u);
    permute(pi, done, count, order);
    for (u32 t = 0; t < count; ++t) out[done + t] = static_cast<u16>(order[t]);
  }
}

// out[t] = in[order[t]] for t < length.
template <class Offset>
inline void take(const u16* in, const Offset* order, u32 length, u16* out) {
  for (u32 t = 0; t < length; ++t) out[t] = in[order[t]];
}

#if defined(__AVX512VBMI2__)

// The same for a full window of the default size.
inline void take_64(const u16* in, const std::uint8_t* order, u16* out) {
  const __m512i low = _mm512_loadu_si512(in);
  const __m512i high = _mm512_loadu_si512(in + 32);
  for (u32 half = 0; half < 64; half += 32) {
    const __m512i at = _mm512_cvtepu8_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(order + half)));
    _mm512_storeu_si512(out + half, _mm512_permutex2var_epi16(low, at, high));
  }
}

#else

inline void take_64(const u16* in, const std::uint8_t* order, u16* out) { take(in, order, 64, out); }

#endif

void arrange(u64 windows_key, u64 first_slot, u32 window, u32 count, Block& block) {
  const u16* const in = block.share_of_slot.data();
  u16* const out = block.share_of_position.data();
  if (window == 1) {
    std::copy(in, in + count, out);
    return;
  }
  alignas(64) std::uint8_t small[kSmallWindow];
  u16* const large = block.arrivals[0].data();
  for (u32 start = 0; start < count; start += window) {
    const u32 length = std::min(window, count - start);
    const Bijection order(length, window_key(windows_key, first_slot + start, length));
    if (length > kSmallWindow) {
      permute_window(order, large);
      take(in + start, large, length, out + start);
      continue;
    }
    permute_small(order, small);
    if (length == 64)
      take_64(in + start, small, out + start);
    else
      take(in + start, small, length, out + start);
  }
}

}  // namespace
}  // namespace cuvee::CUVEE_ISA
