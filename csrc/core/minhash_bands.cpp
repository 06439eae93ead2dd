#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "error.hpp"
#include "hash.hpp"
#include "minhash.hpp"
#include "parallel.hpp"

namespace cuvee {
namespace {

/// A band's key and a document: sorted, documents of one bucket stand side by side.
using Entry = u64;
constexpr Entry entry_of(u32 key, u32 document) { return u64{key} << 32 | document; }
constexpr u32 key_of(Entry entry) { return static_cast<u32>(entry >> 32); }
constexpr u32 document_of(Entry entry) { return static_cast<u32>(entry); }

/// A set of pairs, of which similar documents give one in each band: with open addressing, at most 3/4 full.
class PairSet {
 public:
  void add(u32 a, u32 b) {
    if (a != b) insert(entry_of(std::min(a, b), std::max(a, b)));
  }

  void add(const PairSet& other) {
    for (const u64 pair : other.slots_)
      if (pair != kFree) insert(pair);
  }

  /// Returns them sorted and leaves none.
  std::vector<Pair> take() {
    std::vector<u64> found;
    found.reserve(size_);
    std::ranges::copy_if(slots_, std::back_inserter(found), [](u64 pair) { return pair != kFree; });
    *this = {};
    std::ranges::sort(found);
    std::vector<Pair> pairs;
    pairs.reserve(found.size());
    for (const u64 pair : found) pairs.emplace_back(static_cast<u32>(pair >> 32), static_cast<u32>(pair));
    return pairs;
  }

 private:
  static constexpr u64 kFree = 0;  // no pair: of two different documents the larger is not 0

  void insert(u64 pair) {
    if (4 * (size_ + 1) > 3 * slots_.size()) grow();
    u64& slot = slots_[slot_of(pair)];
    size_ += slot == kFree;
    slot = pair;
  }

  u64 slot_of(u64 pair) const {
    u64 at = mix64(pair) & (slots_.size() - 1);
    while (slots_[at] != kFree && slots_[at] != pair) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  void grow() {
    const std::vector<u64> before =
        std::exchange(slots_, std::vector<u64>(std::max<u64>(64, 2 * slots_.size()), kFree));
    for (const u64 pair : before)
      if (pair != kFree) slots_[slot_of(pair)] = pair;
  }

  std::vector<u64> slots_;
  u64 size_ = 0;
};

/// Finds documents of one key. Entries are thrown into parts that a core's own cache holds, by the leading bits of
/// their keys; in a part only those are sorted whose slot of a small table is hit twice. Keeps its memory.
class Grouping {
 public:
  /// Calls visit(documents) for each key that two or more of `members` have in a band, which stand in their order.
  template <class Visit>
  void each_bucket(const BandTable& table, u32 band, std::span<const u32> members, const Visit& visit) {
    scatter(table.keys.subspan(band * table.order.size(), table.order.size()), members);
    u64 first = 0;
    for (u64 part = 0; part < u64{1} << part_bits_; ++part) {
      keep_repeated({&entries_[first], ends_[part] - first});
      first = ends_[part];
      visit_buckets(visit);
    }
  }

 private:
  static constexpr u64 kPart = 2048;    // entries of a part, about
  static constexpr u64 kSlots = 8;      // of the table, for each of them
  static constexpr int kMostBits = 11;  // of the number of parts: more are too many places to write to by turns

  void scatter(std::span<const u32> keys, std::span<const u32> members) {
    part_bits_ = std::min(kMostBits, static_cast<int>(std::bit_width(members.size() / kPart)));
    const int shift = 32 - part_bits_;
    const auto part_of = [=](u32 key) { return u64{key} >> shift; };
    ends_.assign((u64{1} << part_bits_) + 1, 0);
    for (const u32 document : members) ++ends_[part_of(keys[document]) + 1];
    std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
    entries_.resize(std::max(entries_.size(), members.size() + 1));
    for (const u32 document : members) entries_[ends_[part_of(keys[document])]++] = entry_of(keys[document], document);
  }

  void keep_repeated(std::span<const Entry> part) {
    const u64 slots = std::bit_ceil(std::clamp<u64>(kSlots * part.size(), 64, kSlots * kPart));
    const auto slot_of = [&](Entry entry) { return (entry >> 32) & (slots - 1); };
    hits_.assign(slots, 0);
    for (const Entry entry : part) hits_[slot_of(entry)] = static_cast<u8>(hits_[slot_of(entry)] << 1 | 1);
    repeated_.resize(std::max(repeated_.size(), part.size()));
    u64 kept = 0;
    for (const Entry entry : part) {
      repeated_[kept] = entry;
      kept += hits_[slot_of(entry)] > 1;
    }
    sorted_.resize(kept);
    sort_spread({repeated_.data(), kept}, sorted_, part_bits_);
  }

