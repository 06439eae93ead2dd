#pragma once

#include <compare>
#include <cstdint>

namespace cuvee {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
__extension__ using i128 = __int128;
__extension__ using u128 = unsigned __int128;

/// A cap, a plan's end or a slot that is never reached.
inline constexpr u64 kEndless = (u64{1} << 63) - 1;

/// Goes up when, and only when, the same contract gives another order.
inline constexpr u32 kOrderFormat = 1;

/// Index of a source in the order in which sources were given.
struct SourceId {
  u32 value;
  auto operator<=>(const SourceId&) const = default;
};

/// Index into the order in which draws are handed out.
struct Position {
  u64 value;
  auto operator<=>(const Position&) const = default;
};

/// Index into the order in which the rounding tree deals draws.
struct Slot {
  u64 value;
  auto operator<=>(const Slot&) const = default;
};

/// One draw: the row-th row of a source, in its cycle-th pass.
struct Draw {
  SourceId source;
  u32 cycle;
  u64 row;
  bool operator==(const Draw&) const = default;
};

}  // namespace cuvee
