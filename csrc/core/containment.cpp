#include "containment.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "error.hpp"
#include "parallel.hpp"

namespace cuvee {
namespace {

constexpr u32 kNone = ShingleTable::kNone;
constexpr u64 kFirstStep = 64, kLastStep = 8192;  // few at first, while everything that is found is news
constexpr u64 kMany = 256;                        // holders that a document's shingles lead to
constexpr u64 kMostMet = u64{1} << 20;            // shingles that are noted between two merges
constexpr u64 kRankingCosts = 16;                 // times what arranging does, about

}  // namespace

struct Containment::Raise {
  u32 group;
  u32 shared;
  i64 document;
};

/// What one thread finds in its part of the documents, which it looks through in their order.
class Containment::Scanner {
 public:
  Scanner(const EvaluationIndex& index, std::span<const u32> best)
      : index_(&index),
        best_(best),
        shingler_(index.rule()),
        floors_(index.groups()),
        counts_(index.groups()),
        tried_(index.groups()),
        seen_(index.table().size()),
        firsts_(index.sets()) {}

  void look_through(const TextView& text, i64 document) {
    find_shingles(text);
    if (shingles_.empty()) return;
    std::ranges::fill(firsts_, First{});
    const u64 before = visited;
    count_shared();
    for (const u32 group : touched_) judge(group, document);
    touched_.clear();
    for (const u32 shingle : shingles_) try_settled(index_->held_apart(shingle));
    if (visited - before > kMany && met.size() < kMostMet) met.insert(met.end(), shingles_.begin(), shingles_.end());
    for (const First& first : firsts_)
      if (first.group != kNone) found.push_back({document, index_->first_of(first.group), share_of(first)});
  }

  void set_floor(u32 group, u32 floor) { floors_[group] = floor; }

  std::vector<Raise> raises;
  std::vector<Contained> found;
  std::vector<u32> met;  // shingles of documents that took long
  u64 visited = 0;

 private:
  struct First {
    u32 group = kNone;  // the first of a set that the document contains
    u32 shared = 0;
  };

  void find_shingles(const TextView& text) {
    if (++now_ == 0) {  // after 2^32 documents
      std::ranges::fill(seen_, 0);
      std::ranges::fill(tried_, 0);
      now_ = 1;
    }
    shingles_.clear();
    for (const u64 hash : shingler_.hashes(text)) {
      const u32 shingle = index_->table().find(hash);
      if (shingle == kNone || seen_[shingle] == now_) continue;
      seen_[shingle] = now_;
      shingles_.push_back(shingle);
    }
  }

  void count_shared() {
    for (const u32 shingle : shingles_) {
      const auto holders = index_->led_to(shingle);
      visited += holders.size();
      for (const Holder& holder : holders)
        if (counts_[holder.group]++ == 0) touched_.push_back(holder.group);
    }
  }

  /// Finds out how much the document has of a group of whose open shingles it has some, unless that cannot matter.
  void judge(u32 group, i64 document) {
    const auto all = index_->shingles(group);
    First& first = firsts_[index_->set_of(group)];
    const u32 needed = index_->needed(group);
    const u32 least = group < first.group ? std::min(floors_[group] + 1, needed) : floors_[group] + 1;
    u32 shared = std::exchange(counts_[group], 0);
    for (u64 rank = index_->open(group); rank < all.size(); ++rank) {
      if (shared + (all.size() - rank) < least) return;
      shared += seen_[all[rank]] == now_;
    }
    if (shared > floors_[group]) {
      floors_[group] = std::max(shared, best_[group]);
      raises.push_back({group, shared, document});
    }
    if (shared >= needed && group < first.group) first = {group, shared};
  }

  /// Looks for groups that come before the first of their set, among those that a document of this source contained.
  void try_settled(std::span<const Holder> holders) {
    for (auto at = holders.begin(); at != holders.end(); ++visited) {
      const u32 group = at->group, set = index_->set_of(group);
      if (group >= firsts_[set].group) {
        at = std::partition_point(at, holders.end(),
                                  [=, end = index_->end_of_set(set)](const Holder& h) { return h.group < end; });
        continue;
      }
      if (std::exchange(tried_[group], now_) != now_) try_to_contain(group, firsts_[set]);
      ++at;
    }
  }

  void try_to_contain(u32 group, First& first) {
    const auto all = index_->shingles(group);
    const u64 spare = all.size() - index_->needed(group);
    u64 missing = 0;
    for (const u32 shingle : all) {
      missing += seen_[shingle] != now_;
      if (missing > spare) return;
    }
    first = {group, static_cast<u32>(all.size() - missing)};
  }

  double share_of(const First& first) const {
    return static_cast<double>(first.shared) / static_cast<double>(index_->shingles(first.group).size());
  }

