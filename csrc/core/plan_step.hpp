#pragma once

#include "plan.hpp"

namespace cuvee {

/// One level of the way from the root to a leaf at a slot boundary; the last one stands for the leaf itself.
struct Plan::Step {
  Ref ref;    // the child on the way (at the end: the leaf)
  Ref other;  // the child off the way
  int side;   // which child is on the way
  u64 clock;  // of the child on the way
  u64 other_clock;
  i128 residual;  // of the child on the way
  i128 other_residual;

  static Step down(const Node& node, int side, u64 clock, i128 residual) noexcept {
    const i128 left = node.left_residual(clock, residual);
    const i128 right = residual - left;
    return {node.child[side],
            node.child[1 - side],
            side,
            node.child_clock(side, clock),
            node.child_clock(1 - side, clock),
            side == 0 ? left : right,
            side == 0 ? right : left};
  }
  static Step at_leaf(Ref leaf, u64 clock, i128 residual) noexcept { return {leaf, leaf, 0, clock, 0, residual, 0}; }
};

}  // namespace cuvee
