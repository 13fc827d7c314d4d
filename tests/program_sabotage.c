/* Programs broken behind the compiler's back, mostly where ranks meet: each is refused with the
 * reason. program_check.c takes out and swaps everything; this bends what is left in place.
 *
 * label: serial
 */
#include "broken_program.h"
#include "compile/compile.h"

static const char *const grids[] = {"pp=2,", "pp=3,"};
#define N_GRIDS 2
static const char *const spreads[] = {"dataparallel=2", "middle:dp=2,late:dataparallel=4"};
#define N_SPREADS 2

static bool drop_send(breaker *b, int32_t i) {
    return drop(b, i, WFI_SEND);
}

static bool drop_receive(breaker *b, int32_t i) {
    return drop(b, i, WFI_RECEIVE);
}

/* With the next one on the stream that has the same peer. */
static bool swap_with_next(breaker *b, int32_t i, wfi_instruction_kind kind) {
    const wfi_instruction *now = &b->p->instructions[i];
    if (now->kind != kind) return false;
    const wfi_rank *rank = &b->p->ranks[now->rank];
    int32_t *list = rank->stream[now->stream], k = now->position + 1;
    while (k < rank->n_stream[now->stream] && b->p->instructions[list[k]].peer != now->peer) k++;
    if (k == rank->n_stream[now->stream]) return false;
    list[now->position] = list[k];
    list[k] = i;
    renumber(b->p, now->rank, now->stream);
    return true;
}

static bool swap_sends(breaker *b, int32_t i) {
    return swap_with_next(b, i, WFI_SEND);
}

static bool swap_receives(breaker *b, int32_t i) {
    return swap_with_next(b, i, WFI_RECEIVE);
}

static bool is_transfer(const wfi_instruction *now) {
    return now->kind == WFI_SEND || now->kind == WFI_RECEIVE;
}

static bool wrong_peer(breaker *b, int32_t i) {
    wfi_instruction *now = &b->p->instructions[i];
    now->peer = (now->peer + 1) % b->p->n_ranks;
    return is_transfer(now);
}

static bool no_peer(breaker *b, int32_t i) {
    b->p->instructions[i].peer = i % 2 ? -1 : b->p->n_ranks;
    return is_transfer(&b->p->instructions[i]);
}

static bool wrong_micro(breaker *b, int32_t i) {
    b->p->instructions[i].micro++;
    return is_transfer(&b->p->instructions[i]);
}

static bool wrong_value(breaker *b, int32_t i) {
    b->p->instructions[i].id++;
    return is_transfer(&b->p->instructions[i]);
}

/* What the receive brings goes where another one's should. */
static bool wrong_block(breaker *b, int32_t i) {
    wf_program *p = b->p;
    wfi_instruction *now = &p->instructions[i];
    for (int32_t k = 0; k < p->n_instructions && now->kind == WFI_RECEIVE; k++) {
        const wfi_instruction *other = &p->instructions[k];
        if (other->kind != WFI_RECEIVE || other->rank != now->rank || other->id != now->id ||
            other->micro == now->micro)
            continue;
        wfi_reference *kept = b->spare_references;
        *kept = now->references[0];
        kept->block = other->references[0].block;
        now->references = kept;
        return true;
    }
    return false;
}

/* The one by which a reader waits for the receive of what it reads. */
static bool drop_dependency(breaker *b, int32_t i) {
    wfi_instruction *now = &b->p->instructions[i];
    for (int32_t d = 0; d < now->n_depends; d++) {
        const wfi_instruction *before = &b->p->instructions[now->depends[d]];
        bool reads = false;
        for (int32_t r = 0; r < now->n_references && before->kind == WFI_RECEIVE; r++)
            reads |= now->references[r].block == before->references[0].block;
        if (!reads) continue;
        int32_t n = 0;
        for (int32_t k = 0; k < now->n_depends; k++)
            if (k != d) b->spare[n++] = now->depends[k];
        now->depends = b->spare;
        now->n_depends = n;
        return true;
    }
    return false;
}

