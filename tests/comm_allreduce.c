/* The algorithms of an all-reduce, as lists of steps and without a device: for any number of
 * replicas and elements everybody ends with the sum, made in the order of the tree; in no phase
 * does a replica read what another writes; and the bytes are those that the algorithm is known for.
 */
#include "comm/algorithm/allreduce.h"
#include "comm/runtime/step.h"
#include "prove/term.h"
#include "test.h"

#define MOST_REPLICAS 33
#define MOST_ELEMENTS 2112

/* What one element of one replica's gradient holds: a term, and whose parts are in it. */
typedef struct element {
    wfi_term term;
    uint64_t parts;
} element;

typedef struct machine {
    const wfi_allreduce *how;
    int32_t n;
    int64_t n_elem;
    element own[MOST_REPLICAS][MOST_ELEMENTS];
    element staged[MOST_REPLICAS * MOST_ELEMENTS]; /* of the replica at work */
    int32_t writer[MOST_REPLICAS][MOST_ELEMENTS];  /* in this phase, -1 = nobody */
    int64_t n_received[MOST_REPLICAS], n_sent[MOST_REPLICAS], n_staged;
} machine;

static machine m; /* large */

static element add(element left, element right) {
    assert_int_equal(left.parts & right.parts, 0); /* nothing is summed twice */
    return (element){wfi_term_fold(left.term, right.term), left.parts | right.parts};
}

static element sum_tree(const element *leaves, int32_t n) {
    wfi_term terms[MOST_REPLICAS];
    element sum = {0, 0};
    for (int32_t k = 0; k < n; k++) {
        terms[k] = leaves[k].term;
        assert_int_equal(sum.parts & leaves[k].parts, 0);
        sum.parts |= leaves[k].parts;
    }
    sum.term = wfi_term_tree(terms, n);
    return sum;
}

static element from(int32_t reader, int32_t replica, int64_t at) {
    if (replica != reader) {
        m.n_received[reader]++;
        m.n_sent[replica]++;
        if (m.writer[replica][at] >= 0)
            fail_msg("%s, %d replicas: %d reads what %d writes in the same phase", m.how->name, m.n,
                     reader, replica);
    }
    return m.own[replica][at];
}

/* Element i of the step: by what its accesses say. */
static void run_step(const wfi_reduce_part *part, const wfi_reduce_step *step, int64_t i) {
    element in[MOST_REPLICAS];
    wfi_access a;
    int32_t n = 0, own = part->own;
    for (int32_t k = 0; wfi_reduce_access(part, step, k, &a); k++) {
        bool is_staging = a.window == WFI_WINDOW_STAGING;
        assert_int_equal(a.n, step->end - step->begin);
        if (is_staging || a.writes) assert_int_equal(a.rank, own);
        if (!a.writes)
            in[n++] = is_staging ? m.staged[a.begin + i] : from(own, a.rank, a.begin + i);
        else if (is_staging)
            m.staged[a.begin + i] = in[0], m.n_staged++;
        else if (step->kind == WFI_REDUCE_COPY)
            m.own[own][a.begin + i] = in[0];
        else
            m.own[own][a.begin + i] =
                step->kind == WFI_REDUCE_ADD ? add(in[0], in[1]) : sum_tree(in, n);
    }
}

/* Twice: marks what is written, then does it. A value is read before or after, never both:
 * nobody reads what is marked by another. */
static void run_phase(int32_t phase) {
    wfi_reduce_step steps[MOST_REPLICAS + 1];
    memset(m.writer, -1, sizeof m.writer);
    for (int pass = 0; pass < 2; pass++)
        for (int32_t own = 0; own < m.n; own++) {
            wfi_reduce_part part = {.n = m.n, .own = own, .phase = phase, .n_elem = m.n_elem};
            int32_t n_steps = m.how->steps(&part, steps);
            assert_in_range(n_steps, 0, m.n);
            m.n_staged = 0;
            for (int32_t k = 0; k < n_steps; k++) {
                assert_true(steps[k].begin < steps[k].end && steps[k].begin % 16 == 0);
                assert_true(steps[k].begin >= 0 && steps[k].end <= m.n_elem);
                assert_in_range(steps[k].left, 0, m.n - 1);
                assert_in_range(steps[k].right, 0, m.n - 1);
                for (int64_t at = steps[k].begin; at < steps[k].end; at++) {
                    if (pass)
                        run_step(&part, &steps[k], at - steps[k].begin);
                    else if (steps[k].kind != WFI_REDUCE_STAGE)
                        m.writer[own][at] = own;
                }
            }
            if (pass && phase == 0 && m.how->n_staged)
                assert_int_equal(m.n_staged, m.how->n_staged(m.n, own, m.n_elem));
        }
}

static void run(const wfi_allreduce *how, int32_t n, int64_t n_elem) {
    memset(&m, 0, sizeof m);
    m.how = how;
    m.n = n;
    m.n_elem = n_elem;
    wfi_term leaves[MOST_REPLICAS];
    for (int32_t k = 0; k < n; k++) {
        leaves[k] = wfi_term_start(WFI_TERM_INITIAL, k, 0);
        for (int64_t at = 0; at < n_elem; at++) m.own[k][at] = (element){leaves[k], 1ull << k};
    }
    for (int32_t phase = 0; phase < how->n_phases(n); phase++) run_phase(phase);
    for (int32_t k = 0; k < n; k++)
        for (int64_t at = 0; at < n_elem; at++) {
            assert_true(m.own[k][at].parts == (1ull << n) - 1);
            assert_true(m.own[k][at].term == m.own[0][at].term);
            /* a + b = b + a, so the ring of two is right, too; here it would be another term. */
            if (!how->rotates && m.own[k][at].term != wfi_term_tree(leaves, n))
                fail_msg("%s sums element %d of %d in another order", how->name, (int)at, n);
        }
}

