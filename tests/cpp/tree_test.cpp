#include "core/tree.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/hash.hpp"

namespace cuvee {
namespace {

struct Tree {
  explicit Tree(const std::vector<double>& weights, std::vector<u64> limits = {}) : caps(std::move(limits)) {
    caps.resize(weights.size(), kEndless);
    std::vector<Branch> leaves;
    leaves.reserve(weights.size());
    for (u32 k = 0; k < weights.size(); ++k) leaves.push_back({Ref::leaf(SourceId{k}), 0, weights[k], 0});
    root = forest.build(leaves, Clip::no, caps).ref;
  }
  // The leaf that arrival m reaches, and which arrival of the leaf it is.
  std::pair<SourceId, u64> descend(u64 m) const {
    Ref ref = root;
    while (!ref.is_leaf()) {
      const Node& node = forest[ref];
      u64 index = 0;
      const bool right = node.goes_right(m, index);
      m = node.base[right] + index;
      ref = node.child[right];
    }
    return {ref.source(), m};
  }
  Forest forest;
  std::vector<u64> caps;
  Ref root;
};

TEST(Scale, RoundsDownForEitherSign) {
  const u64 half = u64{1} << 63;
  EXPECT_EQ(scale(3, half), 1);
  EXPECT_EQ(scale(-3, half), -2);
  EXPECT_EQ(scale(-1, 1), -1);
  EXPECT_EQ(scale(i128{5} << 64, half), i128{5} << 63);
}

TEST(Node, CountsWhatWentLeftAndBack) {
  for (const double weight : {0.5, 0.3, 1e-3, 1.0 / 3}) {
    const Tree tree({weight, 1 - weight});
    const Node& node = tree.forest[tree.root];
    u64 left = 0;
    for (u64 m = 0; m < 2000; ++m) {
      ASSERT_EQ(node.left_of(m), left);
      u64 index = 0;
      const bool right = node.goes_right(m, index);
      ASSERT_EQ(index, right ? m - left : left);
      ASSERT_EQ(node.arrivals_for(right, index + 1), m + 1);
      left += !right;
    }
  }
}

TEST(Node, ClampsWhatIsOwedBeyondTheArrivals) {
  std::vector<u64> caps(2, kEndless);
  for (const i64 owed : {-7, -1, 1, 9}) {
    Forest forest;
    const Branch left{Ref::leaf(SourceId{0}), 0, 0.4, i128{owed} << 64};
    const Branch right{Ref::leaf(SourceId{1}), 0, 0.6, -(i128{owed} << 64)};
    const Node& node = forest[forest.join(left, right, Clip::no, caps).ref];
    u64 lefts = 0;
    for (u64 m = 0; m < 200; ++m) {
      ASSERT_EQ(node.left_of(m), lefts);
      u64 index = 0;
      const bool went_right = node.goes_right(m, index);
      ASSERT_EQ(node.arrivals_for(went_right, index + 1), m + 1) << owed << " at " << m;
      lefts += !went_right;
    }
    EXPECT_NEAR(static_cast<double>(lefts), 0.4 * 200 + static_cast<double>(owed), 0.6);
  }
}

TEST(Node, SaturatesFarAway) {
  const Tree tree({1e-300, 1});
  const Node& node = tree.forest[tree.root];
  EXPECT_EQ(node.arrivals_for(0, 1), kEndless);
  EXPECT_EQ(node.arrivals_for(1, 5), 5u);
  EXPECT_EQ(node.arrivals_for(0, kEndless), kEndless);
}

TEST(Forest, DealsEveryPrefixWithinTheCertificate) {
  for (const u32 count : {1u, 2u, 3u, 8u, 33u}) {
    std::vector<double> weights(count);
    double total = 0;
    for (u32 k = 0; k < count; ++k) total += weights[k] = std::ldexp(static_cast<double>(mix64(k + count)), -64) + 0.01;
    const Tree tree(weights);
    const double bound = tree.forest.certificate(tree.root, 0);
    EXPECT_LT(bound, 1.68);
    std::vector<u64> given(count);
    for (u64 m = 0; m < 3000; ++m) {
      const auto [source, index] = tree.descend(m);
      ASSERT_EQ(index, given[source.value]++);
      for (u32 k = 0; k < count; ++k)
        ASSERT_LE(std::abs(static_cast<double>(given[k]) - weights[k] / total * static_cast<double>(m + 1)),
                  bound + 1e-9);
    }
  }
}

TEST(Forest, KnowsWhenTheFirstLeafIsEmpty) {
  const std::vector<u64> caps{40, 7, 300, 9};
  const Tree tree({0.4, 0.1, 0.3, 0.2}, caps);
  std::map<u32, u64> given;
  for (u64 m = 0;; ++m) {
    const auto [source, index] = tree.descend(m);
    if (++given[source.value] == caps[source.value]) {
      EXPECT_EQ(tree.forest.empties(tree.root, tree.caps), m + 1);
      break;
    }
  }
}

TEST(Forest, BuildsGeometricAndZeroWeights) {
  std::vector<double> weights(1200);
  for (int k = 0; k < 1200; ++k) weights[static_cast<u32>(k)] = std::ldexp(1.0, -k);  // the last ones are 0
  const Tree tree(weights);
  EXPECT_LT(tree.forest.certificate(tree.root, 0), 1.68);
  EXPECT_EQ(tree.descend(0).second, 0u);
}

}  // namespace
}  // namespace cuvee
