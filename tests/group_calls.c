/* What a group promises beside the results: arguments are checked, order and works, messages,
 * parts of a group, memory, bytes counted; and that it can be made a thousand times. */
#include "group_ranks.h"

#include <math.h>

static void on_both(int n, const wf_group_config *config, ranks_body body, void *self) {
    ranks_processes(n, config, body, self, 0);
    ranks_threads(n, config, body, self);
}

static void on_all(int n, ranks_body body) {
    on_both(n, NULL, body, NULL);
    ranks_messages(n, NULL, body, NULL);
}

/* ---- arguments ---- */

static const char *check_arguments(ranks_one *one) {
    wf_group *g = one->group;
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8];
    int32_t k[2] = {1, 2};
    char *odd = (char *)y + 1;
    RANKS_REFUSED(one, wf_group_all_reduce(g, NULL, y, 4, WF_F32, WF_SUM, NULL), WF_INVALID_ARG,
                  "`in` is NULL");
    RANKS_REFUSED(one, wf_group_all_gather(g, x, NULL, 4, WF_F32, NULL), WF_INVALID_ARG,
                  "`out` is NULL");
    RANKS_REFUSED(one, wf_group_all_reduce(g, x, y, -1, WF_F32, WF_SUM, NULL), WF_INVALID_ARG,
                  "n_elem is negative");
    RANKS_REFUSED(one, wf_group_all_reduce(g, x, y, INT64_MAX / 2, WF_F32, WF_SUM, NULL),
                  WF_INVALID_ARG, "more than memory can hold");
    RANKS_REFUSED(one, wf_group_broadcast(g, x, y, 4, WF_F32, 2, NULL), WF_INVALID_ARG,
                  "no such rank");
    RANKS_REFUSED(one, wf_group_broadcast(g, x, y, 4, WF_F32, -1, NULL), WF_INVALID_ARG,
                  "no such rank");
    RANKS_REFUSED(one, wf_group_all_reduce(g, x, x + 1, 4, WF_F32, WF_SUM, NULL), WF_INVALID_ARG,
                  "overlap");
    RANKS_REFUSED(one, wf_group_all_gather(g, x + 1, x, 2, WF_F32, NULL), WF_INVALID_ARG,
                  "overlap");
    RANKS_REFUSED(one, wf_group_all_reduce(g, x, odd, 1, WF_F32, WF_SUM, NULL), WF_INVALID_ARG,
                  "not aligned");
    RANKS_REFUSED(one, wf_group_all_reduce(g, k, k, 2, WF_I32, WF_MEAN, NULL), WF_INVALID_ARG,
                  "integers have no mean");
    RANKS_REFUSED(one, wf_group_all_reduce(g, x, y, 4, (wf_dtype)99, WF_SUM, NULL), WF_INVALID_ARG,
                  "no such dtype");
    RANKS_REFUSED(one, wf_group_all_reduce(g, x, y, 4, WF_F32, (wf_reduction)9, NULL),
                  WF_INVALID_ARG, "no such reduction");
    /* A place belongs to one call. */
    RANKS_REFUSED(one, wf_group_send(WF_HERE(g), x, 4, WF_F32, one->rank, NULL), WF_INVALID_ARG,
                  "itself");
    RANKS_CHECK(one, strstr(wf_context_error(one->ctx), "group_calls.c:"));
    RANKS_REFUSED(one, wf_group_send(g, x, 4, WF_F32, one->rank, NULL), WF_INVALID_ARG, "itself");
    RANKS_CHECK(one, !strstr(wf_context_error(one->ctx), "group_calls.c:"));
    RANKS_CHECK(one, wf_group_barrier(WF_HERE(NULL), NULL) == WF_INVALID_ARG);
    /* Nobody was told, and nothing has happened. */
    RANKS_TRY(one, wf_group_all_reduce(g, x, y, 4, WF_F32, WF_SUM, NULL));
    RANKS_CHECK(one, y[3] == 8 && x[3] == 4);
    RANKS_TRY(one, wf_group_all_reduce(g, NULL, NULL, 0, WF_F32, WF_SUM, NULL));
    RANKS_TRY(one, wf_group_gather(g, x, one->rank ? NULL : y, 4, WF_F32, 0, NULL));
    return NULL;
}

TEST_CASE(arguments_are_checked) {
    on_all(2, check_arguments);
}

