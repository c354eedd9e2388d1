/* Sixteen messages at once, in one vector of AVX-512: for the few tries that a stamp over long
 * data takes, of which a lot of thirty-two would waste many, and for processors that gain nothing
 * by a second vector. */
#include "processor.h"

#ifdef X86_KERNELS

#include "avx512.h"

#define BUNDLES 1
#define KERNEL avx512_single_kernel
#define NAME "avx512-16"

#include "sha256_lanes.h"

#endif
