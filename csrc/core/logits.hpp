#pragma once

#include <span>
#include <string_view>

#include "types.hpp"

namespace cuvee {

enum class Half : u16 {};   // the bits of an IEEE float16
enum class Brain : u16 {};  // the bits of a bfloat16
enum class LogitType { f32, f16, bf16 };

/// A (blocks, rows, vocabulary) array of logits that somebody else keeps. The vocabulary is contiguous.
struct Logits {
  const void* data;
  LogitType type;
  u64 blocks;
  u64 rows;  // of each block
  u64 vocabulary;
  i64 block_stride;  // in logits
  i64 row_stride;

  u64 size() const noexcept { return blocks * rows; }
};

inline constexpr i64 kNoTarget = -100;  // torch's ignore_index

/// Where the signals of each row go; log_prob may be empty.
struct SignalsOut {
  std::span<float> entropy;
  std::span<float> varentropy;
  std::span<float> log_prob;
};

/// Fills per row of logits, in nats: the entropy of its softmax, the variance of -log p under it (varentropy), and log
/// p of the row's target, all in one pass. The same bits for every instruction set and number of threads; within 1e-5
/// of exact. Rows whose `mask` is 0 give 0, and so does log_prob where the target is kNoTarget; an empty mask takes all
/// rows. Logits of -infinity have probability 0; a row with NaN, +infinity or nothing but -infinity gives NaN. Throws
/// std::out_of_range for a target outside the vocabulary, before anything is written.
void token_signals(const Logits& logits, std::span<const i64> targets, std::span<const u8> mask, const SignalsOut& out,
                   u32 threads, std::string_view isa = "auto");

}  // namespace cuvee