static const char *check_refusals(ranks_one *one) {
    static const struct {
        const char *algorithm, *wire, *words;
        int order_free, n_roots;
        wf_status status;
    } cases[] = {
        {"ring", NULL, "set order_free, or choose direct, pairwise, tree or root", 0, 0,
         WF_UNSUPPORTED},
        {"fast", NULL, "no algorithm 'fast'; there are root, ring", 0, 0, WF_UNSUPPORTED},
        {"engine", NULL, "'engine' is a wire's own all-reduce", 1, 0, WF_UNSUPPORTED},
        {NULL, "tin can", "no wire 'tin can' here; there are inproc, shm, mpi", 0, 0,
         WF_UNSUPPORTED},
        {"tree", NULL, "2 roots are given, but the algorithm is 'tree'", 0, 2, WF_INVALID_ARG},
        {"root", NULL, "4 roots in a group of 3", 0, 4, WF_INVALID_ARG},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_group_config config = WF_GROUP_CONFIG_INIT;
        wf_group *group = NULL;
        config.algorithm = cases[i].algorithm;
        config.wire = cases[i].wire;
        config.order_free = cases[i].order_free;
        config.n_roots = cases[i].n_roots;
        RANKS_REFUSED(one, wf_group_create(one->job, &config, &group), cases[i].status,
                      cases[i].words);
        RANKS_REFUSED(one, wf_group_split(one->group, 0, 0, &config, &group), cases[i].status,
                      cases[i].words);
        RANKS_CHECK(one, !group);
    }
    wf_group_config config = WF_GROUP_CONFIG_INIT;
    wf_group *group = NULL;
    config.wire = "inproc";
    if (!strcmp(wf_group_wire(one->group), "shm"))
        RANKS_REFUSED(one, wf_group_create(one->job, &config, &group), WF_UNSUPPORTED,
                      "'inproc' does not reach all ranks; shm can");
    config.wire = "mpi";
    RANKS_REFUSED(one, wf_group_create(one->job, &config, &group), WF_UNSUPPORTED,
                  "'mpi' does not reach all ranks; ");
    config = (wf_group_config)WF_GROUP_CONFIG_INIT;
    config.algorithm = one->rank == 1 ? "tree" : "root";
    RANKS_REFUSED(one, wf_group_create(one->job, &config, &group), WF_REMOTE,
                  "rank 1 of the group has another algorithm");
    config.algorithm = "ring";
    config.order_free = 1;
    RANKS_TRY(one, wf_group_create(one->job, &config, &group));
    RANKS_CHECK(one, !strcmp(wf_group_algorithm(group, 1000), "ring"));
    wf_group_destroy(group);
    return NULL;
}

TEST_CASE(wires_and_algorithms_are_checked) {
    on_both(3, NULL, check_refusals, NULL);
}

/* shm between threads is the same wire as between processes. */
static const char *check_shm_threads(ranks_one *one) {
    float x[] = {1, 2};
    RANKS_CHECK(one, !strcmp(wf_group_wire(one->group), "shm"));
    RANKS_CHECK(one, wf_group_local_rank(one->group) == one->rank);
    RANKS_CHECK(one, wf_group_n_local_ranks(one->group) == one->n);
    RANKS_TRY(one, wf_group_all_reduce(one->group, x, x, 2, WF_F32, WF_MAX, NULL));
    return NULL;
}

/* Ranks that share no memory. */
static const char *check_wire_of_messages(ranks_one *one) {
    static const char *const wires[] = {"inproc", "shm"};
    wf_group_config config = WF_GROUP_CONFIG_INIT;
    wf_group *group, *alone;
    RANKS_TRY(one, wf_group_create(one->job, NULL, &group));
    RANKS_CHECK(one, !strcmp(wf_group_wire(group), "mpi"));
    RANKS_CHECK(one, wf_group_local_rank(group) == one->rank);
    RANKS_CHECK(one, !strcmp(wf_group_algorithm(group, 1000), "tree"));
    RANKS_CHECK(one, !strcmp(wf_group_algorithm(group, 1 << 20), "pairwise"));
    RANKS_TRY(one, wf_group_split(group, one->rank, 0, NULL, &alone));
    RANKS_CHECK(one, !strcmp(wf_group_wire(alone), "inproc"));
    wf_group_destroy(alone);
    config.algorithm = "engine"; /* what carries the messages of this test cannot add */
    RANKS_REFUSED(one, wf_group_create(one->job, &config, &alone), WF_UNSUPPORTED,
                  "'engine' is a wire's own all-reduce, and 'mpi' has none here");
    config.algorithm = NULL;
    for (int i = 0; i < 2; i++) {
        config.wire = wires[i];
        RANKS_REFUSED(one, wf_group_create(one->job, &config, &alone), WF_UNSUPPORTED,
                      "does not reach all ranks; mpi can");
    }
    wf_group_destroy(group);
    return NULL;
}

