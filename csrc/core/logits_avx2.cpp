#define CUVEE_ISA avx2
#define CUVEE_ISA_NAME "avx2"
#include "logits_impl.hpp"
