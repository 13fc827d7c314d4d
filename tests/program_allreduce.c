/* Reductions as the program has them: in buckets, begun while backward runs, with the bytes that
 * each rank sends and receives; and what the check says if ranks disagree.
 *
 * label: serial
 */
#include "broken_program.h"
#include "compile/compile.h"
#include "program/change.h"

/* The all-reduces of a rank, in the order of its stream. */
typedef struct reductions {
    const wfi_instruction *list[16];
    int n;
} reductions;

static reductions reductions_of(const wf_program *p, int32_t rank) {
    reductions r = {.n = 0};
    for (int32_t k = 0; k < p->ranks[rank].n_stream[WFI_STREAM_REDUCE]; k++) {
        const wfi_instruction *now = &p->instructions[p->ranks[rank].stream[WFI_STREAM_REDUCE][k]];
        if (!wfi_is_reduction(now)) continue;
        assert_true(r.n < 16);
        r.list[r.n++] = now;
    }
    return r;
}

static int32_t unit_of(const wf_program *p, const wfi_instruction *now, int32_t k) {
    return p->blocks[now->references[k].block].name.owner;
}

/* ---- buckets ---- */

/* Every unit once, from the last to the first; a bucket is closed when it is full, or when a
 * unit comes that would fill one alone. */
static void check_buckets(const wf_program *p, size_t limit, int32_t rank) {
    reductions r = reductions_of(p, rank);
    int32_t stage = rank % p->n_stages;
    int32_t next = p->first_unit[stage + 1] - 1;
    for (int i = 0; i < r.n; i++) {
        size_t bytes = 0, last = 0;
        assert_int_equal(unit_of(p, r.list[i], 0), r.list[i]->unit);
        for (int32_t k = 0; k < wfi_n_moved(p, r.list[i]); k++) {
            assert_true(bytes < limit);
            assert_int_equal(unit_of(p, r.list[i], k), next--);
            bytes += last = r.list[i]->references[k].bytes;
        }
        assert_true(last < limit || last == bytes);
        if (bytes >= limit || i + 1 == r.n) continue;
        assert_true(r.list[i + 1]->references[0].bytes >= limit);
    }
    assert_int_equal(next, p->first_unit[stage] - 1);
}

/* What backward completes first is small, and larger units follow. */
static void narrowing(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(32));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor h = wf_cut(wf_relu(wf_linear(x, "wide", 64)), "narrow");
    h = wf_cut(wf_relu(wf_linear(h, "net", 4)), "last");
    wf_loss(wf_cross_entropy(wf_linear(h, "head", 4), y));
}

static wf_program *make_narrowing(wf_context *ctx, const char *text, const char *devices) {
    wf_program *p;
    wf_recipe recipe = mixed_recipe(4);
    scoped_model model = test_model(ctx, "narrowing", narrowing, NULL, 0);
    scoped_plan plan = test_plan(ctx, text);
    TEST_OK(ctx, wf_plan_use_devices(plan, devices));
    TEST_OK(ctx, wfi_program_create(ctx, model, &recipe, plan, &wfi_backend_cpu, WF_PROGRAM_TRAIN,
                                    WFI_USE_RUN, NULL, &p));
    return p;
}

TEST(large_units_are_alone) {
    scoped_program p = make_narrowing(ctx, "dp=2,bucket=1000", NULL);
    check_buckets(p, 1000, 0);
    assert_int_equal(reductions_of(p, 0).n, 3);
}

