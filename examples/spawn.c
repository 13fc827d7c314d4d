/* One function as four ranks: the mp.spawn(demo_fn, nprocs=4, join=True) of PyTorch's tutorial on
 * distributed training, with its setup (init_process_group) and cleanup done for it.
 *
 *     spawn             the ranks are threads
 *     spawn processes   the ranks are processes: this program, started again
 *
 * Each rank adds its number to a counter that all of them see, they meet, and each, when it is
 * its turn, says who it is and what the counter says then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/weft.h>

#define N_RANKS 4

static wf_status take_turn(wf_store *store, int rank, int n_ranks, int64_t sum) {
    char key[24];
    snprintf(key, sizeof key, "turn/%d", rank);
    const char *const keys[] = {key};
    wf_status status = rank ? wf_store_wait(store, keys, 1) : WF_OK;
    if (status) return status;
    printf("rank %d of %d: the numbers of all ranks make %lld\n", rank, n_ranks, (long long)sum);
    fflush(stdout);
    snprintf(key, sizeof key, "turn/%d", rank + 1);
    return wf_store_set(store, key, "", 0);
}

static wf_status demo(wf_context *ctx, wf_job *job, void *arg) {
    wf_store_config config = WF_STORE_CONFIG_INIT;
    wf_store *store;
    int64_t sum;
    config.url = arg; /* processes have got a copy */
    config.rank = wf_job_rank(job);
    config.n_ranks = wf_job_n_ranks(job);
    wf_status status = wf_store_open(ctx, &config, &store);
    if (status) return status;
    status = wf_store_add(store, "sum", config.rank, &sum);
    if (!status) status = wf_job_barrier(job); /* all have added */
    if (!status) status = wf_store_add(store, "sum", 0, &sum);
    if (!status) status = take_turn(store, config.rank, config.n_ranks, sum);
    if (!status) status = wf_job_barrier(job); /* a store lives as long as somebody has it open */
    wf_store_close(store);
    return status;
}

int main(int argc, char **argv) {
    static const wf_rank_entry functions[] = {{"demo", demo}};
    wf_spawn_config config = WF_SPAWN_CONFIG_INIT;
    wf_context *ctx;
    char url[64];
    int status;
    if (wf_spawn_main(argc, argv, functions, 1, &status)) return status;
    if (wf_context_create(NULL, &ctx)) return 1;
    snprintf(url, sizeof url, "file:///tmp/weft-spawn-%d", (int)getpid());
    config.how = argc > 1 && !strcmp(argv[1], "processes") ? WF_SPAWN_PROCESSES : WF_SPAWN_THREADS;
    config.n_ranks = N_RANKS;
    config.entry = &functions[0];
    config.arg = url;
    config.arg_bytes = sizeof url;
    status = wf_spawn(ctx, &config, NULL) != WF_OK;
    if (status) fprintf(stderr, "%s\n", wf_context_error(ctx));
    wf_context_destroy(ctx);
    return status;
}
