#include "batch.h"

#include <stdlib.h>
#include <string.h>

/* Data of four kilobytes behind the longest nonce; longer ones keep a core busy for themselves. */
enum { BATCH_BLOCKS = 66 };

/* Messages of as many blocks, one for each lane; those of a stamp stand side by side. */
struct bucket {
    unsigned used;
    size_t stamps[MOST_LANES];
    uint8_t *messages;
};

struct batch {
    const struct kernel *kernel;
    tell_bits tell;
    void *listener;
    struct bucket of[BATCH_BLOCKS + 1];
};

struct batch *begin_batch(const struct kernel *kernel, tell_bits tell, void *listener)
{
    struct batch *batch = calloc(1, sizeof *batch);
    if (batch != NULL)
        batch->kernel = kernel, batch->tell = tell, batch->listener = listener;
    return batch;
}

static void settle_bucket(struct batch *batch, size_t blocks)
{
    struct bucket *bucket = &batch->of[blocks];
    uint32_t states[MOST_LANES][STATE_WORDS];
    const uint8_t *messages[MOST_LANES];
    for (unsigned lane = 0; lane < batch->kernel->lanes; lane++) {
        memcpy(states[lane], sha256_start, sizeof sha256_start);
        /* The first message serves a lane that is empty. */
        messages[lane] = bucket->messages + (lane < bucket->used ? lane : 0) * blocks * BLOCK_BYTES;
    }
    batch->kernel->each(states, messages, blocks);
    for (unsigned lane = 0; lane < bucket->used;) {
        unsigned first = lane, bits = 32 * STATE_WORDS;
        for (lane++; lane < bucket->used && bucket->stamps[lane] == bucket->stamps[first]; lane++) {
            unsigned common = common_bits(states[first], states[lane]);
            bits = common < bits ? common : bits;
        }
        batch->tell(batch->listener, bucket->stamps[first], bits);
    }
    bucket->used = 0;
}

bool add_to_batch(struct batch *batch, size_t which, const struct text *nonces, size_t count,
                  struct text data)
{
    const unsigned lanes = batch->kernel->lanes;
    if (count > lanes || data.length > BATCH_BLOCKS * BLOCK_BYTES)
        return false;
    size_t blocks = blocks_of(nonces[0].length + data.length);
    if (blocks > BATCH_BLOCKS)
        return false;
    for (size_t next = 1; next < count; next++)
        if (blocks_of(nonces[next].length + data.length) != blocks)
            return false;

    struct bucket *bucket = &batch->of[blocks];
    if (bucket->messages == NULL)
        bucket->messages = malloc(lanes * blocks * BLOCK_BYTES);
    if (bucket->messages == NULL)
        return false;
    if (bucket->used + count > lanes)
        settle_bucket(batch, blocks);
    for (size_t next = 0; next < count; next++) {
        bucket->stamps[bucket->used] = which;
        join(bucket->messages + bucket->used++ * blocks * BLOCK_BYTES, nonces[next], data);
    }
    return true;
}

void settle_batch(struct batch *batch)
{
    for (size_t blocks = 1; blocks <= BATCH_BLOCKS; blocks++)
        if (batch->of[blocks].used > 0)
            settle_bucket(batch, blocks);
}

void free_batch(struct batch *batch)
{
    if (batch == NULL)
        return;
    for (size_t blocks = 1; blocks <= BATCH_BLOCKS; blocks++)
        free(batch->of[blocks].messages);
    free(batch);
}
