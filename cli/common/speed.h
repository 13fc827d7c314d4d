/* The speed of this machine's memory and disk. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Times of two cores that do the same at once, as two ranks. */
typedef struct memory_speed {
    double latency_us;         /* of a copy, without its bytes */
    double link_us_per_byte;   /* of a copy of bytes that the other core has written */
    double memory_us_per_byte; /* of a copy beyond the caches */
    double sum_us_per_byte;    /* of an all-reduce, half of which each core sums */
} memory_speed;

/* Measures with the last two cores that this process may use. Times are CPU times, the least of
 * several. False: no memory or no thread. */
bool speed_of_memory(memory_speed *speed_out);

/* Measures the time in which the disk of `path`, a new file, writes and reads so many bytes, a
 * multiple of SPEED_DISK_CHUNK, past the system's cache. False: errno has the reason. */
#define SPEED_DISK_CHUNK ((size_t)4 << 20)
bool speed_of_disk(const char *path, size_t bytes, double *ms_out);
