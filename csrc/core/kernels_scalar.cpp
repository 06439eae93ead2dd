#define CUVEE_ISA scalar
#define CUVEE_ISA_NAME "scalar"
#include "kernels_impl.hpp"
