#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels.hpp"
#include "tree.hpp"
#include "types.hpp"

namespace cuvee {

/// What a plan knows of one source.
struct SourceSpec {
  u64 rows;     // 0: never active
  u64 cap;      // draws it may give, kEndless for no limit
  u64 row_key;  // key64("rows", ...)
};

struct PlanSettings {
  u32 window = 64;      // 1..65536
  u64 windows_key = 0;  // key64("window", ...)
  u64 epoch_rows = 0;   // epochs of this many rows, at whose starts the window grid starts anew; 0: none
  bool stop = false;    // the plan ends with the draw that first empties a source
  bool shuffle = true;  // rows of a cycle in keyed random order, else in their own
};

/// Where fill() writes; all of one size.
struct DrawColumns {
  std::span<i32> source;
  std::span<i64> row;
  std::span<i32> cycle;
};

/// Segments and keys: everything needed to compute any draw. See docs/algorithm.md.
///
/// Exhaustions are found when they are first needed. Reading is safe from any number of threads, beside one that
/// changes.
class Plan {
 public:
  Plan(const PlanSettings& settings, std::span<const SourceSpec> sources, std::span<const double> weights,
       const Kernels& kernels);

  // --- growing. Each takes effect at a slot that is at least last_change(); what was built from there on is dropped.
  /// Appends sources, with weight 0.
  void add_sources(std::span<const SourceSpec> sources);
  /// New weights from slot `at` on, a window start; with `restart` any slot, and the window grid starts anew there.
  void set_weights(u64 at, std::span<const double> weights, bool restart);
  /// The window grid starts anew at slot `at`.
  void restart(u64 at);
  /// The source has other rows from its draw number `at_draw` on, which begins cycle `cycle`.
  void resize_source(SourceId source, u64 rows, u64 cap, u64 at_draw, u64 cycle);
  /// Drops the changes at slots >= `slot`. Sources stay.
  void rewind(u64 slot);

  // --- reading
  u32 source_count() const;
  /// Slot at which the plan ends, kEndless if never.
  u64 end() const;
  /// The source whose last draw ended the plan, -1 if it never ends.
  i64 ended_by() const;
  u64 last_change() const;
  /// Largest |count - work| of any source at any window boundary, as certified; grows with what is built.
  double bound() const;
  u64 segment_count() const;
  u64 bytes() const;

  void fill(Position start, DrawColumns out, u32 threads) const;
  Draw at(Position position) const;
  void at(std::span<const i64> positions, DrawColumns out) const;
  SourceId source_at(Position position) const;
  void sources_at(std::span<const i64> positions, std::span<i32> out) const;
  std::vector<i64> counts(Position position) const;
  std::vector<double> work(Slot slot) const;
  /// Work less the integral of the weight.
  std::vector<double> rebased(Slot slot) const;
  /// Shares in force from `slot` on; they sum to 1.
  std::vector<double> shares(Slot slot) const;
  /// `pause` is called now and then; what it throws ends the work.
  std::string digest(Position start, Position stop, u32 threads, const std::function<void()>& pause) const;
  /// Per source the slot of its draws[source]-th draw; kEndless where there is none.
  std::vector<u64> slots_of(std::span<const i64> draws) const;
  std::vector<u64> positions_of(std::span<const i64> draws) const;
  /// First slot at which each source then active has given all its rows since `start`; kEndless if never.
  u64 seen_all(Slot start) const;
  /// First and end of the window that holds a position.
  std::pair<u64, u64> window(Position position) const;
  /// (slot after the last draw, source) of every source emptied at a slot <= until.
  std::vector<std::pair<u64, SourceId>> exhaustions(Slot until) const;

  // --- going on elsewhere
  /// All that is needed to go on from the last change at a slot <= `slot`.
  std::vector<std::byte> snapshot(Slot slot) const;
  void restore(std::span<const std::byte> snapshot);

 private:
  enum class Cause : std::uint8_t { start, exhaustion, weights, restart };

  struct Segment {
    u64 first;   // its first slot
    u64 origin;  // slot at which its window grid starts
    Ref root;
    u64 root_clock;  // the root's clock at `first`
    u64 changed;     // slot of the last change
    u32 version;     // index into versions_
    u32 nodes;       // sizes before the segment was made, to drop it again
    u32 departures;
    double bound;  // certificate up to and with this segment
    Cause cause;
  };

  /// A source that left the tree, for good or until it is wanted again.
  struct Departure {
    SourceId source;
    u64 slot;
    u64 draws;
    i128 residual;  // at the moment it left; ulps
    i64 before;     // the same source's departure before, index into departures_; -1 for none
  };

