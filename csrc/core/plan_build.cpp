// How a plan's segments come to be: the first tree, weight changes, exhaustions. docs/algorithm.md, sections 3, 4
// and 6.
#include <algorithm>
#include <cmath>

#include "error.hpp"
#include "plan.hpp"
#include "plan_step.hpp"

namespace cuvee {
namespace {

constexpr double kLightestRoot = 0x1p-500;
constexpr double kLongestPathSum = 1.7;

}  // namespace

Plan::Plan(const PlanSettings& settings, std::span<const SourceSpec> sources, std::span<const double> weights,
           const Kernels& kernels)
    : settings_(settings), kernels_(&kernels) {
  CUVEE_EXPECTS(settings.window >= 1 && settings.window <= kMaxBlock, std::invalid_argument, "window must be in 1..",
                kMaxBlock, ", but got ", settings.window);
  add_sources(sources);
  check_weights(weights);
  std::vector<double> given(weights.begin(), weights.end());
  std::vector<Leaf> leaves;
  for (u32 k = 0; k < given.size(); ++k) {
    if (caps_[k] == 0) given[k] = 0;
    if (given[k] > 0) leaves.push_back({SourceId{k}, 0, 0});
  }
  CUVEE_EXPECTS(!leaves.empty(), std::invalid_argument,
                "weights must be above 0 for at least one source that has rows, but got none");
  u32 version = add_version(std::move(given));
  const Branch root = built(std::move(leaves), version, Clip::no);
  append(0, 0, root, 0, 0, version, Cause::start);
}

void Plan::add_sources(std::span<const SourceSpec> sources) {
  const std::unique_lock lock(mutex_);
  CUVEE_EXPECTS(sources_.size() + sources.size() < kMaxSources, std::length_error, "sources must be fewer than ",
                kMaxSources, ", but got ", sources_.size() + sources.size());
  for (const SourceSpec& spec : sources)
    CUVEE_EXPECTS(spec.rows <= kMaxRows, std::overflow_error, "rows must be at most ", kMaxRows, ", but got ",
                  spec.rows);
  for (const SourceSpec& spec : sources) {
    sources_.push_back({spec, {0, 0, spec.rows}, {}, -1});
    caps_.push_back(spec.rows == 0 ? 0 : spec.cap);
  }
}

void Plan::check_weights(std::span<const double> weights) const {
  CUVEE_EXPECTS(weights.size() == sources_.size(), std::invalid_argument, "weights must name all ", sources_.size(),
                " sources, but got ", weights.size());
  for (const double weight : weights)
    CUVEE_EXPECTS(std::isfinite(weight) && weight >= 0, std::invalid_argument,
                  "weights must be finite and at least 0, but got ", weight);
}

void Plan::append(u64 first, u64 origin, const Branch& root, u32 nodes, u32 departures, u32 version, Cause cause) {
  const bool is_change = cause == Cause::weights || cause == Cause::restart;
  const double known = segments_.empty() ? 0.0 : segments_.back().bound;
  const u64 changed = is_change || segments_.empty() ? first : segments_.back().changed;
  segments_.push_back({first, origin, root.ref, root.clock, changed, version, nodes, departures,
                       forest_.certificate(root.ref, known), cause});
}

// --- changes -----------------------------------------------------------------------------------------------------------

void Plan::check_change(u64 at) const {
  CUVEE_EXPECTS(at >= segments_.back().changed, std::invalid_argument, "at must be at least ", segments_.back().changed,
                ", the last change, but got ", at);
  const u64 taken_up = segments_.front().first;
  CUVEE_EXPECTS(integral_.empty() || at > taken_up, std::invalid_argument, "at must be after ", taken_up,
                ", where this plan was taken up, but got ", at);
  CUVEE_EXPECTS(at < ended_at_, std::invalid_argument, "at must be before the plan's end ", ended_at_, ", but got ",
                at);
}

void Plan::set_weights(u64 at, std::span<const double> weights, bool restart) {
  const std::unique_lock lock(mutex_);
  check_weights(weights);
  grow(at);
  check_change(at);
  CUVEE_EXPECTS(restart || window_of(at).first == at, std::invalid_argument,
                "at must be the first slot of a window, but got ", at, " in the window from ", window_of(at).first);
  change(at, weights, restart);
}

void Plan::restart(u64 at) {
  const std::unique_lock lock(mutex_);
  grow(at);
  check_change(at);
  const Segment& old = segment_of(at);
  const Branch root{old.root, old.root_clock + (at - old.first), 0, 0};
  const u32 version = old.version;
  drop_after(at);
  append(at, at, root, forest_.size(), static_cast<u32>(departures_.size()), version, Cause::restart);
}

void Plan::resize_source(SourceId source, u64 rows, u64 cap, u64 at_draw, u64 cycle) {
  const std::unique_lock lock(mutex_);
  CUVEE_EXPECTS(source.value < sources_.size(), std::out_of_range, "source must be below ", sources_.size(),
                ", but got ", source.value);
  CUVEE_EXPECTS(rows >= 1 && rows <= kMaxRows, std::invalid_argument, "rows must be in 1..", kMaxRows, ", but got ",
                rows);
  Source& resized = sources_[source.value];
  CUVEE_EXPECTS(cap > at_draw && at_draw >= resized.cycles.first_draw, std::invalid_argument,
                "at_draw must be below the cap ", cap, " and not before the last resize at ", resized.cycles.first_draw,
                ", but got ", at_draw);
  while (segments_.back().cause == Cause::exhaustion) drop_last();  // found again with the new cap
  ended_at_ = kEndless;
  ended_by_ = -1;
  resized.earlier.insert(resized.earlier.begin(), resized.cycles);
  resized.cycles = {at_draw, cycle, rows};
  resized.spec.rows = rows;
  resized.spec.cap = cap;
  caps_[source.value] = cap;
  forest_.refresh(caps_);
}

void Plan::rewind(u64 slot) {
  const std::unique_lock lock(mutex_);
  drop_from(slot);
}

// Drops the segments that begin after `slot`, and those that begin there by a change.
void Plan::drop_from(u64 slot) {
  drop_after(slot);
  while (segments_.size() > 1 && segments_.back().first == slot &&
         (segments_.back().cause == Cause::weights || segments_.back().cause == Cause::restart))
    drop_last();
}

void Plan::drop_after(u64 slot) {
  while (segments_.size() > 1 && segments_.back().first > slot) drop_last();
  if (ended_at_ > slot) {
    ended_at_ = kEndless;
    ended_by_ = -1;
  }
}

void Plan::drop_last() {
  const Segment& last = segments_.back();
  forest_.shrink(last.nodes);
  while (departures_.size() > last.departures) {
    sources_[departures_.back().source.value].departure = departures_.back().before;
    departures_.pop_back();
  }
  segments_.pop_back();
  versions_.resize(segments_.back().version + 1);
}

void Plan::change(u64 at, std::span<const double> weights, bool restart) {
  // what is wanted is decided before anything is dropped, so that a refused change changes nothing
  std::vector<u64> draws(sources_.size());
  for (u32 k = 0; k < draws.size(); ++k) draws[k] = draws_when_absent(sources_[k], at, nullptr);
  leaves_at(at, [&](SourceId source, u64 clock, i128) { draws[source.value] = clock; });
  std::vector<double> given(weights.begin(), weights.end());
  for (u32 k = 0; k < given.size(); ++k)
    if (draws[k] >= caps_[k]) given[k] = 0;
  CUVEE_EXPECTS(std::ranges::any_of(given, [](double weight) { return weight > 0; }), std::invalid_argument,
                "weights must be above 0 for at least one source that has rows left, but got none");

  const u64 origin = restart || segment_of(at).origin == at ? at : segment_of(at).origin;
  drop_from(at);
  const Segment old = segments_.back();
  const u32 nodes = forest_.size();
  const auto departures = static_cast<u32>(departures_.size());
  u32 version = add_version(std::move(given));
  const auto wanted = [&](u32 source) { return (*versions_[version].given)[source] > 0; };

  Branch root = reweigh(old.root, old.root_clock + (at - old.first), 0, versions_[version]);
  std::vector<bool> inside(sources_.size());
  std::vector<Leaf> leavers, joiners;
  for (const Leaf& leaf : leaves_of(root)) {
    inside[leaf.source.value] = true;
    if (!wanted(leaf.source.value)) leavers.push_back(leaf);
  }
  for (u32 k = 0; k < sources_.size(); ++k)
    if (wanted(k) && !inside[k]) joiners.push_back({SourceId{k}, draws[k], 0});

  bool empty = false;
  for (const Leaf& leaver : leavers) {
    const auto path = path_to(root.ref, root.clock, leaver.source);
    depart(leaver.source, at, leaver.draws, path.back().residual);
    empty = path.size() == 1;  // the last one: it owes nothing to anybody
    if (!empty) root = without(path, versions_[version]);
  }
  if (!joiners.empty() || needs_rebuild(root, version)) {
    std::vector<Leaf> leaves = empty ? std::vector<Leaf>() : leaves_of(root);
    leaves.insert(leaves.end(), joiners.begin(), joiners.end());
    root = built(std::move(leaves), version, Clip::no);
  }
  append(at, origin, root, nodes, departures, version, Cause::weights);
}

// --- trees -----------------------------------------------------------------------------------------------------------

u32 Plan::add_version(std::vector<double> given) {
  const double largest = std::ranges::max(given);
  versions_.push_back({std::make_shared<const std::vector<double>>(std::move(given)), largest});
  return static_cast<u32>(versions_.size() - 1);
}

Branch Plan::reweigh(Ref ref, u64 clock, i128 residual, const Version& version) {
  if (ref.is_leaf()) return {ref, clock, version.of(ref.source()), residual};
  const Node node = forest_[ref];  // a copy: the forest grows below
  const u64 left_clock = node.child_clock(0, clock);
  const u64 right_clock = node.child_clock(1, clock);
  const i128 left_residual = node.left_residual(clock, residual);
  const Branch left = reweigh(node.child[0], left_clock, left_residual, version);
  const Branch right = reweigh(node.child[1], right_clock, residual - left_residual, version);
  return forest_.join(left, right, Clip::no, caps_);
}

bool Plan::needs_rebuild(const Branch& root, u32 version) const {
  if (root.ref.is_leaf()) return versions_[version].of(root.ref.source()) < kLightestRoot;
  return forest_[root.ref].weight < kLightestRoot || forest_.path_sum_exceeds(root.ref, kLongestPathSum);
}

// In source order.
std::vector<Plan::Leaf> Plan::leaves_of(const Branch& root) const {
  std::vector<Leaf> leaves;
  forest_.leaves(root.ref, root.clock, 0,
                 [&](SourceId source, u64 clock, i128 residual) { leaves.push_back({source, clock, residual}); });
  std::ranges::sort(leaves, {}, &Leaf::source);
  return leaves;
}

// A new tree over leaves, weights over the largest of theirs: a version of its own if that is another one.
Branch Plan::built(std::vector<Leaf> leaves, u32& version, Clip clip) {
  std::ranges::sort(leaves, {}, &Leaf::source);
  const auto given = versions_[version].given;
  double largest = 0;
  for (const Leaf& leaf : leaves) largest = std::max(largest, (*given)[leaf.source.value]);
  if (largest != versions_[version].largest) {
    versions_.push_back({given, largest});
    version = static_cast<u32>(versions_.size() - 1);
  }
  std::vector<Branch> branches;
  branches.reserve(leaves.size());
  for (const Leaf& leaf : leaves)
    branches.push_back({Ref::leaf(leaf.source), leaf.draws, versions_[version].of(leaf.source), leaf.residual});
  return forest_.build(branches, clip, caps_);
}

// --- leaving -----------------------------------------------------------------------------------------------------------

// The way from the root to the leaf that is empty at the boundary `slot`.
std::vector<Plan::Step> Plan::path_to_empty(const Segment& segment, u64 slot) const {
  std::vector<Step> path;
  Ref ref = segment.root;
  u64 clock = segment.root_clock + (slot - segment.first);
  i128 residual = 0;
  while (!ref.is_leaf()) {
    const Node& node = forest_[ref];
    const u64 left_clock = node.child_clock(0, clock);
    const int side = forest_.empties(node.child[0], caps_) <= left_clock ? 0 : 1;
    path.push_back(Step::down(node, side, clock, residual));
    ref = node.child[side];
    clock = path.back().clock;
    residual = path.back().residual;
  }
  path.push_back(Step::at_leaf(ref, clock, residual));
  return path;
}

std::vector<Plan::Step> Plan::path_to(Ref root, u64 clock, SourceId source) const {
  std::vector<Step> path;
  find(root, clock, 0, source, path);
  return path;
}

bool Plan::find(Ref ref, u64 clock, i128 residual, SourceId source, std::vector<Step>& path) const {
  if (ref.is_leaf()) {
    if (ref.source() != source) return false;
    path.push_back(Step::at_leaf(ref, clock, residual));
    return true;
  }
  const Node& node = forest_[ref];
  for (int side = 0; side < 2; ++side) {
    const Step step = Step::down(node, side, clock, residual);
    path.push_back(step);
    if (find(node.child[side], step.clock, step.residual, source, path)) return true;
    path.pop_back();
  }
  return false;
}

// The tree without the leaf at the path's end: only the path's nodes are made anew. What the leaf took too early or too
// late is charged to the others by weight.
Branch Plan::without(const std::vector<Step>& path, const Version& version) {
  const std::size_t depth = path.size() - 1;  // inner nodes on the path; at least one
  const auto weight_of = [&](Ref ref) { return ref.is_leaf() ? version.of(ref.source()) : forest_[ref].weight; };
  const i128 charged = path.back().residual;

  // weights of the new nodes, bottom up; the last inner node gives way to its other child
  std::vector<double> weight(depth);
  weight[depth - 1] = weight_of(path[depth - 1].other);
  for (std::size_t level = depth - 1; level-- > 0;) {
    const double other = weight_of(path[level].other);
    weight[level] = path[level].side == 0 ? weight[level + 1] + other : other + weight[level + 1];
  }
  // residuals wanted below each new node, top down, so that they sum to 0
  std::vector<i128> wanted(depth, 0), wanted_other(depth, 0);
  for (std::size_t level = 0; level + 1 < depth; ++level) {
    const double other = weight_of(path[level].other);
    const i128 charge = weight[0] == 0       ? charged >> 1
                        : other >= weight[0] ? charged
                                             : scale(charged, as_fraction(other, weight[0]));
    wanted_other[level] = path[level].other_residual + charge;
    wanted[level + 1] = wanted[level] - wanted_other[level];
  }
  const Step& last = path[depth - 1];
  Branch below{last.other, last.other_clock, weight[depth - 1], wanted[depth - 1]};
  for (std::size_t level = depth - 1; level-- > 0;) {
    const Step& step = path[level];
    const Branch other{step.other, step.other_clock, weight_of(step.other), wanted_other[level]};
    below =
        step.side == 0 ? forest_.join(below, other, Clip::yes, caps_) : forest_.join(other, below, Clip::yes, caps_);
  }
  return below;
}

void Plan::depart(SourceId source, u64 slot, u64 draws, i128 residual) {
  Source& left = sources_[source.value];
  departures_.push_back({source, slot, draws, residual, left.departure});
  left.departure = static_cast<i64>(departures_.size()) - 1;
}

u64 Plan::draws_when_absent(const Source& source, u64 slot, i128* residual) const {
  i64 at = source.departure;
  while (at >= 0 && departures_[static_cast<u64>(at)].slot > slot) at = departures_[static_cast<u64>(at)].before;
  if (at < 0) return 0;
  if (residual != nullptr) *residual = departures_[static_cast<u64>(at)].residual;
  return departures_[static_cast<u64>(at)].draws;
}

u64 Plan::next_exhaustion() const noexcept {
  const Segment& last = segments_.back();
  const u64 empties = forest_.empties(last.root, caps_);
  return empties == kEndless ? kEndless : last.first + (empties - last.root_clock);
}

void Plan::exhaust(u64 slot) {
  const auto path = path_to_empty(segments_.back(), slot);
  const Step& leaf = path.back();
  if (settings_.stop || path.size() == 1) {
    ended_at_ = slot;
    ended_by_ = leaf.ref.source().value;
    return;
  }
  const u32 nodes = forest_.size();
  const auto departures = static_cast<u32>(departures_.size());
  u32 version = segments_.back().version;
  depart(leaf.ref.source(), slot, leaf.clock, leaf.residual);
  Branch root = without(path, versions_[version]);
  if (needs_rebuild(root, version)) root = built(leaves_of(root), version, Clip::yes);
  append(slot, slot, root, nodes, departures, version, Cause::exhaustion);
}

// Makes all segments that begin at or before `slot`.
void Plan::grow(u64 slot) {
  while (ended_at_ == kEndless) {
    const u64 next = next_exhaustion();
    if (next == kEndless || next > slot) return;
    exhaust(next);
  }
}

}  // namespace cuvee
