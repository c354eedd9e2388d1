#include "kernels.h"

#include <string.h>

#include "message.h"
#include "processor.h"
#include "watch.h"

#ifdef X86_KERNELS

#include <cpuid.h>

/* Which registers the operating system saves when it switches programs. */
static bool saves(unsigned registers)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return false;
    unsigned saved, unused;
    __asm__("xgetbv" : "=a"(saved), "=d"(unused) : "c"(0));
    return (saved & registers) == registers;
}

static unsigned extended_features(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) ? b : 0;
}

/* Asked once: under a hypervisor each question to the processor takes many microseconds. */
static bool avx2, avx512, sha;

void know_the_machine(void)
{
    unsigned a, b, c, d, features = extended_features();
    avx2 = saves(0x06) && (features & bit_AVX2);
    avx512 = saves(0xe6) && (features & bit_AVX512F) && (features & bit_AVX512BW);
    sha = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1) && (features & bit_SHA);
}

bool has_avx2(void)
{
    return avx2;
}

bool has_avx512(void)
{
    return avx512;
}

bool has_sha(void)
{
    return sha;
}

const struct kernel *const all_kernels[] = {
    &avx512_kernel, &avx512_single_kernel, &shani_kernel, &avx2_kernel, &portable_kernel, NULL,
};

bool has_pairs(void)
{
    return sha;
}

void hash_blocks(uint32_t state[STATE_WORDS], const uint8_t *blocks, size_t count)
{
    if (sha)
        shani_compress(state, blocks, count);
    else
        portable_compress(state, blocks, count);
}

void hash_block_pairs(uint32_t states[2][STATE_WORDS], const uint8_t *one, const uint8_t *other,
                   size_t count)
{
    if (sha) {
        shani_compress_pair(states, one, other, count);
        return;
    }
    portable_compress(states[0], one, count);
    portable_compress(states[1], other, count);
}

#else

bool has_pairs(void)
{
    return false;
}

const struct kernel *const all_kernels[] = {&portable_kernel, NULL};

void know_the_machine(void)
{
}

void hash_blocks(uint32_t state[STATE_WORDS], const uint8_t *blocks, size_t count)
{
    portable_compress(state, blocks, count);
}

void hash_block_pairs(uint32_t states[2][STATE_WORDS], const uint8_t *one, const uint8_t *other,
                   size_t count)
{
    portable_compress(states[0], one, count);
    portable_compress(states[1], other, count);
}

#endif

const struct kernel *kernel_named(const char *name)
{
    for (const struct kernel *const *kernel = all_kernels; *kernel != NULL; kernel++)
        if (strcmp((*kernel)->name, name) == 0)
            return (*kernel)->usable() ? *kernel : NULL;
    return NULL;
}

/* Nanoseconds for each of some hashes of what a short mail asks for. */
static double time_walk(const struct kernel *kernel, const struct message *message)
{
    enum { STEPS_BY_LANES = 8192 };
    struct places at;
    for (unsigned lane = 0; lane < kernel->lanes; lane++)
        put_lane(&at, lane, (uint64_t)lane << 40);
    struct arrivals seen;
    unsigned steps = STEPS_BY_LANES / kernel->lanes;
    uint64_t start = now();
    kernel->walk(message, &at, steps, &seen);
    return (double)(now() - start) / (steps * kernel->lanes);
}

/* Nanoseconds for each of some streamed blocks, in so far as they are of use: long data are asked
 * few bits, found after some twenty tries, and of the last lot half is in vain. */
static double time_stream(const struct kernel *kernel, const struct message *message)
{
    enum { BLOCKS = 64, TIMES_BY_LANES = 128 };
    uint32_t states[MOST_LANES][STATE_WORDS] = {{0}};
    unsigned times = TIMES_BY_LANES / kernel->lanes;
    uint64_t start = now();
    for (unsigned time = 0; time < times; time++)
        kernel->stream(states, message->kept, BLOCKS);
    double wasted = kernel->lanes / 2.0 / 20;
    return (double)(now() - start) / (times * kernel->lanes) * (1 + wasted);
}

/* The kernels are close to each other on some machines and far apart on others, so they race:
 * three short rounds, of which each kernel's best counts. */
const struct kernel *fastest_kernel(bool long_data)
{
    static const struct kernel *fastest[2];
    if (fastest[long_data] != NULL)
        return fastest[long_data];

    static struct message message;
    static const uint8_t data[MOST_KEPT_BLOCKS * BLOCK_BYTES];
    /* No point is ever reached: the walks run to their end. */
    prepare_walk(&message, data, long_data ? sizeof data : 60, "0123456789abcdef", 48, 32);
    double (*timed)(const struct kernel *, const struct message *) =
        long_data ? time_stream : time_walk;
    double best = 1e300;
    for (int round = 0; round < 3; round++) {
        for (const struct kernel *const *kernel = all_kernels; *kernel != NULL; kernel++) {
            if (!(*kernel)->usable())
                continue;
            double time = timed(*kernel, &message);
            if (time < best) {
                best = time;
                fastest[long_data] = *kernel;
            }
        }
    }
    return fastest[long_data];
}
