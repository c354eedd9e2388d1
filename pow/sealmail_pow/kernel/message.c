#include "message.h"

#include <string.h>

#include "kernels.h"

/* SHA-256 ends a message with one bit and eight bytes that tell its length. */
enum { PADDING = 9 };
/* The bytes of long data that are hashed between two looks at the watch. */
enum { SLICE_BLOCKS = 1024 };

static const char hex_digits[] = "0123456789abcdef";

/* The number of bytes that a nonce may have before the message needs a further block. */
static size_t room_before(size_t length)
{
    return (BLOCK_BYTES - (length + PADDING) % BLOCK_BYTES) % BLOCK_BYTES;
}

/* Write `count` bytes of the padded message, beginning with the data's byte number `from`. */
static void copy_padded(uint8_t *to, size_t count, const uint8_t *data, size_t length,
                        size_t from, size_t nonce_length)
{
    memset(to, 0, count);
    if (from < length)
        memcpy(to, data + from, length - from < count ? length - from : count);
    if (from <= length && length - from < count)
        to[length - from] = 0x80;
    uint64_t bits = ((uint64_t)length + nonce_length) * 8;
    if (from + count >= length + PADDING && count >= 8) {
        write_word(to + count - 8, (uint32_t)(bits >> 32));
        write_word(to + count - 4, (uint32_t)bits);
    }
}

/* Compute what follows from the words of the first block that do not vary. */
static void fold_first_block(struct message *message)
{
    static const struct { unsigned first, varying; } varies[] = {
        [SALT_AND_TWELVE] = {1, 3}, [TWELVE] = {0, 3}, [SIXTEEN] = {0, 4},
    };
    unsigned first = varies[message->layout].first;
    unsigned behind = first + varies[message->layout].varying;

    for (int t = 0; t < BLOCK_WORDS; t++) {
        message->words[t] = read_word(message->first + 4 * t);
        message->first_wk[t] = message->words[t] + sha256_k[t];
    }

    memcpy(message->begun, sha256_start, sizeof message->begun);
    for (unsigned t = 0; t < first; t++)
        portable_round(message->begun, message->first_wk[t]);
    /* Of the next round only the word is missing, which is added to two words of its state. */
    portable_round(message->begun, sha256_k[first]);

    /* Each word of the schedule is a sum of four; a word that varies is left out by taking it
     * as zero, which both sigmas keep zero. */
    uint32_t w[2 * BLOCK_WORDS] = {0};
    for (unsigned t = 0; t < BLOCK_WORDS; t++)
        w[t] = t < first || t >= behind ? message->words[t] : 0;
    for (int t = 0; t < BLOCK_WORDS; t++)
        message->fixed[t] =
            small_sigma_1(w[t + 14]) + w[t + 9] + small_sigma_0(w[t + 1]) + w[t];
}

/* Fill in everything that hangs on the data, once the nonce's fixed text is in place. */
static void lay_out(struct message *message, const uint8_t *data, size_t length, unsigned bits)
{
    size_t nonce = message->nonce_length;
    size_t blocks = (nonce + length + PADDING + BLOCK_BYTES - 1) / BLOCK_BYTES;
    size_t in_first = BLOCK_BYTES - nonce;

    message->mask_hi = bits >= 32 ? UINT32_MAX : bits ? UINT32_MAX << (32 - bits) : 0;
    message->mask_lo = bits >= 64 ? UINT32_MAX : bits > 32 ? UINT32_MAX << (64 - bits) : 0;

    copy_padded(message->first + nonce, in_first, data, length, 0, nonce);
    fold_first_block(message);

    message->is_long = blocks - 1 > MOST_KEPT_BLOCKS;
    if (!message->is_long) {
        message->kept_blocks = blocks - 1;
        for (size_t block = 0; block < blocks - 1; block++) {
            uint8_t *kept = message->kept + block * BLOCK_BYTES;
            copy_padded(kept, BLOCK_BYTES, data, length, in_first + block * BLOCK_BYTES, nonce);
            expand_block(kept, message->wk[block]);
        }
        return;
    }
    message->kept_blocks = 0;
    message->rest = data + in_first;
    message->rest_blocks = (length - in_first) / BLOCK_BYTES;
    message->tail_blocks = (unsigned)(blocks - 1 - message->rest_blocks);
    for (unsigned block = 0; block < message->tail_blocks; block++)
        copy_padded(message->tail + block * BLOCK_BYTES, BLOCK_BYTES, data, length,
                    in_first + (message->rest_blocks + block) * BLOCK_BYTES, nonce);
}

