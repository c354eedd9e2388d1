/* The vectors of AVX-512, for the kernels that hash one or two of them at a time.
 *
 * AVX-512 rotates in one instruction where AVX2 needs three, and computes any function of three
 * bits in one: that, more than the width, makes it twice as fast. */
#ifndef SEALMAIL_AVX512_H
#define SEALMAIL_AVX512_H

#include <immintrin.h>

#include "processor.h"
#include "sha256.h"

typedef uint32_t lanes __attribute__((vector_size(64)));

#define TARGET __attribute__((target("avx512f,avx512bw")))
#define LANES 16
#define USABLE has_avx512
#define ROTATE(x, n) ((lanes)_mm512_ror_epi32((__m512i)(x), n))
/* The last number is the truth table of the three bits. */
#define TERNARY(x, y, z, table) \
    ((lanes)_mm512_ternarylogic_epi32((__m512i)(x), (__m512i)(y), (__m512i)(z), table))
#define XOR3(x, y, z) TERNARY(x, y, z, 0x96)
#define CHOOSE(e, f, g) TERNARY(e, f, g, 0xca)
#define MAJORITY(a, b, c) TERNARY(a, b, c, 0xe8)
#define FORM(x) __asm__("" : "+v"(x))
/* A shuffle of bytes looks all of them up in a table of sixteen, one copy in each quarter. */
#define HEX_TABLE _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)"0123456789abcdef"))
#define HEX(x) ((lanes)_mm512_shuffle_epi8(HEX_TABLE, (__m512i)(x)))
#define ZEROS(x) _mm512_testn_epi32_mask((__m512i)(x), (__m512i)(x))

#endif
