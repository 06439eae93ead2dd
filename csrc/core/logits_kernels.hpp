#pragma once

#include "logits.hpp"
#include "logits_math.hpp"

namespace cuvee {

/// The loops over logits, written for each instruction set. All give the same bits.
struct LogitsKernels {
  const char* name;
  /// Moments of `count` <= kPanel logits.
  logits_math::Moments (*f32)(const float* x, u32 count);
  logits_math::Moments (*f16)(const Half* x, u32 count);
  logits_math::Moments (*bf16)(const Brain* x, u32 count);
};

}  // namespace cuvee