void prepare_walk(struct message *message, const uint8_t *data, size_t length,
                  const char salt[MOST_NONCE], unsigned bits, unsigned theta)
{
    size_t room = room_before(length);
    /* Each character of the nonce that varies carries four bits. */
    if (bits > 48)
        message->layout = SIXTEEN;
    else
        message->layout = room >= 12 && room < 16 ? TWELVE : SALT_AND_TWELVE;
    message->nonce_length = message->layout == TWELVE ? 12 : 16;
    message->count_at = 0;
    message->point_mask = theta ? UINT32_MAX << (32 - theta) : 0;
    memset(message->first, '0', MOST_NONCE);
    if (message->layout == SALT_AND_TWELVE)
        memcpy(message->first, salt, 4);
    lay_out(message, data, length, bits);
}

void prepare_count(struct message *message, const uint8_t *data, size_t length,
                   const char *salt, unsigned bits)
{
    size_t room = room_before(length);
    unsigned salt_length = 0;
    if (salt != NULL)
        salt_length = room >= 16 || room < COUNT_DIGITS ? 7 : room >= 12 ? 3 : room - COUNT_DIGITS;
    message->nonce_length = salt_length + COUNT_DIGITS;
    message->layout = message->nonce_length == 16 ? SALT_AND_TWELVE : TWELVE;
    message->count_at = salt_length;
    message->point_mask = 0;
    memset(message->first, '0', MOST_NONCE);
    if (salt_length)
        memcpy(message->first, salt, salt_length);
    lay_out(message, data, length, bits < 64 ? bits : 64);
}

/* The digits of a place, in an order of our own: every other digit of a word first, because
 * that is cheap in all kernels. Any spelling will do that tells all places apart. */
void spell_place(const struct message *message, uint64_t place, char *nonce)
{
    uint32_t hi = (uint32_t)(place >> 32), lo = (uint32_t)place;
    uint32_t words[4] = {
        hi & 0x0f0f0f0f, hi >> 4 & 0x0f0f0f0f, lo & 0x0f0f0f0f, lo >> 4 & 0x0f0f0f0f,
    };
    if (message->layout != SIXTEEN)
        words[2] = (lo & 0x0f0f0000) | (lo >> 4 & 0x0f0f0000) >> 16;

    memcpy(nonce, message->first, message->nonce_length);
    char *digit = nonce + (message->layout == SALT_AND_TWELVE ? 4 : 0);
    unsigned count = message->layout == SIXTEEN ? 4 : 3;
    for (unsigned word = 0; word < count; word++)
        for (int shift = 24; shift >= 0; shift -= 8)
            *digit++ = hex_digits[words[word] >> shift & 15];
}

void spell_count(const struct message *message, uint64_t count, char *nonce)
{
    memcpy(nonce, message->first, message->nonce_length);
    for (unsigned digit = COUNT_DIGITS; digit-- > 0; count >>= 4)
        nonce[message->count_at + digit] = hex_digits[count & 15];
}

void count_words(const struct message *message, uint64_t count, uint32_t words[4])
{
    uint8_t text[MOST_NONCE];
    memcpy(text, message->first, MOST_NONCE);
    uint8_t *digits = text + message->count_at;
    digits[COUNT_DIGITS - 1] = 0;
    for (unsigned digit = COUNT_DIGITS - 1; digit-- > 0;) {
        count >>= 4;
        digits[digit] = (uint8_t)hex_digits[count & 15];
    }
    for (int word = 0; word < 4; word++)
        words[word] = read_word(text + 4 * word);
}

static uint64_t place_of_state(const struct message *message, const uint32_t *state)
{
    return (uint64_t)(state[0] & message->mask_hi) << 32 | (state[1] & message->mask_lo);
}

