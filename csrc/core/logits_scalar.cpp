#define CUVEE_ISA scalar
#define CUVEE_ISA_NAME "scalar"
#include "logits_impl.hpp"
