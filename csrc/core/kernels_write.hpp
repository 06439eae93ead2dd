// Stage 4: positions take the draws of their shares, in order. Included by kernels_impl.hpp alone.

namespace cuvee::CUVEE_ISA {
namespace {

// What is written soon: a large output is in no cache, and the columns are too many streams for the hardware to
// foresee.
inline void fetch_ahead(DrawPointers out, u32 at) {
  constexpr u32 kAhead = 256;
  __builtin_prefetch(out.source + at + kAhead, 1);
  __builtin_prefetch(out.row + at + kAhead, 1);
  __builtin_prefetch(out.cycle + at + kAhead, 1);
}

#if defined(__AVX512VBMI2__)

constexpr u32 kFewShares = 4;

// Eight positions at a time: the draws of each share are spread over its positions. With few shares the loop over
// positions would wait for the cursor that the position before has moved. Returns where it stopped.
inline u32 write_few(Block& block, u32 begin, u32 end, DrawPointers out) {
  const auto shares = static_cast<u32>(block.shares.size());
  u32 at = begin;
  for (; at + 8 <= end; at += 8) {
    const u32 to = at - begin;
    fetch_ahead(out, to);
    const __m128i share = _mm_loadu_si128(reinterpret_cast<const __m128i*>(&block.share_of_position[at]));
    __m512i row = _mm512_setzero_si512();
    __m256i source = _mm256_setzero_si256();
    __m256i cycle = _mm256_setzero_si256();
    for (u32 s = 0; s < shares; ++s) {
      const __mmask8 mine = _mm_cmpeq_epi16_mask(share, _mm_set1_epi16(static_cast<short>(s)));
      const u32 draw = block.cursors[s];
      row = _mm512_mask_expandloadu_epi64(row, mine, &block.rows[draw]);
      cycle = _mm256_mask_expandloadu_epi32(cycle, mine, &block.cycles[draw]);
      source = _mm256_mask_set1_epi32(source, mine, block.sources[s]);
      block.cursors[s] = draw + static_cast<u32>(_mm_popcnt_u32(mine));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.source + to), source);
    _mm512_storeu_si512(out.row + to, row);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.cycle + to), cycle);
  }
  return at;
}

#else

constexpr u32 kFewShares = 0;
inline u32 write_few(Block&, u32 begin, u32, DrawPointers) { return begin; }

#endif

void write(Block& block, u32 begin, u32 end, DrawPointers out) {
  block.cursors.resize(block.shares.size());
  block.sources.resize(block.shares.size());
  for (u32 s = 0; s < block.shares.size(); ++s) {
    block.cursors[s] = block.shares[s].begin;
    block.sources[s] = static_cast<i32>(block.shares[s].source.value);
  }
  const u16* const share_of_position = block.share_of_position.data();
  const u64* const rows = block.rows.data();
  const i32* const cycles = block.cycles.data();
  const i32* const sources = block.sources.data();
  u32* const cursors = block.cursors.data();
  for (u32 at = 0; at < begin; ++at) ++cursors[share_of_position[at]];
  u32 at = block.shares.size() <= kFewShares ? write_few(block, begin, end, out) : begin;
  for (; at < end; ++at) {
    const u32 to = at - begin;
    if (to % 8 == 0) fetch_ahead(out, to);
    const u32 share = share_of_position[at];
    const u32 draw = cursors[share]++;
    out.source[to] = sources[share];
    out.row[to] = static_cast<i64>(rows[draw]);
    out.cycle[to] = cycles[draw];
  }
}

}  // namespace
}  // namespace cuvee::CUVEE_ISA
