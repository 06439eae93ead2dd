#include "core/bijection.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/kernels.hpp"

namespace cuvee {
namespace {

class EverySize : public testing::TestWithParam<u64> {};

TEST_P(EverySize, IsAPermutationWithItsInverse) {
  const u64 n = GetParam();
  const Bijection pi(n, 0x1234 + n);
  std::vector<bool> seen(n);
  for (u64 i = 0; i < n; ++i) {
    const u64 value = pi(i);
    ASSERT_LT(value, n);
    ASSERT_FALSE(seen[value]);
    seen[value] = true;
    ASSERT_EQ(pi.inverse(value), i);
  }
}

TEST_P(EverySize, HasTheSameBatchOnEveryInstructionSet) {
  const u64 n = GetParam();
  const Bijection pi(n, 77 * n);
  for (const auto isa : instruction_sets()) {
    for (const u64 first : {u64{0}, n / 3}) {
      std::vector<u64> batch(n - first);
      kernels_for(isa).permute(pi, first, n - first, batch.data());
      for (u64 i = first; i < n; ++i) ASSERT_EQ(batch[i - first], pi(i)) << isa << " at " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bijection, EverySize,
                         testing::Values(1, 2, 3, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 255, 256, 257, 1000, 4095,
                                         4096, 4097, 65535, 65536, 65537, 100'003));

TEST(Bijection, OfAWholeWindowNeedsNoTables) {
  for (u64 key = 0; key < 1000; ++key) {
    const Bijection pi(64, key * kGolden);
    for (u64 i = 0; i < 64; ++i) ASSERT_EQ(permute_64(key * kGolden, i), pi(i));
  }
}

TEST(Bijection, GoesBackAtHugeSizes) {
  for (const u64 n : {u64{3'000'000'000}, (u64{1} << 32) + 1, (u64{1} << 40) - 1, kMaxRows - 1, kMaxRows}) {
    const Bijection pi(n, 42);
    for (u64 t = 0; t < 10'000; ++t) {
      const u64 i = mix64(t) % n;
      ASSERT_LT(pi(i), n);
      ASSERT_EQ(pi.inverse(pi(i)), i);
    }
    ASSERT_EQ(pi.inverse(pi(n - 1)), n - 1);
  }
}

TEST(Bijection, BatchesCrossTheRowsOfALargeGrid) {
  const u64 n = (u64{1} << 40) + 12345;
  const Bijection pi(n, 9);
  for (const auto isa : instruction_sets()) {
    for (const u64 first : {u64{0}, (u64{1} << 20) - 7, n - 1000}) {
      std::vector<u64> batch(1000);
      kernels_for(isa).permute(pi, first, batch.size(), batch.data());
      for (u64 t = 0; t < batch.size(); ++t) ASSERT_EQ(batch[t], pi(first + t)) << isa;
    }
  }
}

TEST(Kernels, RefuseAnInstructionSetThatIsNotThere) {
  EXPECT_THROW(kernels_for("mmx"), std::invalid_argument);
  EXPECT_EQ(kernels_for("auto").name, instruction_sets().back());
}

}  // namespace
}  // namespace cuvee
