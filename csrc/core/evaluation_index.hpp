#pragma once

#include <cstddef>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shingles.hpp"
#include "types.hpp"

namespace cuvee {

/// Numbers shingles 0, 1, ... as they come. Most that are looked for are unknown, which a small table of bits tells.
class ShingleTable {
 public:
  static constexpr u32 kNone = ~u32{0};

  /// The number of a shingle; of one that is new the next.
  u32 number(u64 hash);
  /// Must be called after the last new one and before the first `find`.
  void finish();
  u32 size() const noexcept { return size_; }

  /// The number of a shingle, kNone if it is unknown.
  u32 find(u64 hash) const noexcept {
    const u64 bit = hash & (64 * known_.size() - 1);
    return (known_[bit / 64] >> (bit % 64) & 1) == 0 ? kNone : slots_[slot_of(hash)].number;
  }

 private:
  struct Slot {
    u64 hash = 0;
    u32 number = kNone;
  };

  u64 slot_of(u64 hash) const noexcept {
    u64 at = hash >> shift_;
    while (slots_[at].number != kNone && slots_[at].hash != hash) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  void grow();

  std::vector<Slot> slots_ = std::vector<Slot>(64);  // at most half full
  int shift_ = 58;                                   // leaves of a hash the number of a slot
  std::vector<u64> known_;                           // bit i: a shingle's hash ends in i
  u32 size_ = 0;
};

/// A group of evaluation documents of one set that have the same shingles, as far as one of them tells: `rank` is the
/// shingle's place among those of the group, the one that leads to it most seldom first.
struct Holder {
  u32 group;
  u32 rank;
};

/// Evaluation documents by their shingles, so that few are looked at for a document that streams by.
///
/// Who has more than f of a group's n shingles has one of any n - f. So only the n - f of least rank lead to it, f
/// being its floor: what another document must exceed to tell anything about it. Shingles that many documents have, or
/// many groups, are the last of each, and soon lead nowhere. Whoever has `needed` shingles contains the group. Where
/// the floor is not below that, only which documents contain it is left to tell: shingles that show no more are held
/// apart.
class EvaluationIndex {
 public:
  EvaluationIndex(ShingleRule rule, double share);

  /// Adds documents of a set. Sets come in rising order.
  void add(std::span<const TextView> texts, u32 set);
  /// Must be called after the last `add` and before what follows.
  void finish();
  /// Ranks each group's shingles anew: those first that were met least, of these the ones that fewer groups have. All
  /// of them lead to the group then, until `arrange`.
  void rank(std::span<const u32> met);
  /// Lets only those shingles lead to a group that show something, given each group's floor.
  void arrange(std::span<const u32> floors);

  ShingleRule rule() const noexcept { return rule_; }
  u32 groups() const noexcept { return static_cast<u32>(sets_.size()); }
  u32 sets() const noexcept { return static_cast<u32>(set_ends_.size()); }
  u64 holders() const noexcept { return holders_.size(); }

  // of evaluation documents
  std::span<const u32> group_of() const noexcept { return group_of_; }
  std::span<const u8> is_short() const noexcept { return is_short_; }

  // of groups
  std::span<const u32> shingles(u32 group) const noexcept {
    return {members_.data() + starts_[group], starts_[group + 1] - starts_[group]};
  }
  u32 needed(u32 group) const noexcept { return needed_[group]; }
  u32 open(u32 group) const noexcept { return open_[group]; }  ///< of its shingles that lead to it
  u32 set_of(u32 group) const noexcept { return sets_[group]; }
  u32 first_of(u32 group) const noexcept { return firsts_[group]; }  ///< its first document
  u32 end_of_set(u32 set) const noexcept { return set_ends_[set]; }  ///< behind its last group

  // of shingles
  const ShingleTable& table() const noexcept { return table_; }
  std::span<const Holder> led_to(u32 shingle) const noexcept {
    return {holders_.data() + lists_[shingle].begin, lists_[shingle].open};
  }
  /// Groups that it shows to be contained and nothing else, rising.
  std::span<const Holder> held_apart(u32 shingle) const noexcept {
    const List& list = lists_[shingle];
    return {holders_.data() + list.begin + list.open, list.kept - list.open};
  }

 private:
  struct List {
    u64 begin;
    u32 open;
    u32 kept;
  };
  struct SetDigest {
    u64 low, high;
    bool operator==(const SetDigest&) const = default;
  };
  struct FirstHalf {
    std::size_t operator()(const SetDigest& digest) const noexcept { return digest.low; }
  };

  u32 group_with(std::span<const u64> hashes, u32 set);
  u32 size_of(u32 group) const noexcept { return static_cast<u32>(starts_[group + 1] - starts_[group]); }

  ShingleRule rule_;
  double share_;
  std::vector<u32> group_of_;
  std::vector<u8> is_short_;
  std::vector<u64> starts_{0};
  std::vector<u32> members_, sets_, firsts_, needed_, open_, set_ends_;
  std::unordered_map<SetDigest, u32, FirstHalf> same_;  // groups of the last set
  ShingleTable table_;
  std::vector<u32> groups_with_;  // a shingle
  std::vector<List> lists_;
  std::vector<Holder> holders_;
};

}  // namespace cuvee