TEST_CASE(everybody_has_the_sum) {
    static const int64_t sizes[] = {0, 1, 16, 17, 100, 500, 1056};
    for (int i = 0; wfi_allreduces[i]; i++)
        for (int32_t n = 2; n <= MOST_REPLICAS; n = n < 9 ? n + 1 : 2 * n - 1)
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
                run(wfi_allreduces[i], n, sizes[k]);
}

/* Where slices are even: ring, tree, pairwise and direct move (n - 1) / n of the gradient twice
 * over each rank's wire; at the root all of it passes n - 1 times. */
TEST_CASE(bytes_are_known) {
    const int64_t n_elem = 1920;
    for (int i = 0; wfi_allreduces[i]; i++)
        for (int32_t n = 2; n <= 8; n++) {
            const wfi_allreduce *how = wfi_allreduces[i];
            bool is_root = !strcmp(how->name, "root"), is_tree = !strcmp(how->name, "tree");
            if (n == 7 || (is_tree && (n & (n - 1)))) continue; /* uneven */
            run(how, n, n_elem);
            for (int32_t k = 0; k < n; k++) {
                int64_t want = 2 * (n - 1) * n_elem / n;
                if (is_root) want = k == 0 ? (n - 1) * n_elem : n_elem;
                if (m.n_received[k] != want || m.n_sent[k] != want)
                    fail_msg("%s, replica %d of %d: %d received, %d sent, not %d", how->name, k, n,
                             (int)m.n_received[k], (int)m.n_sent[k], (int)want);
            }
        }
}

/* ---- a step, run ---- */

static float streamed[2][3][100]; /* [past the caches or not][rank] */

static char *address(const void *self, int32_t rank, wfi_window window, int64_t at) {
    return (char *)&(*(float(*)[3][100])(uintptr_t)self)[rank][at];
}

/* Results past the caches are the same, wherever in a line they begin and end. */
TEST_CASE(streaming_changes_no_bit) {
    const wfi_arithmetic sums = {.dtype = WF_F32, .op = WF_SUM};
    const wfi_reduce_part part = {.n = 3, .own = 1};
    for (int64_t begin = 0; begin < 20; begin++)
        for (int kind = 0; kind < 2; kind++) {
            wfi_reduce_step step = {.kind = kind ? WFI_REDUCE_SUM : WFI_REDUCE_COPY,
                                    .begin = begin,
                                    .end = 97 - begin,
                                    .at = begin,
                                    .target = kind ? WFI_TO_ALL : WFI_TO_OWN,
                                    .ends = true};
            for (int i = 0; i < 600; i++) (&streamed[0][0][0])[i] = (float)(i % 300) / 7;
            for (int s = 0; s < 2; s++) {
                const wfi_step_memory memory = {.arithmetic = &sums,
                                                .address = address,
                                                .self = &streamed[s],
                                                .stream_bytes = s ? 4 : 0};
                assert_int_equal(wfi_reduce_run(&memory, &part, &step), s);
            }
            wfi_stream_fence();
            assert_memory_equal(streamed[0], streamed[1], sizeof streamed[0]);
            assert_true(streamed[0][1][begin] != (float)(100 + begin) / 7);
        }
}

static float summands[WFI_REDUCE_RANKS][2]; /* [rank]; small integers: any order has the same sum */

static char *address_of_summand(const void *self, int32_t rank, wfi_window window, int64_t at) {
    /* Those of the others in the staging of rank 1, in their order. */
    if (window == WFI_WINDOW_STAGING) rank = (int32_t)(at / 2) + (at >= 2);
    return (char *)&summands[rank][window == WFI_WINDOW_STAGING ? at % 2 : at];
}

TEST_CASE(all_ranks_count) {
    static const int32_t counts[] = {2, 63, 64, 65, 128, 129, WFI_REDUCE_RANKS};
    const wfi_arithmetic sums = {.dtype = WF_F32, .op = WF_SUM};
    const wfi_step_memory memory = {.arithmetic = &sums, .address = address_of_summand};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int kind = 0; kind < 3; kind++) {
            bool is_staged = kind == 1, is_to_all = kind == 2;
            wfi_reduce_part part = {.n = counts[i], .own = 1};
            wfi_reduce_step step = {.kind = is_staged ? WFI_REDUCE_STAGED : WFI_REDUCE_SUM,
                                    .end = 2,
                                    .target = is_to_all ? WFI_TO_ALL : WFI_TO_OWN,
                                    .ends = true};
            for (int32_t k = 0; k < part.n; k++)
                summands[k][0] = (float)(k + 1), summands[k][1] = (float)(k % 3);
            float want[2] = {0, 0};
            for (int32_t k = 0; k < part.n; k++)
                want[0] += summands[k][0], want[1] += summands[k][1];
            wfi_reduce_run(&memory, &part, &step);
            for (int32_t k = is_to_all ? 0 : 1; k < (is_to_all ? part.n : 2); k++)
                if (summands[k][0] != want[0] || summands[k][1] != want[1])
                    fail_msg("of %d ranks, rank %d has %g and %g, not %g and %g", part.n, k,
                             (double)summands[k][0], (double)summands[k][1], (double)want[0],
                             (double)want[1]);
        }
}