/* Of a bucket's units, the first of which is the smallest. */
TEST(staging_has_room_for_the_largest) {
    static const char *const hows[] = {"root", "tree", "pairwise"};
    int n_staged = 0;
    for (size_t k = 0; k < WFI_COUNT(hows); k++) {
        char plan[64];
        snprintf(plan, sizeof plan, "dp=4,allreduce=%s", hows[k]);
        scoped_program p = make_narrowing(ctx, plan, NULL);
        const wfi_allreduce *how = p->plan->allreduce;
        for (int32_t rank = 0; rank < p->n_ranks && how->n_staged; rank++) {
            const wfi_instruction *now = reductions_of(p, rank).list[0];
            int32_t n = wfi_n_moved(p, now);
            assert_int_equal(n, 3);
            for (int32_t r = 0; r < n; r++) {
                int64_t n_elem = (int64_t)(now->references[r].bytes / sizeof(float));
                size_t bytes = (size_t)how->n_staged(4, rank, n_elem) * sizeof(float);
                assert_true(bytes <= now->references[n].bytes);
                n_staged += bytes > 0;
            }
        }
    }
    assert_true(n_staged > 0);
}

/* Of ranks that do not reach each other's memory; an engine needs nothing of others. */
TEST(engines_stage_nothing) {
    for (int is_engine = 0; is_engine < 2; is_engine++) {
        const char *plan = is_engine ? "dp=2,allreduce=engine" : "dp=2,allreduce=direct";
        scoped_program p = make_narrowing(ctx, plan, "cuda:2");
        const wfi_instruction *now = reductions_of(p, 0).list[0];
        assert_int_equal(now->n_references, is_engine ? 3 : 4);
    }
}

TEST(units_share_buckets) {
    static const char *const grids[] = {"dp=2", "dp=2,pp=2,schedule=zb1", "dp=4,pp=3"};
    static const char *const hows[] = {"direct", "pairwise,overlap=off", "tree"};
    static const size_t limits[] = {1, 256, 400, 600, 1000, 1 << 20};
    for (size_t g = 0; g < 3; g++)
        for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
            char plan[96];
            snprintf(plan, sizeof plan, "%s,allreduce=%s,bucket=%zu", grids[g], hows[(g + k) % 3],
                     limits[k]);
            scoped_program p = make_program(ctx, plan, 4);
            for (int32_t r = 0; r < p->n_ranks; r++) check_buckets(p, limits[k], r);
            int n = reductions_of(p, 0).n;
            if (limits[k] == 1) assert_int_equal(n, p->first_unit[1]);
            if (limits[k] == 1 << 20) assert_int_equal(n, 1);
        }
}

TEST(buckets_in_the_text) {
    scoped_program p = make_program(ctx, "dp=2,allreduce=tree", 2);
    char *text;
    TEST_OK(ctx, wf_program_text(p, &text));
    assert_non_null(strstr(text, "all_reduce late+middle+"));
    assert_non_null(strstr(text, " by=tree"));
    wf_text_free(ctx, text);
}

/* ---- overlap ---- */

/* The first begin of a reduction and the last end of a backward on that rank, simulated. */
static void find_instants(const wf_timeline *t, int rank, double *reduce_out, double *back_out) {
    *reduce_out = wf_timeline_step_us(t);
    *back_out = 0;
    for (int i = 0; i < wf_timeline_n_spans(t); i++) {
        wf_span span = wf_timeline_span(t, i);
        bool is_back = span.kind == WF_SPAN_BACKWARD || span.kind == WF_SPAN_WEIGHT ||
                       span.kind == WF_SPAN_BACKWARD_WEIGHT;
        if (span.rank != rank) continue;
        if (is_back && span.end_us > *back_out) *back_out = span.end_us;
        if (span.kind == WF_SPAN_REDUCE && span.begin_us < *reduce_out) *reduce_out = span.begin_us;
    }
}

TEST(reductions_overlap) {
    static const char *const grids[] = {"dp=2", "dp=4", "dp=2,pp=2", "dp=2,pp=2,schedule=zb2"};
    for (int g = 0; g < 4; g++)
        for (int overlaps = 0; overlaps < 2; overlaps++) {
            char plan[96];
            scoped_timeline t;
            snprintf(plan, sizeof plan, "%s,bucket=1,overlap=%s", grids[g],
                     overlaps ? "on" : "off");
            scoped_program p = make_program(ctx, plan, 4);
            TEST_OK(ctx, wf_program_simulate(p, NULL, &t));
            for (int r = 0; r < p->n_ranks; r++) {
                double reduce, back;
                find_instants(t, r, &reduce, &back);
                bool has_two = reductions_of(p, r).n > 1;
                if (has_two && (reduce < back) != overlaps)
                    fail_msg("plan '%s', rank %d: the first reduction begins at %g us, the last "
                             "backward ends at %g us",
                             plan, r, reduce, back);
            }
        }
}