static void hash_first_block(const struct message *message, const char *nonce, uint32_t *state)
{
    uint8_t block[BLOCK_BYTES];
    memcpy(block, message->first, sizeof block);
    memcpy(block, nonce, message->nonce_length);
    memcpy(state, sha256_start, STATE_WORDS * sizeof *state);
    hash_blocks(state, block, 1);
}

/* Take a slice of long data after the other, with looks at the watch between. */
static void hash_rest(const struct message *message, uint32_t *state, struct watch *watch)
{
    for (size_t done = 0; done < message->rest_blocks; done += SLICE_BLOCKS) {
        size_t left = message->rest_blocks - done;
        hash_blocks(state, message->rest + done * BLOCK_BYTES,
                    left < SLICE_BLOCKS ? left : SLICE_BLOCKS);
        glance(watch);
        if (is_stopped(watch))
            return;
    }
    hash_blocks(state, message->tail, message->tail_blocks);
}

static void hash_nonce(const struct message *message, const char *nonce, uint32_t *state,
                       struct watch *watch)
{
    hash_first_block(message, nonce, state);
    if (message->is_long)
        hash_rest(message, state, watch);
    else
        hash_blocks(state, message->kept, message->kept_blocks);
}

void digest_nonce(const struct message *message, const char *nonce, uint8_t digest[32],
                  struct watch *watch)
{
    uint32_t state[STATE_WORDS];
    hash_nonce(message, nonce, state, watch);
    for (int word = 0; word < STATE_WORDS; word++)
        write_word(digest + 4 * word, state[word]);
}

uint64_t place_of_nonce(const struct message *message, const char *nonce, struct watch *watch)
{
    uint32_t state[STATE_WORDS];
    hash_nonce(message, nonce, state, watch);
    return place_of_state(message, state);
}

/* Long data: the first blocks one by one, the rest in all lanes at once, so that the schedule
 * of each block, which is the same for every nonce, is computed once. */
static void stream_lanes(const struct kernel *kernel, const struct message *message,
                         char nonces[][MOST_NONCE], struct places *out, struct watch *watch)
{
    uint32_t states[MOST_LANES][STATE_WORDS];
    for (unsigned lane = 0; lane < kernel->lanes; lane++)
        hash_first_block(message, nonces[lane], states[lane]);
    for (size_t done = 0; done < message->rest_blocks; done += SLICE_BLOCKS) {
        size_t left = message->rest_blocks - done;
        kernel->stream(states, message->rest + done * BLOCK_BYTES,
                       left < SLICE_BLOCKS ? left : SLICE_BLOCKS);
        glance(watch);
        if (is_stopped(watch))
            return;
    }
    kernel->stream(states, message->tail, message->tail_blocks);
    for (unsigned lane = 0; lane < kernel->lanes; lane++)
        put_lane(out, lane, place_of_state(message, states[lane]));
}

unsigned walk_lanes(const struct kernel *kernel, const struct message *message,
                    struct places *at, unsigned most, struct arrivals *seen,
                    struct watch *watch)
{
    if (!message->is_long)
        return kernel->walk(message, at, most, seen);
    char nonces[MOST_LANES][MOST_NONCE];
    for (unsigned lane = 0; lane < kernel->lanes; lane++)
        spell_place(message, place_of_lane(at, lane), nonces[lane]);
    stream_lanes(kernel, message, nonces, at, watch);
    uint32_t arrived = 0;
    for (unsigned lane = 0; lane < kernel->lanes; lane++)
        arrived |= (uint32_t)((at->hi[lane] & message->point_mask) == 0) << lane;
    seen->count = 0;
    if (arrived)
        *note_arrival(seen, 1, arrived) = *at;
    return 1;
}

void count_lanes(const struct kernel *kernel, const struct message *message, uint64_t from,
                 struct places *out, struct watch *watch)
{
    if (!message->is_long) {
        kernel->count(message, from, out);
        return;
    }
    char nonces[MOST_LANES][MOST_NONCE];
    for (unsigned lane = 0; lane < kernel->lanes; lane++)
        spell_count(message, from + lane, nonces[lane]);
    stream_lanes(kernel, message, nonces, out, watch);
}
