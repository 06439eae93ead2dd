// Stage 1: the rounding tree deals a block's slots to shares. Included by kernels_impl.hpp alone.

namespace cuvee::CUVEE_ISA {
namespace {

// State of a node whose clamp does not bind: arrival t goes left iff at + t * step carries.
struct Phase {
  u64 at;
  u64 step;
};

// One arrival at a time from `done` on; out[0, lefts) gets the left ones, out[lefts, count) the right ones.
inline void split_rest(Phase phase, const u16* in, u32 done, u32 count, u16* out, u32 left, u32 right) {
  for (; done < count; ++done) {
    const u64 next = phase.at + phase.step;
    const bool carry = next < phase.at;
    out[carry ? left : right] = in[done];
    left += carry;
    right += !carry;
    phase.at = next;
  }
}

#if defined(__AVX512VBMI2__)

inline void split_free(Phase phase, const u16* in, u32 count, u16* out, u32 lefts) {
  const __m512i lane = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
  const __m512i step = _mm512_set1_epi64(static_cast<i64>(phase.step));
  const __m512i highest = _mm512_set1_epi64(static_cast<i64>(~phase.step));  // at > ~step iff at + step carries
  const __m512i eight = _mm512_slli_epi64(step, 3);
  __m512i at = _mm512_add_epi64(_mm512_set1_epi64(static_cast<i64>(phase.at)), _mm512_mullo_epi64(lane, step));
  u16* left = out;
  u16* right = out + lefts;
  const u16* const left_end = right;
  const u16* const right_end = out + count;
  if (count <= 8) {
    const auto valid = static_cast<__mmask8>((1u << count) - 1);
    const __mmask8 mask = _mm512_cmpgt_epu64_mask(at, highest);
    const __m128i items = _mm_maskz_loadu_epi16(valid, in);
    const auto to_left = static_cast<__mmask8>((1u << lefts) - 1);
    const auto to_right = static_cast<__mmask8>((1u << (count - lefts)) - 1);
    _mm_mask_storeu_epi16(left, to_left, _mm_maskz_compress_epi16(mask, items));
    _mm_mask_storeu_epi16(right, to_right, _mm_maskz_compress_epi16(static_cast<__mmask8>(~mask & valid), items));
    return;
  }
  for (u32 done = 0; done < count; done += 32) {
    const u32 valid = _bzhi_u32(~u32{0}, std::min(count - done, 32u));
    u32 mask = _mm512_cmpgt_epu64_mask(at, highest);
    at = _mm512_add_epi64(at, eight);
    mask |= static_cast<u32>(_mm512_cmpgt_epu64_mask(at, highest)) << 8;
    at = _mm512_add_epi64(at, eight);
    mask |= static_cast<u32>(_mm512_cmpgt_epu64_mask(at, highest)) << 16;
    at = _mm512_add_epi64(at, eight);
    mask |= static_cast<u32>(_mm512_cmpgt_epu64_mask(at, highest)) << 24;
    at = _mm512_add_epi64(at, eight);
    const u32 goes_left = mask & valid;
    const u32 goes_right = ~mask & valid;
    const auto lefts_here = static_cast<u32>(_mm_popcnt_u32(goes_left));
    const auto rights_here = static_cast<u32>(_mm_popcnt_u32(goes_right));
    const __m512i items = _mm512_maskz_loadu_epi16(valid, in + done);
    const __m512i to_left = _mm512_maskz_compress_epi16(goes_left, items);
    const __m512i to_right = _mm512_maskz_compress_epi16(goes_right, items);
    if (left + 32 <= left_end && right + 32 <= right_end) {
      _mm512_storeu_si512(left, to_left);
      _mm512_storeu_si512(right, to_right);
    } else {
      _mm512_mask_storeu_epi16(left, _bzhi_u32(~u32{0}, lefts_here), to_left);
      _mm512_mask_storeu_epi16(right, _bzhi_u32(~u32{0}, rights_here), to_right);
    }
    left += lefts_here;
    right += rights_here;
  }
}

#elif defined(__AVX2__)

// For each 8-bit mask the byte shuffle that moves the 16-bit lanes it names to the front.
struct CompressTable {
  alignas(16) std::uint8_t lanes[256][16]{};
  constexpr CompressTable() {
    for (u32 mask = 0; mask < 256; ++mask) {
      u32 to = 0;
      for (u32 lane = 0; lane < 8; ++lane) {
        if ((mask >> lane & 1) == 0) continue;
        lanes[mask][2 * to] = static_cast<std::uint8_t>(2 * lane);
        lanes[mask][2 * to + 1] = static_cast<std::uint8_t>(2 * lane + 1);
        ++to;
      }
    }
  }
};
constexpr CompressTable kCompress;

inline u32 carries(__m256i at, __m256i highest) {
  const __m256i sign = _mm256_set1_epi64x(static_cast<i64>(u64{1} << 63));
  const __m256i above = _mm256_cmpgt_epi64(_mm256_xor_si256(at, sign), _mm256_xor_si256(highest, sign));
  return static_cast<u32>(_mm256_movemask_pd(_mm256_castsi256_pd(above)));
}

inline void split_free(Phase phase, const u16* in, u32 count, u16* out, u32 lefts) {
  const u64 s = phase.step;
  const __m256i highest = _mm256_set1_epi64x(static_cast<i64>(~s));
  const __m256i eight = _mm256_set1_epi64x(static_cast<i64>(8 * s));
  const __m256i lanes = _mm256_set_epi64x(static_cast<i64>(3 * s), static_cast<i64>(2 * s), static_cast<i64>(s), 0);
  __m256i low = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<i64>(phase.at)), lanes);
  __m256i high = _mm256_add_epi64(low, _mm256_set1_epi64x(static_cast<i64>(4 * s)));
  u32 done = 0, left = 0, right = lefts;
  // whole vectors are stored, so both sides need room for one
  while (left + 8 <= lefts && right + 8 <= count) {
    const u32 mask = carries(low, highest) | carries(high, highest) << 4;
    const __m128i items = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + done));
    const auto* to_left = reinterpret_cast<const __m128i*>(kCompress.lanes[mask]);
    const auto* to_right = reinterpret_cast<const __m128i*>(kCompress.lanes[mask ^ 0xff]);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + left), _mm_shuffle_epi8(items, _mm_load_si128(to_left)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + right), _mm_shuffle_epi8(items, _mm_load_si128(to_right)));
    const auto lefts_here = static_cast<u32>(_mm_popcnt_u32(mask));
    left += lefts_here;
    right += 8 - lefts_here;
    done += 8;
    low = _mm256_add_epi64(low, eight);
    high = _mm256_add_epi64(high, eight);
  }
  split_rest({phase.at + done * s, s}, in, done, count, out, left, right);
}

