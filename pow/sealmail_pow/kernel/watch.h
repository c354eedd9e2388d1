/* The watch over a running search: how far it is, and whether its end is wanted. */
#ifndef SEALMAIL_WATCH_H
#define SEALMAIL_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct watch {
    atomic_bool stopped;
    atomic_uint_fast64_t hashes;
    /* Asked in the thread that called the search, every few milliseconds, with the hashes so
     * far; false stops the search. */
    bool (*look)(void *listener, uint64_t hashes);
    void *listener;
    pthread_t caller;
    uint64_t next_look;
};

void begin_watch(struct watch *watch, bool (*look)(void *, uint64_t), void *listener);

static inline bool is_stopped(struct watch *watch)
{
    return atomic_load_explicit(&watch->stopped, memory_order_relaxed);
}

static inline void stop(struct watch *watch)
{
    atomic_store_explicit(&watch->stopped, true, memory_order_relaxed);
}

static inline void note_hashes(struct watch *watch, uint64_t hashes)
{
    atomic_fetch_add_explicit(&watch->hashes, hashes, memory_order_relaxed);
}

/* Look if it is time to; any thread may say so, only the caller of the search does it. */
void glance(struct watch *watch);

/* Nanoseconds on a clock that only goes forward. */
uint64_t now(void);

#endif
