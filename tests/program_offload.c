/* What offload= keeps elsewhere: a proof refuses a program that fetches too late or from another
 * place, evicts too early, or leaves there what has become old; and what it saves and moves.
 *
 * label: serial
 */
#include "broken_program.h"
#include "program/where.h"
#include "test_program.h"

#define N_PLANS 10
static const char *const plans[N_PLANS] = {
    "offload=state",
    "dp=2,zero=1,offload=state:disk",
    "pp=2,schedule=zb1,offload=state,overlap=off",
    "dataparallel=2,offload=state,prefetch=3",
    "offload=params",
    "dp=2,pp=2,zero=3,offload=params:disk+state",
    "dp=4,zero=1,offload=params",
    "offload=activations",
    "dp=2,pp=2,schedule=zb1,offload=activations:disk",
    "dp=2,zero=3,schedule=breadth,offload=activations+params"};

/* It no longer waits for an instruction of that kind that touches one of its blocks. */
static bool drop_wait(breaker *b, int32_t i, wfi_instruction_kind kind) {
    wfi_instruction *now = &b->p->instructions[i];
    for (int32_t d = 0; d < now->n_depends; d++) {
        const wfi_instruction *before = &b->p->instructions[now->depends[d]];
        bool shares = false;
        for (int32_t r = 0; r < now->n_references; r++)
            for (int32_t k = 0; k < before->n_references; k++)
                shares |= now->references[r].block == before->references[k].block;
        if (before->kind != kind || !shares) continue;
        int32_t n = 0;
        for (int32_t k = 0; k < now->n_depends; k++)
            if (k != d) b->spare[n++] = now->depends[k];
        now->depends = b->spare;
        now->n_depends = n;
        return true;
    }
    return false;
}

static bool fetched_too_late(breaker *b, int32_t i) {
    return b->p->instructions[i].kind != WFI_EVICT && drop_wait(b, i, WFI_FETCH);
}

static bool evicted_too_early(breaker *b, int32_t i) {
    const wfi_instruction *now = &b->p->instructions[i];
    if (now->kind != WFI_EVICT) return false;
    return drop_wait(b, i, WFI_UPDATE) || drop_wait(b, i, WFI_FORWARD) ||
           drop_wait(b, i, WFI_CHANGE);
}

static bool never_fetched(breaker *b, int32_t i) {
    return drop(b, i, WFI_FETCH);
}

static bool never_evicted(breaker *b, int32_t i) {
    return drop(b, i, WFI_EVICT);
}

/* The two references of a fetch or an evict change places. */
static bool backwards(breaker *b, int32_t i) {
    wfi_instruction *now = &b->p->instructions[i];
    if (now->kind != WFI_FETCH && now->kind != WFI_EVICT) return false;
    for (int k = 0; k < 2; k++) {
        b->spare_references[k] = now->references[k];
        b->spare_references[k].block = now->references[!k].block;
    }
    now->references = b->spare_references;
    return true;
}

/* It reads what is kept where it lies, instead of what has been fetched. */
static bool from_elsewhere(breaker *b, int32_t i) {
    wfi_instruction *now = &b->p->instructions[i];
    if (now->n_references > 64 || now->kind == WFI_FETCH || now->kind == WFI_EVICT) return false;
    for (int32_t f = 0; f < b->p->n_instructions; f++) {
        const wfi_instruction *fetch = &b->p->instructions[f];
        for (int32_t k = 0; k < now->n_references && fetch->kind == WFI_FETCH; k++) {
            if (now->references[k].block != fetch->references[1].block) continue;
            memcpy(b->spare_references, now->references,
                   (size_t)now->n_references * sizeof *now->references);
            b->spare_references[k].block = fetch->references[0].block;
            now->references = b->spare_references;
            return true;
        }
    }
    return false;
}

static const struct {
    const char *name;
    sabotage apply;
    const char *words, *or_words;
} sabotages[] = {
    {"a fetch comes too late", fetched_too_late, "a dependency is missing", "were never written"},
    {"an evict comes too early", evicted_too_early, "a dependency is missing",
     "were never written"},
    {"nothing is fetched", never_fetched, "were never written", "a dependency is missing"},
    {"nothing is evicted", never_evicted, "check: ", "a dependency is missing"},
    {"from there to here, and back, are exchanged", backwards, "and is needed on", "it needs"},
    {"what is kept is read where it lies", from_elsewhere, "and is needed on the device",
     "deadlocks"},
};
#define N_SABOTAGES (sizeof sabotages / sizeof *sabotages)

