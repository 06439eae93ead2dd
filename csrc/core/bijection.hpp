#pragma once

#include <array>
#include <bit>

#include "hash.hpp"
#include "types.hpp"

namespace cuvee {

/// Largest size of a keyed bijection, and so the largest row count of a source.
inline constexpr u64 kMaxRows = u64{1} << 62;

/// A keyed bijection of [0, n), 1 <= n <= 2^62, in constant memory; see docs/algorithm.md, section 2.
///
/// Up to n = 16 it is a Fisher-Yates shuffle, uniform over all n! orders; above, a Feistel network on a grid of a x 2^s
/// places, barely more than n, walked until it lands below n.
class Bijection {
 public:
  static constexpr u64 kMaxShuffled = 16;
  static constexpr int kMaxRounds = 10;

  Bijection(u64 n, u64 key) noexcept : size_(n) {
    if (n <= kMaxShuffled)
      shuffle(key);
    else
      schedule(key);
  }

  u64 size() const noexcept { return size_; }
  bool shuffled() const noexcept { return size_ <= kMaxShuffled; }

  /// pi(i), i < n.
  u64 operator()(u64 i) const noexcept {
    if (shuffled()) return order_[i];
    do i = permute_grid(i);
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
    do value = unpermute_grid(value);
    while (value >= size_);
    return value;
  }

  // --- the grid, for the batch kernels
  u32 shift() const noexcept { return shift_; }
  u32 columns() const noexcept { return columns_; }
  int rounds() const noexcept { return rounds_; }
  const std::array<u32, kMaxRounds>& round_keys() const noexcept { return keys_; }

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

  void schedule(u64 key) noexcept {
    const auto bits = static_cast<u32>(std::bit_width(size_ - 1));
    shift_ = bits / 2;
    columns_ = static_cast<u32>((size_ - 1) >> shift_) + 1;
    rounds_ = size_ < 64 ? 10 : bits <= 12 ? 8 : 6;
    for (u32 r = 0; r < kMaxRounds; r += 2) {
      key += kGolden;
      const u64 z = mix64(key);
      keys_[r] = static_cast<u32>(z);
      keys_[r + 1] = static_cast<u32>(z >> 32);
    }
  }

  u64 permute_grid(u64 i) const noexcept {
    auto x = static_cast<u32>(i >> shift_);
    auto y = static_cast<u32>(i) & ((u32{1} << shift_) - 1);
    for (int r = 0; r < rounds_; r += 2) {
      x += below(round_hash(y, keys_[static_cast<u32>(r)]), columns_);
      if (x >= columns_) x -= columns_;
      y ^= round_hash(x, keys_[static_cast<u32>(r) + 1]) >> (32 - shift_);
    }
    return static_cast<u64>(x) << shift_ | y;
  }

  u64 unpermute_grid(u64 i) const noexcept {
    auto x = static_cast<u32>(i >> shift_);
    auto y = static_cast<u32>(i) & ((u32{1} << shift_) - 1);
    for (int r = rounds_ - 2; r >= 0; r -= 2) {
      y ^= round_hash(x, keys_[static_cast<u32>(r) + 1]) >> (32 - shift_);
      const u32 added = below(round_hash(y, keys_[static_cast<u32>(r)]), columns_);
      x = x >= added ? x - added : x + columns_ - added;
    }
    return static_cast<u64>(x) << shift_ | y;
  }

  u64 size_;
  u32 shift_ = 0;
  u32 columns_ = 0;
  int rounds_ = 0;
  std::array<u32, kMaxRounds> keys_;
  std::array<std::uint8_t, kMaxShuffled> order_;
};

}  // namespace cuvee
