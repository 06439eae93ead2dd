#include "minhash.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "error.hpp"
#include "hash.hpp"
#include "parallel.hpp"
#include "vector_clones.hpp"

namespace cuvee {
namespace {

constexpr u32 kEmpty = std::numeric_limits<u32>::max();

/// The least of the low halves of hashes, permuted: an odd multiplier makes a bijection of 32 bits.
CUVEE_VECTOR_CLONES u32 least_permuted(const u64* hashes, u64 count, u32 flip, u32 multiplier) {
  u32 least = kEmpty;
  for (u64 i = 0; i < count; ++i) least = std::min(least, (static_cast<u32>(hashes[i]) ^ flip) * multiplier);
  return least;
}

u32 band_key(const u32* entries, u32 rows) { return static_cast<u32>(XXH3_64bits(entries, rows * sizeof(u32)) >> 32); }

/// Texts lie anywhere: asks for the beginning of the next one while this one is worked on.
void fetch_ahead(const TextView& text) {
  constexpr u64 kLine = 64, kAhead = 16;
  const auto* at = static_cast<const char*>(text.data);
  for (u64 line = 0; line < std::min(kAhead, text.length / kLine + 1); ++line) __builtin_prefetch(at + line * kLine);
}

}  // namespace

MinHash::MinHash(u32 size, u64 seed) : size_(size), key_(key64("minhash", seed, "", kNoEpoch)), multipliers_(size) {
  CUVEE_EXPECTS(size >= 1, std::invalid_argument, "size must be at least 1, but got ", size);
  for (u32 k = 0; k < size; ++k) multipliers_[k] = static_cast<u32>(mix64(key_ + (k + 1) * kGolden)) | 1;
}

void MinHash::sign(std::span<const u64> hashes, std::span<u32> out) const {
  CUVEE_EXPECTS(out.size() == size_, std::invalid_argument, "out must have ", size_, " entries, but got ", out.size());
  std::ranges::fill(out, hashes.empty() ? 0 : kEmpty);
  if (hashes.empty()) return;
  for (const u64 hash : hashes) {
    const u64 mixed = (hash ^ key_) * kGolden;
    u32& least = out[((mixed >> 32) * size_) >> 32];
    least = std::min(least, static_cast<u32>(mixed));
  }
  const auto flip = static_cast<u32>(key_ >> 32);
  for (u32 k = 0; k < size_; ++k)
    if (out[k] == kEmpty) out[k] = least_permuted(hashes.data(), hashes.size(), flip, multipliers_[k]);
}

void sketch(std::span<const TextView> texts, ShingleRule rule, Bands bands, u64 seed, u32 threads, Sketches out) {
  const u64 n = texts.size();
  CUVEE_EXPECTS(bands.count >= 1 && bands.rows >= 1, std::invalid_argument,
                "bands and rows must be at least 1, but got ", bands.count, " and ", bands.rows);
  CUVEE_EXPECTS(out.keys.size() == n * bands.count && out.digests.size() == 2 * n && out.counts.size() == n,
                std::invalid_argument, "keys, digests and counts must have ", n * bands.count, ", ", 2 * n, " and ", n,
                " entries, but got ", out.keys.size(), ", ", out.digests.size(), " and ", out.counts.size());
  const MinHash minhash(bands.count * bands.rows, seed);
  split_over_threads(n, threads, [&](u32, u64 first, u64 last) {
    Shingler shingler(rule);
    std::vector<u32> signature(minhash.size());
    for (u64 i = first; i < last; ++i) {
      if (i + 1 < last) fetch_ahead(texts[i + 1]);
      const auto hashes = shingler.hashes(texts[i]);
      minhash.sign(hashes, signature);
      for (u32 band = 0; band < bands.count; ++band)
        out.keys[band * n + i] = band_key(&signature[u64{band} * bands.rows], bands.rows);
      const XXH128_hash_t digest = XXH3_128bits(shingler.normal().data(), shingler.normal().size());
      out.digests[2 * i] = digest.low64;
      out.digests[2 * i + 1] = digest.high64;
      out.counts[i] = static_cast<i64>(hashes.size());
    }
  });
}

void shingle_sets(std::span<const TextView> texts, ShingleRule rule, u32 threads, std::span<const i64> starts,
                  std::span<u64> hashes, std::span<i64> sizes) {
  CUVEE_EXPECTS(sizes.size() == texts.size(), std::invalid_argument, "sizes must be of ", texts.size(),
                " texts, but got ", sizes.size());
  CUVEE_EXPECTS(starts.size() == texts.size() + 1, std::invalid_argument, "starts must have one entry more than the ",
                texts.size(), " texts, but got ", starts.size());
  const auto fall = std::ranges::is_sorted_until(starts);
  CUVEE_EXPECTS(fall == starts.end(), std::out_of_range, "starts must rise, but got ", *(fall - 1), " before ", *fall);
  CUVEE_EXPECTS(starts.front() >= 0 && std::cmp_less_equal(starts.back(), hashes.size()), std::out_of_range,
                "starts must be in 0..", hashes.size(), ", but got ", starts.front(), " to ", starts.back());
  split_over_threads(texts.size(), threads, [&](u32, u64 first, u64 last) {
    Shingler shingler(rule);
    for (u64 i = first; i < last; ++i) {
      if (i + 1 < last) fetch_ahead(texts[i + 1]);
      const auto found = shingler.hashes(texts[i]);
      const auto start = static_cast<u64>(starts[i]);
      CUVEE_EXPECTS(found.size() <= static_cast<u64>(starts[i + 1]) - start, std::out_of_range, "text ", i,
                    " must have at most ", starts[i + 1] - starts[i], " shingles, but got ", found.size());
      sizes[i] = static_cast<i64>(sort_distinct(found, hashes.subspan(start, found.size())));
    }
  });
}

void first_copies(std::span<const u64> digests, std::span<i64> first) {
  const u64 n = first.size();
  CUVEE_EXPECTS(digests.size() == 2 * n && n < std::numeric_limits<u32>::max(), std::invalid_argument,
                "digests must be two numbers for each of fewer than 2**32 - 1 documents, but got ", digests.size(),
                " for ", n);
  const u64 mask = std::bit_ceil(2 * n + 1) - 1;
  std::vector<u32> slots(mask + 1, kEmpty);
  constexpr u64 kAhead = 16;  // documents whose slots are asked for before they are needed
  for (u64 i = 0; i < n; ++i) {
    if (i + kAhead < n) __builtin_prefetch(&slots[digests[2 * (i + kAhead)] & mask]);
    u64 at = digests[2 * i] & mask;
    while (slots[at] != kEmpty &&
           (digests[2 * u64{slots[at]}] != digests[2 * i] || digests[2 * u64{slots[at]} + 1] != digests[2 * i + 1]))
      at = (at + 1) & mask;
    if (slots[at] == kEmpty) slots[at] = static_cast<u32>(i);
    first[i] = slots[at];
  }
}

namespace {

i64 count_shared(std::span<const u64> a, std::span<const u64> b) {
  i64 shared = 0;
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    const u64 x = a[i], y = b[j];
    shared += x == y;
    i += x <= y;
    j += y <= x;
  }
  return shared;
}

}  // namespace

