#ifndef CLI_BENCH_MEMORY_H
#define CLI_BENCH_MEMORY_H

#include "bench/rounds.h"

/* Where the row has "disk_bytes": adds to ".disk_ms" how long its disk needs for as much, read once
 * and written once by plain calls. Complains. */
exit_status memory_measure_disk(rounds *b, json_t *row);

/* Pictures into --out. Complains. */
exit_status memory_plot(const rounds *b);

#endif
