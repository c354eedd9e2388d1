/* Eight messages at once in the 256-bit registers of AVX2. */
#include "processor.h"

#ifdef X86_KERNELS

#include <immintrin.h>

#include "sha256.h"

typedef uint32_t lanes __attribute__((vector_size(32)));

#define TARGET __attribute__((target("avx2")))
#define LANES 8
#define BUNDLES 1
#define KERNEL avx2_kernel
#define NAME "avx2"
#define USABLE has_avx2
#define ROTATE(x, n) ((x) >> (n) | (x) << (32 - (n)))
#define XOR3(x, y, z) ((x) ^ (y) ^ (z))
#define CHOOSE(e, f, g) ((g) ^ ((e) & ((f) ^ (g))))
/* The compiler keeps a ^ b: in the next round it is b ^ c. */
#define MAJORITY(a, b, c) ((b) ^ (((a) ^ (b)) & ((b) ^ (c))))
#define FORM(x) __asm__("" : "+x"(x))
/* A shuffle of bytes looks all of them up in a table of sixteen, one copy in each half. */
#define HEX_TABLE _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)"0123456789abcdef"))
#define HEX(x) ((lanes)_mm256_shuffle_epi8(HEX_TABLE, (__m256i)(x)))
#define ZEROS(x) \
    _mm256_movemask_ps((__m256)_mm256_cmpeq_epi32((__m256i)(x), _mm256_setzero_si256()))

#include "sha256_lanes.h"

#endif
