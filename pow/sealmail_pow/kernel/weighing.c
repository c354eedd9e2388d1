#include "weighing.h"

#include <string.h>

#include "kernels.h"

/* Fill up the block that one stream has begun, and keep what does not make a block. */
static struct text take_begun(struct weighing *w, size_t which, struct text data)
{
    w->lengths[which] += data.length;
    if (w->used[which] == 0)
        return data;
    size_t room = BLOCK_BYTES - w->used[which];
    size_t taken = data.length < room ? data.length : room;
    memcpy(w->begun[which] + w->used[which], data.bytes, taken);
    w->used[which] += taken;
    if (w->used[which] == BLOCK_BYTES) {
        hash_blocks(w->states[which], w->begun[which], 1);
        w->used[which] = 0;
    }
    return (struct text){data.bytes + taken, data.length - taken};
}

static void take_rest(struct weighing *w, size_t which, struct text data)
{
    size_t whole = data.length / BLOCK_BYTES, left = data.length % BLOCK_BYTES;
    hash_blocks(w->states[which], data.bytes, whole);
    if (left > 0) {
        memcpy(w->begun[which], data.bytes + whole * BLOCK_BYTES, left);
        w->used[which] = left;
    }
}

static void weigh_pair(struct weighing *w, size_t first, struct text data)
{
    struct text one = take_begun(w, first, data), other = take_begun(w, first + 1, data);
    size_t shorter = one.length < other.length ? one.length : other.length;
    size_t taken = shorter / BLOCK_BYTES * BLOCK_BYTES;
    hash_block_pairs(w->states + first, one.bytes, other.bytes, taken / BLOCK_BYTES);
    take_rest(w, first, (struct text){one.bytes + taken, one.length - taken});
    take_rest(w, first + 1, (struct text){other.bytes + taken, other.length - taken});
}

void begin_weighing(struct weighing *weighing, const struct text *nonces, size_t count)
{
    memset(weighing, 0, sizeof *weighing);
    weighing->count = count;
    for (size_t which = 0; which < count; which++) {
        memcpy(weighing->states[which], sha256_start, sizeof sha256_start);
        take_rest(weighing, which, take_begun(weighing, which, nonces[which]));
    }
}

void weigh(struct weighing *weighing, struct text data)
{
    if (data.length == 0)
        return;
    size_t which = 0;
    for (; which + 1 < weighing->count; which += 2)
        weigh_pair(weighing, which, data);
    if (which < weighing->count)
        take_rest(weighing, which, take_begun(weighing, which, data));
}

static void digest(const struct weighing *weighing, size_t which, uint32_t state[STATE_WORDS])
{
    uint8_t last[2 * BLOCK_BYTES];
    memcpy(last, weighing->begun[which], BLOCK_BYTES);
    memcpy(state, weighing->states[which], sizeof weighing->states[which]);
    hash_blocks(state, last, end_message(last, weighing->used[which], weighing->lengths[which]));
}

unsigned weighed_bits(const struct weighing *weighing)
{
    uint32_t first[STATE_WORDS], other[STATE_WORDS];
    digest(weighing, 0, first);
    unsigned bits = 32 * STATE_WORDS;
    for (size_t which = 1; which < weighing->count; which++) {
        digest(weighing, which, other);
        unsigned common = common_bits(first, other);
        bits = common < bits ? common : bits;
    }
    return bits;
}
