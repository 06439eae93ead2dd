#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "hash.hpp"
#include "types.hpp"

namespace cuvee {

/// Largest size of a keyed bijection, and so the largest row count of a source.
inline constexpr u64 kMaxRows = u64{1} << 62;

/// A keyed bijection of [0, n), 1 <= n <= 2^62, in constant memory; see docs/algorithm.md, section 2.
///
/// Up to n = 16 it is a Fisher-Yates shuffle, uniform over all n! orders; above, a Feistel network on a grid of a x 2^s
/// places, barely more than n, walked until it lands below n. Its round functions are random tables of 8 bytes up to
/// n = 64 (a window), where x and y are below 8, and keyed hashes beyond.
class Bijection {
 public:
  static constexpr u64 kMaxShuffled = 16;
  static constexpr u64 kMaxTabled = 64;
  static constexpr u32 kMaxRounds = 10;

  Bijection(u64 n, u64 key) noexcept : size_(n) {
    if (n <= kMaxShuffled) {
      shuffle(key);
      return;
    }
    const auto bits = static_cast<u32>(std::bit_width(n - 1));
    shift_ = bits / 2;
    columns_ = static_cast<u32>((n - 1) >> shift_) + 1;
    rounds_ = n < 64 ? 10 : bits <= 12 ? 8 : 6;
    const u32 words = tabled() ? rounds_ : rounds_ / 2;
    for (u32 t = 0; t < words; ++t) words_[t] = mix64(key + (t + 1) * kGolden);
  }

  u64 size() const noexcept { return size_; }
  bool shuffled() const noexcept { return size_ <= kMaxShuffled; }
  bool tabled() const noexcept { return size_ <= kMaxTabled; }

  /// pi(i), i < n.
  u64 operator()(u64 i) const noexcept {
    if (shuffled()) return order_[i];
    do i = tabled() ? permute_by_tables(i) : permute_by_hashes(i);
    while (i >= size_);
    return i;
  }

  /// i with pi(i) = value, value < n.
  u64 inverse(u64 value) const noexcept {
    if (shuffled()) {
      u64 i = 0;
      while (order_[i] != value) ++i;
      return i;
    }
    do value = tabled() ? unpermute_by_tables(value) : unpermute_by_hashes(value);
    while (value >= size_);
    return value;
  }

  // --- the grid, for the batch kernels
  u32 shift() const noexcept { return shift_; }
  u32 columns() const noexcept { return columns_; }
  u32 rounds() const noexcept { return rounds_; }
  /// n <= 64: the 8 bytes of a round's table.
  u64 table(u32 round) const noexcept { return words_[round]; }
  /// n > 64.
  u32 round_key(u32 round) const noexcept { return static_cast<u32>(words_[round / 2] >> (round % 2 == 0 ? 0 : 32)); }

  /// A keyed hash of 32 bits to 32 bits whose upper bits are good.
  static constexpr u32 round_hash(u32 value, u32 key) noexcept {
    u32 h = (value ^ key) * 0x9e3779b1u;
    h ^= h >> 15;
    return h * 0x85ebca77u;
  }
  /// The part of a round hash that is added to x, in [0, columns).
  static constexpr u32 below(u32 hash, u32 columns) noexcept {
    return static_cast<u32>(static_cast<u64>(hash) * columns >> 32);
  }

 private:
  void shuffle(u64 key) noexcept {
    for (u64 i = 0; i < size_; ++i) order_[i] = static_cast<std::uint8_t>(i);
    for (u64 t = size_; --t > 0;) {
      key += kGolden;
      const auto j = static_cast<u64>(static_cast<u128>(mix64(key)) * (t + 1) >> 64);
      std::swap(order_[t], order_[j]);
    }
  }

  u32 entry(u32 round, u32 at) const noexcept { return static_cast<u32>(words_[round] >> (8 * at)) & 0xff; }
  u32 low_mask() const noexcept { return (u32{1} << shift_) - 1; }

  u64 permute_by_tables(u64 i) const noexcept {
    auto x = static_cast<u32>(i >> shift_);
    auto y = static_cast<u32>(i) & low_mask();
    for (u32 r = 0; r < rounds_; r += 2) {
      x += entry(r, y) * columns_ >> 8;
      x = std::min(x, x - columns_);  // the smaller one, as unsigned, is below columns
      y ^= entry(r + 1, x) & low_mask();
    }
    return u64{x} << shift_ | y;
  }

  u64 unpermute_by_tables(u64 i) const noexcept {
    auto x = static_cast<u32>(i >> shift_);
    auto y = static_cast<u32>(i) & low_mask();
    for (u32 r = rounds_; r > 0; r -= 2) {
      y ^= entry(r - 1, x) & low_mask();
      x -= entry(r - 2, y) * columns_ >> 8;
      x = std::min(x, x + columns_);
    }
    return u64{x} << shift_ | y;
  }

  u64 permute_by_hashes(u64 i) const noexcept {
    auto x = static_cast<u32>(i >> shift_);
    auto y = static_cast<u32>(i) & low_mask();
    for (u32 r = 0; r < rounds_; r += 2) {
      x += below(round_hash(y, round_key(r)), columns_);
      x = std::min(x, x - columns_);
      y ^= round_hash(x, round_key(r + 1)) >> (32 - shift_);
    }
    return u64{x} << shift_ | y;
  }

  u64 unpermute_by_hashes(u64 i) const noexcept {
    auto x = static_cast<u32>(i >> shift_);
    auto y = static_cast<u32>(i) & low_mask();
    for (u32 r = rounds_; r > 0; r -= 2) {
      y ^= round_hash(x, round_key(r - 1)) >> (32 - shift_);
      x -= below(round_hash(y, round_key(r - 2)), columns_);
      x = std::min(x, x + columns_);
    }
    return u64{x} << shift_ | y;
  }

  u64 size_;
  u32 shift_ = 0;
  u32 columns_ = 0;
  u32 rounds_ = 0;
  std::array<u64, kMaxRounds> words_{};  // the key's stream, as far as it is needed
  std::array<std::uint8_t, kMaxShuffled> order_{};
};

/// Bijection(64, key)(i), the whole windows' own, with nothing stored: each round shifts its table to the byte it
/// reads.
constexpr u64 permute_64(u64 key, u64 i) noexcept {
  u64 x = i >> 3;
  u64 y = i & 7;
  for (u64 r = 0; r < 8; r += 2) {
    x = (x + (mix64(key + (r + 1) * kGolden) >> (8 * y + 5))) & 7;
    y = (y ^ (mix64(key + (r + 2) * kGolden) >> (8 * x))) & 7;
  }
  return x << 3 | y;
}

}  // namespace cuvee
