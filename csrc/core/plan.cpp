// Position -> draw: docs/algorithm.md, sections 3 and 5. How plans are built: plan_build.cpp; what they add up to, and
// draw -> position: plan_accounts.cpp.
#include "plan.hpp"

#include <algorithm>
#include <numeric>

#include "error.hpp"
#include "hash.hpp"
#include "parallel.hpp"

namespace cuvee {
namespace {

u64 round_up(u64 value, u64 step) noexcept { return (value + step - 1) / step * step; }

// A small number for each slot of a window, mostly without an allocation.
class OnePerSlot {
 public:
  explicit OnePerSlot(u32 length) : large_(length > small_.size() ? length : 0) {}
  u16* data() noexcept { return large_.empty() ? small_.data() : large_.data(); }
  u16& operator[](std::size_t slot) noexcept { return data()[slot]; }
  std::span<const u16> first(u32 count) noexcept { return {data(), count}; }

 private:
  std::array<u16, 256> small_;
  std::vector<u16> large_;
};

// The turns from the root to a leaf, mostly without an allocation.
template <class Turn>
class WayOf {
 public:
  void push(Turn turn) {
    if (depth_ < near_.size()) {
      near_[depth_++] = turn;
      return;
    }
    if (far_.empty()) far_.assign(near_.begin(), near_.end());
    far_.push_back(turn);
  }
  std::span<const Turn> turns() const noexcept {
    return far_.empty() ? std::span(near_).first(depth_) : std::span(far_);
  }

