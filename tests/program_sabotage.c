/* Programs broken behind the compiler's back, mostly where ranks meet: each is refused with the
 * reason. program_check.c takes out and swaps everything; this bends what is left in place.
 *
 * label: serial
 */
#include "broken_program.h"

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
     "nobody has written"},
    {"a circle of dependencies", circle, "deadlocks", "deadlocks"},
    {"a gradient is assigned instead of added, or added to nothing", sum_or_assign,
     "check: ", "check: "},
};
#define N_SABOTAGES (sizeof sabotages / sizeof *sabotages)

static void break_plan(const char *plan, int64_t lanes, int *n_refused) {
    wf_context *ctx = test_context();
    breaker b = break_program(ctx, make_program(ctx, plan, lanes));
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
    end_breaker(&b);
    test_context_end(ctx);
}

static void broken_programs(void **state) {
    (void)state;
    int n_refused[N_SABOTAGES] = {0};
    for (int s = 0; wfi_schedules[s]; s++)
        for (int g = 0; g < N_GRIDS; g++) {
            char plan[64];
            if (g && wfi_schedules[s]->n_chunks > 1) continue; /* there are four units */
            snprintf(plan, sizeof plan, "%sschedule=%s", grids[g], wfi_schedules[s]->name);
            break_plan(plan, 1, n_refused);
        }
    for (int g = 0; g < N_SPREADS; g++) break_plan(spreads[g], 4, n_refused);
    for (size_t which = 0; which < N_SABOTAGES; which++)
        if (n_refused[which] < 20)
            fail_msg("%s: tried %d times only", sabotages[which].name, n_refused[which]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
