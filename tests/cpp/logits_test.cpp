#include "core/logits.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "core/kernels.hpp"
#include "core/logits_math.hpp"

namespace cuvee {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

struct Result {
  std::vector<float> entropy, varentropy, log_prob;
  explicit Result(std::size_t n) : entropy(n, -1), varentropy(n, -1), log_prob(n, -1) {}
  SignalsOut out() { return {entropy, varentropy, log_prob}; }

  bool same_bits(const Result& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    return same(entropy, other.entropy) && same(varentropy, other.varentropy) && same(log_prob, other.log_prob);
  }
};

Logits view_of(const std::vector<float>& x, u64 vocabulary) {
  return {x.data(), LogitType::f32, 1, x.size() / vocabulary, vocabulary, 0, static_cast<i64>(vocabulary)};
}

Result signals(const std::vector<float>& x, u64 vocabulary, i64 target = 0, u32 threads = 1,
               std::string_view isa = "auto") {
  const Logits logits = view_of(x, vocabulary);
  Result result(logits.rows);
  token_signals(logits, std::vector<i64>(logits.rows, target), {}, result.out(), threads, isa);
  return result;
}

struct Exact {
  double entropy = 0, varentropy = 0, log_prob = 0;
};

Exact exact_signals(const float* x, u64 n, u64 target) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (u64 i = 0; i < n; ++i) top = std::max(top, double{x[i]});
  for (u64 i = 0; i < n; ++i) sum += std::exp(x[i] - top);
  const auto log_p = [&](u64 i) { return x[i] - top - std::log(sum); };
  Exact exact;
  for (u64 i = 0; i < n; ++i)
    if (!std::isinf(x[i])) exact.entropy -= std::exp(log_p(i)) * log_p(i);
  for (u64 i = 0; i < n; ++i)
    if (!std::isinf(x[i])) exact.varentropy += std::exp(log_p(i)) * std::pow(log_p(i) + exact.entropy, 2);
  exact.log_prob = log_p(target);
  return exact;
}

std::vector<float> normal_logits(std::size_t n, float spread, u32 seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(n);
  for (float& value : x) value = normal(generator);
  return x;
}

TEST(TokenSignals, AreThoseOfDoublePrecision) {
  for (const u64 n : {1, 2, 15, 16, 17, 255, 256, 257, 4095, 4096, 4097, 32000, 131072, 131073, 300000})
    for (const float spread : {0.01F, 1.0F, 4.0F, 30.0F, 3000.0F}) {
      const auto x = normal_logits(n, spread, static_cast<u32>(n));
      const Result result = signals(x, n, static_cast<i64>(n / 2));
      const Exact exact = exact_signals(x.data(), n, n / 2);
      EXPECT_NEAR(result.entropy[0], exact.entropy, 4e-6) << n << " " << spread;
      EXPECT_NEAR(result.varentropy[0], exact.varentropy, 3e-6 * (1 + exact.varentropy + exact.entropy * exact.entropy))
          << n << " " << spread;
      EXPECT_NEAR(result.log_prob[0], exact.log_prob, 4e-6 + 1e-7 * std::abs(exact.log_prob)) << n << " " << spread;
    }
}

TEST(TokenSignals, OfEqualLogitsAreExact) {
  for (const float level : {0.0F, 1e4F, -1e4F, 3e38F, -3e38F}) {
    const Result result = signals(std::vector<float>(50000, level), 50000);
    EXPECT_EQ(result.entropy[0], static_cast<float>(std::log(50000.0)));
    EXPECT_EQ(result.varentropy[0], 0);
    EXPECT_EQ(result.log_prob[0], static_cast<float>(-std::log(50000.0)));
  }
}

TEST(TokenSignals, AreSafeFarFromZero) {
  std::vector<float> x(5000, -1e4F);
  x[4999] = 1e4F;
  const Result result = signals(x, 5000, 0);
  EXPECT_EQ(result.entropy[0], 0);
  EXPECT_EQ(result.varentropy[0], 0);
  EXPECT_EQ(result.log_prob[0], -2e4F);
}

TEST(TokenSignals, TakeMinusInfinityAsImpossible) {
  auto x = normal_logits(9000, 2, 1);
  std::vector<float> allowed;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (i % 3 == 0 || (i > 4096 && i < 8192))  // a whole chunk without any
      x[i] = -kInfinite;
    else
      allowed.push_back(x[i]);
  const Exact exact = exact_signals(allowed.data(), allowed.size(), 0);
  const Result result = signals(x, x.size(), 1);
  EXPECT_NEAR(result.entropy[0], exact.entropy, 2e-6);
  EXPECT_NEAR(result.varentropy[0], exact.varentropy, 2e-5);
  EXPECT_NEAR(result.log_prob[0], exact.log_prob, 2e-6);
  EXPECT_EQ(signals(x, x.size(), 0).log_prob[0], -kInfinite);
  std::vector<float> one(9000, -kInfinite);
  one[8999] = 5;
  EXPECT_EQ(signals(one, 9000, 8999).entropy[0], 0);
  EXPECT_EQ(signals(one, 9000, 8999).log_prob[0], 0);
}

TEST(TokenSignals, AreNaNWhereThereIsNoSoftmax) {
  for (const auto& isa : instruction_sets())
    for (const std::size_t at : {std::size_t{0}, std::size_t{700}, std::size_t{4999}})
      for (const float value : {kNoNumber, kInfinite}) {
        std::vector<float> x(5000, 1);
        x[at] = value;
        const Result result = signals(x, 5000, 1, 1, isa);
        EXPECT_TRUE(std::isnan(result.entropy[0]) && std::isnan(result.varentropy[0]) && std::isnan(result.log_prob[0]))
            << isa << " " << at << " " << value;
      }
  const Result nothing = signals(std::vector<float>(5000, -kInfinite), 5000, 1);
  EXPECT_TRUE(std::isnan(nothing.entropy[0]) && std::isnan(nothing.varentropy[0]) && std::isnan(nothing.log_prob[0]));
}

