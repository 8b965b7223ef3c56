/* A team of threads that run one tape together: tasks by an atomic counter, a barrier after each phase. */
#ifndef OCTAVO_TEAM_H
#define OCTAVO_TEAM_H

#include "octavo.h"

#include <stdatomic.h>
#include <stddef.h>

enum { OCTAVO_CACHE_LINE = 64, OCTAVO_SCRATCH_BYTES = 2 << 20 }; /* taken from the system as it is used */

typedef struct {
    octavo_team *team;
    _Alignas(OCTAVO_CACHE_LINE) atomic_int_fast64_t next; /* of this thread's share */
    char *scratch; /* OCTAVO_SCRATCH_BYTES of this thread, aligned to 64 */
    const octavo_entry *entry; /* of the tape, the one that is being executed */
    const octavo_entry *end;
    int32_t index;
} octavo_thread;

/* A kernel is called by every thread of the team. It ends without a barrier; the tape adds one. */
typedef void (*octavo_kernel)(const void *arguments, octavo_thread *thread);

typedef struct {
    const char *name;
    octavo_kernel kernels[OCTAVO_NUM_OPERATIONS];
    unsigned (*enter)(void); /* before and after a tape, on every thread; null: nothing */
    void (*leave)(unsigned before);
} octavo_variant;

/* The next task of this phase: 0, 1, 2, ... over all threads. */
int64_t octavo_next(octavo_thread *thread);

/* The next of `count` tasks, -1 if there are no more. A thread takes neighbours, and helps others when it is through with its
 * share: two threads that take turns in one array fetch each other's parts of it. */
int64_t octavo_next_near(octavo_thread *thread, int64_t count);

/* A thread's share of `count` tasks: from the first up to the end. For tasks that are too small to be taken one by one. */
int64_t octavo_first(const octavo_thread *thread, int64_t count);
int64_t octavo_end(const octavo_thread *thread, int64_t count);

/* Waits until all threads are here; tasks count from 0 again. */
void octavo_barrier(octavo_thread *thread);

int32_t octavo_team_size(const octavo_thread *thread);

/* Scratch of thread `index` of the team; a barrier must lie between its writing and another's reading. */
char *octavo_scratch(const octavo_thread *thread, int32_t index);

const octavo_variant *octavo_find_variant(const char *name);

#endif
