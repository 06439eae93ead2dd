#include "evaluation_index.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "error.hpp"

namespace cuvee {
namespace {

/// The least number of `size` shingles whose share, as a double, is at least `share`.
u32 least_shared(u32 size, double share) {
  auto least = std::max(static_cast<u32>(std::ceil(share * size)), 1U);
  while (least > 1 && static_cast<double>(least - 1) / size >= share) --least;
  while (least < size && static_cast<double>(least) / size < share) ++least;
  return least;
}

}  // namespace

u32 ShingleTable::number(u64 hash) {
  if (2 * (u64{size_} + 1) > slots_.size()) grow();
  Slot& slot = slots_[slot_of(hash)];
  if (slot.number == kNone) {
    CUVEE_EXPECTS(size_ < kNone - 1, std::length_error, "shingles must be fewer than 2**32 - 2");
    slot = {hash, size_++};
  }
  return slot.number;
}

void ShingleTable::grow() {
  const auto before = std::exchange(slots_, std::vector<Slot>(2 * slots_.size()));
  --shift_;
  for (const Slot& slot : before)
    if (slot.number != kNone) slots_[slot_of(slot.hash)] = slot;
}

void ShingleTable::finish() {
  constexpr u64 kBitsEach = 16;  // one in as many unknown ones is looked for in the slots
  known_.assign(std::bit_ceil(std::max<u64>(kBitsEach * size_, 64)) / 64, 0);
  for (const Slot& slot : slots_) {
    const u64 bit = slot.hash & (64 * known_.size() - 1);
    if (slot.number != kNone) known_[bit / 64] |= u64{1} << (bit % 64);
  }
}

EvaluationIndex::EvaluationIndex(ShingleRule rule, double share) : rule_(rule), share_(share) {
  CUVEE_EXPECTS(share > 0 && share <= 1, std::invalid_argument, "share must be in (0, 1], but got ", share);
}

void EvaluationIndex::add(std::span<const TextView> texts, u32 set) {
  CUVEE_EXPECTS(set + 1 >= sets(), std::invalid_argument,
                "set must be that of the last documents or a later one, but got ", set);
  Shingler shingler(rule_);
  std::vector<u64> distinct;
  if (set >= sets()) {
    same_.clear();
    set_ends_.resize(set + 1, groups());
  }
  for (const TextView& text : texts) {
    const auto hashes = shingler.hashes(text);
    distinct.resize(hashes.size());
    group_of_.push_back(group_with({distinct.data(), sort_distinct(hashes, distinct)}, set));
    is_short_.push_back(!hashes.empty() && shingler.units() < rule_.size);
  }
  set_ends_[set] = groups();
}

u32 EvaluationIndex::group_with(std::span<const u64> hashes, u32 set) {
  const XXH128_hash_t digest = XXH3_128bits(hashes.data(), hashes.size_bytes());
  const auto [place, is_new] = same_.try_emplace({digest.low64, digest.high64}, groups());
  if (!is_new) return place->second;
  for (const u64 hash : hashes) {
    const u32 shingle = table_.number(hash);
    groups_with_.resize(table_.size());
    ++groups_with_[shingle];
    members_.push_back(shingle);
  }
  starts_.push_back(members_.size());
  sets_.push_back(set);
  firsts_.push_back(narrow<u32>(group_of_.size(), "evaluation documents"));
  needed_.push_back(least_shared(narrow<u32>(hashes.size(), "shingles"), share_));
  open_.push_back(static_cast<u32>(hashes.size()));
  return place->second;
}

void EvaluationIndex::finish() {
  table_.finish();
  same_.clear();
  lists_.reserve(groups_with_.size());
  u64 begin = 0;
  for (const u32 count : groups_with_) {
    lists_.push_back({begin, 0, 0});
    begin += count;
  }
  holders_.resize(begin);
  rank(std::vector<u32>(table_.size()));
}

void EvaluationIndex::rank(std::span<const u32> met) {
  const auto how_often = [&](u32 shingle) { return std::tuple(met[shingle], groups_with_[shingle], shingle); };
  for (List& list : lists_) list.open = 0;
  for (u32 group = 0; group < groups(); ++group) {
    const std::span<u32> all{members_.data() + starts_[group], size_of(group)};
    std::ranges::sort(all, {}, how_often);
    for (u32 place = 0; place < all.size(); ++place) {
      List& list = lists_[all[place]];
      holders_[list.begin + list.open++] = {group, place};
    }
    open_[group] = size_of(group);
  }
  for (List& list : lists_) list.kept = list.open;
}

void EvaluationIndex::arrange(std::span<const u32> floors) {
  for (u32 group = 0; group < groups(); ++group) open_[group] = size_of(group) - floors[group];
  const auto is_open = [&](const Holder& holder) { return holder.rank < open_[holder.group]; };
  const auto shows_anything = [&](const Holder& holder) {
    return holder.rank < size_of(holder.group) - std::min(floors[holder.group], needed_[holder.group] - 1);
  };
  for (List& list : lists_) {
    const std::span<Holder> all{holders_.data() + list.begin, list.kept};
    const auto kept = std::partition(all.begin(), all.end(), shows_anything);
    const auto open = std::partition(all.begin(), kept, is_open);
    std::sort(open, kept, [](const Holder& a, const Holder& b) { return a.group < b.group; });
    list.open = static_cast<u32>(open - all.begin());
    list.kept = static_cast<u32>(kept - all.begin());
  }
}

}  // namespace cuvee