TEST(TokenSignals, HaveTheSameBitsForEveryInstructionSetAndNumberOfThreads) {
  for (const u64 vocabulary : {7, 1000, 5003, 140000}) {
    auto x = normal_logits(5 * vocabulary, 3, 7);
    x[vocabulary + 1] = -kInfinite;
    x[3 * vocabulary] = 80;
    const Result expected = signals(x, vocabulary, 3, 1, "scalar");
    for (const auto& isa : instruction_sets())
      for (const u32 threads : {1, 2, 3, 16})
        EXPECT_TRUE(signals(x, vocabulary, 3, threads, isa).same_bits(expected)) << vocabulary << " " << isa;
  }
}

TEST(TokenSignals, ReadHalvesAndBrainsAsTheFloatsTheyAre) {
  std::vector<Half> halves(65536);
  std::vector<Brain> brains(65536);
  std::vector<float> from_halves(65536), from_brains(65536);
  for (u32 bits = 0; bits < 65536; ++bits) {
    halves[bits] = static_cast<Half>(bits);
    brains[bits] = static_cast<Brain>(bits);
    from_halves[bits] = logits_math::widened(halves[bits]);
    from_brains[bits] = logits_math::widened(brains[bits]);
  }
  EXPECT_EQ(from_halves[0x0001], 0x1p-24F);
  EXPECT_EQ(from_halves[0x83ff], -0x1.ff8p-15F);
  EXPECT_EQ(from_halves[0x3c00], 1);
  EXPECT_EQ(from_halves[0xfbff], -65504);
  EXPECT_EQ(from_halves[0x7c00], kInfinite);
  EXPECT_TRUE(std::isnan(from_halves[0x7c01]));
  EXPECT_EQ(from_brains[0xc2f7], -123.5F);
  const auto rows_of_one = [](const void* data, LogitType type) { return Logits{data, type, 1, 65536 / 8, 8, 0, 8}; };
  const std::vector<i64> targets(65536 / 8, 5);
  for (const auto& isa : instruction_sets())
    for (const bool half : {true, false}) {
      Result narrow(65536 / 8), wide(65536 / 8);
      token_signals(rows_of_one(half ? static_cast<const void*>(halves.data()) : brains.data(),
                                half ? LogitType::f16 : LogitType::bf16),
                    targets, {}, narrow.out(), 1, isa);
      token_signals(rows_of_one(half ? from_halves.data() : from_brains.data(), LogitType::f32), targets, {},
                    wide.out(), 1, isa);
      EXPECT_TRUE(narrow.same_bits(wide)) << isa << " " << half;
    }
}

TEST(TokenSignals, FollowStridesMasksAndMissingTargets) {
  constexpr u64 kVocabulary = 40;
  const auto x = normal_logits(2 * 3 * kVocabulary, 1, 5);
  const Logits all_but_last{x.data(), LogitType::f32, 2, 2, kVocabulary, 3 * kVocabulary, kVocabulary};
  const std::vector<i64> targets{1, kNoTarget, 1000, 3};
  const std::vector<u8> mask{1, 1, 0, 1};
  Result result(4);
  token_signals(all_but_last, targets, mask, result.out(), 2);
  const Result each = signals(x, kVocabulary, 1);
  EXPECT_EQ(result.entropy, (std::vector<float>{each.entropy[0], each.entropy[1], 0, each.entropy[4]}));
  EXPECT_EQ(result.varentropy[2], 0);
  EXPECT_EQ(result.log_prob[0], each.log_prob[0]);
  EXPECT_EQ(result.log_prob[1], 0);
  EXPECT_EQ(result.log_prob[2], 0);
  EXPECT_EQ(result.log_prob[3], signals(x, kVocabulary, 3).log_prob[4]);
}

TEST(TokenSignals, RefuseWhatDoesNotFitBeforeTheyWrite) {
  const std::vector<float> x(20, 1);
  Result result(2);
  const Logits logits = view_of(x, 10);
  EXPECT_THROW(token_signals(logits, std::vector<i64>{0, 10}, {}, result.out(), 1), std::out_of_range);
  EXPECT_THROW(token_signals(logits, std::vector<i64>{0, -1}, {}, result.out(), 1), std::out_of_range);
  EXPECT_THROW(token_signals(logits, std::vector<i64>{0}, {}, result.out(), 1), std::invalid_argument);
  EXPECT_THROW(token_signals(logits, {}, std::vector<u8>{1}, result.out(), 1), std::invalid_argument);
  EXPECT_THROW(token_signals(logits, {}, {}, {}, 1), std::invalid_argument);
  EXPECT_THROW(token_signals(logits, {}, {}, result.out(), 1, "mmx"), std::invalid_argument);
  EXPECT_EQ(result.entropy, (std::vector<float>{-1, -1}));
}

TEST(ExpDown, IsCloseWhereItCounts) {
  EXPECT_EQ(logits_math::exp_down(0), 1);
  EXPECT_EQ(logits_math::exp_down(logits_math::kFloor), 0);
  for (int step = 0; step < 80 * 1024; ++step) {
    const float x = static_cast<float>(-step) / 1024;
    const double exact = std::exp(double{x});
    EXPECT_NEAR(logits_math::exp_down(x) / exact, 1, 1.6e-7 - 3e-9 * x) << x;
  }
}

}  // namespace
}  // namespace cuvee