  /// How draws become cycles and ranks; a source has others for its draws before its row count changed.
  struct Cycles {
    u64 first_draw;  // these rules hold from this draw number on
    u64 first_cycle;
    u64 rows;
  };

  struct Passage {
    u32 cycle;
    u64 rank;
    u64 rows;  // in the cycle
    u64 left;  // draws from this one to the cycle's end
  };

  struct Source {
    SourceSpec spec;
    Cycles cycles;
    std::vector<Cycles> earlier;  // last first
    i64 departure = -1;           // its last, index into departures_
  };

  static constexpr u32 kNoVersion = ~u32{0};

  /// Weights as they were given, 0 for sources that are not wanted, over the largest of a tree's leaves when it was
  /// built.
  struct Version {
    std::shared_ptr<const std::vector<double>> given;
    double largest;
    double of(SourceId source) const { return source.value < given->size() ? (*given)[source.value] / largest : 0; }
  };

  struct Leaf {
    SourceId source;
    u64 draws;
    i128 residual;
  };

  struct Window {
    u64 first;
    u64 end;
    u64 grid_end;  // where its grid ends: at the segment's end or the epoch's
    const Segment* segment;
  };

  struct Arrival {
    Ref ref;
    u64 clock;
  };
  struct Step;   // one level of a path from the root to a leaf, with residuals
  struct Turn {  // the same for reading
    const Node* node;
    int side;
  };

  void check_weights(std::span<const double> weights) const;
  u32 add_version(std::vector<double> given);
  void append(u64 first, u64 origin, const Branch& root, u32 nodes, u32 departures, u32 version, Cause cause);
  void drop_from(u64 slot);
  void drop_after(u64 slot);
  void drop_last();
  void change(u64 at, std::span<const double> weights, bool restart);
  void check_change(u64 at) const;

  // building, in plan_build.cpp
  Branch reweigh(Ref ref, u64 clock, i128 residual, const Version& version);
  std::vector<Step> path_to_empty(const Segment& segment, u64 slot) const;
  std::vector<Step> path_to(Ref root, u64 clock, SourceId source) const;
  bool find(Ref ref, u64 clock, i128 residual, SourceId source, std::vector<Step>& path) const;
  Branch without(const std::vector<Step>& path, const Version& version);
  Branch built(std::vector<Leaf> leaves, u32& version, Clip clip);
  std::vector<Leaf> leaves_of(const Branch& root) const;
  bool needs_rebuild(const Branch& root, u32 version) const;
  void depart(SourceId source, u64 slot, u64 draws, i128 residual);
  u64 draws_when_absent(const Source& source, u64 slot, i128* residual) const;
  u64 next_exhaustion() const noexcept;
  void exhaust(u64 slot);
  void grow(u64 slot);

  // reading, in plan.cpp; all but the first expect that the plan is grown
  std::shared_lock<std::shared_mutex> reading(u64 slot) const;
  void check_range(u64 start, u64 stop) const;
  const Segment& segment_of(u64 slot) const noexcept;
  u64 segment_end(const Segment& segment) const noexcept;
  Window window_of(u64 position) const noexcept;
  static Passage passage_of(const Source& source, u64 draw);
  Draw draw_at(u64 position) const;
  Arrival arrival_at(u64 position) const noexcept;
  Arrival step(Arrival at, bool& right) const noexcept;
  SourceId descend(Arrival at) const noexcept;
  void descend(std::span<Arrival> together) const noexcept;
  std::vector<double> integrals(u64 slot) const;
  Slot slot_at(const Window& window, u64 position) const noexcept;
  u64 draws_before(const Window& window, std::span<const Turn> way, std::span<const u16> slot_of, u64 place) const;
  void deal(const Window& window, u64 end, Block& block) const;
  void draw_rows(const Share& share, Block& block) const;
  void write_range(u64 start, u64 stop, DrawPointers out) const;
  template <class Want>
  void climb(const Segment& segment, std::span<u64> slots, const Want& want) const;
  template <class Visit>
  void leaves_at(u64 slot, const Visit& visit) const {
    const Segment& segment = segment_of(slot);
    forest_.leaves(segment.root, segment.root_clock + (slot - segment.first), 0, visit);
  }

  PlanSettings settings_;
  const Kernels* kernels_;
  std::vector<Source> sources_;
  std::vector<u64> caps_;  // of sources_, as the tree wants them
  std::vector<Version> versions_;
  std::vector<Segment> segments_;
  std::vector<Departure> departures_;
  Forest forest_;
  std::vector<double> integral_;  // of the weights before the first segment, of a restored plan
  u64 ended_at_ = kEndless;
  i64 ended_by_ = -1;
  mutable std::shared_mutex mutex_;
};

}  // namespace cuvee