  template <class Visit>
  void visit_buckets(const Visit& visit) {
    for (u64 first = 0, last = 0; first < sorted_.size(); first = last) {
      while (last < sorted_.size() && key_of(sorted_[last]) == key_of(sorted_[first])) ++last;
      if (last - first < 2) continue;
      bucket_.clear();
      for (u64 i = first; i < last; ++i) bucket_.push_back(document_of(sorted_[i]));
      visit(std::span<const u32>(bucket_));
    }
  }

  int part_bits_ = 0;
  std::vector<u64> ends_;  // of each part
  std::vector<Entry> entries_, repeated_, sorted_;
  std::vector<u8> hits_;
  std::vector<u32> bucket_;
};

/// Pairs of the buckets of some bands.
class Bucketing {
 public:
  Bucketing(const BandTable& table, u32 limit) : table_(table), limit_(limit) {}

  void band(u32 band, std::span<const u32> members) {
    grouping_.each_bucket(table_, band, members, [&](std::span<const u32> bucket) { bucket_of(band, bucket); });
  }

  PairSet pairs;
  bool complete = true;

 private:
  static constexpr u32 kSmaller = 8;  // a bucket of two bands is one of many that its documents are in

  void bucket_of(u32 band, std::span<const u32> bucket) {
    if (bucket.size() <= limit_) {
      all_pairs(bucket);
      return;
    }
    complete = false;
    neighbours(band, bucket);
    for (u32 second = 0; second < table_.bands; ++second) {
      if (second == band) continue;
      second_grouping_.each_bucket(table_, second, bucket, [&](std::span<const u32> part) {
        if (part.size() <= std::max(limit_ / kSmaller, kNeighbours)) all_pairs(part);
      });
    }
  }

  void all_pairs(std::span<const u32> bucket) {
    for (u64 i = 0; i < bucket.size(); ++i)
      for (u64 j = i + 1; j < bucket.size(); ++j) pairs.add(bucket[i], bucket[j]);
  }

  void neighbours(u32 band, std::span<const u32> bucket) {
    std::vector<std::pair<u64, u32>> line;
    line.reserve(bucket.size());
    for (const u32 document : bucket)
      line.emplace_back(mix64(table_.order[document] + (u64{band} + 1) * kGolden), document);
    std::ranges::sort(line);
    for (u64 i = 0; i < line.size(); ++i)
      for (u64 j = i + 1; j <= i + kNeighbours && j < line.size(); ++j) pairs.add(line[i].second, line[j].second);
  }

  const BandTable& table_;
  u32 limit_;
  Grouping grouping_, second_grouping_;
};

void check(const BandTable& table, std::span<const u32> members, u32 limit) {
  const u64 n = table.order.size();
  CUVEE_EXPECTS(table.keys.size() == n * table.bands, std::invalid_argument, "keys must be ", table.bands,
                " bands for each of ", n, " documents, but got ", table.keys.size());
  CUVEE_EXPECTS(limit >= 2, std::invalid_argument, "limit must be at least 2, but got ", limit);
  for (const u32 document : members)
    CUVEE_EXPECTS(document < n, std::out_of_range, "a document must be below ", n, ", but got ", document);
}

}  // namespace

Candidates candidate_pairs(const BandTable& table, std::span<const u32> members, u32 limit, u32 threads) {
  check(table, members, limit);
  std::vector<Bucketing> parts(std::clamp<u32>(threads, 1, std::max(table.bands, 1U)), Bucketing(table, limit));
  split_over_threads(table.bands, static_cast<u32>(parts.size()), [&](u32 part, u64 first, u64 last) {
    for (u64 band = first; band < last; ++band) parts[part].band(static_cast<u32>(band), members);
  });
  for (std::size_t part = 1; part < parts.size(); ++part) {
    parts[0].pairs.add(parts[part].pairs);
    parts[0].complete &= parts[part].complete;
  }
  return {parts[0].pairs.take(), parts[0].complete};
}

Candidates band_pairs(const BandTable& table, u32 band, u32 limit) {
  CUVEE_EXPECTS(band < table.bands, std::out_of_range, "band must be below ", table.bands, ", but got ", band);
  std::vector<u32> members(table.order.size());
  std::iota(members.begin(), members.end(), 0U);
  check(table, members, limit);
  Bucketing bucketing(table, limit);
  bucketing.band(band, members);
  return {bucketing.pairs.take(), bucketing.complete};
}

}  // namespace cuvee
