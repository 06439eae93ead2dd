#pragma once

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "shingles.hpp"
#include "types.hpp"

namespace cuvee {

/// MinHash signatures: entry k of two sets is equal with a probability of their Jaccard similarity, to 2^-32.
///
/// One permutation serves all entries (Li, Owen and Zhang: One permutation hashing, NIPS 2012): it throws each shingle
/// into one of `size` bins, whose minimum is the entry. A bin that stays empty takes the minimum of a permutation of
/// its own over all shingles, as in the second half of Dahlgaard, Knudsen and Thorup: Fast similarity sketching, FOCS
/// 2017. So every entry is the minimum of one order of the whole universe: those of the bin first, then all others.
class MinHash {
 public:
  /// size >= 1 entries; other seeds give independent signatures.
  MinHash(u32 size, u64 seed);

  u32 size() const noexcept { return size_; }

  /// Writes the signature of a set given as hashes with or without repeats to `out` of `size` entries; zeros for none.
  void sign(std::span<const u64> hashes, std::span<u32> out) const;

 private:
  u32 size_;
  u64 key_;
  std::vector<u32> multipliers_;  // of the permutation of each bin
};

/// Bands of a signature: `count` of them with `rows` entries each. Two documents are compared if a band is equal.
struct Bands {
  u32 count;
  u32 rows;
};

/// What the sketches of n documents are written to.
struct Sketches {
  std::span<u32> keys;     ///< band-major: keys[band * n + document]
  std::span<u64> digests;  ///< XXH3-128 of the normal text, low half first: digests[2 * document]
  std::span<i64> counts;   ///< shingles, with repeats
};

/// Sketches each text: its bands' keys, its digest and its number of shingles.
void sketch(std::span<const TextView> texts, ShingleRule rule, Bands bands, u64 seed, u32 threads, Sketches out);

/// Writes the sorted distinct shingle hashes of text i to hashes[starts[i], ...) and their number to sizes[i]. There
/// must be room up to starts[i + 1] for its shingles with repeats.
void shingle_sets(std::span<const TextView> texts, ShingleRule rule, u32 threads, std::span<const i64> starts,
                  std::span<u64> hashes, std::span<i64> sizes);

/// first[i] is the first document whose digest is that of document i.
void first_copies(std::span<const u64> digests, std::span<i64> first);

using Pair = std::pair<u32, u32>;  ///< of documents, the smaller first

/// Bands' keys of documents among which pairs are looked for.
struct BandTable {
  std::span<const u32> keys;   ///< band-major, as in Sketches
  std::span<const u64> order;  ///< of each document a number that depends on its content alone
  u32 bands;
};

struct Candidates {
  std::vector<Pair> pairs;  ///< sorted, without repeats
  bool complete = true;     ///< false where a bucket was too large for all its pairs
};

/// The pairs of documents that agree in a band. Of a bucket of more than `limit` documents only those pairs that agree
/// in a second band too and, in the order of a number that depends on content and band, each document with the next
/// kNeighbours: a number of pairs that grows with the documents, not with their square.
Candidates candidate_pairs(const BandTable& table, std::span<const u32> members, u32 limit, u32 threads);
inline constexpr u32 kNeighbours = 2;

/// The same for one band alone, which all documents of the table take part in.
Candidates band_pairs(const BandTable& table, u32 band, u32 limit);

/// Sets of sorted hashes that lie anywhere in one array.
struct SetsView {
  std::span<const u64> hashes;
  std::span<const i64> starts;
  std::span<const i64> sizes;
};

/// shared[p] = number of hashes that both sets of pair p have; pairs[2 * p] and pairs[2 * p + 1] are two sets.
void shared_hashes(const SetsView& sets, std::span<const i64> pairs, u32 threads, std::span<i64> shared);

/// root[i] = the smallest document that is linked to i by a chain of pairs; i itself where there is none.
void connected(std::span<const i64> pairs, std::span<i64> root);

}  // namespace cuvee
