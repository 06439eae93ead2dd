#include "kernels.hpp"

#include <algorithm>
#include <cstdlib>

#include "error.hpp"

namespace cuvee {

namespace scalar {
extern const Kernels kKernels;
}
#ifdef CUVEE_X86
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
#endif

namespace {

std::vector<const Kernels*> available() {
  std::vector<const Kernels*> found{&scalar::kKernels};
#ifdef CUVEE_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) {
    found.push_back(&avx2::kKernels);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi2"))
      found.push_back(&avx512::kKernels);
  }
#endif
  return found;
}

}  // namespace

// Whole vectors are loaded and stored, so that the ends need room.
Block::Block(u32 capacity)
    : share_of_slot(capacity + 64),
      share_of_position(capacity + 64),
      rows(capacity + 64),
      cycles(capacity + 64),
      arrivals{std::vector<u16>(capacity + 64), std::vector<u16>(capacity + 64)} {}

std::vector<std::string_view> instruction_sets() {
  std::vector<std::string_view> names;
  for (const Kernels* kernels : available()) names.emplace_back(kernels->name);
  return names;
}

const Kernels& kernels_for(std::string_view isa) {
  const auto found = available();
  if (isa == "auto") {
    const char* const forced = std::getenv("CUVEE_ISA");  // NOLINT(concurrency-mt-unsafe): nothing here sets it
    return forced == nullptr || *forced == 0 ? *found.back() : kernels_for(forced);
  }
  const auto* const* match = std::find_if(found.data(), found.data() + found.size(),
                                          [&](const Kernels* kernels) { return kernels->name == isa; });
  if (match != found.data() + found.size()) return **match;
  std::string names;
  for (const Kernels* kernels : found) names += std::string(names.empty() ? "" : ", ") + kernels->name;
  throw std::invalid_argument(msg("isa must be one of ", names, " on this machine, but got ", isa));
}

}  // namespace cuvee
