/* weft bench memory: the time of the disk alone for the tensors that a plan keeps there. */
#include "bench/memory.h"
#include "common/speed.h"

#include <errno.h>
#include <string.h>

/* Larger sizes are measured by a part. */
#define MOST_BYTES ((size_t)1 << 30)

/* In the folder that files of offload= are in, and past the system's cache as these. */
exit_status memory_measure_disk(rounds *b, json_t *row) {
    char path[300];
    double ms, bytes = row_number(row, "disk_bytes");
    if (!(bytes > 0)) return EXIT_DONE;
    size_t n = bytes < (double)MOST_BYTES ? (size_t)bytes : MOST_BYTES;
    n = (n + SPEED_DISK_CHUNK - 1) / SPEED_DISK_CHUNK * SPEED_DISK_CHUNK;
    if (!speed_of_disk(apart_path(&b->run, "disk", path), n, &ms))
        return complain(EXIT_FAILED, "a file of %zu bytes in %s: %s", n, b->run.folder,
                        strerror(errno));
    return row_append(row, ".disk_ms", ms * bytes / (double)n);
}