/* Each takes tags of its own, which are given back. */
static const char *check_many_groups(ranks_one *one) {
    wf_group *groups[448];
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 447; i++) RANKS_TRY(one, wf_group_create(one->job, NULL, &groups[i]));
        RANKS_REFUSED(one, wf_group_create(one->job, NULL, &groups[447]), WF_UNSUPPORTED,
                      "can be in 448 groups at once");
        int32_t x = one->rank;
        RANKS_TRY(one, wf_group_all_reduce(groups[446], &x, &x, 1, WF_I32, WF_SUM, NULL));
        RANKS_CHECK(one, x == 1);
        for (int i = 0; i < 447; i++) wf_group_destroy(groups[i]);
    }
    return NULL;
}

TEST_CASE(a_wire_can_be_named) {
    wf_group_config config = WF_GROUP_CONFIG_INIT;
    config.wire = "shm";
    on_both(3, &config, check_shm_threads, NULL);
    ranks_messages(3, NULL, check_wire_of_messages, NULL);
    ranks_messages(2, NULL, check_many_groups, NULL);
}

/* ---- numbers ---- */

static const char *check_nan(ranks_one *one) {
    static const wf_reduction ops[] = {WF_SUM, WF_MEAN, WF_MIN, WF_MAX};
    for (int i = 0; i < 4; i++)
        for (int who = 0; who < one->n; who++) {
            float x[] = {one->rank == who ? NAN : 1, 2};
            uint16_t half[] = {one->rank == who ? 0x7fff : 0x3f80, 0x4000}; /* NaN or 1, 2 */
            RANKS_TRY(one, wf_group_all_reduce(one->group, x, x, 2, WF_F32, ops[i], NULL));
            RANKS_CHECK(one, isnan(x[0]) && !isnan(x[1]));
            RANKS_TRY(one, wf_group_all_reduce(one->group, half, half, 2, WF_BF16, ops[i], NULL));
            RANKS_CHECK(one, (half[0] & 0x7fff) > 0x7f80 && (half[1] & 0x7fff) < 0x7f80);
        }
    return NULL;
}

TEST_CASE(a_nan_stays) {
    on_all(3, check_nan);
}

/* ---- works ---- */

static const char *check_works(ranks_one *one) {
    enum { N = 6, COUNT = 3000 };
    static __thread float x[N][COUNT], y[COUNT], z[COUNT];
    wf_work *works[N], *chain[3];
    for (int k = 0; k < N; k++)
        for (int i = 0; i < COUNT; i++) x[k][i] = (float)(k + i + one->rank);
    for (int i = 0; i < COUNT; i++) y[i] = (float)one->rank;
    for (int k = 0; k < N; k++)
        RANKS_TRY(one,
                  wf_group_all_reduce(one->group, x[k], x[k], COUNT, WF_F32, WF_MAX, &works[k]));
    /* Each uses what the one before has made. */
    RANKS_TRY(one, wf_group_all_reduce(one->group, y, z, COUNT, WF_F32, WF_SUM, &chain[0]));
    RANKS_TRY(one, wf_group_broadcast(one->group, z, y, COUNT, WF_F32, 0, &chain[1]));
    RANKS_TRY(one, wf_group_barrier(one->group, &chain[2]));
    /* Without a handle: after all of them. */
    RANKS_TRY(one, wf_group_all_reduce(one->group, y, y, COUNT, WF_F32, WF_SUM, NULL));
    for (int k = 0; k < 3; k++) RANKS_CHECK(one, wf_work_is_done(chain[k]));
    for (int k = 2; k >= 0; k--) RANKS_TRY(one, wf_work_wait(chain[k]));
    for (int k = N - 1; k >= 0; k--) RANKS_TRY(one, wf_work_wait(works[k]));
    int n = one->n;
    for (int k = 0; k < N; k++)
        for (int i = 0; i < COUNT; i++) RANKS_CHECK(one, x[k][i] == (float)(k + i + n - 1));
    for (int i = 0; i < COUNT; i++) RANKS_CHECK(one, y[i] == (float)(n * n * (n - 1) / 2));
    return NULL;
}

