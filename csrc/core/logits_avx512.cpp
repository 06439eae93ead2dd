#define CUVEE_ISA avx512
#define CUVEE_ISA_NAME "avx512"
#include "logits_impl.hpp"
