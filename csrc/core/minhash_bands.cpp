#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>

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

/// Sorts by key; documents of one key stay in the order in which they came.
void sort_entries(std::vector<Entry>& entries, std::vector<Entry>& scratch) {
  constexpr int kDigit = 11;
  constexpr u64 kFewest = 2048;
  if (entries.size() < kFewest) {
    std::ranges::sort(entries);
    return;
  }
  scratch.resize(entries.size());
  for (int shift = 32; shift < 64; shift += kDigit) {
    std::array<u64, (u64{1} << kDigit) + 1> starts{};
    const auto digit = [&](Entry entry) { return (entry >> shift) & ((u64{1} << kDigit) - 1); };
    for (const Entry entry : entries) ++starts[digit(entry) + 1];
    for (u64 d = 1; d < starts.size(); ++d) starts[d] += starts[d - 1];
    for (const Entry entry : entries) scratch[starts[digit(entry)]++] = entry;
    entries.swap(scratch);
  }
}

/// Collects pairs; repeats, of which similar documents give one in each band, are dropped before they pile up.
class PairList {
 public:
  void add(u32 a, u32 b) {
    if (a == b) return;
    if (pairs_.size() == pairs_.capacity() && pairs_.size() > 2 * distinct_) compact();
    pairs_.emplace_back(std::min(a, b), std::max(a, b));
  }
  void compact() {
    std::ranges::sort(pairs_);
    const auto repeats = std::ranges::unique(pairs_);
    pairs_.erase(repeats.begin(), repeats.end());
    distinct_ = pairs_.size();
  }
  void add(const PairList& other) { pairs_.insert(pairs_.end(), other.pairs_.begin(), other.pairs_.end()); }
  std::vector<Pair> take() {
    compact();
    return std::move(pairs_);
  }

 private:
  std::vector<Pair> pairs_;
  u64 distinct_ = 0;
};

/// Pairs of the buckets of some bands.
class Bucketing {
 public:
  Bucketing(const BandTable& table, u32 limit) : table_(table), n_(table.order.size()), limit_(limit) {}

  void band(u32 band, std::span<const u32> members) {
    std::vector<Entry> entries;
    fill(entries, band, members);
    each_bucket(entries, [&](std::span<const u32> bucket) { bucket_of(band, bucket); });
  }

  PairList pairs;
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
    std::vector<Entry> entries;
    for (u32 second = 0; second < table_.bands; ++second) {
      if (second == band) continue;
      fill(entries, second, bucket);
      each_bucket(entries, [&](std::span<const u32> part) {
        if (part.size() <= std::max(limit_ / kSmaller, kNeighbours)) all_pairs(part);
      });
    }
  }

  void fill(std::vector<Entry>& entries, u32 band, std::span<const u32> members) {
    entries.clear();
    entries.reserve(members.size());
    for (const u32 document : members) entries.push_back(entry_of(table_.keys[band * n_ + document], document));
    sort_entries(entries, scratch_);
  }

  template <class Visit>
  static void each_bucket(const std::vector<Entry>& entries, const Visit& visit) {
    std::vector<u32> bucket;
    for (u64 first = 0, last = 0; first < entries.size(); first = last) {
      while (last < entries.size() && key_of(entries[last]) == key_of(entries[first])) ++last;
      if (last - first < 2) continue;
      bucket.clear();
      for (u64 i = first; i < last; ++i) bucket.push_back(document_of(entries[i]));
      visit(std::span<const u32>(bucket));
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
  u64 n_;
  u32 limit_;
  std::vector<Entry> scratch_;
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
    parts[part].pairs.compact();
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