  const EvaluationIndex* index_;
  std::span<const u32> best_;  // before this part of the documents
  Shingler shingler_;
  std::vector<u32> floors_, counts_;     // of groups
  std::vector<u32> tried_, seen_;        // the last document for which a group was, a shingle is in
  std::vector<First> firsts_;            // of sets
  std::vector<u32> shingles_, touched_;  // of this document: known ones, and groups they lead to
  u32 now_ = 0;
};

Containment::Containment(ShingleRule rule, double share, u32 threads)
    : index_(rule, share), threads_(std::max(threads, 1U)) {}

Containment::~Containment() = default;

void Containment::add(std::span<const TextView> texts, u32 set) {
  const std::lock_guard lock(mutex_);
  CUVEE_EXPECTS(scanners_.empty(), std::logic_error, "evaluation documents must be added before the first source");
  index_.add(texts, set);
}

void Containment::begin() {
  index_.finish();
  best_.resize(index_.groups());
  best_document_.resize(index_.groups(), -1);
  floors_.resize(index_.groups());
  met_.resize(index_.table().size());
  scanners_.reserve(threads_);
  for (u32 thread = 0; thread < threads_; ++thread) scanners_.emplace_back(index_, best_);
}

void Containment::begin_source() {
  const std::lock_guard lock(mutex_);
  if (scanners_.empty()) begin();
  bool any = false;
  for (u32 group = 0; group < index_.groups(); ++group) {
    if (floors_[group] < index_.needed(group)) continue;
    floors_[group] = index_.needed(group) - 1;  // it is news who contains it in this source
    share_floor(group);
    any = true;
  }
  if (any) index_.arrange(floors_);
  step_ = kFirstStep;
}

void Containment::share_floor(u32 group) {
  for (Scanner& scanner : scanners_) scanner.set_floor(group, floors_[group]);
}

std::vector<Contained> Containment::scan(std::span<const TextView> texts, i64 first) {
  const std::lock_guard lock(mutex_);
  CUVEE_EXPECTS(!scanners_.empty(), std::logic_error, "a source must be begun before its documents come");
  std::vector<Contained> found;
  for (u64 at = 0; at < texts.size();) {
    const u64 count = std::min(texts.size() - at, step_ * threads_);
    split_over_threads(count, threads_, [&](u32 part, u64 from, u64 to) {
      for (u64 i = at + from; i < at + to; ++i) scanners_[part].look_through(texts[i], first + static_cast<i64>(i));
    });
    merge(found);
    at += count;
    step_ = std::min(2 * step_, kLastStep);
  }
  return found;
}

/// Takes what the scanners found, in the order of their documents.
void Containment::merge(std::vector<Contained>& found) {
  for (Scanner& scanner : scanners_) {
    found.insert(found.end(), scanner.found.begin(), scanner.found.end());
    scanner.found.clear();
    visited_ += std::exchange(scanner.visited, 0);
    for (const Raise& raise : scanner.raises) {
      if (raise.shared > best_[raise.group]) {
        best_[raise.group] = raise.shared;
        best_document_[raise.group] = raise.document;
      }
      floors_[raise.group] = best_[raise.group];  // any raise makes it so: it is more than needed, or the first to be
    }
  }
  for (Scanner& scanner : scanners_) {
    for (const u32 shingle : scanner.met) ++met_[shingle];
    scanner.met.clear();
    raised_ |= !scanner.raises.empty();
    for (const Raise& raise : scanner.raises) share_floor(raise.group);
    scanner.raises.clear();
  }
  lead_less();
}

/// Makes shingles lead to fewer groups, whenever as much was spent on following them as this costs.
void Containment::lead_less() {
  const bool rank = visited_ + visited_as_ranked_ >= kRankingCosts * index_.holders();
  if (!rank && !(raised_ && visited_ >= index_.holders())) return;
  visited_as_ranked_ = rank ? 0 : visited_as_ranked_ + visited_;
  visited_ = 0;
  raised_ = false;
  if (rank) index_.rank(met_);
  index_.arrange(floors_);
}

std::vector<BestShare> Containment::best() const {
  const std::lock_guard lock(mutex_);
  std::vector<BestShare> out;
  out.reserve(index_.group_of().size());
  for (const u32 group : index_.group_of()) {
    BestShare share{.shingles = static_cast<u32>(index_.shingles(group).size())};
    if (!scanners_.empty()) {
      share.shared = best_[group];
      share.document = best_document_[group];
      share.contained = floors_[group] >= index_.needed(group);
    }
    out.push_back(share);
  }
  return out;
}

std::vector<bool> Containment::is_short() const {
  const std::lock_guard lock(mutex_);
  return {index_.is_short().begin(), index_.is_short().end()};
}

}  // namespace cuvee
