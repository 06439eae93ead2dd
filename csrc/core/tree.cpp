#include "tree.hpp"

#include <algorithm>
#include <cmath>
#include <queue>

#include "error.hpp"

namespace cuvee {
namespace {

// Upper bounds are kept as floats rounded up, so that pruning by them never loses the true maximum.
float rounded_up(double value) noexcept {
  return std::nextafter(static_cast<float>(value), std::numeric_limits<float>::infinity());
}

double share(const Node& node) noexcept { return static_cast<double>(node.fraction) * 0x1p-64; }

// max(1/2, |D|) in rows.
double largest_deviation(const Node& node) noexcept {
  return std::max(0.5, std::abs(static_cast<double>(node.owed()) * 0x1p-64));
}

u64 saturated(u128 value) noexcept { return value < kEndless ? static_cast<u64>(value) : kEndless; }

}  // namespace

u64 as_fraction(double part, double whole) noexcept { return static_cast<u64>(std::ldexp(part / whole, 64)); }

u64 Node::arrivals_for(int side, u64 wanted) const noexcept {
  if (wanted >= kEndless) return kEndless;
  const i128 target = static_cast<i128>(wanted) << 64;
  if (side == 0) {  // fewest m with m >= wanted and m * fraction + phase >= wanted * 2^64
    if (target <= phase) return wanted;
    if (fraction == 0) return kEndless;
    const auto missing = static_cast<u128>(target - phase);
    return std::max(wanted, saturated((missing + fraction - 1) / fraction));
  }
  // fewest m with m - floor((m * fraction + phase) / 2^64) >= wanted, that is m * (2^64 - fraction) > (wanted - 1) *
  // 2^64 + phase
  const i128 passed = target - (i128{1} << 64) + phase;
  if (passed < 0) return wanted;
  const u128 rest = (u128{1} << 64) - fraction;
  return std::max(wanted, saturated(static_cast<u128>(passed) / rest + 1));
}

void Forest::shrink(u32 size) {
  nodes_.resize(size);
  reach_.resize(size);
}

Branch Forest::join(const Branch& one, const Branch& other, Clip clip, std::span<const u64> caps) {
  const bool swapped = one.weight > other.weight;
  const Branch& left = swapped ? other : one;
  const Branch& right = swapped ? one : other;
  Node node{};
  node.weight = left.weight + right.weight;
  node.fraction = node.weight > 0 ? as_fraction(left.weight, node.weight) : u64{1} << 63;
  const i128 residual = left.residual + right.residual;
  node.phase = left.residual - scale(residual, node.fraction) + Node::kHalf;
  if (clip == Clip::yes) node.phase = std::clamp(node.phase, i128{0}, (i128{1} << 64) - 1);
  node.base[0] = left.clock;
  node.base[1] = right.clock;
  node.child[0] = left.ref;
  node.child[1] = right.ref;
  return {add(node, caps), 0, node.weight, residual};
}

Ref Forest::add(Node node, std::span<const u64> caps) {
  CUVEE_EXPECTS(nodes_.size() < kMaxSources, std::length_error, "nodes of a plan must be fewer than ", kMaxSources,
                ", but got ", nodes_.size() + 1);
  node.empties = first_empty(node, caps);
  const double p = share(node);
  const double slope = std::max(p * reach(node.child[0]).slope, (1 - p) * reach(node.child[1]).slope);
  reach_.push_back({envelope_over(node, Deviation::owed), envelope_over(node, Deviation::half), rounded_up(slope)});
  nodes_.push_back(node);
  return Ref::node(static_cast<u32>(nodes_.size() - 1));
}

u64 Forest::first_empty(const Node& node, std::span<const u64> caps) const noexcept {
  u64 first = kEndless;
  for (int side = 0; side < 2; ++side) {
    const u64 last = empties(node.child[side], caps);
    if (last == kEndless) continue;
    const u64 wanted = last - std::min(last, node.base[side]);
    first = std::min(first, wanted == 0 ? 0 : node.arrivals_for(side, wanted));
  }
  return first;
}

void Forest::refresh(std::span<const u64> caps) {
  for (Node& node : nodes_) node.empties = first_empty(node, caps);  // children come before their parents
}

Branch Forest::build(std::span<const Branch> leaves, Clip clip, std::span<const u64> caps) {
  std::vector<Branch> made(leaves.begin(), leaves.end());
  made.reserve(2 * leaves.size());
  const auto heavier = [&](u32 a, u32 b) {
    return made[a].weight != made[b].weight ? made[a].weight > made[b].weight : a > b;
  };
  std::vector<u32> ids(leaves.size());
  for (u32 id = 0; id < ids.size(); ++id) ids[id] = id;
  std::priority_queue<u32, std::vector<u32>, decltype(heavier)> lightest(heavier, std::move(ids));
  while (lightest.size() > 1) {
    const u32 left = lightest.top();
    lightest.pop();
    const u32 right = lightest.top();
    lightest.pop();
    made.push_back(join(made[left], made[right], clip, caps));
    lightest.push(static_cast<u32>(made.size() - 1));
  }
  return made.back();
}

// --- error bounds ------------------------------------------------------------------------------------------------------

double Forest::Envelope::at(double error, double slope) const noexcept {
  if (error <= 0.5) return half;
  if (error <= 1) return half + (one - half) * (2 * error - 1);
  if (error <= 2) return one + (two - one) * (error - 1);
  return two + slope * (error - 2);
}

Forest::Envelope Forest::envelope_over(const Node& node, Deviation deviation) const noexcept {
  const double p = share(node);
  const double here = deviation == Deviation::owed ? largest_deviation(node) : 0.5;
  const Reach left = reach(node.child[0]);
  const Reach right = reach(node.child[1]);
  const auto envelope = [&](const Reach& below) {
    return deviation == Deviation::owed ? below.certified : below.path_sum;
  };
  const auto at = [&](double error) {
    return rounded_up(std::max(envelope(left).at(p * error + here, left.slope),
                               envelope(right).at((1 - p) * error + here, right.slope)));
  };
  return {at(0.5), at(1), at(2)};
}

double Forest::largest_error(Ref root, double known, double enough, Deviation deviation) const {
  struct Below {
    Ref ref;
    double error;
  };
  std::vector<Below> open{{root, 0.0}};
  while (!open.empty() && known <= enough) {
    const auto [ref, error] = open.back();
    open.pop_back();
    const Reach below = reach(ref);
    const Envelope& envelope = deviation == Deviation::owed ? below.certified : below.path_sum;
    if (envelope.at(error, below.slope) <= known) continue;  // nothing larger is down there
    if (ref.is_leaf()) {
      known = std::max(known, error);
      continue;
    }
    const Node& node = (*this)[ref];
    const double p = share(node);
    const double here = deviation == Deviation::owed ? largest_deviation(node) : 0.5;
    open.push_back({node.child[0], p * error + here});
    open.push_back({node.child[1], (1 - p) * error + here});
  }
  return known;
}

double Forest::certificate(Ref root, double known) const {
  return largest_error(root, known, std::numeric_limits<double>::infinity(), Deviation::owed);
}

bool Forest::path_sum_exceeds(Ref root, double limit) const {
  return largest_error(root, limit, limit, Deviation::half) > limit;
}

}  // namespace cuvee
