/* Two nonces by distinguished points (van Oorschot and Wiener, 1994).
 *
 * A place is the first bits of a digest. Spelled as a nonce it gives another digest and so the
 * next place: a walk, which is a function of the place alone, so that two walks that ever meet
 * stay together. Where they meet are two different nonces whose digests begin alike: the stamp.
 *
 * Places with `theta` zero bits are distinguished points, and only they are remembered, with
 * the trail that led there: where it began, and its length. When a second trail ends in the
 * same point, both are walked again, side by side, to the place where they met. So hardly any
 * memory is needed, whatever the level, and threads share little but that table.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "search.h"

/* The steps between two looks at the watch: a fraction of a millisecond; one for long data. */
enum { STEPS_A_LOOK = 512 };
/* A walk that has met no point after so many times the mean is caught in a cycle. */
enum { LOST_AFTER = 20 };
/* Reached beyond 80 bits, which nobody has the time to find: 1.5 MiB. */
enum { MOST_LOG_SLOTS = 16 };

/* A place is at most so many bits. If more are asked for, walks meet now and then at places that
 * do not agree in all of them, and go on: as each meeting is found among all points known by
 * then, the work is not much more, less than twice for six bits. Tests make do with fewer. */
#ifndef PLACE_BITS
#define PLACE_BITS 64
#endif

/* How many slots are tried for a point before the last one is taken from another. */
enum { PROBES = 16 };

struct trail {
    uint64_t point, start, steps;
};

struct search {
    const struct task *task;
    struct message message;
    uint64_t seed;
    atomic_uint_fast64_t starts;
    unsigned theta;
    bool alone;
    pthread_mutex_t lock;
    struct trail *trails;
    unsigned log_slots;
    bool found;
    struct solution *solution;
};

/* How many zero bits make a point. Fewer give more points to remember, more give longer walks
 * before the first point, and from the meeting on to the next: lanes * 2^theta hashes or so,
 * which must stay small against the 2^(bits/2) of the search. */
static unsigned theta_of(unsigned bits, unsigned lanes)
{
    /* Some five hundred points are met at leisure; kernels with few lanes make do with half as
     * many. Where points are rare, eight or four times as many cost fewer detours. */
    const bool many = lanes > 8;
    const unsigned log_points = many ? 9 : 8, more = many ? 3 : 2, rare = many ? 7 : 8;
    static const unsigned most = 28;
    unsigned half = bits / 2;
    if (half <= log_points)
        return 0;
    unsigned theta = half - log_points;
    if (theta > rare)
        theta = theta - more > rare ? theta - more : rare;
    return theta < most ? theta : most;
}