/* ---- bytes ---- */

TEST(bytes_add_up) {
    static const char *const plans[] = {"dp=4,allreduce=root",
                                        "dp=4,allreduce=direct",
                                        "dp=4,allreduce=tree",
                                        "dp=4,pp=2",
                                        "dp=4,allreduce=ring,sums=free",
                                        "dp=4,allreduce=pairwise",
                                        "dp=4,allreduce=engine,sums=free"};
    size_t root[2] = {0, 0}, all[7];
    for (int k = 0; k < 7; k++) {
        scoped_program p = make_program(ctx, plans[k], 4);
        wf_dry_run run;
        TEST_OK(ctx, wf_program_dry_run(p, &run));
        size_t sent = 0, received = 0;
        for (int r = 0; r < p->n_ranks; r++) {
            wf_rank_summary s = wf_program_rank(p, r);
            sent += s.sent_bytes;
            received += s.received_bytes;
            if (k == 0 && r < 2) root[r] = s.sent_bytes;
        }
        assert_true(sent > 0);
        all[k] = sent;
        assert_int_equal(sent, received);
        assert_int_equal(sent, run.sent_bytes);
    }
    assert_true(root[0] > 2 * root[1]); /* hot, as the parameter device is */
    assert_int_equal(all[6], all[4]);   /* an engine's are taken for a ring's */
}

/* ---- disagreement ---- */

static bool swap_units(breaker *b, wfi_instruction *now, wfi_reference *spare) {
    if (wfi_n_moved(b->p, now) < 2) return false;
    memcpy(spare, now->references, (size_t)now->n_references * sizeof *spare);
    spare[0] = now->references[1];
    spare[1] = now->references[0];
    now->references = spare;
    return true;
}

static bool lose_unit(breaker *b, wfi_instruction *now, wfi_reference *spare) {
    if (wfi_n_moved(b->p, now) < 2) return false;
    memcpy(spare, now->references, (size_t)now->n_references * sizeof *spare);
    spare[now->n_references - 2] = spare[now->n_references - 1];
    now->n_references--;
    now->references = spare;
    return true;
}

static bool lose_bytes(breaker *b, wfi_instruction *now, wfi_reference *spare) {
    memcpy(spare, now->references, (size_t)now->n_references * sizeof *spare);
    spare[0].bytes -= 64;
    now->references = spare;
    return true;
}

/* One replica's bucket is another than the others'. */
TEST_CASE(ranks_disagree) {
    bool (*const breaks[])(breaker *, wfi_instruction *, wfi_reference *) = {swap_units, lose_unit,
                                                                             lose_bytes};
    static const char *const words[] = {"deadlocks", "deadlocks", "needs"};
    static const char *const plans[] = {"dp=2", "dp=4,allreduce=pairwise,bucket=400", "dp=2,pp=2"};
    for (int k = 0; k < 3; k++) {
        scoped_context ctx = test_context();
        scoped_breaker b = break_program(ctx, make_program(ctx, plans[k], 4));
        int n_refused = 0;
        for (int32_t i = 0; i < b.saved.n_instructions; i++)
            for (int which = 0; which < 3; which++) {
                wfi_reference spare[8];
                restore(b.p, &b.saved, b.instructions, b.streams);
                wfi_instruction *now = &b.p->instructions[i];
                if (!wfi_is_reduction(now) || !breaks[which](&b, now, spare)) continue;
                TEST_REFUSED(ctx, wf_program_check(b.p), WF_BUG, words[which]);
                n_refused++;
            }
        assert_true(n_refused >= 4);
    }
}
