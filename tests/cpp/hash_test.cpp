#include "core/hash.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

namespace cuvee {
namespace {

std::span<const std::byte> bytes_of(const char* text) { return std::as_bytes(std::span(text, std::strlen(text))); }

TEST(Digest, HasThePublishedValueOfNothing) { EXPECT_EQ(Digest().hex(), "99aa06d3014798d86001c324468d497f"); }

TEST(Digest, DoesNotDependOnHowTheBytesAreCut) {
  Digest whole, parts;
  whole.update(bytes_of("a blend of sources"));
  parts.update(bytes_of("a blend "));
  parts.update(bytes_of(""));
  parts.update(bytes_of("of sources"));
  EXPECT_EQ(whole.hex(), parts.hex());
}

TEST(Digest, CanBeReadInTheMiddle) {
  Digest digest;
  digest.update(bytes_of("a"));
  const auto early = digest.hex();
  EXPECT_EQ(early, digest.hex());
  digest.update(bytes_of("b"));
  EXPECT_NE(early, digest.hex());
}

TEST(Key, DependsOnEveryPart) {
  const std::set<u64> keys{key64("rows", 1, "a", 0), key64("rows", 2, "a", 0),   key64("rows", 1, "b", 0),
                           key64("rows", 1, "a", 1), key64("window", 1, "a", 0), key64("rows", 1, "a", kNoEpoch)};
  EXPECT_EQ(keys.size(), 6u);
}

TEST(Key, KeepsPurposeAndNameApart) { EXPECT_NE(key64("row", 1, "sa", 0), key64("rows", 1, "a", 0)); }

TEST(Key, OfCyclesAndWindowsDoNotRepeat) {
  std::set<u64> keys;
  for (u64 i = 0; i < 1000; ++i) {
    keys.insert(cycle_key(5, i));
    keys.insert(window_key(5, i * 64, 64));
    keys.insert(window_key(5, i * 64, 63));
  }
  EXPECT_EQ(keys.size(), 3000u);
}

}  // namespace
}  // namespace cuvee