/* The receive waits for its own reader. */
static bool circle(breaker *b, int32_t i) {
    wf_program *p = b->p;
    wfi_instruction *now = &p->instructions[i];
    for (int32_t k = 0; k < p->n_instructions && now->kind == WFI_RECEIVE; k++)
        for (int32_t d = 0; d < p->instructions[k].n_depends; d++)
            if (p->instructions[k].depends[d] == i) {
                b->spare[0] = k;
                now->depends = b->spare;
                now->n_depends = 1;
                return true;
            }
    return false;
}

/* With the access that belongs to it: only what is computed tells. */
static bool sum_or_assign(breaker *b, int32_t i) {
    wfi_instruction *now = &b->p->instructions[i];
    now->first = !now->first;
    bool sums = now->unit >= 0 && b->p->graph->units[now->unit].param_bytes;
    if (!sums) return false; /* the loss alone */
    if (now->kind != WFI_WEIGHT && now->kind != WFI_BACKWARD_WEIGHT) return false;
    assert_true((size_t)now->n_references < WFI_COUNT(b->spare_references));
    memcpy(b->spare_references, now->references,
           (size_t)now->n_references * sizeof *now->references);
    now->references = b->spare_references;
    for (int32_t k = 0; k < now->n_references; k++)
        if (now->segment->slots[k].kind == WFI_BLOCK_GRADIENT)
            now->references[k].access = now->first ? WFI_WRITE : WFI_READ | WFI_WRITE;
    return true;
}

static const struct {
    const char *name;
    sabotage apply;
    const char *words, *or_words; /* one or the other */
} sabotages[] = {
    {"a send is dropped", drop_send, "deadlocks", "deadlocks"},
    {"a receive is dropped", drop_receive, "deadlocks", "deadlocks"},
    {"two sends to one peer are swapped", swap_sends, "deadlocks", "deadlocks"},
    {"two receives from one peer are swapped", swap_receives, "deadlocks", "deadlocks"},
    {"a wrong peer", wrong_peer, "deadlocks", "deadlocks"},
    {"no peer", no_peer, "deadlocks", "deadlocks"},
    {"a wrong microbatch", wrong_micro, "deadlocks", "deadlocks"},
    {"a wrong value", wrong_value, "deadlocks", "deadlocks"},
    {"a receive into another's block", wrong_block, "check: ", "check: "},
    {"a reader does not wait for its receive", drop_dependency, "a dependency is missing",
     "were never written"},
    {"a circle of dependencies", circle, "deadlocks", "deadlocks"},
    {"a gradient is assigned instead of added, or added to nothing", sum_or_assign,
     "check: ", "check: "},
};
#define N_SABOTAGES (sizeof sabotages / sizeof *sabotages)

static void break_plan(const char *plan, int64_t lanes, wf_program_kind kind, int *n_refused) {
    scoped_context ctx = test_context();
    const wf_recipe recipe = mixed_recipe(lanes);
    scoped_breaker b =
        break_program(ctx, make_program_of_kind(ctx, plan, &recipe, kind, WFI_USE_RUN));
    for (size_t which = 0; which < N_SABOTAGES; which++)
        for (int32_t i = 0; i < b.saved.n_instructions; i++) {
            restore(b.p, &b.saved, b.instructions, b.streams);
            if (!sabotages[which].apply(&b, i)) continue;
            wf_status status = wf_program_check(b.p);
            const char *sentence = wf_context_error(ctx);
            if (status != WF_BUG || (!strstr(sentence, sabotages[which].words) &&
                                     !strstr(sentence, sabotages[which].or_words)))
                fail_msg("plan '%s', instruction %d, %s: '%s' instead of '%s'", plan, i,
                         sabotages[which].name, status ? sentence : "it is right",
                         sabotages[which].words);
            n_refused[which]++;
        }
}

