/* Every collective x dtype x reduction x in place or not x number of ranks x count x algorithm x
 * wire gives, bit for bit, what a plain loop over one fixed tree gives; what is not a result is
 * left alone.
 *
 * label: long
 */
#include "group_cases.h"

typedef void (*run_ranks)(int n, const wf_group_config *config, ranks_body body, void *self);

static void ranks_as_processes(int n, const wf_group_config *config, ranks_body body, void *self) {
    ranks_processes(n, config, body, self, 0);
}

static void run_matrix(run_ranks run, int most) {
    static const char *const algorithms[] = {"auto", "root", "ring", "tree", "pairwise", "direct"};
    int n_algorithms = run == ranks_messages ? 6 : 5; /* elsewhere, auto is direct */
    static const int sizes[] = {1, 2, 3, 5, 8, 11};
    for (int a = 0; a < n_algorithms; a++)
        for (int s = 0; s < 6 && sizes[s] <= most; s++) {
            if ((a + s) % TEST_SAMPLE) continue;
            wf_group_config config = WF_GROUP_CONFIG_INIT;
            config.algorithm = algorithms[a];
            config.order_free = !strcmp(algorithms[a], "ring");
            config.n_roots = sizes[s] > 2 && !strcmp(algorithms[a], "root") ? 2 : 1;
            run(sizes[s], &config, check_all, (void *)algorithms[a]);
        }
}

/* First: a process is forked before there are threads. */
TEST_CASE(processes) {
    run_matrix(ranks_as_processes, 11);
}

TEST_CASE(threads) {
    run_matrix(ranks_threads, 11);
}

TEST_CASE(messages) {
    run_matrix(ranks_messages, 5);
}
