#include "core/minhash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/hash.hpp"

namespace cuvee {
namespace {

TextView view(const std::string& text) { return {text.data(), text.size(), Encoding::kUtf8}; }

std::string normal(const std::string& text, ShingleRule rule = {}) {
  Shingler shingler(rule);
  shingler.hashes(view(text));
  return std::string(shingler.normal());
}

std::vector<u64> hashes(const std::string& text, ShingleRule rule = {}) {
  Shingler shingler(rule);
  const auto found = shingler.hashes(view(text));
  return {found.begin(), found.end()};
}

// n hashes that differ from those of other firsts
std::vector<u64> some_hashes(u64 first, u64 n) {
  std::vector<u64> out;
  for (u64 i = first; i < first + n; ++i) out.push_back(mix64(i * kGolden));
  return out;
}

TEST(Shingles, NormalTextIsLowerCaseWithSingleSpaces) {
  EXPECT_EQ(normal("  The\tcat \n\r sat\x1c\x1f "), "the cat sat");
  EXPECT_EQ(normal("ÄRGER über ΣΑΣ İ\xe2\x80\x83x"), "ärger über σασ i x");
  EXPECT_EQ(normal("A B", {.lowercase = false}), "A B");
  EXPECT_EQ(normal(" \n\t"), "");
  EXPECT_EQ(normal(std::string("a\0b", 3)), std::string("a\0b", 3));
  EXPECT_EQ(normal("\xff\xc3x\xf0\x9f\x98\x80"), "\xef\xbf\xbd\xef\xbf\xbdx\xf0\x9f\x98\x80");
}

TEST(Shingles, LongTextsAreSplitAsShortOnesAre) {
  for (const std::size_t words : {1, 63, 64, 65, 200, 4097}) {
    std::string text, spaced;
    for (std::size_t i = 0; i < words; ++i) {
      text += (i == 0 ? "" : " ") + std::string(i % 9 + 1, 'a' + static_cast<char>(i % 26));
      spaced += "\n " + std::string(i % 9 + 1, 'A' + static_cast<char>(i % 26)) + "  ";
    }
    EXPECT_EQ(hashes(text, {.size = 2}).size(), std::max<std::size_t>(words - 1, 1));
    EXPECT_EQ(hashes(text), hashes(spaced)) << words;
  }
}

TEST(Shingles, WordsOfOneLetterAreAllFound) {
  for (const std::size_t words : {31, 32, 33, 64, 500}) {
    std::string text;
    std::vector<u64> each;
    for (std::size_t i = 0; i < words; ++i) {
      const std::string word(1, static_cast<char>('a' + i % 26));
      text += word + " ";
      each.push_back(hashes(word)[0]);
    }
    EXPECT_EQ(hashes(text, {.size = 1}), each);
  }
}

TEST(Shingles, EncodingsOfOneTextAgree) {
  const std::u16string wide = u"Größe  ΔX \xd800 y";
  std::vector<u32> wider(wide.begin(), wide.end());
  Shingler one({.size = 1}), other({.size = 1});
  const auto first = one.hashes({wide.data(), wide.size(), Encoding::kUcs2});
  const auto second = other.hashes({wider.data(), wider.size(), Encoding::kUcs4});
  EXPECT_TRUE(std::ranges::equal(first, second));
  EXPECT_EQ(first.size(), 4U);
  const std::string latin =
      "Gr\xf6\xdf"
      "e";
  EXPECT_EQ(one.hashes({latin.data(), latin.size(), Encoding::kLatin1})[0], hashes("größe", {.size = 1})[0]);
}

TEST(Shingles, AShortTextIsOneShingleAndAnEmptyOneNone) {
  EXPECT_EQ(hashes("a b c").size(), 1U);
  EXPECT_EQ(hashes("a b c d e").size(), 1U);
  EXPECT_EQ(hashes("a b c d e f").size(), 2U);
  EXPECT_TRUE(hashes("").empty());
  EXPECT_EQ(hashes("ab", {.size = 3, .characters = true}).size(), 1U);
  EXPECT_EQ(hashes("ä€x", {.size = 2, .characters = true}).size(), 2U);
  EXPECT_THROW(Shingler({.size = 0}), std::invalid_argument);
}

TEST(SortDistinct, SortsAnyNumberOfAnyHashes) {
  for (const u64 n : {0, 1, 2, 31, 33, 100, 5000, 40000}) {
    for (const u64 kinds : {u64{1}, u64{7}, 2 * n + 1}) {
      std::vector<u64> values;
      for (u64 i = 0; i < n; ++i) values.push_back(mix64((i * i + 3) % kinds));
      const std::set<u64> expected(values.begin(), values.end());
      std::vector<u64> sorted(n);
      sorted.resize(sort_distinct(values, sorted));
      EXPECT_TRUE(std::ranges::equal(sorted, expected)) << n << ' ' << kinds;
    }
  }
}

TEST(SortSpread, LeavesOutTheBitsThatAllShare) {
  for (const int common : {0, 5, 21}) {
    std::vector<u64> values = some_hashes(1, 3000), sorted(3000);
    for (u64& value : values) value = common == 0 ? value : value >> common | u64{1} << 63;
    sort_spread(values, sorted, common);
    std::ranges::sort(values);
    EXPECT_EQ(sorted, values) << common;
  }
}

TEST(MinHash, EstimatesJaccardWithoutBias) {
  // two sets of 40 with 20 in common: J = 1/3; few enough that most of 64 bins are empty
  constexpr u32 kSize = 64;
  double sum = 0, squares = 0;
  constexpr int kTrials = 2000;
  std::vector<u32> one(kSize), other(kSize);
  for (int trial = 0; trial < kTrials; ++trial) {
    const MinHash minhash(kSize, static_cast<u64>(trial));
    minhash.sign(some_hashes(0, 40), one);
    minhash.sign(some_hashes(20, 40), other);
    double equal = 0;
    for (u32 k = 0; k < kSize; ++k) equal += one[k] == other[k];
    sum += equal / kSize;
    squares += equal / kSize * equal / kSize;
  }
  const double mean = sum / kTrials, variance = squares / kTrials - mean * mean;
  const double independent = 1.0 / 3 * 2 / 3 / kSize;
  EXPECT_NEAR(mean, 1.0 / 3, 5 * std::sqrt(independent / kTrials));
  EXPECT_LT(variance, 1.5 * independent);
}

TEST(MinHash, DependsOnTheSetAlone) {
  const MinHash minhash(16, 1), other_seed(16, 2);
  auto set = some_hashes(0, 100);
  std::vector<u32> one(16), other(16);
  minhash.sign(set, one);
  std::ranges::reverse(set);
  set.push_back(set[3]);
  minhash.sign(set, other);
  EXPECT_EQ(one, other);
  other_seed.sign(set, other);
  EXPECT_NE(one, other);
  EXPECT_THROW(minhash.sign(set, std::span(other).first(15)), std::invalid_argument);
}

TEST(Sketch, IsTheSameForAnyNumberOfThreads) {
  std::vector<std::string> texts;
  for (int i = 0; i < 100; ++i) texts.push_back("text number " + std::to_string(i / 2) + " of a few");
  std::vector<TextView> views;
  for (const auto& text : texts) views.push_back(view(text));
  const auto sketched = [&](u32 threads) {
    std::vector<u32> keys(100 * 4);
    std::vector<u64> digests(200);
    std::vector<i64> counts(100), first(100);
    sketch(views, {.size = 2}, {4, 2}, 0, threads, {keys, digests, counts});
    first_copies(digests, first);
    return std::tuple(keys, digests, counts, first);
  };
  EXPECT_EQ(sketched(1), sketched(3));
  const auto first = std::get<3>(sketched(1));
  for (u64 i = 0; i < 100; ++i) EXPECT_EQ(first[i], static_cast<i64>(i / 2 * 2));
}

TEST(ShingleSetsOfTexts, AreSortedAndKeepToTheirRoom) {
  const std::string text = "a b a b a b c";
  std::vector<u64> out(8, 1);
  std::vector<i64> sizes(1);
  shingle_sets(std::vector{view(text)}, {.size = 2}, 1, std::vector<i64>{1, 7}, out, sizes);
  EXPECT_EQ(sizes[0], 3);
  EXPECT_TRUE(std::is_sorted(out.begin() + 1, out.begin() + 4));
  EXPECT_EQ(out[0], 1U);
  EXPECT_EQ(out[7], 1U);
  EXPECT_THROW(shingle_sets(std::vector{view(text)}, {.size = 2}, 1, std::vector<i64>{0, 5}, out, sizes),
               std::out_of_range);
  EXPECT_THROW(shingle_sets(std::vector{view(text)}, {.size = 2}, 1, std::vector<i64>{0, 9}, out, sizes),
               std::out_of_range);
}

// Documents of `groups` different contents; the first of each band's keys is the group, the others are all different.
struct Documents {
  Documents(u32 n, u32 groups, u32 count) : bands(count), order(n), members(n) {
    for (u32 band = 0; band < bands; ++band)
      for (u32 i = 0; i < n; ++i) keys.push_back(band == 0 ? i % groups : band * n + i);
    for (u32 i = 0; i < n; ++i) order[i] = mix64(i), members[i] = i;
  }
  BandTable table() const { return {keys, order, bands}; }
  u32 bands;
  std::vector<u32> keys;
  std::vector<u64> order;
  std::vector<u32> members;
};

TEST(CandidatePairs, AreAllThatAgreeInABand) {
  const Documents documents(5000, 1250, 3);
  const auto found = candidate_pairs(documents.table(), documents.members, 16, 2);
  EXPECT_TRUE(found.complete);
  EXPECT_EQ(found.pairs.size(), 1250U * 6);
  EXPECT_TRUE(std::ranges::is_sorted(found.pairs));
  for (const auto& [a, b] : found.pairs) {
    EXPECT_LT(a, b);
    EXPECT_EQ(a % 1250, b % 1250);
  }
  const std::vector<u32> few{0, 1250, 7};
  EXPECT_EQ(candidate_pairs(documents.table(), few, 16, 1).pairs, (std::vector<Pair>{{0, 1250}}));
}

TEST(CandidatePairs, AreThoseOfEveryPairCompared) {
  // several parts; in the last band all keys are in one of them
  constexpr u32 kDocuments = 9000, kBands = 3;
  Documents documents(kDocuments, 1, kBands);
  for (u64 i = 0; i < documents.keys.size(); ++i) {
    const u32 drawn = static_cast<u32>(mix64(i) % (kDocuments * 4));
    documents.keys[i] = i < 2 * kDocuments ? drawn * 0x9e3779b1 : drawn;
  }
  std::set<Pair> expected;
  std::vector<u32> members;
  for (u32 i = 0; i < kDocuments; ++i)
    if (i % 7 != 3) members.push_back(i);
  for (u32 band = 0; band < kBands; ++band) {
    std::map<u32, std::vector<u32>> buckets;
    for (const u32 document : members) buckets[documents.keys[band * kDocuments + document]].push_back(document);
    for (const auto& [key, bucket] : buckets)
      for (std::size_t j = 1; j < bucket.size(); ++j)
        for (std::size_t i = 0; i < j; ++i) expected.emplace(bucket[i], bucket[j]);
  }
  for (const u32 threads : {1U, 2U, 5U}) {
    const auto found = candidate_pairs(documents.table(), members, 16, threads);
    EXPECT_TRUE(found.complete);
    EXPECT_TRUE(std::ranges::equal(found.pairs, expected));
  }
  EXPECT_GT(expected.size(), 2000U);
}

TEST(CandidatePairs, GrowWithTheDocumentsInALargeBucket) {
  const Documents documents(3000, 1, 3);
  const auto found = candidate_pairs(documents.table(), documents.members, 16, 1);
  EXPECT_FALSE(found.complete);
  EXPECT_EQ(found.pairs.size(), 3000U * kNeighbours - 3);
  std::vector<i64> pairs, root(3000);
  for (const auto& [a, b] : found.pairs) pairs.insert(pairs.end(), {a, b});
  connected(pairs, root);
  EXPECT_EQ(std::ranges::count(root, 0), 3000);
}

TEST(CandidatePairs, KeepThoseOfALargeBucketThatAgreeTwice) {
  Documents documents(3000, 1, 3);
  documents.keys[3000 + 17] = documents.keys[3000 + 2900];
  const auto found = candidate_pairs(documents.table(), documents.members, 16, 1);
  EXPECT_TRUE(std::ranges::binary_search(found.pairs, Pair(17, 2900)));
}

TEST(CandidatePairs, RefuseWhatDoesNotFit) {
  const Documents documents(10, 2, 2);
  EXPECT_THROW(candidate_pairs(documents.table(), std::vector<u32>{10}, 16, 1), std::out_of_range);
  EXPECT_THROW(candidate_pairs(documents.table(), documents.members, 1, 1), std::invalid_argument);
  EXPECT_THROW(candidate_pairs({documents.keys, documents.order, 3}, documents.members, 16, 1), std::invalid_argument);
  EXPECT_THROW(band_pairs(documents.table(), 2, 16), std::out_of_range);
  EXPECT_EQ(band_pairs(documents.table(), 1, 16).pairs.size(), 0U);
  EXPECT_EQ(band_pairs(documents.table(), 0, 16).pairs.size(), 20U);
}

TEST(SharedHashes, CountsWhatBothSetsHave) {
  const std::vector<u64> all{1, 3, 5, 7, 3, 4, 5, 9};
  const std::vector<i64> starts{0, 4, 8}, sizes{4, 4, 0}, pairs{0, 1, 1, 2, 0, 0};
  std::vector<i64> shared(3);
  shared_hashes({all, starts, sizes}, pairs, 2, shared);
  EXPECT_EQ(shared, (std::vector<i64>{2, 0, 4}));
  EXPECT_THROW(shared_hashes({all, starts, sizes}, std::vector<i64>{0, 3, 0, 0, 0, 0}, 1, shared), std::out_of_range);
  EXPECT_THROW(shared_hashes({all, starts, std::vector<i64>{4, 5, 0}}, pairs, 1, shared), std::out_of_range);
}

TEST(Connected, FindsTheSmallestOfEachCluster) {
  std::vector<i64> root(7);
  connected(std::vector<i64>{5, 3, 6, 5, 1, 2}, root);
  EXPECT_EQ(root, (std::vector<i64>{0, 1, 1, 3, 4, 3, 3}));
  EXPECT_THROW(connected(std::vector<i64>{0, 7}, root), std::out_of_range);
}

}  // namespace
}  // namespace cuvee