/* A bijection that leaves no order: the finish of splitmix64. */
static uint64_t scramble(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* A start that no lane of any thread had before. */
static uint64_t fresh_start(struct search *search)
{
    uint64_t number = atomic_fetch_add_explicit(&search->starts, 1, memory_order_relaxed);
    uint64_t mask = (uint64_t)search->message.mask_hi << 32 | search->message.mask_lo;
    return scramble(search->seed + number * 0x9e3779b97f4a7c15) & mask;
}

static uint64_t step_from(const struct search *search, uint64_t place)
{
    char nonce[MOST_NONCE];
    spell_place(&search->message, place, nonce);
    return place_of_nonce(&search->message, nonce, search->task->watch);
}

/* Remember a trail. If another one leads to the same point, give that one instead. */
static bool already_there(struct search *search, const struct trail *trail, struct trail *other)
{
    size_t slots = (size_t)1 << search->log_slots;
    size_t slot = (size_t)(trail->point * 0x9e3779b97f4a7c15 >> (64 - search->log_slots));
    bool met = false;
    if (!search->alone)
        pthread_mutex_lock(&search->lock);
    for (int probe = 0; probe < PROBES; probe++, slot = (slot + 1) & (slots - 1)) {
        struct trail *there = search->trails + slot;
        met = there->steps != 0 && there->point == trail->point;
        if (met)
            *other = *there;
        else if (there->steps == 0 || probe == PROBES - 1)
            *there = *trail;
        else
            continue;
        break;
    }
    if (!search->alone)
        pthread_mutex_unlock(&search->lock);
    return met;
}

/* Whether to leave a re-walk; looks at the watch when it is time, as the walks do. Of long data
 * each hash has looked. */
static bool is_left(const struct search *search, uint64_t steps_left)
{
    if (steps_left % STEPS_A_LOOK == 0)
        glance(search->task->watch);
    return is_stopped(search->task->watch);
}

/* Walk two trails to the places just before they become one; count the hashes. False if one
 * begins on the other, so that there is no such pair, or if the search is stopped. */
static bool meeting(const struct search *search, const struct trail *one,
                    const struct trail *other, uint64_t pair[2], uint64_t *hashes)
{
    const struct trail *longer = one->steps >= other->steps ? one : other;
    const struct trail *shorter = longer == one ? other : one;
    uint64_t place = longer->start, partner = shorter->start;
    for (uint64_t ahead = longer->steps - shorter->steps; ahead > 0; ahead--) {
        if (is_left(search, ahead))
            return false;
        place = step_from(search, place);
        *hashes += 1;
    }
    for (uint64_t left = shorter->steps; left > 0 && place != partner; left--) {
        if (is_left(search, left))
            return false;
        pair[0] = place, pair[1] = partner;
        place = step_from(search, place);
        partner = step_from(search, partner);
        *hashes += 2;
        if (place == partner)
            return !is_stopped(search->task->watch);
    }
    return false;
}

/* Whether the nonces of two places agree in all bits asked for, which may be more than a place
 * has; if so they are the solution, unless another thread was first. */
static bool is_solution(struct search *search, const uint64_t pair[2])
{
    uint8_t digests[2][32];
    char nonces[2][MOST_NONCE];
    for (int which = 0; which < 2; which++) {
        spell_place(&search->message, pair[which], nonces[which]);
        digest_nonce(&search->message, nonces[which], digests[which], search->task->watch);
    }
    if (is_stopped(search->task->watch) ||
        !digests_agree(digests[0], digests[1], search->task->bits))
        return false;
    pthread_mutex_lock(&search->lock);
    if (!search->found)
        memcpy(search->solution->nonces, nonces, sizeof nonces);
    search->found = true;
    pthread_mutex_unlock(&search->lock);
    stop(search->task->watch);
    return true;
}

/* The walks of one thread, one in each lane: where they are, where and after how many steps the
 * trail began that each is on, and the steps so far. */
struct walks {
    struct places at;
    uint64_t starts[MOST_LANES], begun[MOST_LANES], step;
};

static void begin_trail(struct walks *walks, unsigned lane, uint64_t start, uint64_t step)
{
    walks->starts[lane] = start;
    walks->begun[lane] = step;
}

static void begin_walk(struct search *search, struct walks *walks, unsigned lane)
{
    uint64_t start = fresh_start(search);
    begin_trail(walks, lane, start, walks->step);
    put_lane(&walks->at, lane, start);
}

/* Take in the trail that led a lane to a point at a step. If another one led there, go and see
 * where they met; true if that ends the search. */
static bool end_trail(struct search *search, struct walks *walks, unsigned lane, uint64_t place,
                      uint64_t step)
{
    /* Since this step was noted, the lane has begun anew. */
    if (walks->begun[lane] >= step)
        return false;
    struct trail trail = {place, walks->starts[lane], step - walks->begun[lane]}, other;
    if (!already_there(search, &trail, &other)) {
        /* The walk goes on from the point: so trails never begin within another, but for the
         * first of each lane. */
        begin_trail(walks, lane, place, step);
        return false;
    }
    uint64_t pair[2], hashes = 0;
    bool met = meeting(search, &trail, &other, pair, &hashes);
    note_hashes(search->task->watch, hashes);
    if (met && is_solution(search, pair))
        return true;
    begin_walk(search, walks, lane);
    return false;
}

/* Take in all trails that a walk has ended, the first first. */
static void end_trails(struct search *search, struct walks *walks, const struct arrivals *seen,
                       uint64_t before)
{
    for (const struct arrival *arrival = seen->of; arrival < seen->of + seen->count; arrival++) {
        for (uint32_t lanes = arrival->lanes; lanes != 0; lanes &= lanes - 1) {
            unsigned lane = (unsigned)__builtin_ctz(lanes);
            uint64_t place = place_of_lane(&arrival->at, lane);
            if (end_trail(search, walks, lane, place, before + arrival->step))
                return;
        }
    }
}

static void *walk(void *argument)
{
    struct search *search = argument;
    struct watch *watch = search->task->watch;
    const struct message *message = &search->message;
    const unsigned lanes = search->task->kernel->lanes;
    const uint64_t longest = (uint64_t)LOST_AFTER << search->theta;

    struct walks walks = {.step = 0};
    struct arrivals seen;
    for (unsigned lane = 0; lane < lanes; lane++)
        begin_walk(search, &walks, lane);

    unsigned until_look = 0;
    uint64_t noted = 0;
    while (!is_stopped(watch)) {
        if (until_look == 0) {
            note_hashes(watch, (walks.step - noted) * lanes);
            noted = walks.step;
            glance(watch);
            for (unsigned lane = 0; lane < lanes; lane++)
                if (walks.step - walks.begun[lane] > longest)
                    begin_walk(search, &walks, lane);
            until_look = message->is_long ? 1 : STEPS_A_LOOK;
            continue;
        }
        const uint64_t before = walks.step;
        unsigned steps =
            walk_lanes(search->task->kernel, message, &walks.at, until_look, &seen, watch);
        walks.step += steps;
        until_look -= steps;
        if (message->is_long && is_stopped(watch))
            break;
        end_trails(search, &walks, &seen, before);
    }
    note_hashes(watch, (walks.step - noted) * lanes);
    return NULL;
}

enum outcome search_by_walking(const struct task *task, unsigned threads, uint64_t seed,
                               struct solution *solution)
{
    struct search *search = malloc(sizeof *search);
    if (search == NULL)
        return OUT_OF_MEMORY;
    search->task = task;
    search->seed = seed;
    atomic_init(&search->starts, 0);
    search->theta = theta_of(task->bits, task->kernel->lanes);
    search->alone = threads == 1;
    search->found = false;
    search->solution = solution;
    /* Three times the points that a search meets on average. */
    search->log_slots = task->bits / 2 - search->theta + 2;
    if (search->log_slots > MOST_LOG_SLOTS)
        search->log_slots = MOST_LOG_SLOTS;
    search->trails = calloc((size_t)1 << search->log_slots, sizeof *search->trails);
    if (search->trails == NULL) {
        free(search);
        return OUT_OF_MEMORY;
    }
    pthread_mutex_init(&search->lock, NULL);
    prepare_walk(&search->message, task->data, task->length, task->salt,
                 task->bits < PLACE_BITS ? task->bits : PLACE_BITS, search->theta);

    /* The calling thread searches too. If the system gives fewer others, fewer must do. */
    pthread_t others[MOST_THREADS];
    unsigned started = 0;
    while (started + 1 < threads && pthread_create(others + started, NULL, walk, search) == 0)
        started++;
    walk(search);
    while (started > 0)
        pthread_join(others[--started], NULL);

    bool found = search->found;
    solution->nonce_length = search->message.nonce_length;
    solution->hashes = atomic_load(&task->watch->hashes);
    pthread_mutex_destroy(&search->lock);
    free(search->trails);
    free(search);
    return found ? FOUND : STOPPED;
}