 private:
  std::array<Turn, 64> near_;
  std::vector<Turn> far_;
  std::size_t depth_ = 0;
};

constexpr u64 kChunkDraws = u64{1} << 17;  // hashed at once by one thread

// Slots dealt at once: few enough for the caches, many enough for a middling source to fill vectors.
u64 block_slots(u64 sources) noexcept { return std::clamp<u64>(256 * sources, 4096, kMaxBlock); }

}  // namespace

// --- what is built ---------------------------------------------------------------------------------------------------

std::shared_lock<std::shared_mutex> Plan::reading(u64 slot) const {
  {
    std::shared_lock lock(mutex_);
    const u64 next = next_exhaustion();
    if (ended_at_ != kEndless || next == kEndless || next > slot) return lock;
  }
  {
    const std::unique_lock lock(mutex_);
    const_cast<Plan*>(this)->grow(slot);  // only remembers what is already determined
  }
  return std::shared_lock(mutex_);
}

void Plan::check_range(u64 start, u64 stop) const {
  CUVEE_EXPECTS(start <= stop && stop <= ended_at_, std::out_of_range, "positions must be in 0..", ended_at_,
                ", but got ", start, "..", stop);
  CUVEE_EXPECTS(start >= segments_.front().first, std::out_of_range, "positions must be at least ",
                segments_.front().first, ", where this plan was taken up, but got ", start);
}

u32 Plan::source_count() const {
  const std::shared_lock lock(mutex_);
  return static_cast<u32>(sources_.size());
}

u64 Plan::end() const {
  const auto lock = reading(kEndless);
  return ended_at_;
}

i64 Plan::ended_by() const {
  const auto lock = reading(kEndless);
  return ended_by_;
}

u64 Plan::last_change() const {
  const std::shared_lock lock(mutex_);
  return segments_.back().changed;
}

double Plan::bound() const {
  const auto lock = reading(kEndless);
  return segments_.back().bound;
}

u64 Plan::segment_count() const {
  const std::shared_lock lock(mutex_);
  return segments_.size();
}

u64 Plan::bytes() const {
  const std::shared_lock lock(mutex_);
  u64 total = forest_.bytes() + segments_.capacity() * sizeof(Segment) + departures_.capacity() * sizeof(Departure) +
              sources_.capacity() * sizeof(Source) + caps_.capacity() * sizeof(u64);
  for (const Version& version : versions_) {  // some share their weights
    const auto sharers = static_cast<u64>(std::max(version.given.use_count(), 1L));
    total += sizeof(Version) + version.given->capacity() * sizeof(double) / sharers;
  }
  return total;
}

const Plan::Segment& Plan::segment_of(u64 slot) const noexcept {
  return *std::prev(std::ranges::upper_bound(segments_, slot, {}, &Segment::first));
}

u64 Plan::segment_end(const Segment& segment) const noexcept {
  const auto next = static_cast<std::size_t>(&segment - segments_.data()) + 1;
  if (next < segments_.size()) return segments_[next].first;
  return std::min(ended_at_, next_exhaustion());
}

// --- windows ---------------------------------------------------------------------------------------------------------

Plan::Window Plan::window_of(u64 position) const noexcept {
  const Segment& segment = segment_of(position);
  u64 origin = segment.origin;
  u64 grid_end = segment_end(segment);
  if (settings_.epoch_rows != 0) {
    const u64 epoch = position < settings_.epoch_rows ? 0 : position - position % settings_.epoch_rows;
    origin = std::max(origin, epoch);
    grid_end = std::min(grid_end, epoch + settings_.epoch_rows);
  }
  const u64 since = position - origin;
  const u64 window = settings_.window;
  const u64 first = position - ((window & (window - 1)) == 0 ? since & (window - 1) : since % window);
  return {first, std::min(first + window, grid_end), grid_end, &segment};
}

std::pair<u64, u64> Plan::window(Position position) const {
  const auto lock = reading(position.value);
  check_range(position.value, position.value);
  CUVEE_EXPECTS(position.value < ended_at_, std::out_of_range, "position must be below the plan's end ", ended_at_,
                ", but got ", position.value);
  const Window window = window_of(position.value);
  return {window.first, window.end};
}

// --- one draw --------------------------------------------------------------------------------------------------------

// Where a draw stands in the passes over its source; a source that was resized counts by other rules before that.
Plan::Passage Plan::passage_of(const Source& source, u64 draw) {
  const Cycles* rules = &source.cycles;
  u64 rules_end = kEndless;
  for (const Cycles& earlier : source.earlier) {
    if (draw >= rules->first_draw) break;
    rules_end = rules->first_draw;
    rules = &earlier;
  }
  const u64 since = draw - rules->first_draw;
  const u64 rank = since % rules->rows;
  const auto cycle = narrow<i32>(rules->first_cycle + since / rules->rows, "cycle");
  return {static_cast<u32>(cycle), rank, rules->rows, std::min(rules->rows - rank, rules_end - draw)};
}

Slot Plan::slot_at(const Window& window, u64 position) const noexcept {
  const u64 length = window.end - window.first;
  const u64 place = position - window.first;
  const u64 key = window_key(settings_.windows_key, window.first, length);
  if (length == 64) return {window.first + permute_64(key, place)};
  return {window.first + Bijection(length, key)(place)};
}

SourceId Plan::source_at(Position position) const {
  const auto lock = reading(position.value + settings_.window);
  check_range(position.value, position.value + 1);
  return descend(arrival_at(position.value));
}

// Where the draw at a position enters the tree.
Plan::Arrival Plan::arrival_at(u64 position) const noexcept {
  const Window window = window_of(position);
  const Segment& segment = *window.segment;
  return {segment.root, segment.root_clock + (slot_at(window, position).value - segment.first)};
}

Plan::Arrival Plan::step(Arrival at, bool& right) const noexcept {
  const Node& node = forest_[at.ref];
  __builtin_prefetch(&forest_[node.child[0]]);
  __builtin_prefetch(&forest_[node.child[1]]);
  u64 index = 0;
  right = node.goes_right(at.clock, index);
  return {node.child[right], node.base[right] + index};
}

SourceId Plan::descend(Arrival at) const noexcept {
  bool right = false;
  while (!at.ref.is_leaf()) at = step(at, right);
  return at.ref.source();
}

// Draws of the source at the end of `way` before the `place`-th position of the window that holds it: those before the
// window, then the window's slots are followed down the way, and those that arrive count if their position is earlier.
u64 Plan::draws_before(const Window& window, std::span<const Turn> way, std::span<const u16> slot_of, u64 place) const {
  u64 clock = window.segment->root_clock + (window.first - window.segment->first);
  const auto length = static_cast<u32>(slot_of.size());
  OnePerSlot one(length), other(length);
  for (u32 t = 0; t < length; ++t) one[t] = static_cast<u16>(t);
  const u16* slots = one.data();
  u16* spare = other.data();
  u32 arrived = length;
  for (const auto [node, side] : way) {
    if (arrived > 1) {  // the last one left is the one asked for
      const auto lefts = static_cast<u32>(node->left_of(clock + arrived) - node->left_of(clock));
      kernels_->split(*node, clock, slots, arrived, spare, lefts);
      slots = side == 0 ? spare : spare + lefts;
      spare = spare == other.data() ? one.data() : other.data();
      arrived = side == 0 ? lefts : arrived - lefts;
    }
    clock = node->child_clock(side, clock);
  }
  if (arrived == 1) return clock;
  if (length <= 64) {
    u64 holds = 0;
    for (u32 t = 0; t < arrived; ++t) holds |= u64{1} << slots[t];
    for (u64 j = 0; j < place; ++j) clock += holds >> slot_of[j] & 1;
  } else {
    std::vector<bool> holds(length);
    for (u32 t = 0; t < arrived; ++t) holds[slots[t]] = true;
    for (u64 j = 0; j < place; ++j) clock += holds[slot_of[j]];
  }
  return clock;
}

Draw Plan::draw_at(u64 position) const {
  const Window window = window_of(position);
  const auto length = static_cast<u32>(window.end - window.first);
  OnePerSlot slot_of(length);
  kernels_->permute_window({length, window_key(settings_.windows_key, window.first, length)}, slot_of.data());
  const u64 place = position - window.first;
  const u64 slot = window.first + slot_of[place];

  WayOf<Turn> way;
  Arrival at{window.segment->root, window.segment->root_clock + (slot - window.segment->first)};
  while (!at.ref.is_leaf()) {
    const Node* const node = &forest_[at.ref];
    bool right = false;
    at = step(at, right);
    way.push({node, right});
  }
  const u64 drawn = draws_before(window, way.turns(), slot_of.first(length), place);
  const Source& source = sources_[at.ref.source().value];
  const Passage passage = passage_of(source, drawn);
  const u64 row = settings_.shuffle
                      ? Bijection(passage.rows, cycle_key(source.spec.row_key, passage.cycle))(passage.rank)
                      : passage.rank;
  return {at.ref.source(), passage.cycle, row};
}

Draw Plan::at(Position position) const {
  const auto lock = reading(position.value + settings_.window);
  check_range(position.value, position.value + 1);
  return draw_at(position.value);
}

// --- many draws ------------------------------------------------------------------------------------------------------

// Deals the slots [window.first, end), whole windows of one grid, and arranges them.
void Plan::deal(const Window& window, u64 end, Block& block) const {
  const Segment& segment = *window.segment;
  const auto count = static_cast<u32>(end - window.first);
  kernels_->deal(forest_.nodes(), segment.root, segment.root_clock + (window.first - segment.first), count, block);
  kernels_->arrange(settings_.windows_key, window.first, settings_.window, count, block);
}

// Rows and cycles of a share's draws: a run for each cycle it meets.
void Plan::draw_rows(const Share& share, Block& block) const {
  const Source& source = sources_[share.source.value];
  for (u32 done = 0; done < share.count;) {
    const Passage at = passage_of(source, share.first_draw + done);
    const auto run = static_cast<u32>(std::min<u64>(share.count - done, at.left));
    u64* const rows = block.rows.data() + share.begin + done;
    if (settings_.shuffle)
      kernels_->permute({at.rows, cycle_key(source.spec.row_key, at.cycle)}, at.rank, run, rows);
    else
      std::iota(rows, rows + run, at.rank);
    std::fill_n(block.cycles.data() + share.begin + done, run, static_cast<i32>(at.cycle));
    done += run;
  }
}

// Writes the draws at [start, stop): block after block, deal -> arrange -> rows -> write.
void Plan::write_range(u64 start, u64 stop, DrawPointers out) const {
  const u64 window_slots = settings_.window;
  const u64 most = std::max(window_slots, block_slots(sources_.size()) / window_slots * window_slots);
  Block block(static_cast<u32>(std::min(most, round_up(stop - start, window_slots) + window_slots)));
  for (u64 position = start; position < stop;) {
    const Window window = window_of(position);
    const u64 wanted = std::min(most, round_up(stop - window.first, window_slots));
    const u64 end = std::min(window.grid_end, window.first + wanted);
    deal(window, end, block);
    for (const Share& share : block.shares) draw_rows(share, block);
    const u64 last = std::min(stop, end);
    const u64 offset = position - start;
    kernels_->write(block, static_cast<u32>(position - window.first), static_cast<u32>(last - window.first),
                    {out.source + offset, out.row + offset, out.cycle + offset});
    position = last;
  }
}

void Plan::fill(Position start, DrawColumns out, u32 threads) const {
  const u64 count = out.source.size();
  CUVEE_EXPECTS(out.row.size() == count && out.cycle.size() == count, std::invalid_argument,
                "source, row and cycle must be of one size, but got ", count, ", ", out.row.size(), " and ",
                out.cycle.size());
  CUVEE_EXPECTS(start.value <= kEndless - count, std::out_of_range, "positions must be below 2^63, but got ",
                start.value);
  const u64 stop = start.value + count;
  const auto lock = reading(stop + settings_.window);
  check_range(start.value, stop);
  split_over_threads(count, threads, [&](u32, u64 first, u64 last) {
    write_range(start.value + first, start.value + last,
                {out.source.data() + first, out.row.data() + first, out.cycle.data() + first});
  });
}

void Plan::at(std::span<const i64> positions, DrawColumns out) const {
  const auto lock =
      reading(positions.empty() ? 0 : static_cast<u64>(*std::ranges::max_element(positions)) + settings_.window);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto position = static_cast<u64>(positions[i]);
    check_range(position, position + 1);
    const Draw draw = draw_at(position);
    out.source[i] = static_cast<i32>(draw.source.value);
    out.row[i] = static_cast<i64>(draw.row);
    out.cycle[i] = static_cast<i32>(draw.cycle);
  }
}

