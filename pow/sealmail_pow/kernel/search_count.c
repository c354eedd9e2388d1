/* Any number of nonces by counting: the way of the original, and of few bits.
 *
 * Nonces are tried in order, and a table remembers for each place which count led there; the
 * first place met often enough is the solution.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "search.h"

enum {
    LEAST_LOG_SLOTS = 8,
    /* Up to here the table is small: all places are kept beside it, in the processor's cache. */
    SMALL_LOG_SLOTS = 16,
    /* 256 MiB. A search that needs more begins another table, and asks all of them. */
    MOST_LOG_SLOTS = 26,
    /* All together take no more than sealmail_pow/memory.py says. */
    MOST_TABLES = 16,
    MOST_TABLE_BYTES = 512 * 1024 * 1024,
    /* The slots of a large table are called for while a lot of so many nonces is hashed, and
     * have come from memory when they are needed. */
    LARGE_LOT = 256,
    HASHES_A_LOOK = 4096,
    /* So much memory comes soon enough; more is asked of the system page by page, in the least
     * pages that it gives, with looks between. */
    BYTES_AT_ONCE = 32 * 1024 * 1024,
    BYTES_A_LOOK = 2 * 1024 * 1024,
    LEAST_PAGE = 4096,
};

/* A slot is zero, or the count, as its distance from the table's first one plus one, below as
 * many bits of the scrambled place as are left: they tell most other places at a glance. */
struct table {
    uint64_t base;
    uint32_t *slots;
    /* By the same distance. Large tables do without: there a count is hashed again. */
    uint64_t *places;
};

struct tables {
    struct table of[MOST_TABLES];
    unsigned used;
    unsigned log_slots;
    /* With so many entries a table is full. */
    uint64_t room;
};

/* Counts in a row, and their places. */
struct lot {
    uint64_t from;
    unsigned count;
    uint64_t places[LARGE_LOT];
};

static bool are_small(const struct tables *tables)
{
    return tables->log_slots <= SMALL_LOG_SLOTS;
}

/* 32 bits of a place without order: the upper ones are its slot, the lower ones its tag. */
static uint32_t scramble(uint64_t place)
{
    return (uint32_t)(place * 0x9e3779b97f4a7c15 >> 32);
}

static size_t slot_of(const struct tables *tables, uint64_t place)
{
    return scramble(place) >> (32 - tables->log_slots);
}

/* Have the system give the memory of a large table. It clears each page when that is first used,
 * and the first lots use them all: half a second or more for 256 MiB when memory is scarce. */
static void claim_pages(uint32_t *slots, size_t bytes, struct watch *watch)
{
    volatile uint8_t *memory = (volatile uint8_t *)slots;
    for (size_t at = 0; at < bytes && !is_stopped(watch); at += LEAST_PAGE) {
        if (at % BYTES_A_LOOK == 0)
            glance(watch);
        memory[at] = 0;
    }
}

static bool add_table(struct tables *tables, uint64_t base, struct watch *watch)
{
    struct table *table = &tables->of[tables->used];
    size_t slots = (size_t)1 << tables->log_slots, bytes = slots * sizeof *table->slots;
    if (tables->used == MOST_TABLES || (tables->used + 1) * bytes > MOST_TABLE_BYTES)
        return false;
    *table = (struct table){.base = base};
    if (are_small(tables)) {
        table->slots = calloc(slots, sizeof *table->slots);
        table->places = malloc(slots * sizeof *table->places);
        if (table->slots == NULL || table->places == NULL) {
            free(table->slots);
            free(table->places);
            return false;
        }
    } else {
        table->slots = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                            -1, 0);
        if (table->slots == MAP_FAILED)
            return false;
#ifdef MADV_HUGEPAGE
        /* Each probe is in another page; of huge ones the processor knows enough by heart. */
        madvise(table->slots, bytes, MADV_HUGEPAGE);
#endif
        if (bytes > BYTES_AT_ONCE)
            claim_pages(table->slots, bytes, watch);
    }
    tables->used++;
    return true;
}

static void *free_tables(void *argument)
{
    struct tables *tables = argument;
    for (; tables->used > 0; tables->used--) {
        struct table *table = &tables->of[tables->used - 1];
        if (are_small(tables)) {
            free(table->slots);
            free(table->places);
        } else {
            munmap(table->slots, sizeof *table->slots << tables->log_slots);
        }
    }
    free(tables);
    return NULL;
}

/* Where pages are small the system takes 20 ms to have a large table back: nobody waits for more
 * than one. */
static void let_go(struct tables *tables)
{
    pthread_t other;
    if (tables->used > 1 && pthread_create(&other, NULL, free_tables, tables) == 0)
        pthread_detach(other);
    else
        free_tables(tables);
}

static void digest_count(const struct task *task, const struct message *message, uint64_t count,
                         uint8_t digest[32])
{
    char nonce[MOST_NONCE];
    spell_count(message, count, nonce);
    digest_nonce(message, nonce, digest, task->watch);
}

/* Whether the digests of two counts agree, the tags of their places doing so. */
static bool agree(const struct task *task, const struct message *message,
                  const struct table *table, uint64_t earlier, uint64_t count, uint64_t place)
{
    if (table->places != NULL)
        return table->places[earlier - table->base] == place;
    uint8_t one[32], other[32];
    digest_count(task, message, earlier, one);
    digest_count(task, message, count, other);
    return !is_stopped(task->watch) && digests_agree(one, other, task->bits);
}

