/* weft bench memory: how long the disk takes by itself for what a plan keeps there. */
#include "bench/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHUNK_BYTES ((size_t)4 << 20)
/* What is larger is measured by a part. */
#define MOST_BYTES ((size_t)1 << 30)

/* One after the other, as plain as can be. False: errno says why. */
static bool move_all(int fd, char *chunk, size_t bytes, bool writes) {
    for (size_t at = 0; at < bytes; at += CHUNK_BYTES) {
        ssize_t n = writes ? pwrite(fd, chunk, CHUNK_BYTES, (off_t)at)
                           : pread(fd, chunk, CHUNK_BYTES, (off_t)at);
        if (n == (ssize_t)CHUNK_BYTES) continue;
        if (n >= 0) errno = EIO;
        return false;
    }
    return true;
}

static double seconds_between(const struct timespec *begin, const struct timespec *end) {
    return (double)(end->tv_sec - begin->tv_sec) + (double)(end->tv_nsec - begin->tv_nsec) * 1e-9;
}

/* The first time takes the bytes from the file system, and is not timed. */
static bool time_moves(int fd, char *chunk, size_t bytes, double *ms_out) {
    if (!move_all(fd, chunk, bytes, true)) return false;
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (!move_all(fd, chunk, bytes, false) || !move_all(fd, chunk, bytes, true)) return false;
    clock_gettime(CLOCK_MONOTONIC, &end);
    *ms_out = seconds_between(&begin, &end) * 1e3;
    return true;
}

/* In the folder that files of offload= are in, and past the system's cache as these. */
static bool measure(const char *path, size_t bytes, double *ms_out) {
    void *chunk = NULL;
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_DIRECT, 0600);
    if (fd < 0 && errno == EINVAL) {
        unlink(path);
        fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    }
    if (fd < 0) return false;
    unlink(path);
    errno = posix_memalign(&chunk, 4096, CHUNK_BYTES);
    bool ok = !errno;
    if (ok) memset(chunk, 1, CHUNK_BYTES);
    ok = ok && time_moves(fd, chunk, bytes, ms_out);
    int error = errno;
    free(chunk);
    close(fd);
    errno = error;
    return ok;
}

exit_status memory_measure_disk(rounds *b, json_t *row) {
    char path[300];
    double ms, bytes = row_number(row, "disk_bytes");
    if (!(bytes > 0)) return EXIT_DONE;
    size_t n = bytes < (double)MOST_BYTES ? (size_t)bytes : MOST_BYTES;
    n = (n + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
    if (!measure(apart_path(&b->run, "disk", path), n, &ms))
        return complain(EXIT_FAILED, "a file of %zu bytes in %s: %s", n, b->run.folder,
                        strerror(errno));
    return row_append(row, ".disk_ms", ms * bytes / (double)n);
}
