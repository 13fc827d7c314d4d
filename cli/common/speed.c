#include "common/speed.h"
#include "common/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- memory ---- */

#define N_CORES      2
#define N_ROUNDS     10
#define LINK_BYTES   ((size_t)1 << 20)
#define MEMORY_BYTES ((size_t)64 << 20) /* beyond the caches */
#define PAGE_BYTES   ((size_t)2 << 20)
/* From one buffer to the next: a multiple of a large power of two would put the same places of all
 * buffers into the same sets of a cache and banks of memory. */
#define STRIDE_BYTES (MEMORY_BYTES + ((size_t)68 << 10))
#define ALL_BYTES    (2 * N_CORES * STRIDE_BYTES)

/* Two threads, a core each, which measure in turns and at once. The second is the caller's. */
typedef struct measuring {
    char *of[N_CORES]; /* [MEMORY_BYTES] */
    char *to[N_CORES]; /* the same, to copy to */
    pthread_barrier_t barrier;
    memory_speed least[N_CORES]; /* times, not yet of a byte */
} measuring;

typedef struct member {
    measuring *all;
    int own;
} member;

/* Takes core k of those that the process may use, the last one first. Fewer cores are shared. */
static void take_core(int k) {
    cpu_set_t cores, one;
    if (sched_getaffinity(0, sizeof cores, &cores)) return;
    k %= CPU_COUNT(&cores);
    CPU_ZERO(&one);
    for (int core = CPU_SETSIZE - 1; core >= 0; core--)
        if (CPU_ISSET(core, &cores) && !k--) CPU_SET(core, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

static double cpu_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void time_copy(void *to, const void *from, size_t bytes, double *least_us) {
    double begin = cpu_us();
    memcpy(to, from, bytes);
    *least_us = fmin(*least_us, cpu_us() - begin);
}

/* As a member of an all-reduce: sums its half of both buffers. */
static void time_sum(const measuring *m, int own, double *least_us) {
    float *a = (float *)(void *)m->of[0], *b = (float *)(void *)m->of[1];
    size_t n = MEMORY_BYTES / sizeof *a / N_CORES, end = (size_t)(own + 1) * n;
    double begin = cpu_us();
    for (size_t i = end - n; i < end; i++) a[i] = b[i] = a[i] + b[i];
    *least_us = fmin(*least_us, cpu_us() - begin);
}

static void *measure_memory(void *self) {
    const member *of = self;
    measuring *m = of->all;
    int own = of->own;
    memory_speed *least = &m->least[own];
    *least = (memory_speed){INFINITY, INFINITY, INFINITY, INFINITY};
    take_core(own);
    memset(m->of[own], 0, MEMORY_BYTES);
    memset(m->to[own], 0, MEMORY_BYTES);
    for (int k = 0; k < N_ROUNDS; k++) {
        memset(m->of[own], 0, LINK_BYTES); /* into this core's cache */
        pthread_barrier_wait(&m->barrier);
        time_copy(m->to[own], m->of[!own], LINK_BYTES, &least->link_us_per_byte);
        time_copy(m->to[own], m->of[!own], sizeof(float), &least->latency_us);
        pthread_barrier_wait(&m->barrier);
        time_copy(m->to[own], m->of[own], MEMORY_BYTES, &least->memory_us_per_byte);
        pthread_barrier_wait(&m->barrier);
        time_sum(m, own, &least->sum_us_per_byte);
        pthread_barrier_wait(&m->barrier);
    }
    return NULL;
}

/* The slower of both cores. */
static memory_speed speed_of(const measuring *m) {
    const memory_speed *x = &m->least[0], *y = &m->least[1];
    return (memory_speed){fmax(x->latency_us, y->latency_us),
                          fmax(x->link_us_per_byte, y->link_us_per_byte) / LINK_BYTES,
                          fmax(x->memory_us_per_byte, y->memory_us_per_byte) / MEMORY_BYTES,
                          fmax(x->sum_us_per_byte, y->sum_us_per_byte) / MEMORY_BYTES};
}

bool speed_of_memory(memory_speed *speed_out) {
    measuring m = {.of = {NULL}};
    member members[N_CORES] = {{&m, 0}, {&m, 1}};
    pthread_t other;
    cpu_set_t cores;
    void *block = NULL;
    char *memory = posix_memalign(&block, PAGE_BYTES, ALL_BYTES) ? NULL : block;
    if (memory) madvise(memory, ALL_BYTES, MADV_HUGEPAGE); /* as the arena of a rank */
    bool is_ready = memory && !pthread_barrier_init(&m.barrier, NULL, N_CORES);
    bool has_cores = !sched_getaffinity(0, sizeof cores, &cores);
    for (int k = 0; k < N_CORES && memory; k++) {
        m.of[k] = memory + (size_t)(2 * k) * STRIDE_BYTES;
        m.to[k] = m.of[k] + STRIDE_BYTES;
    }
    bool measures = is_ready && !pthread_create(&other, NULL, measure_memory, &members[0]);
    if (measures) {
        measure_memory(&members[1]);
        pthread_join(other, NULL);
        *speed_out = speed_of(&m);
    }
    if (has_cores) (void)sched_setaffinity(0, sizeof cores, &cores);
    if (is_ready) pthread_barrier_destroy(&m.barrier);
    free(memory);
    return measures;
}

/* ---- disk ---- */

/* One after the other, as plain as can be. False: errno says why. */
static bool move_all(int fd, char *chunk, size_t bytes, bool writes) {
    for (size_t at = 0; at < bytes; at += SPEED_DISK_CHUNK) {
        ssize_t n = writes ? pwrite(fd, chunk, SPEED_DISK_CHUNK, (off_t)at)
                           : pread(fd, chunk, SPEED_DISK_CHUNK, (off_t)at);
        if (n == (ssize_t)SPEED_DISK_CHUNK) continue;
        if (n >= 0) errno = EIO;
        return false;
    }
    return true;
}

/* The first time takes the bytes from the file system, and is not timed. */
static bool time_moves(int fd, char *chunk, size_t bytes, double *ms_out) {
    if (!move_all(fd, chunk, bytes, true)) return false;
    double begin_s = now_seconds();
    if (!move_all(fd, chunk, bytes, false) || !move_all(fd, chunk, bytes, true)) return false;
    *ms_out = (now_seconds() - begin_s) * 1e3;
    return true;
}

bool speed_of_disk(const char *path, size_t bytes, double *ms_out) {
    void *chunk = NULL;
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
    if (fd < 0 && errno == EINVAL) {
        unlink(path);
        fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    }
    if (fd < 0) return false;
    unlink(path);
    errno = posix_memalign(&chunk, 4096, SPEED_DISK_CHUNK);
    bool ok = !errno;
    if (ok) memset(chunk, 1, SPEED_DISK_CHUNK);
    ok = ok && time_moves(fd, chunk, bytes, ms_out);
    int error = errno;
    free(chunk);
    close(fd);
    errno = error;
    return ok;
}
