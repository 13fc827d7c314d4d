#ifndef CLI_BENCH_DDP_H
#define CLI_BENCH_DDP_H

#include "bench/rounds.h"

/* weft's row of so many ranks, or PyTorch's fastest; NULL if there is none. */
json_t *ddp_weft(const rounds *b, int n_ranks, bool overlap);
json_t *ddp_best_peer(const rounds *b, int n_ranks);

/* The picture into --out. Complains. */
exit_status ddp_plot(const rounds *b, const char *unit);

#endif
