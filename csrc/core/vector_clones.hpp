#pragma once

/// A function that is compiled for several widths of vectors too, of which the processor's is taken when it is called.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define CUVEE_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CUVEE_VECTOR_CLONES
#endif