#else

inline void split_free(Phase phase, const u16* in, u32 count, u16* out, u32 lefts) {
  split_rest(phase, in, 0, count, out, 0, lefts);
}

#endif

// While the clamp of a node binds, every arrival is asked.
void split_clamped(const Node& node, u64 clock, const u16* in, u32 count, u16* out, u32 right) {
  u32 left = 0;
  u64 before = node.left_of(clock);
  for (u32 t = 0; t < count; ++t) {
    const u64 after = node.left_of(clock + t + 1);
    out[after > before ? left++ : right++] = in[t];
    before = after;
  }
}

// in[t] stands for the node's arrival clock + t: out[0, lefts) gets those that go left, out[lefts, count) the others.
void split(const Node& node, u64 clock, const u16* in, u32 count, u16* out, u32 lefts) {
  const i128 raised = node.raised(clock);
  if (static_cast<u64>(static_cast<u128>(raised) >> 64) > clock)
    split_clamped(node, clock, in, count, out, lefts);
  else
    split_free({static_cast<u64>(raised), node.fraction}, in, count, out, lefts);
}

void deal(const Node* nodes, Ref root, u64 clock, u32 count, Block& block) {
  block.shares.clear();
  block.open.clear();
  u16* const slots = block.arrivals[0].data();
  for (u32 t = 0; t < count; ++t) slots[t] = static_cast<u16>(t);
  u16* const share_of_slot = block.share_of_slot.data();

  Block::Visit at{root, 0, count, 0, clock};
  while (true) {
    const u16* const in = block.arrivals[at.side].data() + at.begin;
    if (at.ref.is_leaf()) {
      const auto share = static_cast<u16>(block.shares.size());
      block.shares.push_back({at.ref.source(), at.begin, at.count, at.clock});
      for (u32 t = 0; t < at.count; ++t) share_of_slot[in[t]] = share;
      if (block.open.empty()) return;
      at = block.open.back();
      block.open.pop_back();
      continue;
    }
    const Node& node = nodes[at.ref.index()];
    const u64 left_before = node.left_of(at.clock);
    const auto lefts = static_cast<u32>(node.left_of(at.clock + at.count) - left_before);
    const u64 left_clock = node.base[0] + left_before;
    const u64 right_clock = node.base[1] + (at.clock - left_before);
    if (lefts == 0) {
      at = {node.child[1], at.begin, at.count, at.side, right_clock};
      continue;
    }
    if (lefts == at.count) {
      at = {node.child[0], at.begin, at.count, at.side, left_clock};
      continue;
    }
    u16* const out = block.arrivals[at.side ^ 1].data() + at.begin;
    split(node, at.clock, in, at.count, out, lefts);
    block.open.push_back({node.child[1], at.begin + lefts, at.count - lefts, at.side ^ 1, right_clock});
    at = {node.child[0], at.begin, lefts, at.side ^ 1, left_clock};
  }
}

}  // namespace
}  // namespace cuvee::CUVEE_ISA
