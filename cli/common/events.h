/* TensorBoard's event files: TFRecords, each an Event message of protocol buffers.
 * https://github.com/tensorflow/tensorboard (compat/proto/event.proto, summary.proto) */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* One point of a curve; non-finite values are written as they are. */
typedef struct event_scalar {
    const char *tag; /* of at most EVENTS_TAG_BYTES */
    double value;
} event_scalar;

#define EVENTS_TAG_BYTES 64
#define EVENTS_SCALARS   8 /* at most, of one step */

/* Writes the first message of a file; `wall_time` is in seconds since 1970. */
bool events_begin(FILE *out, double wall_time);
bool events_write(FILE *out, double wall_time, int64_t step, const event_scalar *scalars, size_t n);
/* Copies the events of steps up to `keep_steps`, until one that is damaged or cut off. An empty
 * file gets its beginning. */
bool events_copy(FILE *in, FILE *out, double wall_time, int64_t keep_steps);
