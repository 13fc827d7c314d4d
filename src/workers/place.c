/* The ranks of workers and servers. */
#include "workers/workers.h"

int wfi_workers_server_rank(const wf_workers *w, int server) {
    bool is_beside = w->plan->serves_at_workers || !w->plan->n_servers;
    return is_beside ? server : w->n_ranks + server;
}

int wfi_workers_rank_of(const wf_workers *w, int worker) {
    int rank = 0;
    while (wfi_workers_first(w, rank + 1) <= worker) rank++;
    return rank;
}

wfi_one_worker *wfi_workers_find(const wf_workers *w, int number) {
    for (int k = 0; k < w->n_here; k++)
        for (int i = 0; i < w->ranks[k].n; i++)
            if (w->ranks[k].workers[i].number == number) return &w->ranks[k].workers[i];
    return NULL;
}

bool wfi_workers_is_here(const wf_workers *w, int rank) {
    return !w->job || wf_job_rank(w->job) == rank;
}
