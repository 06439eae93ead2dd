#include "logits.hpp"

#include <algorithm>
#include <utility>

#include "error.hpp"
#include "kernels.hpp"
#include "logits_kernels.hpp"
#include "parallel.hpp"

namespace cuvee {

namespace scalar {
extern const LogitsKernels kLogitsKernels;
}
#ifdef CUVEE_X86
namespace avx2 {
extern const LogitsKernels kLogitsKernels;
}
namespace avx512 {
extern const LogitsKernels kLogitsKernels;
}
#endif

namespace {

using logits_math::Moments, logits_math::Signals;

// All give the same bits, so that a machine with AVX2 but without fma, if there is one, loses time alone.
const LogitsKernels& logits_kernels_for(std::string_view isa) {
  [[maybe_unused]] const std::string_view name = kernels_for(isa).name;
#ifdef CUVEE_X86
  if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    if (name == avx512::kLogitsKernels.name) return avx512::kLogitsKernels;
    if (name == avx2::kLogitsKernels.name) return avx2::kLogitsKernels;
  }
#endif
  return scalar::kLogitsKernels;
}

/// Moments and signals of rows of one type.
template <class T>
struct Reader {
  Moments (*panel)(const T*, u32);

  Signals row(const T* x, u64 vocabulary, i64 target) const {
    Moments all;
    for (u64 at = 0; at < vocabulary; at += logits_math::kPanel) {
      const auto count = static_cast<u32>(std::min<u64>(logits_math::kPanel, vocabulary - at));
      const Moments part = panel(x + at, count);
      all = at == 0 ? part : joined(all, part);
    }
    return signals_of(all, target == kNoTarget ? 0 : logits_math::widened(x[target]));
  }
};

void check_sizes(const Logits& logits, std::span<const i64> targets, std::span<const u8> mask, const SignalsOut& out) {
  const auto size = logits.size();
  const auto expect = [&](std::size_t given, const char* name, bool required) {
    CUVEE_EXPECTS((given == 0 && !required) || given == size, std::invalid_argument, name, " must have ", size,
                  " entries, one for each row of logits, but got ", given);
  };
  CUVEE_EXPECTS(logits.vocabulary > 0, std::invalid_argument, "vocabulary must be at least 1, but got 0");
  expect(targets.size(), "targets", false);
  expect(mask.size(), "mask", false);
  expect(out.entropy.size(), "entropy", true);
  expect(out.varentropy.size(), "varentropy", true);
  expect(out.log_prob.size(), "log_prob", !targets.empty());
}

void check_targets(u64 vocabulary, std::span<const i64> targets, std::span<const u8> mask) {
  for (std::size_t t = 0; t < targets.size(); ++t)
    CUVEE_EXPECTS((!mask.empty() && mask[t] == 0) || targets[t] == kNoTarget ||
                      (targets[t] >= 0 && std::cmp_less(targets[t], vocabulary)),
                  std::out_of_range, "targets must be in 0..", vocabulary - 1, " or ", kNoTarget, ", but got ",
                  targets[t]);
}

template <class T>
void fill(const Logits& logits, Reader<T> reader, std::span<const i64> targets, std::span<const u8> mask,
          const SignalsOut& out, u32 threads) {
  split_over_threads(logits.size(), threads, [&](u32, u64 first, u64 last) {
    for (u64 t = first; t < last; ++t) {
      const auto block = static_cast<i64>(t / logits.rows), row = static_cast<i64>(t % logits.rows);
      const T* const x = static_cast<const T*>(logits.data) + block * logits.block_stride + row * logits.row_stride;
      const i64 target = targets.empty() ? kNoTarget : targets[t];
      const bool wanted = mask.empty() || mask[t] != 0;
      const Signals signals = wanted ? reader.row(x, logits.vocabulary, target) : Signals{0, 0, 0};
      out.entropy[t] = signals.entropy;
      out.varentropy[t] = signals.varentropy;
      if (!out.log_prob.empty()) out.log_prob[t] = target == kNoTarget ? 0 : signals.log_prob;
    }
  });
}

}  // namespace

void token_signals(const Logits& logits, std::span<const i64> targets, std::span<const u8> mask, const SignalsOut& out,
                   u32 threads, std::string_view isa) {
  check_sizes(logits, targets, mask, out);
  check_targets(logits.vocabulary, targets, mask);
  const LogitsKernels& kernels = logits_kernels_for(isa);
  switch (logits.type) {
    case LogitType::f32:
      fill(logits, Reader<float>{kernels.f32}, targets, mask, out, threads);
      break;
    case LogitType::f16:
      fill(logits, Reader<Half>{kernels.f16}, targets, mask, out, threads);
      break;
    case LogitType::bf16:
      fill(logits, Reader<Brain>{kernels.bf16}, targets, mask, out, threads);
      break;
  }
}

}  // namespace cuvee
