#include "watch.h"

#include <time.h>

/* A cancelled search ends after some of these; asking takes the interpreter from others, so it
 * is not done more often than that is worth. */
static const uint64_t nanoseconds_between_looks = 5 * 1000 * 1000;

uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

void begin_watch(struct watch *watch, bool (*look)(void *, uint64_t), void *listener)
{
    atomic_init(&watch->stopped, false);
    atomic_init(&watch->hashes, 0);
    watch->look = look;
    watch->listener = listener;
    watch->caller = pthread_self();
    watch->next_look = 0;
}

void glance(struct watch *watch)
{
    if (is_stopped(watch) || !pthread_equal(pthread_self(), watch->caller))
        return;
    if (now() < watch->next_look)
        return;
    if (!watch->look(watch->listener, atomic_load(&watch->hashes)))
        stop(watch);
    watch->next_look = now() + nanoseconds_between_looks;
}