TEST_CASE(works_run_in_order) {
    on_all(3, check_works);
}

/* ---- messages ---- */

/* Around the ring: every other rank sends first. */
static const char *pass_on(ranks_one *one, const float *from, float *to, int64_t count) {
    int right = (one->rank + 1) % one->n, left = (one->rank + one->n - 1) % one->n;
    for (int turn = 0; turn < 2; turn++)
        if (turn == one->rank % 2)
            RANKS_TRY(one, wf_group_send(one->group, from, count, WF_F32, right, NULL));
        else
            RANKS_TRY(one, wf_group_recv(one->group, to, count, WF_F32, left, NULL));
    for (int64_t i = 0; i < count; i++)
        if (to[i] != (float)(left * 7 + i % 1000)) return ranks_text("element %d", (int)i);
    return NULL;
}

static const char *check_messages(ranks_one *one) {
    static const int64_t counts[] = {0, 1, 1000, 400001}; /* the last: several windows */
    float *x, *y = malloc(400001 * sizeof *y);
    const char *wrong = NULL;
    RANKS_TRY(one, wf_group_alloc(one->group, 400001 * sizeof *x, (void **)&x));
    for (int i = 0; i < 8 && !wrong; i++) {
        float *from = i % 2 ? x : y, *to = i % 2 ? y : x;
        for (int64_t k = 0; k < counts[i / 2]; k++) from[k] = (float)(one->rank * 7 + k % 1000);
        wrong = pass_on(one, from, to, counts[i / 2]);
    }
    wf_group_free(one->group, x);
    free(y);
    return wrong;
}

/* A message is between two: what others do meanwhile is their business. */
static const char *check_order(ranks_one *one) {
    int32_t x[100];
    if (one->rank == 0)
        for (int i = 0; i < 100; i++) {
            wf_work *work;
            RANKS_TRY(one, wf_group_send(one->group, &i, 1, WF_I32, 1, &work));
            RANKS_TRY(one, wf_work_wait(work));
        }
    for (int i = 0; i < 100 && one->rank == 1; i++) {
        RANKS_TRY(one, wf_group_recv(one->group, &x[i], 1, WF_I32, 0, NULL));
        RANKS_CHECK(one, x[i] == i);
    }
    RANKS_TRY(one, wf_group_barrier(one->group, NULL));
    return NULL;
}

TEST_CASE(messages_arrive_in_order) {
    on_all(4, check_messages);
    on_all(3, check_order);
}

/* ---- parts of a group ---- */

static const char *check_sum(ranks_one *one, wf_group *g, int want) {
    int32_t x = one->rank;
    RANKS_TRY(one, wf_group_all_reduce(g, &x, &x, 1, WF_I32, WF_SUM, NULL));
    RANKS_CHECK(one, x == want);
    return NULL;
}

static const char *check_split(ranks_one *one) {
    wf_group *half, *pair = NULL;
    wf_group_config config = WF_GROUP_CONFIG_INIT;
    const char *wrong;
    config.algorithm = one->rank % 2 ? "tree" : "pairwise"; /* each part its own */
    RANKS_TRY(one, wf_group_split(one->group, one->rank % 2, -one->rank, &config, &half));
    int n = one->rank % 2 ? 3 : 4; /* 1, 3, 5 and 0, 2, 4, 6 */
    RANKS_CHECK(one, wf_group_n_ranks(half) == n);
    RANKS_CHECK(one, wf_group_rank(half) == n - 1 - one->rank / 2);
    for (int r = 0; r < n; r++)
        RANKS_CHECK(one, wf_group_job_rank(half, r) == 2 * (n - 1 - r) + one->rank % 2);
    RANKS_CHECK(one, wf_group_job_rank(half, n) == -1 && wf_group_job_rank(half, -1) == -1);
    if ((wrong = check_sum(one, half, one->rank % 2 ? 9 : 12))) return wrong;
    /* The last of each half is in no part of it. */
    int color = wf_group_rank(half) == n - 1 ? -1 : 5;
    RANKS_TRY(one, wf_group_split(half, color, 0, NULL, &pair));
    RANKS_CHECK(one, (pair == NULL) == (color < 0));
    if (pair && (wrong = check_sum(one, pair, one->rank % 2 ? 8 : 12))) return wrong;
    wf_group_destroy(half); /* what was made of it lives on */
    if (pair && (wrong = check_sum(one, pair, one->rank % 2 ? 8 : 12))) return wrong;
    wf_group_destroy(pair);
    return check_sum(one, one->group, 21);
}

