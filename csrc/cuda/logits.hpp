#pragma once

#include "core/logits.hpp"
#include "device.hpp"

namespace cuvee::cuda {

/// Arrays in device memory, one entry for each row of logits; targets, mask and log_prob may be null.
struct TokenArrays {
  const i64* targets;
  const u8* mask;
  float* entropy;
  float* varentropy;
  float* log_prob;
};

/// `cuvee::token_signals` on a GPU: one launch over `logits` in device memory, the same bits. Nobody looks at targets
/// beforehand: one outside the vocabulary gives NaN.
///
/// Returns when the launch is queued.
void token_signals(const Logits& logits, const TokenArrays& arrays, Stream stream);

}  // namespace cuvee::cuda
