#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "types.hpp"

namespace cuvee {

/// A child of a node, or the root of a tree: an inner node or a leaf, which is a source.
class Ref {
 public:
  Ref() = default;
  static constexpr Ref node(u32 index) noexcept { return Ref{index}; }
  static constexpr Ref leaf(SourceId source) noexcept { return Ref{source.value | kLeaf}; }
  constexpr bool is_leaf() const noexcept { return (bits_ & kLeaf) != 0; }
  constexpr SourceId source() const noexcept { return {bits_ & ~kLeaf}; }
  constexpr u32 index() const noexcept { return bits_; }
  bool operator==(const Ref&) const = default;

 private:
  static constexpr u32 kLeaf = u32{1} << 31;
  explicit constexpr Ref(u32 bits) noexcept : bits_(bits) {}
  u32 bits_ = 0;
};

/// Largest number of sources and of nodes a Ref can name.
inline constexpr u64 kMaxSources = u64{1} << 31;

/// floor(residual * fraction / 2^64).
constexpr i128 scale(i128 residual, u64 fraction) noexcept {
  const i128 whole = residual >> 64;  // floor, so the rest is in [0, 2^64)
  const auto rest = static_cast<u64>(residual);
  return whole * static_cast<i128>(fraction) + static_cast<i128>(static_cast<u128>(rest) * fraction >> 64);
}

/// An inner node deals its arrivals to two children; of its first m arrivals left_of(m) went left.
/// One cache line, so that a step down the tree reads one.
struct alignas(64) Node {
  static constexpr i128 kHalf = i128{1} << 63;  // half a row in ulps (2^-64 rows)

  i128 phase;     // D + 1/2 in ulps: outside [0, 2^64) the clamp of left_of can bind
  u64 fraction;   // share of the left child, at most 2^63
  u64 base[2];    // the children's clocks when this node's clock was 0
  u64 empties;    // clock at which the first leaf below is empty; kEndless if none ever is
  double weight;  // of all leaves below
  Ref child[2];

  i128 raised(u64 m) const noexcept { return static_cast<i128>(static_cast<u128>(m) * fraction) + phase; }
  u64 left_of(u64 m) const noexcept {
    const i128 floor = raised(m) >> 64;
    return floor < 0 ? 0 : std::min(static_cast<u64>(floor), m);  // 64 bits: clocks are below 2^63
  }
  /// Clock of a child once m arrivals have come.
  u64 child_clock(int side, u64 m) const noexcept {
    const u64 left = left_of(m);
    return base[side] + (side == 0 ? left : m - left);
  }
  /// Residual of the left child, from the node's own; the right child has the rest.
  i128 left_residual(u64 m, i128 residual) const noexcept {
    return scale(residual, fraction) + raised(m) - kHalf - (static_cast<i128>(left_of(m)) << 64);
  }
  /// D, what the left child was owed beyond its share when the node was made; in ulps.
  i128 owed() const noexcept { return phase - kHalf; }

  /// Whether arrival m goes right; sets `index` to which arrival of that child it is (from its base).
  bool goes_right(u64 m, u64& index) const noexcept {
    const auto at = static_cast<u128>(raised(m));
    const auto high = static_cast<u64>(at >> 64);
    if (high > m) [[unlikely]] {  // above m, or below 0: the clamp binds
      const u64 left = left_of(m);
      const bool right = left_of(m + 1) == left;
      index = right ? m - left : left;
      return right;
    }
    const bool right = static_cast<u64>(at) + fraction >= fraction;  // no carry
    index = high + ((m - 2 * high) & (u64{0} - right));              // m - high if right, without a branch
    return right;
  }

  /// Fewest arrivals of which `wanted` >= 1 went to a child; saturates at kEndless. The inverse of left_of.
  u64 arrivals_for(int side, u64 wanted) const noexcept;
};
static_assert(sizeof(Node) == 64);

/// What a child brings to a new node.
struct Branch {
  Ref ref;
  u64 clock;  // its clock now, which becomes its base
  double weight;
  i128 residual;  // ulps
};

enum class Clip : bool { no, yes };

/// floor(part / whole * 2^64) for 0 <= part < whole.
u64 as_fraction(double part, double whole) noexcept;

/// All nodes of all segments. Nodes never change once made; a changed tree shares what did not change.
class Forest {
 public:
  const Node* nodes() const noexcept { return nodes_.data(); }
  const Node& operator[](Ref ref) const noexcept { return nodes_[ref.index()]; }
  u32 size() const noexcept { return static_cast<u32>(nodes_.size()); }
  std::size_t bytes() const noexcept { return nodes_.capacity() * sizeof(Node) + reach_.capacity() * sizeof(Reach); }
  /// Computes anew at which clock each node empties, for other caps.
  void refresh(std::span<const u64> caps);
  /// Drops the nodes made last.
  void shrink(u32 size);

  /// A node over two branches, lighter one left. `caps[source]` is the clock at which a leaf is empty.
  Branch join(const Branch& one, const Branch& other, Clip clip, std::span<const u64> caps);

  /// Takes in a node as it is, but for the clock at which it empties.
  Ref add(Node node, std::span<const u64> caps);

  /// Huffman's tree over leaves with their weights, ties by order; branches come back with clock 0 (or the leaf's own).
  Branch build(std::span<const Branch> leaves, Clip clip, std::span<const u64> caps);

  /// Clock at which the first leaf below `ref` is empty.
  u64 empties(Ref ref, std::span<const u64> caps) const noexcept {
    return ref.is_leaf() ? caps[ref.source().value] : (*this)[ref].empties;
  }

  /// Calls visit(source, clock, residual) for every leaf below `ref` whose clock is `clock`, left to right.
  template <class Visit>
  void leaves(Ref ref, u64 clock, i128 residual, const Visit& visit) const {
    if (ref.is_leaf()) return visit(ref.source(), clock, residual);
    const Node& node = (*this)[ref];
    const i128 left_residual = node.left_residual(clock, residual);
    leaves(node.child[0], node.child_clock(0, clock), left_residual, visit);
    leaves(node.child[1], node.child_clock(1, clock), residual - left_residual, visit);
  }

  /// Largest error bound E of a leaf below a root, or `known` if that is larger; see docs/algorithm.md, section 6.
  double certificate(Ref root, double known) const;
  /// Whether the path sum of some leaf (E with every |D| at most 1/2) is above `limit`.
  bool path_sum_exceeds(Ref root, double limit) const;

 private:
  // The largest E below a node as a function of the node's own E is convex and never falls; kept are upper bounds of it
  // at three points and of its slope. Below 1/2 the first holds, between the points a chord, above 2 the slope.
  struct Envelope {
    float half = 0.5f;
    float one = 1;
    float two = 2;
    double at(double error, double slope) const noexcept;
  };
  struct Reach {
    Envelope certified;  // with |D|
    Envelope path_sum;   // with 1/2 in place of |D|
    float slope = 1;
  };
  enum class Deviation : bool { half, owed };

  Reach reach(Ref ref) const noexcept { return ref.is_leaf() ? Reach{} : reach_[ref.index()]; }
  u64 first_empty(const Node& node, std::span<const u64> caps) const noexcept;
  Envelope envelope_over(const Node& node, Deviation deviation) const noexcept;
  // Largest E of a leaf below `root`, or `known` if that is larger; ends once E is above `enough`.
  double largest_error(Ref root, double known, double enough, Deviation deviation) const;

  std::vector<Node> nodes_;
  std::vector<Reach> reach_;
};

}  // namespace cuvee