/* Collect the counts in one table whose digests agree with that of `count`, in order, the first
 * `most` of them; give the empty slot behind. */
static size_t ask_table(const struct tables *tables, const struct table *table,
                        const struct task *task, const struct message *message, uint64_t count,
                        uint64_t place, uint64_t *agreeing, unsigned *found, unsigned most)
{
    uint32_t distance_mask = ((uint32_t)1 << tables->log_slots) - 1;
    uint32_t tag = scramble(place) << tables->log_slots;
    size_t slot = slot_of(tables, place);
    uint32_t entry;
    while ((entry = table->slots[slot]) != 0) {
        if (((entry ^ tag) & ~distance_mask) == 0 && *found < most) {
            uint64_t earlier = table->base + (entry & distance_mask) - 1;
            if (agree(task, message, table, earlier, count, place))
                agreeing[(*found)++] = earlier;
        }
        slot = (slot + 1) & distance_mask;
    }
    return slot;
}

static void remember(const struct tables *tables, struct table *table, size_t slot,
                     uint64_t count, uint64_t place)
{
    uint64_t distance = count - table->base;
    table->slots[slot] = (uint32_t)(distance + 1) | scramble(place) << tables->log_slots;
    if (table->places != NULL)
        table->places[distance] = place;
}

/* Hash a lot, and call for the slots that it will need. */
static void hash_lot(struct lot *lot, const struct tables *tables, const struct task *task,
                     const struct message *message)
{
    const uint32_t *slots = tables->of[tables->used - 1].slots;
    struct places places;
    for (unsigned done = 0; done < lot->count; done += task->kernel->lanes) {
        count_lanes(task->kernel, message, lot->from + done, &places, task->watch);
        if (is_stopped(task->watch))
            return;
        for (unsigned lane = 0; lane < task->kernel->lanes; lane++) {
            uint64_t place = place_of_lane(&places, lane);
            lot->places[done + lane] = place;
            __builtin_prefetch(slots + slot_of(tables, place), 1);
        }
    }
}

/* Take a lot into the newest table, in order, until `wanted` counts agree. */
static bool settle_lot(const struct lot *lot, struct tables *tables, const struct task *task,
                       const struct message *message, unsigned wanted, uint64_t *agreeing)
{
    struct table *newest = &tables->of[tables->used - 1];
    for (unsigned which = 0; which < lot->count; which++) {
        uint64_t count = lot->from + which, place = lot->places[which];
        unsigned found = 0;
        size_t slot = 0;
        for (struct table *table = tables->of; table <= newest; table++)
            slot = ask_table(tables, table, task, message, count, place, agreeing, &found,
                             wanted - 1);
        if (found == wanted - 1) {
            agreeing[found] = count;
            return true;
        }
        remember(tables, newest, slot, count, place);
    }
    return false;
}

static enum outcome count_up(struct tables *tables, const struct task *task,
                             const struct message *message, unsigned wanted, uint64_t *agreeing)
{
    /* Where nothing comes from far, small lots waste fewer hashes at the end. */
    struct lot lot = {.count = are_small(tables) ? task->kernel->lanes : LARGE_LOT};
    uint64_t noted = 0;
    while (!is_stopped(task->watch)) {
        hash_lot(&lot, tables, task, message);
        if (is_stopped(task->watch))
            break;
        if (settle_lot(&lot, tables, task, message, wanted, agreeing))
            return FOUND;
        lot.from += lot.count;
        if (lot.from - noted >= HASHES_A_LOOK || message->is_long) {
            note_hashes(task->watch, lot.from - noted);
            noted = lot.from;
            glance(task->watch);
        }
        if (lot.from - tables->of[tables->used - 1].base > tables->room &&
            !add_table(tables, lot.from, task->watch))
            return OUT_OF_MEMORY;
    }
    return STOPPED;
}

enum outcome search_by_counting(const struct task *task, unsigned wanted, double expected,
                                struct solution *solution)
{
    struct message *message = malloc(sizeof *message);
    struct tables *tables = malloc(sizeof *tables);
    if (message == NULL || tables == NULL) {
        free(message);
        free(tables);
        return OUT_OF_MEMORY;
    }
    prepare_count(message, task->data, task->length, task->salt, task->bits);

    *tables = (struct tables){.log_slots = LEAST_LOG_SLOTS};
    while (tables->log_slots < MOST_LOG_SLOTS && (double)(1 << tables->log_slots) < 2 * expected)
        tables->log_slots++;
    /* Four fifths of the slots; the lot during which that is reached still goes in. */
    tables->room = ((uint64_t)1 << tables->log_slots) / 5 * 4 - MOST_LANES;

    uint64_t agreeing[MOST_NONCES];
    enum outcome outcome = OUT_OF_MEMORY;
    glance(task->watch);
    if (add_table(tables, 0, task->watch))
        outcome = count_up(tables, task, message, wanted, agreeing);
    if (outcome == FOUND) {
        solution->nonce_length = message->nonce_length;
        solution->hashes = agreeing[wanted - 1] + 1;
        for (unsigned which = 0; which < wanted; which++)
            spell_count(message, agreeing[which], solution->nonces[which]);
    }
    let_go(tables);
    free(message);
    return outcome;
}