void Plan::sources_at(std::span<const i64> positions, std::span<i32> out) const {
  const auto lock =
      reading(positions.empty() ? 0 : static_cast<u64>(*std::ranges::max_element(positions)) + settings_.window);
  std::array<Arrival, 4> together;  // the arithmetic of one need not wait for that of another
  for (std::size_t done = 0; done < positions.size(); done += together.size()) {
    const std::size_t count = std::min(together.size(), positions.size() - done);
    for (std::size_t i = 0; i < together.size(); ++i) {
      const auto position = static_cast<u64>(positions[done + std::min(i, count - 1)]);
      check_range(position, position + 1);
      together[i] = arrival_at(position);
    }
    descend(together);
    for (std::size_t i = 0; i < count; ++i) out[done + i] = static_cast<i32>(together[i].ref.source().value);
  }
}

// All to their leaves, level by level; those that have arrived wait, which costs less than a branch nobody can predict.
void Plan::descend(std::span<Arrival> together) const noexcept {
  if (forest_.size() == 0) return;
  for (bool open = true; open;) {
    open = false;
    for (Arrival& at : together) {
      const bool inside = !at.ref.is_leaf();
      const Node& node = forest_[inside ? at.ref : Ref::node(0)];
      u64 index = 0;
      const bool right = node.goes_right(inside ? at.clock : 0, index);
      const u64 clock = node.base[right] + index;
      at.ref = inside ? node.child[right] : at.ref;
      at.clock = inside ? clock : at.clock;
      open |= inside;
    }
  }
}

