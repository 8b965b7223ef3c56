#define _GNU_SOURCE
#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* About 20 microseconds: longer than the threads of a team usually wait for each other. Then the core is offered to others. */
enum { SPINS = 400 };

struct octavo_team {
    _Alignas(OCTAVO_CACHE_LINE) atomic_int_fast64_t next;
    _Alignas(OCTAVO_CACHE_LINE) atomic_int arrived;
    _Alignas(OCTAVO_CACHE_LINE) atomic_uint phase;
    _Alignas(OCTAVO_CACHE_LINE) pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake;
    uint64_t runs;
    int ends;
    const octavo_entry *tape;
    int64_t count;
    const octavo_variant *variant;
    int32_t size;
    pthread_t *handles;
    octavo_thread *threads;
};

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

int64_t octavo_next(octavo_thread *thread) {
    return atomic_fetch_add_explicit(&thread->team->next, 1, memory_order_relaxed);
}

int64_t octavo_first(const octavo_thread *thread, int64_t count) {
    return thread->index * count / thread->team->size;
}

int64_t octavo_end(const octavo_thread *thread, int64_t count) {
    return (thread->index + 1) * count / thread->team->size;
}

int64_t octavo_next_near(octavo_thread *thread, int64_t count) {
    octavo_team *team = thread->team;
    for (int32_t i = 0; i < team->size; i++) {
        octavo_thread *owner = &team->threads[(thread->index + i) % team->size];
        int64_t task = octavo_first(owner, count) + atomic_fetch_add_explicit(&owner->next, 1, memory_order_relaxed);
        if (task < octavo_end(owner, count))
            return task;
    }
    return -1;
}

int32_t octavo_team_size(const octavo_thread *thread) {
    return thread->team->size;
}

char *octavo_scratch(const octavo_thread *thread, int32_t index) {
    return thread->team->threads[index].scratch;
}

void octavo_barrier(octavo_thread *thread) {
    octavo_team *team = thread->team;
    unsigned phase = atomic_load_explicit(&team->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 == team->size) {
        atomic_store_explicit(&team->next, 0, memory_order_relaxed);
        for (int32_t i = 0; i < team->size; i++)
            atomic_store_explicit(&team->threads[i].next, 0, memory_order_relaxed);
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&team->phase, phase + 1, memory_order_release);
        return;
    }
    for (int spin = 0; atomic_load_explicit(&team->phase, memory_order_acquire) == phase; spin++) {
        if (spin < SPINS)
            pause_briefly();
        else
            sched_yield();
    }
}

/* The first thread through the last barrier may bring the next tape before the others have left this one. */
static void play(octavo_thread *thread, const octavo_entry *tape, int64_t count) {
    const octavo_variant *variant = thread->team->variant;
    unsigned before = variant->enter ? variant->enter() : 0;
    thread->end = tape + count;
    for (thread->entry = tape; thread->entry < thread->end; thread->entry++) {
        variant->kernels[thread->entry->operation](thread->entry->arguments, thread);
        octavo_barrier(thread);
    }
    if (variant->leave)
        variant->leave(before);
}

/* Sleeps between tapes: a waiting team costs its neighbours nothing. */
static void *serve(void *argument) {
    octavo_thread *thread = argument;
    octavo_team *team = thread->team;
    for (uint64_t seen = 0;; seen++) {
        pthread_mutex_lock(&team->lock);
        while (team->runs == seen && !team->ends)
            pthread_cond_wait(&team->wake, &team->lock);
        int ends = team->ends;
        const octavo_entry *tape = team->tape;
        int64_t count = team->count;
        pthread_mutex_unlock(&team->lock);
        if (ends)
            return NULL;
        play(thread, tape, count);
    }
}

void octavo_run(octavo_team *team, const octavo_entry *tape, int64_t count) {
    if (count == 0)
        return;
    pthread_mutex_lock(&team->lock);
    team->tape = tape;
    team->count = count;
    team->runs++;
    pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
    play(&team->threads[0], tape, count);
}

static int start_threads(octavo_team *team) {
    for (int32_t i = 0; i < team->size; i++) {
        octavo_thread *thread = &team->threads[i];
        thread->team = team;
        thread->index = i;
        thread->scratch = aligned_alloc(OCTAVO_CACHE_LINE, OCTAVO_SCRATCH_BYTES);
        if (!thread->scratch || (i > 0 && pthread_create(&team->handles[i], NULL, serve, thread)))
            return i;
    }
    return team->size;
}

static void discard(octavo_team *team, int32_t started) {
    pthread_mutex_lock(&team->lock);
    team->ends = 1;
    pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
    for (int32_t i = 1; i < started; i++)
        pthread_join(team->handles[i], NULL);
    for (int32_t i = 0; team->threads && i < team->size; i++)
        free(team->threads[i].scratch);
    pthread_cond_destroy(&team->wake);
    pthread_mutex_destroy(&team->lock);
    free(team->threads);
    free(team->handles);
    free(team);
}

octavo_team *octavo_team_new(int32_t threads, const char *name) {
    const octavo_variant *variant = octavo_find_variant(name);
    if (!variant || threads < 1)
        return NULL;
    octavo_team *team = aligned_alloc(OCTAVO_CACHE_LINE, sizeof(octavo_team));
    if (!team)
        return NULL;
    *team = (octavo_team){.variant = variant, .size = threads};
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->wake, NULL);
    team->threads = aligned_alloc(OCTAVO_CACHE_LINE, (size_t)threads * sizeof(octavo_thread));
    if (team->threads)
        memset(team->threads, 0, (size_t)threads * sizeof(octavo_thread));
    team->handles = calloc((size_t)threads, sizeof(pthread_t));
    int32_t started = team->threads && team->handles ? start_threads(team) : 0;
    if (started < threads) {
        discard(team, started);
        return NULL;
    }
    return team;
}

void octavo_team_free(octavo_team *team) {
    discard(team, team->size);
}
