// The kernels, compiled once for each instruction set: kernels_<isa>.cpp defines CUVEE_ISA and includes this file.
// Everything here is in a namespace of that name and static, so that no instruction leaks into shared inline code.
#include <algorithm>
#include <cstring>

#include "kernels.hpp"

#if defined(__AVX512VBMI2__) || defined(__AVX2__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12 warns of its own intrinsics
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

// clang-format off: in the order in which they use each other
#include "kernels_deal.hpp"
#include "kernels_permute.hpp"
#include "kernels_arrange.hpp"
#include "kernels_write.hpp"
// clang-format on

namespace cuvee::CUVEE_ISA {

extern const Kernels kKernels;
const Kernels kKernels{CUVEE_ISA_NAME, deal, arrange, permute, write, permute_window, split};

}  // namespace cuvee::CUVEE_ISA
