#include "core/containment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "core/hash.hpp"

namespace cuvee {
namespace {

using Documents = std::vector<std::string>;
using Sets = std::vector<Documents>;

std::vector<TextView> views(const Documents& texts) {
  std::vector<TextView> out;
  for (const auto& text : texts) out.push_back({text.data(), text.size(), Encoding::kUtf8});
  return out;
}

std::set<u64> shingles(const std::string& text, ShingleRule rule) {
  Shingler shingler(rule);
  const auto found = shingler.hashes({text.data(), text.size(), Encoding::kUtf8});
  return {found.begin(), found.end()};
}

u32 shared(const std::set<u64>& one, const std::set<u64>& other) {
  return static_cast<u32>(std::ranges::count_if(one, [&](u64 hash) { return other.contains(hash); }));
}

struct Found {
  std::vector<std::tuple<i64, u32, double>> contained;  // document, evaluation document, share
  std::vector<std::pair<u32, i64>> best;                // shared shingles, document
  std::vector<std::vector<bool>> in_source;
  bool operator==(const Found&) const = default;
};

Found find(const Sets& sources, const Sets& evaluation, ShingleRule rule, double share, u32 threads, u64 cut) {
  Containment containment(rule, share, threads);
  for (u32 set = 0; set < evaluation.size(); ++set) containment.add(views(evaluation[set]), set);
  Found found;
  i64 first = 0;
  for (const Documents& source : sources) {
    containment.begin_source();
    const auto all = views(source);
    for (u64 at = 0; at < all.size(); at += cut) {
      const auto part = std::span(all).subspan(at, std::min(cut, all.size() - at));
      for (const Contained& c : containment.scan(part, first))
        found.contained.emplace_back(c.document, c.evaluation, c.share);
      first += static_cast<i64>(part.size());
    }
    found.in_source.emplace_back();
    for (const BestShare& best : containment.best()) found.in_source.back().push_back(best.contained);
  }
  for (const BestShare& best : containment.best()) found.best.emplace_back(best.shared, best.document);
  return found;
}

/// The same by definition: every document beside every evaluation document.
Found by_definition(const Sets& sources, const Sets& evaluation, ShingleRule rule, double share) {
  Found found;
  std::vector<std::pair<u32, std::set<u64>>> all;  // set and shingles of evaluation documents
  for (u32 set = 0; set < evaluation.size(); ++set)
    for (const auto& text : evaluation[set]) all.emplace_back(set, shingles(text, rule));
  found.best.assign(all.size(), {0, -1});
  i64 number = 0;
  for (const Documents& source : sources) {
    found.in_source.emplace_back(all.size(), false);
    for (const auto& text : source) {
      const auto has = shingles(text, rule);
      std::set<u32> met;
      for (u32 i = 0; i < all.size(); ++i) {
        const auto& [set, wanted] = all[i];
        const u32 both = shared(wanted, has);
        if (both > found.best[i].first) found.best[i] = {both, number};
        const double part = static_cast<double>(both) / static_cast<double>(wanted.size());
        if (wanted.empty() || part < share) continue;
        found.in_source.back()[i] = true;
        if (met.insert(set).second) found.contained.emplace_back(number, i, part);
      }
      ++number;
    }
  }
  return found;
}

/// Texts of a few words out of a few, so that much is shared, with or without a long beginning that all have.
Documents some_texts(u64 seed, u64 n, u64 words, u64 kinds, const std::string& beginning = "") {
  Documents texts;
  for (u64 i = 0; i < n; ++i) {
    std::string text = beginning;
    for (u64 word = 0; word < mix64(seed + i * kGolden) % words; ++word)
      text += " w" + std::to_string(mix64(mix64(seed + i) + word * kGolden) % kinds);
    texts.push_back(text);
  }
  return texts;
}

TEST(Containment, FindsWhatTheDefinitionSays) {
  const std::string beginning = "all of these texts begin with the same words";
  for (const double share : {0.01, 0.3, 0.8, 1.0})
    for (const auto& start : {std::string(), beginning}) {
      const Sets sources{some_texts(1, 300, 30, 4, start), {}, some_texts(2, 500, 60, 3, start)};
      Sets evaluation{some_texts(3, 40, 12, 4, start), some_texts(4, 60, 20, 3, start)};
      evaluation[1].insert(evaluation[1].end(), evaluation[0].begin(), evaluation[0].end());
      const ShingleRule rule{.size = 3};
      const Found expected = by_definition(sources, evaluation, rule, share);
      for (const u32 threads : {1, 3})
        for (const u64 cut : {7, 10000})
          EXPECT_EQ(find(sources, evaluation, rule, share, threads, cut), expected) << share << ' ' << threads;
      EXPECT_FALSE(expected.contained.empty());
    }
}

TEST(Containment, OfEqualSharesTheFirstDocumentHasIt) {
  const Sets sources{{"x", "a b c d", "a b c d e"}, {"a b c d e f", "a b c d e f"}};
  const Found found = find(sources, {{"a b c d e f"}}, {.size = 2}, 1, 2, 1);
  EXPECT_EQ(found.best, (std::vector<std::pair<u32, i64>>{{5, 3}}));
  EXPECT_EQ(found.contained, (std::vector<std::tuple<i64, u32, double>>{{3, 0, 1.0}, {4, 0, 1.0}}));
  EXPECT_EQ(found.in_source, (std::vector<std::vector<bool>>{{false}, {true}}));
}

TEST(Containment, ALaterSourceIsToldOfThoughAnEarlierOneHasMore) {
  const Found found = find({{"a b c d e f"}, {"a b c d e", "a b c d e"}}, {{"a b c d e f"}}, {.size = 2}, 0.8, 1, 1);
  EXPECT_EQ(found.best, (std::vector<std::pair<u32, i64>>{{5, 0}}));
  EXPECT_EQ(found.contained, (std::vector<std::tuple<i64, u32, double>>{{0, 0, 1.0}, {1, 0, 0.8}, {2, 0, 0.8}}));
  EXPECT_EQ(found.in_source, (std::vector<std::vector<bool>>{{true}, {true}}));
}

TEST(Containment, TheLeastShareIsMetByWhatEqualsItAsADouble) {
  for (u32 size = 1; size <= 120; ++size) {
    std::string test;
    for (u32 i = 0; i < size; ++i) test += "w" + std::to_string(i) + " ";
    for (u32 had = 1; had <= size; ++had) {
      const double share = static_cast<double>(had) / size;
      const std::string document = test.substr(0, test.find(" w" + std::to_string(had)));
      const auto contained = [&](double least) {
        return find({{document}}, {{test}}, {.size = 1}, least, 1, 1).contained;
      };
      EXPECT_EQ(contained(share).size(), 1U) << had << " / " << size;
      EXPECT_EQ(contained(std::min(std::nextafter(share, 2.0), 1.0)).size(), had == size ? 1U : 0U)
          << had << " / " << size;
    }
  }
}

TEST(Containment, ShortOnesAreFoundAsAWholeAndEmptyOnesNever) {
  const Sets evaluation{{"a b", "", " \n", "a b c"}};
  const Found found = find({{"a b c d", "", "x a b", "A  b"}}, evaluation, {.size = 3}, 0.5, 1, 4);
  EXPECT_EQ(found.best, (std::vector<std::pair<u32, i64>>{{1, 3}, {0, -1}, {0, -1}, {1, 0}}));
  Containment containment({.size = 3}, 0.5, 1);
  containment.add(views(evaluation[0]), 0);
  EXPECT_EQ(containment.is_short(), (std::vector<bool>{true, false, false, false}));
}

TEST(Containment, OfAllThatADocumentContainsTheFirstIsTold) {
  const Documents questions = some_texts(5, 3000, 2, 1000000, "one two three four five six seven eight nine ten");
  const Documents documents = some_texts(6, 3000, 2, 1000000, "one two three four five six seven eight nine ten");
  const Found found = find({documents, documents}, {questions}, {.size = 5}, 0.8, 2, 10000);
  EXPECT_EQ(found.contained.size(), 6000U);
  for (const auto& [document, evaluation, share] : found.contained) EXPECT_EQ(evaluation, 0U);
}

TEST(Containment, StepsComeInTheirOrder) {
  const Documents text{"a b"};
  EXPECT_THROW(Containment({}, 0, 1), std::invalid_argument);
  EXPECT_THROW(Containment({}, 1.1, 1), std::invalid_argument);
  Containment containment({}, 1, 1);
  EXPECT_THROW(containment.scan(views(text), 0), std::logic_error);
  containment.add(views(text), 1);
  EXPECT_THROW(containment.add(views(text), 0), std::invalid_argument);
  containment.begin_source();
  EXPECT_THROW(containment.add(views(text), 1), std::logic_error);
  EXPECT_EQ(containment.scan(views(text), 5).size(), 1U);
}

TEST(ShingleTable, NumbersInOrderAndKnowsItsOwn) {
  ShingleTable table;
  for (u64 i = 0; i < 5000; ++i) EXPECT_EQ(table.number(mix64(i * kGolden)), i);
  EXPECT_EQ(table.number(mix64(77 * kGolden)), 77U);
  EXPECT_EQ(table.number(0), 0U);  // mix64(0)
  table.finish();
  for (u64 i = 0; i < 10000; ++i)
    EXPECT_EQ(table.find(mix64(i * kGolden)), i < 5000 ? static_cast<u32>(i) : ShingleTable::kNone);
}

}  // namespace
}  // namespace cuvee