TEST_CASE(a_group_has_parts) {
    on_all(7, check_split);
}

static const char *check_life(ranks_one *one) {
    int before = 0;
    for (int i = 0; i < 1000; i++) {
        wf_group *g;
        float *x, *plain = (float[]){1, 2};
        RANKS_TRY(one, i % 2 ? wf_group_create(one->job, NULL, &g)
                             : wf_group_split(one->group, 0, 0, NULL, &g));
        RANKS_TRY(one, wf_group_alloc(g, 100, (void **)&x));
        RANKS_TRY(one, wf_group_all_reduce(g, plain, x, 2, WF_F32, WF_SUM, NULL));
        RANKS_CHECK(one, x[1] == (float)(2 * one->n));
        wf_group_free(g, x);
        wf_group_destroy(g);
        RANKS_TRY(one, wf_group_barrier(one->group, NULL));
        if (i == 10) before = test_descriptors();
    }
    RANKS_TRY(one, wf_group_barrier(one->group, NULL));
    int after = test_descriptors();
    if (after > before + 2 * one->n) /* threads share them, and may be in the middle of it */
        return ranks_text("%d descriptors have become %d", before, after);
    return NULL;
}

TEST_CASE(a_group_can_be_made_many_times) {
    on_all(2, check_life);
}

/* ---- memory ---- */

static const char *check_memory(ranks_one *one) {
    enum { N = 300 };
    char *blocks[N];
    bool is_shm = !strcmp(wf_group_wire(one->group), "shm");
    int n = 0;
    wf_status status = WF_OK;
    while (n < N && (status = wf_group_alloc(one->group, 1000, (void **)&blocks[n])) == WF_OK) {
        RANKS_CHECK(one, (uintptr_t)blocks[n] % 64 == 0);
        for (int i = 0; i < 1000; i++) RANKS_CHECK(one, blocks[n][i] == 0);
        memset(blocks[n++], 1, 1000);
    }
    if (is_shm) RANKS_CHECK(one, status == WF_NO_MEMORY && n > 200);
    for (int i = 0; i < n; i++) wf_group_free(one->group, blocks[i]);
    wf_group_free(one->group, NULL);
    /* A place that is used again, by a block of another size, is seen as what it is now. */
    for (int i = 1; i < 40; i++) {
        int32_t *x;
        int64_t count = i * 1000;
        RANKS_TRY(one, wf_group_alloc(one->group, (size_t)count * 4, (void **)&x));
        for (int64_t k = 0; k < count; k++) x[k] = i + one->rank;
        RANKS_TRY(one, wf_group_all_reduce(one->group, x, x, count, WF_I32, WF_MAX, NULL));
        for (int64_t k = 0; k < count; k++) RANKS_CHECK(one, x[k] == i + one->n - 1);
        wf_group_free(one->group, x);
    }
    return NULL;
}

TEST_CASE(memory_can_be_seen_by_all) {
    on_all(3, check_memory);
}

/* Blocks come and go while a work finds its buffers, and makes its window, on another thread. */
static const char *check_beside(ranks_one *one) {
    enum { COUNT = 2000, N = 8 };
    float *x = calloc(COUNT, sizeof *x), *blocks[N];
    for (int i = 0; i < 60; i++) {
        wf_group *g;
        wf_work *work;
        RANKS_TRY(one, wf_group_split(one->group, 0, 0, NULL, &g));
        for (int k = 0; k < COUNT; k++) x[k] = (float)one->rank;
        RANKS_TRY(one, wf_group_all_reduce(g, x, x, COUNT, WF_F32, WF_SUM, &work));
        for (int b = 0; b < N; b++) {
            RANKS_TRY(one, wf_group_alloc(g, sizeof *x * COUNT, (void **)&blocks[b]));
            for (int k = 0; k < COUNT; k++) blocks[b][k] = (float)(b + one->rank);
        }
        wf_group_free(g, blocks[0]);
        RANKS_TRY(one, wf_work_wait(work));
        for (int b = 1; b < N; b++)
            RANKS_TRY(one,
                      wf_group_all_reduce(g, blocks[b], blocks[b], COUNT, WF_F32, WF_SUM, NULL));
        int n = one->n, ranks = n * (n - 1) / 2;
        for (int k = 0; k < COUNT; k++) RANKS_CHECK(one, x[k] == (float)ranks);
        for (int b = 1; b < N; b++)
            for (int k = 0; k < COUNT; k++)
                RANKS_CHECK(one, blocks[b][k] == (float)(n * b + ranks));
        for (int b = 1; b < N; b++) wf_group_free(g, blocks[b]);
        wf_group_destroy(g);
    }
    free(x);
    return NULL;
}

