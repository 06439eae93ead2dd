#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "bijection.hpp"
#include "tree.hpp"
#include "types.hpp"

namespace cuvee {

/// Most slots that are dealt at once: offsets into a block are 16 bits wide.
inline constexpr u32 kMaxBlock = u32{1} << 16;

/// What one source got of a block: draws first_draw, ..., first_draw + count - 1.
struct Share {
  SourceId source;
  u32 begin;  // where its draws stand in Block::rows and Block::cycles
  u32 count;
  u64 first_draw;
};

/// Working memory of one thread for one block of slots.
struct Block {
  /// A node of the tree with the arrivals it has still to split.
  struct Visit {
    Ref ref;
    u32 begin;
    u32 count;
    u32 side;  // which of `arrivals` holds them
    u64 clock;
  };

  explicit Block(u32 capacity);

  std::vector<Share> shares;
  std::vector<u16> share_of_slot;      // index into shares
  std::vector<u16> share_of_position;  // the same in the order in which draws are handed out
  std::vector<u64> rows;               // share after share, each in the order of its draws
  std::vector<i32> cycles;             // of the same draws
  std::array<std::vector<u16>, 2> arrivals;
  std::vector<Visit> open;
  std::vector<u32> cursors;  // per share, its next draw
  std::vector<i32> sources;  // per share
};

/// Where draws are written, from some position on.
struct DrawPointers {
  i32* source;
  i64* row;
  i32* cycle;
};

/// The loops that are worth writing for each instruction set. All give the same bits.
///
/// A block of draws is made in four stages: deal -> arrange -> rows (`permute`, one call per share and cycle) -> write.
struct Kernels {
  const char* name;
  /// Deals `count` arrivals of `root`, from clock `clock` on: fills shares and share_of_slot.
  void (*deal)(const Node* nodes, Ref root, u64 clock, u32 count, Block& block);
  /// Fills share_of_position: windows of `window` slots from `first_slot` on are permuted, each with its own key.
  void (*arrange)(u64 windows_key, u64 first_slot, u32 window, u32 count, Block& block);
  /// out[t] = pi(first + t) for t < count.
  void (*permute)(const Bijection& pi, u64 first, u64 count, u64* out);
  /// Writes the draws of the block's positions [begin, end), once: the shares' draws are taken from their first on.
  void (*write)(Block& block, u32 begin, u32 end, DrawPointers out);
  /// out[t] = pi(t) for t < pi.size() <= 2^16.
  void (*permute_window)(const Bijection& pi, u16* out);
  /// in[t] stands for the node's arrival clock + t: out[0, lefts) gets those that go left, out[lefts, count) the
  /// others.
  void (*split)(const Node& node, u64 clock, const u16* in, u32 count, u16* out, u32 lefts);
};

/// Names of the instruction sets that this build has and this machine runs, best last.
std::vector<std::string_view> instruction_sets();

/// The kernels for an instruction set, "auto" for the best or what the environment's CUVEE_ISA names; throws
/// std::invalid_argument for one that is not there.
const Kernels& kernels_for(std::string_view isa);

}  // namespace cuvee
