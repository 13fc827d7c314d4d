/* A timeline says what ran when, and divides each rank's step without a remainder.
 *
 * label: serial
 */
#include "program/clock.h"
#include "show/timeline.h"
#include "small_models.h"
#include "test_program.h"

#include <math.h>

static wf_program *small_program(wf_context *ctx, const char *plan_text) {
    wf_recipe recipe = SMALL_RECIPE(.n_micro = 4, .n_lanes = 2, .kernels = WF_KERNELS_REFERENCE);
    scoped_model model = test_model(ctx, "small", small_net, NULL, 0);
    wf_program *p = test_program(ctx, model, &recipe, plan_text);
    return p;
}

typedef struct instants {
    double *begin, *end;
} instants;

static instants make_instants(const wf_program *p) {
    size_t bytes = (size_t)p->n_instructions * sizeof(double);
    return (instants){test_calloc(1, bytes), test_calloc(1, bytes)};
}

static void free_instants(instants at) {
    test_free(at.begin);
    test_free(at.end);
}

/* Each instruction, or group of them, takes 10 us after all before it has ended: nothing
 * overlaps. What is not compute of a rank is not compute. */
TEST(one_after_the_other) {
    wf_program *p = small_program(ctx, "pp=2,schedule=gpipe");
    instants at = make_instants(p);
    scoped_timeline t = NULL;
    double now = 0, compute[2] = {0, 0};
    for (int32_t k = 0; k < p->n_instructions; now += 10) {
        int32_t n = wfi_n_together(p, k);
        for (int32_t m = 0; m < n; m++) {
            at.begin[p->order[k + m]] = now;
            at.end[p->order[k + m]] = now + 10;
        }
        const wfi_instruction *i = &p->instructions[p->order[k]];
        if (i->stream == WFI_STREAM_COMPUTE) compute[i->rank] += 10;
        k += n;
    }
    TEST_OK(ctx, wfi_timeline_create(p, at.begin, at.end, &t));
    assert_int_equal(wf_timeline_n_ranks(t), 2);
    assert_int_equal(wf_timeline_n_spans(t), p->n_instructions);
    assert_float_equal(wf_timeline_step_us(t), now, 0);
    for (int r = 0; r < 2; r++) {
        wf_rank_time time = wf_timeline_rank(t, r);
        assert_float_equal(time.compute_us, compute[r], 1e-9);
        assert_float_equal(time.compute_us + time.transfer_us + time.bubble_us + time.wait_us, now,
                           1e-9);
    }
    wf_program_destroy(p); /* the timeline keeps nothing of it */
    int n_forward = 0;
    for (int i = 0; i < wf_timeline_n_spans(t); i++) {
        wf_span span = wf_timeline_span(t, i), before = wf_timeline_span(t, i ? i - 1 : 0);
        if (i && span.rank == before.rank && span.stream == before.stream)
            assert_true(span.begin_us >= before.end_us);
        if (span.kind != WF_SPAN_FORWARD) continue;
        n_forward++;
        assert_string_equal(span.stream, "compute");
        assert_true(!strncmp(span.name, "forward ", 8) && !strcmp(span.name + 8, span.unit));
        assert_in_range(span.micro, 0, 3);
    }
    assert_int_equal(n_forward, 4 * 4);
    free_instants(at);
}

static size_t sum_of(wf_memory_moment moment) {
    size_t bytes = 0;
    for (int k = 0; k < WF_N_MEMORY_KINDS; k++) bytes += moment.bytes[k];
    return bytes;
}

/* Blocks of the rank, by kind, that an instruction between the first and the last that touch them
 * runs beside: instruction k begins at 10 k. */
