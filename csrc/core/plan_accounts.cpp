// What a plan adds up to before a slot, and draw -> position. docs/algorithm.md, sections 3 to 6.
#include <algorithm>
#include <cmath>
#include <ranges>

#include "error.hpp"
#include "plan.hpp"

namespace cuvee {
namespace {

double rows_of(i128 ulps) noexcept { return std::ldexp(static_cast<double>(ulps), -64); }

}  // namespace

// --- accounts --------------------------------------------------------------------------------------------------------

std::vector<i64> Plan::counts(Position position) const {
  const u64 at = position.value;
  const auto lock = reading(at + settings_.window);
  check_range(at, at);
  std::vector<i64> counts(sources_.size());
  const bool inside = at < ended_at_;
  const Window window = inside ? window_of(at) : Window{at, at, at, nullptr};
  for (u32 k = 0; k < counts.size(); ++k)
    counts[k] = static_cast<i64>(draws_when_absent(sources_[k], window.first, nullptr));
  leaves_at(window.first, [&](SourceId source, u64 clock, i128) { counts[source.value] = static_cast<i64>(clock); });
  if (window.first == at) return counts;
  Block block(settings_.window);
  deal(window, window.end, block);
  for (u64 j = 0; j < at - window.first; ++j) ++counts[block.shares[block.share_of_position[j]].source.value];
  return counts;
}

std::vector<double> Plan::work(Slot slot) const {
  const auto lock = reading(slot.value);
  check_range(slot.value, slot.value);
  std::vector<double> work(sources_.size());
  const auto sum = [](u64 draws, i128 residual) { return rows_of((static_cast<i128>(draws) << 64) + residual); };
  for (u32 k = 0; k < work.size(); ++k) {
    i128 residual = 0;
    const u64 draws = draws_when_absent(sources_[k], slot.value, &residual);
    work[k] = sum(draws, residual);
  }
  leaves_at(slot.value, [&](SourceId source, u64 draws, i128 residual) { work[source.value] = sum(draws, residual); });
  return work;
}

std::vector<double> Plan::shares(Slot slot) const {
  const auto lock = reading(slot.value);
  check_range(slot.value, slot.value);
  const Version& version = versions_[segment_of(slot.value).version];
  std::vector<double> shares(sources_.size());
  double total = 0;
  leaves_at(slot.value, [&](SourceId source, u64, i128) { total += shares[source.value] = version.of(source); });
  for (double& share : shares) share = total > 0 ? share / total : share;
  return shares;
}

std::vector<double> Plan::integrals(u64 slot) const {
  std::vector<double> integral = integral_;
  integral.resize(sources_.size());
  std::vector<bool> active(sources_.size());
  u32 version = kNoVersion;
  double area = 0;  // integral of 1 / (weight of the tree) since the version came into force
  const auto settle = [&](u32 source) {
    if (active[source]) integral[source] += versions_[version].of({source}) * area;
    active[source] = false;
  };
  for (const Segment& segment : segments_) {
    if (segment.first > slot) break;
    if (segment.cause == Cause::exhaustion) settle(departures_[segment.departures].source.value);
    if (segment.version != version) {
      if (version != kNoVersion)
        for (u32 k = 0; k < active.size(); ++k) settle(k);
      version = segment.version;
      area = 0;
      forest_.leaves(segment.root, segment.root_clock, 0,
                     [&](SourceId source, u64, i128) { active[source.value] = true; });
    }
    const Ref root = segment.root;
    const double weight = root.is_leaf() ? versions_[version].of(root.source()) : forest_[root].weight;
    if (weight > 0) area += static_cast<double>(std::min(slot, segment_end(segment)) - segment.first) / weight;
  }
  for (u32 k = 0; k < active.size(); ++k) settle(k);
  return integral;
}

std::vector<double> Plan::rebased(Slot slot) const {
  std::vector<double> rebased = work(slot);
  const std::shared_lock lock(mutex_);
  const auto integral = integrals(slot.value);
  for (u32 k = 0; k < integral.size(); ++k) rebased[k] -= integral[k];
  return rebased;
}

// --- back from draws to positions ------------------------------------------------------------------------------------

// For each leaf of the segment: slots[source] = slot of its draw want(source, clock at the segment's first slot),
// unless that is kEndless; kEndless if the draw lies before the segment's trees were made.
template <class Want>
void Plan::climb(const Segment& segment, std::span<u64> slots, const Want& want) const {
  std::vector<Turn> way;
  const auto slot_of_draw = [&](u64 arrival) {
    for (const auto [node, side] : std::views::reverse(way)) {
      const u64 base = node->base[side];
      if (arrival < base) return kEndless;
      const u64 needed = node->arrivals_for(side, arrival - base + 1);
      if (needed == kEndless) return kEndless;
      arrival = needed - 1;
    }
    return arrival < segment.root_clock ? kEndless : segment.first + (arrival - segment.root_clock);
  };
  const auto descend = [&](const auto& self, Ref ref, u64 clock) -> void {
    if (ref.is_leaf()) {
      const u64 draw = want(ref.source(), clock);
      if (draw != kEndless) slots[ref.source().value] = slot_of_draw(draw);
      return;
    }
    const Node& node = forest_[ref];
    for (int side = 0; side < 2; ++side) {
      way.push_back({&node, side});
      self(self, node.child[side], node.child_clock(side, clock));
      way.pop_back();
    }
  };
  descend(descend, segment.root, segment.root_clock);
}

std::vector<u64> Plan::slots_of(std::span<const i64> draws) const {
  const auto lock = reading(kEndless);
  CUVEE_EXPECTS(draws.size() == sources_.size(), std::invalid_argument, "draws must name all ", sources_.size(),
                " sources, but got ", draws.size());
  std::vector<u64> found(sources_.size(), kEndless);
  std::vector<u64> here(sources_.size());
  std::size_t missing = found.size();
  for (const Segment& segment : segments_) {
    const u64 end = segment_end(segment);
    std::ranges::fill(here, kEndless);
    climb(segment, here, [&](SourceId source, u64 clock) {
      const auto draw = static_cast<u64>(draws[source.value]);
      return found[source.value] != kEndless || draw < clock ? kEndless : draw;
    });
    for (u32 k = 0; k < found.size(); ++k)
      if (here[k] < end) {
        found[k] = here[k];
        --missing;
      }
    if (missing == 0) break;
  }
  return found;
}

std::vector<u64> Plan::positions_of(std::span<const i64> draws) const {
  std::vector<u64> found = slots_of(draws);
  const std::shared_lock lock(mutex_);
  Block block(settings_.window);
  for (u32 k = 0; k < found.size(); ++k) {
    if (found[k] == kEndless) continue;
    const Window window = window_of(found[k]);
    deal(window, window.end, block);
    const auto share = std::ranges::find(block.shares, SourceId{k}, &Share::source);
    const auto index = static_cast<u16>(share - block.shares.begin());
    u64 before = static_cast<u64>(draws[k]) - share->first_draw;
    u64 j = 0;
    while (block.share_of_position[j] != index || before-- != 0) ++j;
    found[k] = window.first + j;
  }
  return found;
}

u64 Plan::seen_all(Slot start) const {
  const auto lock = reading(kEndless);
  check_range(start.value, start.value);
  std::vector<u64> wanted(sources_.size());  // draws after which a source has been seen
  for (u32 k = 0; k < wanted.size(); ++k) wanted[k] = draws_when_absent(sources_[k], start.value, nullptr);
  leaves_at(start.value, [&](SourceId source, u64 clock, i128) { wanted[source.value] = clock; });
  for (u32 k = 0; k < wanted.size(); ++k) wanted[k] += sources_[k].spec.rows;
  std::vector<u64> last(sources_.size());
  std::vector<bool> missing(sources_.size());
  for (const Segment* segment = &segment_of(start.value); segment != segments_.data() + segments_.size(); ++segment) {
    u64 seen = std::max(segment->first, start.value);
    missing.assign(missing.size(), false);
    climb(*segment, last, [&](SourceId source, u64 clock) {
      missing[source.value] = clock < wanted[source.value];
      return missing[source.value] ? wanted[source.value] - 1 : kEndless;
    });
    for (u32 k = 0; k < last.size(); ++k)
      if (missing[k]) seen = std::max(seen, last[k] == kEndless ? kEndless : last[k] + 1);
    if (seen <= segment_end(*segment)) return seen;
  }
  return kEndless;
}

std::vector<std::pair<u64, SourceId>> Plan::exhaustions(Slot until) const {
  const auto lock = reading(until.value);
  std::vector<std::pair<u64, SourceId>> found;
  for (const Segment& segment : segments_)
    if (segment.cause == Cause::exhaustion && segment.first <= until.value)
      found.emplace_back(segment.first, departures_[segment.departures].source);
  if (ended_at_ != kEndless && ended_at_ <= until.value)
    found.emplace_back(ended_at_, SourceId{static_cast<u32>(ended_by_)});
  return found;
}

}  // namespace cuvee