void shared_hashes(const SetsView& sets, std::span<const i64> pairs, u32 threads, std::span<i64> shared) {
  CUVEE_EXPECTS(pairs.size() == 2 * shared.size(), std::invalid_argument, "pairs must be two sets for each of ",
                shared.size(), ", but got ", pairs.size());
  CUVEE_EXPECTS(sets.starts.size() == sets.sizes.size(), std::invalid_argument, "sizes must be of ", sets.starts.size(),
                " sets, but got ", sets.sizes.size());
  const auto set = [&](i64 which) {
    CUVEE_EXPECTS(which >= 0 && std::cmp_less(which, sets.starts.size()), std::out_of_range, "a set must be in 0..",
                  static_cast<i64>(sets.starts.size()) - 1, ", but got ", which);
    const i64 start = sets.starts[static_cast<u64>(which)], size = sets.sizes[static_cast<u64>(which)];
    CUVEE_EXPECTS(start >= 0 && size >= 0 && std::cmp_less_equal(start, sets.hashes.size()) &&
                      std::cmp_less_equal(size, sets.hashes.size() - static_cast<u64>(start)),
                  std::out_of_range, "sets must lie in ", sets.hashes.size(), " hashes, but got ", start, " + ", size);
    return sets.hashes.subspan(static_cast<u64>(start), static_cast<u64>(size));
  };
  split_over_threads(shared.size(), threads, [&](u32, u64 first, u64 last) {
    for (u64 p = first; p < last; ++p) shared[p] = count_shared(set(pairs[2 * p]), set(pairs[2 * p + 1]));
  });
}

void connected(std::span<const i64> pairs, std::span<i64> root) {
  std::iota(root.begin(), root.end(), i64{0});
  const auto find = [&](i64 at) {
    CUVEE_EXPECTS(at >= 0 && std::cmp_less(at, root.size()), std::out_of_range, "a document must be in 0..",
                  static_cast<i64>(root.size()) - 1, ", but got ", at);
    auto i = static_cast<u64>(at);
    while (!std::cmp_equal(root[i], i)) {
      root[i] = root[static_cast<u64>(root[i])];  // halves the path for whoever comes next
      i = static_cast<u64>(root[i]);
    }
    return i;
  };
  for (u64 p = 0; p + 1 < pairs.size(); p += 2) {
    const u64 a = find(pairs[p]), b = find(pairs[p + 1]);
    root[std::max(a, b)] = static_cast<i64>(std::min(a, b));
  }
  for (u64 i = 0; i < root.size(); ++i) root[i] = static_cast<i64>(find(static_cast<i64>(i)));
}

}  // namespace cuvee