static size_t alive_at(const wf_program *p, const double *begin, int32_t rank, double us,
                       wfi_block_kind kind) {
    size_t bytes = 0;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        double first = p->blocks[b].is_state ? 0 : INFINITY, last = p->blocks[b].is_state ? 1e9 : 0;
        if (p->blocks[b].rank != rank || p->blocks[b].name.kind != kind) continue;
        for (int32_t i = 0; i < p->n_instructions; i++)
            for (int32_t r = 0; r < p->instructions[i].n_references; r++) {
                if (p->instructions[i].references[r].block != b) continue;
                first = fmin(first, begin[i]);
                last = fmax(last, begin[i]);
            }
        if (first <= us && us <= last) bytes += p->blocks[b].bytes;
    }
    return bytes;
}

/* What the moments say is alive, against each block's instructions; the peak lies below the plan's.
 */
TEST(memory_in_time) {
    scoped_program p = small_program(ctx, "pp=2,schedule=gpipe");
    instants at = make_instants(p);
    scoped_timeline t;
    double now = 0;
    for (int32_t k = 0; k < p->n_instructions; now += 10) {
        int32_t n = wfi_n_together(p, k);
        for (int32_t m = 0; m < n; m++, k++) {
            at.begin[p->order[k]] = now;
            at.end[p->order[k]] = now + 10;
        }
    }
    TEST_OK(ctx, wfi_timeline_create(p, at.begin, at.end, &t));
    for (int r = 0; r < 2; r++) {
        wf_rank_summary rank = wf_program_rank(p, r);
        size_t most = 0;
        assert_in_range(wf_timeline_n_moments(t, r), 10, WFI_MAX_MOMENTS);
        for (int i = 0; i < wf_timeline_n_moments(t, r); i++) {
            wf_memory_moment moment = wf_timeline_moment(t, r, i);
            assert_int_equal(moment.bytes[WF_MEMORY_STATE],
                             alive_at(p, at.begin, r, moment.us, WFI_BLOCK_STATE));
            assert_int_equal(moment.bytes[WF_MEMORY_GRADIENTS],
                             alive_at(p, at.begin, r, moment.us, WFI_BLOCK_GRADIENT) +
                                 alive_at(p, at.begin, r, moment.us, WFI_BLOCK_TIED));
            assert_true(moment.bytes[WF_MEMORY_ACTIVATIONS] >=
                        alive_at(p, at.begin, r, moment.us, WFI_BLOCK_SAVED));
            if (i) assert_true(moment.us > wf_timeline_moment(t, r, i - 1).us);
            if (sum_of(moment) > most) most = sum_of(moment);
        }
        assert_true(most > rank.state_bytes && most <= rank.bound_bytes);
        /* A step begins with what is kept, and what it loads. */
        assert_float_equal(wf_timeline_moment(t, r, 0).us, 0, 0);
    }
    assert_int_equal(wf_timeline_n_moments(t, 2), 0);
    free_instants(at);
}

static int32_t find(const wf_program *p, int32_t rank, wfi_instruction_kind kind) {
    for (int32_t i = 0; i < p->n_instructions; i++)
        if (p->instructions[i].rank == rank && p->instructions[i].kind == kind) return i;
    fail_msg("rank %d has no %s", rank, wfi_instruction_types[kind].name);
    return -1;
}

/* Everything at 0, but for the first microbatch's way to rank 1: its value exists at 10, the
 * copy begins at 12 and ends at 17, the compute stream takes it up at 20 and is through at 30;
 * the step ends at 40. */