TEST_CASE(broken_programs) {
    int n_refused[N_SABOTAGES] = {0};
    wf_recipe recipe = mixed_recipe(4);
    for (int k = 0; k < 2 * N_PLANS; k++) {
        scoped_context ctx = test_context();
        const char *plan = plans[k / 2];
        recipe.clip_norm = k % 2;
        scoped_breaker b = break_program(ctx, make_program_of(ctx, plan, &recipe, WFI_USE_RUN));
        for (size_t which = 0; which < N_SABOTAGES; which++)
            for (int32_t i = 0; i < b.saved.n_instructions; i++) {
                restore(b.p, &b.saved, b.instructions, b.streams);
                if (!sabotages[which].apply(&b, i)) continue;
                wf_status status = wf_program_check(b.p);
                const char *sentence = wf_context_error(ctx);
                if (status != WF_BUG || (!strstr(sentence, sabotages[which].words) &&
                                         !strstr(sentence, sabotages[which].or_words)))
                    fail_msg("plan '%s', instruction %d, %s: '%s'", plan, i, sabotages[which].name,
                             status ? sentence : "it is right");
                n_refused[which]++;
            }
    }
    for (size_t which = 0; which < N_SABOTAGES; which++)
        if (n_refused[which] < 6)
            fail_msg("%s: tried %d times only", sabotages[which].name, n_refused[which]);
}

/* What is kept elsewhere is not on the device, and moves once there and once back. */
TEST(bytes) {
    scoped_program all = make_program(ctx, "", 4);
    wf_rank_summary on_device = wf_program_rank(all, 0);
    assert_int_equal(on_device.host_peak_bytes + on_device.disk_peak_bytes, 0);
    assert_int_equal(on_device.fetched_bytes + on_device.evicted_bytes, 0);
    for (int disk = 0; disk < 2; disk++) {
        scoped_program p = make_program(ctx, disk ? "offload=state:disk" : "offload=state", 4);
        wf_rank_summary r = wf_program_rank(p, 0);
        assert_true(disk ? r.host_peak_bytes == 0 && r.disk_peak_bytes >= r.optimizer_bytes
                         : r.disk_peak_bytes == 0 && r.host_peak_bytes == r.optimizer_bytes);
        assert_true(r.optimizer_bytes > 0 && r.optimizer_bytes == on_device.optimizer_bytes);
        assert_int_equal(r.state_bytes, on_device.state_bytes - r.optimizer_bytes);
        assert_int_equal(r.fetched_bytes, r.optimizer_bytes);
        assert_int_equal(r.evicted_bytes, r.optimizer_bytes);
        TEST_OK(ctx, wf_program_fits(p, 0, r.host_peak_bytes, NULL, NULL));
        if (!disk)
            TEST_REFUSED(ctx, wf_program_fits(p, 0, r.host_peak_bytes - 1, NULL, NULL),
                         WF_DOES_NOT_FIT, "of the host's memory, 1 byte more than");
    }
    scoped_program p = make_program(ctx, "offload=activations,overlap=off", 4);
    wf_rank_summary r = wf_program_rank(p, 0);
    assert_true(r.host_peak_bytes > 0 && r.fetched_bytes == r.evicted_bytes);
    assert_true(r.fetched_bytes >= r.host_peak_bytes && r.state_bytes == on_device.state_bytes);
}

static wf_model *find_gpt(wf_context *ctx, int64_t n_layers, int64_t hidden, int64_t n_heads) {
    wf_model *model =
        test_find_model(ctx, "gpt",
                        &TEST_MODEL(.n_classes = 64, .n_tokens = 8, .n_positions = 8,
                                    .n_layers = n_layers, .hidden = hidden, .n_heads = n_heads));
    return model;
}

/* What moves between the device and a file lies in both where a disk takes it without a detour. In
 * the last plans ranks have unequal state before equal blocks, and parts of parameters without
 * clipping. */
TEST(aligned_for_disks) {
    wf_recipe recipe = TEST_RECIPE(.batch = 4, .n_micro = 4, .n_lanes = 4, .optimizer = WF_ADAMW);
    scoped_model model = find_gpt(ctx, 1, 96, 0);
    for (int k = 0, n_moved = 0; k <= N_PLANS + 1; k++) {
        const char *plan = k < N_PLANS   ? plans[k]
                           : k > N_PLANS ? "dp=4,zero=3,offload=params:disk"
                                         : "dp=4,zero=1,offload=params:disk";
        scoped_program p =
            k < N_PLANS ? make_program(ctx, plan, 4) : test_program(ctx, model, &recipe, plan);
        for (int32_t i = 0; i < p->n_instructions; i++) {
            const wfi_instruction *now = &p->instructions[i];
            if (now->kind != WFI_FETCH && now->kind != WFI_EVICT) continue;
            const wfi_reference *r = now->references;
            const wfi_block *from = &p->blocks[r[0].block], *to = &p->blocks[r[1].block];
            if (from->space != WFI_SPACE_DISK && to->space != WFI_SPACE_DISK) continue;
            bool on_disk = from->space == WFI_SPACE_DISK;
            size_t in_file = on_disk ? from->offset + r[0].offset : to->offset + r[1].offset;
            size_t on_device = on_disk ? to->offset + r[1].offset : from->offset + r[0].offset;
            if ((on_device - in_file) % WFI_DIRECT_ALIGN)
                fail_msg("plan '%s', instruction %d: at %zu on the device, at %zu in the file",
                         plan, i, on_device, in_file);
            n_moved++;
        }
        if (k == N_PLANS) assert_true(n_moved > 60);
    }
}

