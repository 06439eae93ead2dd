#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "types.hpp"

namespace cuvee {

inline constexpr u64 kGolden = 0x9e3779b97f4a7c15;
/// Stands for "no epoch" in keys: one stream for all epochs.
inline constexpr u64 kNoEpoch = ~u64{0};

/// A bijection of 64-bit integers in which every bit of the input moves every bit of the output.
constexpr u64 mix64(u64 x) noexcept {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27;
  x *= 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// The key of (purpose, seed, name, epoch); see docs/algorithm.md, section 1.
u64 key64(std::string_view purpose, u64 seed, std::string_view name, u64 epoch);

/// Key of one pass over a source, from the source's key.
constexpr u64 cycle_key(u64 source_key, u64 cycle) noexcept { return mix64(source_key + (cycle + 1) * kGolden); }

/// Key of the window [first, first + length).
constexpr u64 window_key(u64 windows_key, u64 first, u64 length) noexcept {
  return mix64(mix64(windows_key + first * kGolden) + length);
}

/// Streaming 128-bit XXH3.
class Digest {
 public:
  Digest();
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  void update(std::span<const std::byte> data);
  /// 32 hexadecimal digits, as the `xxhash` package prints them.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cuvee
