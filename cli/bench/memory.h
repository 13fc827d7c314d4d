#ifndef CLI_BENCH_MEMORY_H
#define CLI_BENCH_MEMORY_H

#include "bench/rounds.h"

/* Pictures into --out. Complains. */
exit_status memory_plot(const rounds *b);

#endif