TEST_CASE(broken_programs) {
    int n_refused[N_SABOTAGES] = {0};
    for (int s = 0; wfi_schedules[s]; s++)
        for (int g = 0; g < N_GRIDS; g++) {
            char plan[64];
            if (g && wfi_schedules[s]->n_chunks > 1) continue; /* there are four units */
            snprintf(plan, sizeof plan, "%sschedule=%s", grids[g], wfi_schedules[s]->name);
            break_plan(plan, 1, WF_PROGRAM_TRAIN, n_refused);
        }
    for (int g = 0; g < N_SPREADS; g++) break_plan(spreads[g], 4, WF_PROGRAM_TRAIN, n_refused);
    for (size_t which = 0; which < N_SABOTAGES; which++)
        if (n_refused[which] < 20)
            fail_msg("%s: tried %d times only", sabotages[which].name, n_refused[which]);
}

/* Those that yield gradients, without updates. */
TEST_CASE(broken_gradients) {
    static const char *const plans[] = {"pp=2,schedule=1f1b", "pp=3,schedule=zb1", "dp=2,pp=2"};
    int n_refused[N_SABOTAGES] = {0};
    for (size_t k = 0; k < WFI_COUNT(plans); k++)
        break_plan(plans[k], k < 2 ? 1 : 2, WF_PROGRAM_GRADIENT, n_refused);
    for (size_t which = 0; which < N_SABOTAGES; which++)
        if (n_refused[which] < 5)
            fail_msg("%s: tried %d times only", sabotages[which].name, n_refused[which]);
}

/* Each instruction that makes a sum is needed, though no update reads it. */
TEST(gradients_are_yielded) {
    static const char *const plans[] = {"", "dp=2", "dp=2,zero=2"};
    for (size_t k = 0; k < WFI_COUNT(plans); k++) {
        const wf_recipe recipe = mixed_recipe(2);
        scoped_breaker b = break_program(
            ctx, make_program_of_kind(ctx, plans[k], &recipe, WF_PROGRAM_GRADIENT, WFI_USE_RUN));
        int n = 0;
        for (int32_t i = 0; i < b.saved.n_instructions; i++) {
            wfi_instruction_kind kind = b.instructions[i].kind;
            assert_true(kind != WFI_UPDATE);
            restore(b.p, &b.saved, b.instructions, b.streams);
            if (kind != WFI_FOLD && kind != WFI_CHANGE && kind != WFI_BACKWARD_WEIGHT) continue;
            take_out(b.p, i, b.spare);
            assert_int_equal(wf_program_check(b.p), WF_BUG);
            n++;
        }
        assert_true(n > 3);
    }
}

/* ---- what the host gets ---- */

/* Three outputs of one shape: two of the first stage, which the second reads, and its own. */
static void three_outputs(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(8));
    wf_tensor one = wf_tanh(wf_linear(x, "net1", 8)), two = wf_relu(wf_linear(x, "net2", 8));
    wf_output(one, "one");
    wf_output(two, "two");
    wf_cut(one, "second");
    wf_output(wf_linear(wf_add(one, two), "net3", 8), "three");
}

static bool swap_outputs(breaker *b, int32_t i) {
    wfi_instruction *now = &b->p->instructions[i];
    for (int32_t k = i + 1; k < b->p->n_instructions && now->kind == WFI_STORE; k++) {
        wfi_instruction *other = &b->p->instructions[k];
        if (other->kind != WFI_STORE || other->rank != now->rank) continue;
        int32_t id = now->id;
        now->id = other->id;
        other->id = id;
        return true;
    }
    return false;
}

static bool drop_output(breaker *b, int32_t i) {
    return drop(b, i, WFI_STORE);
}

