/* SHA-256 in plain C: message by message, and four messages in vectors of four words, which
 * every compiler maps to what the processor has: SSE2, NEON, or nothing special. */
#include <string.h>

#include "kernels.h"

const uint32_t sha256_start[STATE_WORDS] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

const uint32_t sha256_k[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

void expand_block(const uint8_t *block, uint32_t wk[ROUNDS])
{
    uint32_t w[ROUNDS];
    for (int t = 0; t < BLOCK_WORDS; t++)
        w[t] = read_word(block + 4 * t);
    for (int t = BLOCK_WORDS; t < ROUNDS; t++)
        w[t] = small_sigma_1(w[t - 2]) + w[t - 7] + small_sigma_0(w[t - 15]) + w[t - 16];
    for (int t = 0; t < ROUNDS; t++)
        wk[t] = w[t] + sha256_k[t];
}

void portable_round(uint32_t s[STATE_WORDS], uint32_t wk)
{
    uint32_t a = s[0], b = s[1], c = s[2], e = s[4], f = s[5], g = s[6];
    uint32_t sum = s[7] + wk + (g ^ (e & (f ^ g))) +
                   (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25));
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += sum;
    s[0] = sum + (b ^ ((a ^ b) & (b ^ c))) +
           (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22));
}

/* As portable_round(), but the caller names the variables anew instead of moving them. */
#define PLAIN_ROUND(a, b, c, d, e, f, g, h, wk)                                         \
    do {                                                                                \
        uint32_t sum = h + (wk) + (g ^ (e & (f ^ g))) +                                 \
                       (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)); \
        d += sum;                                                                       \
        h = sum + (b ^ ((a ^ b) & (b ^ c))) +                                           \
            (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22));           \
    } while (0)

#define EIGHT_PLAIN_ROUNDS(t, WORD)                            \
    PLAIN_ROUND(a, b, c, d, e, f, g, h, WORD((t) + 0) + k[(t) + 0]);    \
    PLAIN_ROUND(h, a, b, c, d, e, f, g, WORD((t) + 1) + k[(t) + 1]);    \
    PLAIN_ROUND(g, h, a, b, c, d, e, f, WORD((t) + 2) + k[(t) + 2]);    \
    PLAIN_ROUND(f, g, h, a, b, c, d, e, WORD((t) + 3) + k[(t) + 3]);    \
    PLAIN_ROUND(e, f, g, h, a, b, c, d, WORD((t) + 4) + k[(t) + 4]);    \
    PLAIN_ROUND(d, e, f, g, h, a, b, c, WORD((t) + 5) + k[(t) + 5]);    \
    PLAIN_ROUND(c, d, e, f, g, h, a, b, WORD((t) + 6) + k[(t) + 6]);    \
    PLAIN_ROUND(b, c, d, e, f, g, h, a, WORD((t) + 7) + k[(t) + 7])

void portable_compress(uint32_t state[STATE_WORDS], const uint8_t *blocks, size_t count)
{
    uint32_t w[BLOCK_WORDS];
    for (; count > 0; count--, blocks += BLOCK_BYTES) {
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
        const uint32_t *k = sha256_k;
#define FROM_BLOCK(t) (w[t] = read_word(blocks + 4 * (t)))
        EIGHT_PLAIN_ROUNDS(0, FROM_BLOCK);
        EIGHT_PLAIN_ROUNDS(8, FROM_BLOCK);
#undef FROM_BLOCK
        /* Each word of the schedule takes the place of the one sixteen words before. */
#define NEXT_WORD(t) \
    (w[t] += small_sigma_1(w[((t) + 14) % 16]) + w[((t) + 9) % 16] + small_sigma_0(w[((t) + 1) % 16]))
        for (k += BLOCK_WORDS; k < sha256_k + ROUNDS; k += BLOCK_WORDS) {
            EIGHT_PLAIN_ROUNDS(0, NEXT_WORD);
            EIGHT_PLAIN_ROUNDS(8, NEXT_WORD);
        }
#undef NEXT_WORD
        state[0] += a, state[1] += b, state[2] += c, state[3] += d;
        state[4] += e, state[5] += f, state[6] += g, state[7] += h;
    }
}

static bool everywhere(void)
{
    return true;
}

typedef uint32_t lanes __attribute__((vector_size(16)));

#define TARGET
#define LANES 4
#define BUNDLES 1
#define KERNEL portable_kernel
#define NAME "portable"
#define USABLE everywhere
#define ROTATE(x, n) ((x) >> (n) | (x) << (32 - (n)))
#define XOR3(x, y, z) ((x) ^ (y) ^ (z))
#define CHOOSE(e, f, g) ((g) ^ ((e) & ((f) ^ (g))))
/* The compiler keeps a ^ b: in the next round it is b ^ c. */
#define MAJORITY(a, b, c) ((b) ^ (((a) ^ (b)) & ((b) ^ (c))))
/* The registers of an unknown processor cannot be named. */
#define FORM(x) ((void)(x))
/* Adding six carries into the upper half of a byte from ten on; 'a' is 39 beyond '9' + 1. */
#define TEN_UP(x) (((x) + 0x06060606) >> 4 & 0x01010101)
#define HEX(x) ((x) + 0x30303030 + (TEN_UP(x) << 5) + (TEN_UP(x) << 3) - TEN_UP(x))
#define ZERO(x, i) ((uint32_t)((x)[i] == 0) << (i))
#define ZEROS(x) (ZERO(x, 0) | ZERO(x, 1) | ZERO(x, 2) | ZERO(x, 3))

#include "sha256_lanes.h"
