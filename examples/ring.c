/* A ring all-reduce, step by step: four ranks, here threads, each with a vector of four chunks, add
 * up their vectors by sending one chunk at a time to the right neighbour.
 *
 * First each chunk goes around and collects a part of every rank (reduce-scatter): after three
 * steps each rank holds one chunk that is the sum of all. Then these go around (all-gather). So
 * every rank sends 2 (n - 1) / n of its vector, whatever n is, and no rank is busier than another.
 *
 * In the picture a chunk shows whose parts are in it; [ ] is what has just come. At the end the
 * result is compared with wf_group_all_reduce's, bit for bit.
 */
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

#define N       4 /* ranks, and chunks of a vector */
#define CHUNK   256
#define N_STEPS (2 * (N - 1))

/* What a rank has after so many steps. */
typedef struct state {
    float x[N][CHUNK];
    int came; /* the chunk that the step has brought, or -1 */
} state;

typedef struct rank {
    int rank;
    state states[N_STEPS + 1];
    float expected[N][CHUNK];
} rank;

/* Rank r counts by tens: a sum's r-th digit says whether its part is in it. */
static float part_of(int r) {
    static const float parts[N] = {1, 10, 100, 1000};
    return parts[r];
}

/* Sends chunk `gone` to the right and receives one from the left. A send may wait for its receive,
 * so not all may send first. */
static wf_status pass(wf_group *group, int r, const float *gone, float *came) {
    int right = (r + 1) % N, left = (r + N - 1) % N;
    wf_status status = WF_OK;
    if (r % 2) status = wf_group_recv(group, came, CHUNK, WF_F32, left, NULL);
    if (status == WF_OK) status = wf_group_send(group, gone, CHUNK, WF_F32, right, NULL);
    if (status == WF_OK && r % 2 == 0)
        status = wf_group_recv(group, came, CHUNK, WF_F32, left, NULL);
    return status;
}

static wf_status ring(wf_group *group, rank *self) {
    float x[N][CHUNK], came[CHUNK];
    memcpy(x, self->states[0].x, sizeof x);
    for (int step = 0; step < N_STEPS; step++) {
        int send = (self->rank + 2 * N - step) % N; /* what came in the step before */
        int receive = (send + N - 1) % N;
        wf_status status = pass(group, self->rank, x[send], came);
        if (status != WF_OK) return status;
        for (int i = 0; i < CHUNK; i++)
            x[receive][i] = step < N - 1 ? x[receive][i] + came[i] : came[i];
        memcpy(self->states[step + 1].x, x, sizeof x);
        self->states[step + 1].came = receive;
    }
    return WF_OK;
}

static wf_status run(wf_context *ctx, wf_job *job, void *ranks) {
    rank *self = (rank *)ranks + wf_job_rank(job);
    wf_group *group;
    (void)ctx;
    self->rank = wf_job_rank(job);
    self->states[0].came = -1;
    for (int i = 0; i < N * CHUNK; i++)
        self->states[0].x[i / CHUNK][i % CHUNK] = part_of(self->rank);
    wf_status status = wf_group_create(job, NULL, &group);
    if (status != WF_OK) return status;
    status = ring(group, self);
    if (status == WF_OK)
        status = wf_group_all_reduce(group, self->states[0].x, self->expected, (int64_t)N * CHUNK,
                                     WF_F32, WF_SUM, NULL);
    wf_group_destroy(group);
    return status;
}

/* "01.3": the parts of ranks 0, 1 and 3 have been added up. */
static void print_chunk(const float *chunk, int just_came) {
    putchar(just_came ? '[' : ' ');
    for (int r = 0, digits = (int)chunk[0]; r < N; r++, digits /= 10)
        putchar(digits % 10 == 1 ? '0' + r : digits % 10 ? '?' : '.');
    putchar(just_came ? ']' : ' ');
}

static void print_picture(const rank *ranks) {
    for (int step = 0; step <= N_STEPS; step++) {
        if (step == 0) printf("begin\n");
        if (step == 1) printf("reduce-scatter: add what comes from the left\n");
        if (step == N) printf("all-gather: keep what comes from the left\n");
        for (int r = 0; r < N; r++) {
            const state *s = &ranks[r].states[step];
            printf(r || !step ? "            " : "   step %d   ", step);
            printf("rank %d |", r);
            for (int chunk = 0; chunk < N; chunk++)
                print_chunk(s->x[chunk], chunk == s->came), putchar('|');
            putchar('\n');
        }
        putchar('\n');
    }
}

int main(void) {
    static rank ranks[N];
    static const wf_rank_entry entry = {"ring", run};
    wf_spawn_config config = WF_SPAWN_CONFIG_INIT; /* threads */
    wf_context *ctx;
    int n_wrong = 0;
    config.n_ranks = N, config.entry = &entry, config.arg = ranks;
    if (wf_context_create(NULL, &ctx)) return 1;
    if (wf_spawn(ctx, &config, NULL)) return fprintf(stderr, "%s\n", wf_context_error(ctx)), 1;
    print_picture(ranks);
    for (int r = 0; r < N; r++)
        n_wrong +=
            memcmp(ranks[r].states[N_STEPS].x, ranks[r].expected, sizeof ranks[r].expected) != 0;
    if (n_wrong)
        printf("%d ranks have other sums than wf_group_all_reduce\n", n_wrong);
    else
        printf("each rank has sent %d chunks of %d, %g of its vector; all have "
               "wf_group_all_reduce's bits\n",
               N_STEPS, N, (double)N_STEPS / N);
    wf_context_destroy(ctx);
    return n_wrong != 0;
}