/* Without clipping a unit is updated as soon as its gradient is complete: of a deep model some
 * units' are there at once, not all. What its backward has read is not fetched again. */
TEST(early_updates) {
    scoped_model model = find_gpt(ctx, 24, 96, 0);
    scoped_plan plan = test_plan(ctx, "recompute=all,offload=state:disk+params");
    size_t peak[2], fetched[2];
    for (int clips = 0; clips < 2; clips++) {
        wf_recipe recipe = TEST_RECIPE(.optimizer = WF_ADAMW, .batch = 4, .n_lanes = 1,
                                       .n_slices = 1, .clip_norm = clips);
        scoped_program p;
        TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
        peak[clips] = wf_program_rank(p, 0).peak_bytes;
        fetched[clips] = wf_program_rank(p, 0).fetched_bytes;
        if (!clips) assert_true(peak[0] < wf_program_rank(p, 0).optimizer_bytes);
    }
    size_t block = 12 * 96 * 96 * sizeof(float); /* and some biases */
    assert_true(peak[0] + 20 * block < peak[1]);
    assert_true(fetched[0] + 24 * block <= fetched[1]);
}

/* The unit that is updated early may be of another stage of the rank than the one at work. */
TEST(several_stages) {
    static const char *const stages[] = {
        "pp=2,schedule=interleaved,dp=2,bucket=1000,offload=state",
        "pp=2,schedule=zbv,dp=2,zero=2,overlap=off,offload=state:disk+params",
        "pp=2,schedule=vmin,dp=2,zero=3,overlap=off,offload=state:disk+params"};
    scoped_model model = find_gpt(ctx, 5, 20, 4);
    wf_recipe recipe = TEST_RECIPE(.batch = 4, .n_micro = 4, .n_lanes = 2);
    for (size_t k = 0; k < sizeof stages / sizeof *stages; k++) {
        scoped_program p = test_program(ctx, model, &recipe, stages[k]);
        TEST_OK(ctx, wf_program_check(p));
    }
}

/* Of all that a unit reads, only the slice comes that this rank updates. */
static bool slice_only(breaker *b, int32_t i) {
    wfi_instruction *now = &b->p->instructions[i];
    if (now->kind != WFI_FETCH ||
        b->p->blocks[now->references[0].block].name.kind != WFI_BLOCK_PARAM)
        return false;
    wfi_extent own = wfi_kept_extent(b->p, WFI_BLOCK_STATE, now->unit, now->rank);
    if (!own.bytes || now->references[0].bytes <= own.bytes) return false;
    for (int k = 0; k < 2; k++) {
        b->spare_references[k] = now->references[k];
        b->spare_references[k].offset += own.offset;
        b->spare_references[k].bytes = own.bytes;
    }
    now->references = b->spare_references;
    return true;
}

/* Units of many blocks, so that each replica updates a slice: before the update that is fetched,
 * and not enough for another use. */
TEST(updated_slices) {
    scoped_model model = find_gpt(ctx, 2, 96, 0);
    wf_recipe recipe = TEST_RECIPE(.batch = 4, .n_micro = 4, .clip_norm = 1);
    wf_program *p = test_program(ctx, model, &recipe, "dp=4,zero=1,offload=params,overlap=off");
    size_t updated = 0, all = 0;
    int n_refused = 0;
    for (int32_t u = 0; u < p->graph->n_units; u++) all += p->graph->units[u].trained_bytes;
    scoped_breaker b = break_program(ctx, p);
    for (int32_t i = 0; i < b.saved.n_instructions; i++) {
        restore(b.p, &b.saved, b.instructions, b.streams);
        const wfi_instruction *now = &p->instructions[i];
        if (now->kind != WFI_FETCH) continue;
        wfi_extent own = wfi_kept_extent(p, WFI_BLOCK_STATE, now->unit, now->rank);
        if (now->references[0].bytes == own.bytes) updated += own.bytes;
        if (!slice_only(&b, i)) continue;
        TEST_REFUSED(ctx, wf_program_check(p), WF_BUG, "were never written");
        n_refused++;
    }
    assert_true(n_refused > 8);
    assert_true(updated > all / 4);
}
