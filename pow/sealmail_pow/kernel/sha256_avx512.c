/* Thirty-two messages at once in the 512-bit registers of AVX-512, as two vectors of sixteen. */
#include "processor.h"

#ifdef X86_KERNELS

#include "avx512.h"

#define BUNDLES 2
#define KERNEL avx512_kernel
#define NAME "avx512"

#include "sha256_lanes.h"

#endif
