#include "verify.h"

#include <string.h>

#include "kernels.h"

/* Messages up to this many blocks are put together before they are hashed; most stamped bytes
 * are an announcement of some lines. */
enum { JOINED_BLOCKS = 8, LONGEST_PADDING = 9 };

size_t blocks_of(size_t length)
{
    return (length + LONGEST_PADDING + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

size_t end_message(uint8_t *to, size_t used, uint64_t length)
{
    size_t blocks = blocks_of(used), padded = blocks * BLOCK_BYTES;
    memset(to + used, 0, padded - used);
    to[used] = 0x80;
    write_word(to + padded - 8, (uint32_t)(length * 8 >> 32));
    write_word(to + padded - 4, (uint32_t)(length * 8));
    return blocks;
}

void join(uint8_t *to, struct text nonce, struct text data)
{
    size_t length = nonce.length + data.length;
    memcpy(to, nonce.bytes, nonce.length);
    if (data.length > 0)
        memcpy(to + nonce.length, data.bytes, data.length);
    end_message(to, length, length);
}

/* Hash a message where it lies; only its beginning and its end are copied. */
static void hash_in_place(uint32_t state[STATE_WORDS], struct text nonce, struct text data)
{
    uint8_t block[2 * BLOCK_BYTES];
    size_t length = nonce.length + data.length;
    memcpy(block, nonce.bytes, nonce.length);
    memcpy(block + nonce.length, data.bytes, BLOCK_BYTES - nonce.length);
    hash_blocks(state, block, 1);
    data.bytes += BLOCK_BYTES - nonce.length;
    data.length -= BLOCK_BYTES - nonce.length;

    size_t whole = data.length / BLOCK_BYTES, left = data.length % BLOCK_BYTES;
    hash_blocks(state, data.bytes, whole);
    memcpy(block, data.bytes + whole * BLOCK_BYTES, left);
    hash_blocks(state, block, end_message(block, left, length));
}

static void hash_pair(uint32_t states[2][STATE_WORDS], const struct text nonces[2],
                      struct text data)
{
    uint8_t messages[2][JOINED_BLOCKS * BLOCK_BYTES];
    size_t blocks[2];
    memcpy(states[0], sha256_start, sizeof sha256_start);
    memcpy(states[1], sha256_start, sizeof sha256_start);
    for (int which = 0; which < 2; which++) {
        blocks[which] = blocks_of(nonces[which].length + data.length);
        if (blocks[which] > JOINED_BLOCKS)
            hash_in_place(states[which], nonces[which], data);
        else
            join(messages[which], nonces[which], data);
    }
    if (blocks[0] == blocks[1] && blocks[0] <= JOINED_BLOCKS) {
        hash_block_pairs(states, messages[0], messages[1], blocks[0]);
        return;
    }
    for (int which = 0; which < 2; which++)
        if (blocks[which] <= JOINED_BLOCKS)
            hash_blocks(states[which], messages[which], blocks[which]);
}

static unsigned leading_zeros(uint32_t word)
{
    return word == 0 ? 32 : (unsigned)__builtin_clz(word);
}

unsigned common_bits(const uint32_t *one, const uint32_t *other)
{
    unsigned bits = 0;
    for (int word = 0; word < STATE_WORDS; word++) {
        unsigned zeros = leading_zeros(one[word] ^ other[word]);
        bits += zeros;
        if (zeros < 32)
            break;
    }
    return bits;
}

unsigned shared_bits(const struct text *nonces, size_t count, struct text data)
{
    uint32_t first[STATE_WORDS], states[2][STATE_WORDS];
    hash_pair(states, nonces, data);
    memcpy(first, states[0], sizeof first);
    unsigned bits = common_bits(first, states[1]);
    for (size_t next = 2; next < count; next += 2) {
        /* An odd one is its own partner. */
        struct text pair[2] = {nonces[next], nonces[next + 1 < count ? next + 1 : next]};
        hash_pair(states, pair, data);
        for (int which = 0; which < 2; which++) {
            unsigned common = common_bits(first, states[which]);
            bits = common < bits ? common : bits;
        }
    }
    return bits;
}