TEST(a_gap_by_hand) {
    scoped_program p = small_program(ctx, "pp=2,schedule=gpipe");
    instants at = make_instants(p);
    scoped_timeline t;
    int32_t send = find(p, 0, WFI_SEND), receive = find(p, 1, WFI_RECEIVE);
    int32_t forward = find(p, 1, WFI_FORWARD), first = find(p, 0, WFI_FORWARD);
    assert_int_equal(p->instructions[send].n_depends, 1);
    int32_t value = p->instructions[send].depends[0];
    for (int32_t i = 0; i < p->n_instructions; i++)
        if (p->instructions[i].rank == 1 && p->instructions[i].stream == WFI_STREAM_COMPUTE)
            at.begin[i] = at.end[i] =
                p->instructions[i].position < p->instructions[forward].position ? 0 : 30;
    at.begin[first] = 0;
    at.end[value] = 10;
    at.begin[send] = at.begin[receive] = 12;
    at.end[send] = at.end[receive] = 17;
    at.begin[forward] = 20;
    int32_t last = p->ranks[0].stream[WFI_STREAM_COMPUTE][p->ranks[0].n_stream[0] - 1];
    at.begin[last] = at.end[last] = 40;
    TEST_OK(ctx, wfi_timeline_create(p, at.begin, at.end, &t));
    wf_rank_time time = wf_timeline_rank(t, 1);
    assert_float_equal(wf_timeline_step_us(t), 40, 0);
    assert_float_equal(time.compute_us, 10, 1e-9);
    assert_float_equal(time.transfer_us, 7, 1e-9); /* from 10 to 17 */
    assert_float_equal(time.wait_us, 3, 1e-9);     /* from 17 to 20 */
    assert_float_equal(time.bubble_us, 20, 1e-9);  /* to 10, and from 30 on */
    free_instants(at);
}

/* Whatever the clocks say, even nonsense, the four add up to the step. */
TEST(always_adds_up) {
    static const char *const plans[] = {"", "dp=2", "pp=2", "pp=4,schedule=zb1", "dp=2,pp=2"};
    for (size_t which = 0; which < sizeof plans / sizeof *plans; which++) {
        scoped_program p = small_program(ctx, plans[which]);
        instants at = make_instants(p);
        wfi_random_key key = {3, which};
        for (int32_t i = 0; i < p->n_instructions; i++) {
            at.begin[i] = 1000 * fabs((double)wfi_random_normal(key, 0, (uint64_t)i));
            at.end[i] = at.begin[i] + 50 * fabs((double)wfi_random_normal(key, 1, (uint64_t)i));
        }
        scoped_timeline t;
        TEST_OK(ctx, wfi_timeline_create(p, at.begin, at.end, &t));
        for (int r = 0; r < p->n_ranks; r++) {
            wf_rank_time time = wf_timeline_rank(t, r);
            double sum = time.compute_us + time.transfer_us + time.bubble_us + time.wait_us;
            assert_float_equal(sum, wf_timeline_step_us(t), 1e-6);
            assert_true(time.compute_us >= 0 && time.transfer_us >= 0 && time.bubble_us >= 0 &&
                        time.wait_us >= 0);
        }
        free_instants(at);
    }
}

/* What there is not is zeros and empty texts. */
TEST(out_of_range) {
    scoped_program p = small_program(ctx, "pp=2");
    scoped_timeline t;
    TEST_OK(ctx, wf_program_simulate(p, NULL, &t));
    const wf_costs *costs = wf_program_costs(p);
    const int bad[] = {-1, 1 << 20};
    for (int k = 0; k < 2; k++) {
        wf_rank_summary rank = wf_program_rank(p, bad[k]);
        assert_true(rank.peak_bytes == 0 && rank.n_units == 0 && !*rank.peak_unit);
        assert_true(!*wf_program_unit(p, 0, bad[k]).name && !*wf_program_unit(p, bad[k], 0).name);
        assert_true(!*wf_timeline_span(t, bad[k]).name && !*wf_timeline_span(t, bad[k]).stream);
        assert_true(wf_timeline_rank(t, bad[k]).compute_us == 0);
        assert_true(wf_costs_unit(costs, bad[k]).forward_us == 0);
    }
    /* The first unit that the rank has not. */
    assert_true(!*wf_program_unit(p, 0, wf_program_rank(p, 0).n_units).name);
    assert_true(*wf_program_unit(p, 1, wf_program_rank(p, 1).n_units - 1).name);
}