/* The second stage stores the output that it receives, before it reads it, and is sent another. */
static bool store_what_is_received(breaker *b, int32_t i) {
    wf_program *p = b->p;
    wfi_instruction *store = &p->instructions[i], *receive = NULL, *send = NULL;
    if (store->kind != WFI_STORE || !store->rank) return false;
    for (int32_t k = 0; k < p->n_instructions; k++) {
        wfi_instruction *now = &p->instructions[k];
        bool is_one = now->id == wfi_value_root(p->graph, p->graph->outputs[0]);
        if (now->kind == WFI_RECEIVE && is_one) receive = now, b->spare[0] = k;
        if (now->kind == WFI_SEND && is_one) send = now;
    }
    wfi_reference *kept = b->spare_references;
    kept[0] = store->references[0];
    kept[1] = send->references[0];
    kept[0].block = receive->references[0].block;
    for (int32_t k = 0; k < p->n_instructions; k++)
        if (p->instructions[k].kind == WFI_SEND && p->instructions[k].id != send->id)
            kept[1].block = p->instructions[k].references[0].block;
    store->id = 0;
    store->references = &kept[0];
    send->references = &kept[1];
    store->depends = b->spare;
    store->n_depends = 1;
    int32_t *list = p->ranks[store->rank].stream[store->stream];
    memmove(list + 1, list, (size_t)store->position * sizeof *list);
    list[0] = i;
    renumber(p, store->rank, store->stream);
    return true;
}

static const struct {
    const char *name;
    sabotage apply;
    const char *words;
} output_sabotages[] = {
    {"another value is received", store_what_is_received, "gives the host another value"},
    {"an output under another's name", swap_outputs, "the instruction does not use this block"},
    {"an output is not stored", drop_output, "check: "},
};

TEST_CASE(broken_outputs) {
    for (size_t which = 0; which < WFI_COUNT(output_sabotages); which++) {
        scoped_context ctx = test_context();
        wf_program *p;
        wf_recipe recipe = mixed_recipe(1);
        recipe.n_micro = 1;
        scoped_plan plan = test_plan(ctx, "pp=2");
        scoped_model model = test_model(ctx, "outputs", three_outputs, NULL, 0);
        TEST_OK(ctx, wfi_program_create(ctx, model, &recipe, plan, &wfi_backend_cpu,
                                        WF_PROGRAM_FORWARD, WFI_USE_RUN, NULL, &p));
        scoped_breaker b = break_program(ctx, p);
        int n = 0;
        for (int32_t i = 0; i < b.saved.n_instructions; i++) {
            restore(b.p, &b.saved, b.instructions, b.streams);
            if (!output_sabotages[which].apply(&b, i)) continue;
            wf_status status = wf_program_check(b.p);
            if (status != WF_BUG || !strstr(wf_context_error(ctx), output_sabotages[which].words))
                fail_msg("%s: '%s' instead of '%s'", output_sabotages[which].name,
                         status ? wf_context_error(ctx) : "it is right",
                         output_sabotages[which].words);
            n++;
        }
        assert_true(n > 0);
    }
}

/* ---- kept gradients ---- */

/* Programs whose memory is planned for gradients that end with the update. */
TEST_CASE(gradients_that_are_not_kept) {
    static const char *const plans[] = {"dp=2,zero=2", "dp=2,zero=1,offload=state+params"};
    for (size_t k = 0; k < WFI_COUNT(plans); k++) {
        scoped_context ctx = test_context();
        scoped_program p = make_program(ctx, plans[k], 2);
        p->use = WFI_USE_RUN_AND_KEEP;
        TEST_REFUSED(ctx, wf_program_check(p), WF_BUG, "is not kept");
    }
}

/* ---- types ---- */

/* Slices' values are folded and summed over ranks as F32. */
TEST(values_that_are_summed) {
    scoped_program p = make_program(ctx, "tp=2", 2);
    int n = 0;
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        const wfi_block *b = now->n_references ? &p->blocks[now->references[0].block] : NULL;
        bool sums = now->kind == WFI_FOLD || now->kind == WFI_CHANGE;
        if (!sums || b->name.kind != WFI_BLOCK_VALUE) continue;
        p->graph->values[b->name.owner].dtype = WF_BF16;
        TEST_REFUSED(ctx, wf_program_check(p), WF_BUG, "reads the elements as F32");
        p->graph->values[b->name.owner].dtype = WF_F32;
        n++;
    }
    assert_true(n > 10);
    TEST_OK(ctx, wf_program_check(p));
}