TEST_CASE(memory_is_made_beside_works) {
    wf_group_config shm = WF_GROUP_CONFIG_INIT;
    shm.wire = "shm";
    on_both(2, NULL, check_beside, NULL);
    ranks_threads(2, &shm, check_beside, NULL);
}

/* ---- bytes ---- */

#define BYTES (1920 * 16)

static const char *check_traffic(ranks_one *one) {
    const char *algorithm = one->self;
    bool is_root = !strcmp(algorithm, "root");
    uint64_t n = (uint64_t)one->n, want = 2 * (n - 1) * BYTES / n;
    if (is_root) want = one->rank == 0 ? (n - 1) * BYTES : BYTES;
    float *x;
    RANKS_TRY(one, wf_group_alloc(one->group, BYTES, (void **)&x));
    for (int i = 0; i < 3; i++)
        RANKS_TRY(one, wf_group_all_reduce(one->group, x, x, BYTES / 4, WF_F32, WF_SUM, NULL));
    wf_traffic t = wf_group_traffic(one->group);
    if (t.sent_bytes != 3 * want || t.received_bytes != 3 * want)
        return ranks_text("%s: rank %d of %d has sent %d and received %d, not %d", algorithm,
                          one->rank, one->n, (int)t.sent_bytes, (int)t.received_bytes,
                          (int)(3 * want));
    wf_group_free(one->group, x);
    return NULL;
}

static const char *check_other_traffic(ranks_one *one) {
    uint64_t n = (uint64_t)one->n;
    static __thread float x[4 * 1000], y[4 * 1000];
    wf_traffic t[4] = {wf_group_traffic(one->group)};
    RANKS_TRY(one, wf_group_broadcast(one->group, x, y, 1000, WF_F32, 2, NULL));
    t[1] = wf_group_traffic(one->group);
    RANKS_TRY(one, wf_group_all_to_all(one->group, x, y, 1000, WF_F32, NULL));
    t[2] = wf_group_traffic(one->group);
    if (one->rank == 0) RANKS_TRY(one, wf_group_send(one->group, x, 10, WF_F32, 1, NULL));
    if (one->rank == 1) RANKS_TRY(one, wf_group_recv(one->group, x, 10, WF_F32, 0, NULL));
    t[3] = wf_group_traffic(one->group);
    RANKS_CHECK(one, t[0].sent_bytes == 0 && t[0].received_bytes == 0);
    RANKS_CHECK(one, t[1].sent_bytes == (one->rank == 2 ? (n - 1) * 4000 : 0));
    RANKS_CHECK(one, t[1].received_bytes == (one->rank == 2 ? 0 : 4000));
    RANKS_CHECK(one, t[2].sent_bytes - t[1].sent_bytes == (n - 1) * 4000);
    RANKS_CHECK(one, t[2].received_bytes - t[1].received_bytes == (n - 1) * 4000);
    RANKS_CHECK(one, t[3].sent_bytes - t[2].sent_bytes == (one->rank == 0 ? 40 : 0));
    RANKS_CHECK(one, t[3].received_bytes - t[2].received_bytes == (one->rank == 1 ? 40 : 0));
    return NULL;
}

/* At the root all of it passes n - 1 times; the others are even. */
TEST_CASE(bytes_are_counted) {
    static const char *const algorithms[] = {"root", "ring", "tree", "pairwise", "direct"};
    for (int i = 0; i < 5; i++)
        for (int n = 1; n <= 4; n++) {
            wf_group_config config = WF_GROUP_CONFIG_INIT;
            if (n == 3 && !strcmp(algorithms[i], "tree")) continue; /* uneven */
            if (n == 1 && !strcmp(algorithms[i], "root")) continue;
            config.algorithm = algorithms[i];
            config.order_free = 1;
            ranks_threads(n, &config, check_traffic, (void *)algorithms[i]);
        }
    on_all(4, check_other_traffic);
}