std::string Plan::digest(Position start, Position stop, u32 threads, const std::function<void()>& pause) const {
  struct Record {  // little-endian, as on every machine this runs on
    u32 source;
    u32 cycle;
    u64 row;
  };
  static_assert(sizeof(Record) == 16 && std::endian::native == std::endian::little);
  const auto lock = reading(stop.value + settings_.window);
  check_range(start.value, stop.value);
  threads = std::max(threads, u32{1});
  const u64 round = kChunkDraws * threads;  // the threads fill a round, then one hashes it in order
  std::vector<Record> records(std::min(round, stop.value - start.value));
  Digest digest;
  for (u64 done = start.value; done < stop.value; done += round) {
    const u64 count = std::min(round, stop.value - done);
    split_over_threads(count, threads, [&](u32, u64 first, u64 last) {
      const u64 n = last - first;
      std::vector<i32> source(n);
      std::vector<i64> row(n);
      std::vector<i32> cycle(n);
      write_range(done + first, done + last, {source.data(), row.data(), cycle.data()});
      for (u64 t = 0; t < n; ++t)
        records[first + t] = {static_cast<u32>(source[t]), static_cast<u32>(cycle[t]), static_cast<u64>(row[t])};
    });
    digest.update(std::as_bytes(std::span(records.data(), count)));
    pause();
  }
  return digest.hex();
}

}  // namespace cuvee
