/* The cost of a program: parameters, FLOPs and bytes by rank and unit. */
#include "kernel/backend.h"
#include "program/where.h"
#include "show/show.h"

int wf_program_n_ranks(const wf_program *p) {
    return p->n_ranks;
}

const wf_recipe *wf_program_recipe(const wf_program *p) {
    return &p->recipe;
}

const char *wf_program_plan(const wf_program *p) {
    return wf_plan_text(p->plan);
}

const wf_costs *wf_program_costs(const wf_program *p) {
    return p->costs;
}

void wf_program_warn(const wf_program *p) {
    const wf_recipe *r = &p->recipe;
    const wfi_backend *backend = p->backend;
    bool is_fast = r->kernels == WF_KERNELS_FAST;
    if (r->matmul_precision == WF_MATMUL_TF32 && !(backend->has_tf32 && is_fast))
        wfi_log(p->ctx, WF_LOG_WARN, "kernels",
                "--matmul-precision tf32 has no effect here: cuBLASLt and cuDNN multiply TF32, on "
                "CUDA devices; here %s computes, in f32",
                is_fast ? backend->library(p->ctx) : "the reference");
    if (r->dtype == WF_BF16 && is_fast && wfi_backend_bf16_speed(backend) == WFI_BF16_ABSENT)
        wfi_log(p->ctx, WF_LOG_WARN, "kernels",
                "%s does not multiply bf16 on this processor: operands are widened to f32 first, "
                "and a step takes up to 1.3 times as long as with --dtype f32",
                backend->library(p->ctx));
}

static bool is_same(wfi_extent a, wfi_extent b) {
    return a.offset == b.offset && a.bytes == b.bytes;
}

/* The part of the unit's tensor of that kind that the rank is the first to hold. */
static wfi_extent first_held(const wf_program *p, int32_t stage, wfi_block_kind kind, int32_t unit,
                             int32_t rank) {
    const wfi_stage *s = &p->stages[stage];
    int32_t member = wfi_stage_member_on(p, stage, rank);
    const int32_t others[] = {0, member % s->n_parts};
    wfi_extent own = wfi_kept_extent(p, kind, unit, rank);
    if (wfi_unit_rank_of(p, member, unit) != rank) return (wfi_extent){0, 0};
    for (int k = 0; k < 2; k++) {
        int32_t other = wfi_program_rank_of(p, others[k], stage, rank);
        if (others[k] < member && is_same(wfi_kept_extent(p, kind, unit, other), own))
            return (wfi_extent){0, 0};
    }
    return own;
}

int wf_program_n_tuned(const wf_program *p) {
    return p->code->n_tuned;
}

size_t wf_program_save_bytes(const wf_program *p, int rank) {
    const wf_graph *g = p->graph;
    size_t n_states = (size_t)wfi_recipe_n_states(&p->recipe), bytes = 0,
           n_files = wfi_recipe_average(&p->recipe) < 0 ? 2 : 3;
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        bool is_param = value->kind == WFI_VALUE_PARAM;
        if (!is_param && value->kind != WFI_VALUE_BUFFER) continue;
        int32_t stage = wfi_program_stage_of(p, value->unit);
        if (rank < 0 || rank >= p->n_ranks || wfi_stage_member_on(p, stage, rank) < 0) continue;
        wfi_extent whole = {value->offset, wfi_value_bytes(g, v)};
        wfi_block_kind kind = is_param ? WFI_BLOCK_PARAM : WFI_BLOCK_BUFFER;
        /* In the file of weights, in that of their average, and in that of all state. */
        wfi_extent held =
            wfi_extent_intersect(first_held(p, stage, kind, value->unit, rank), whole);
        bytes += n_files * held.bytes;
        if (!is_param || value->is_frozen) continue;
        wfi_extent state = first_held(p, stage, WFI_BLOCK_STATE, value->unit, rank);
        bytes += n_states * wfi_extent_intersect(state, whole).bytes;
    }
    return bytes;
}

size_t wf_program_undo_bytes(const wf_program *p, int rank) {
    size_t bytes = 0;
    for (int s = 0; s < WFI_N_SPACES && rank >= 0 && rank < p->n_ranks; s++)
        bytes += p->ranks[rank].arenas[s].state_bytes;
    return bytes;
}

static bool is_shown(const wf_program *p, int32_t unit, int32_t rank) {
    return wfi_unit_is_on(p, unit, rank) && !wfi_is_emptied(p->graph, unit);
}

static void count_units(const wf_program *p, int32_t rank) {
    wfi_rank *r = &p->ranks[rank];
    for (int32_t k = 0; k < p->n_stages; k++) {
        if (wfi_stage_replica_on(p, k, rank) < 0) continue;
        for (int32_t u = p->first_unit[k]; u < p->first_unit[k + 1]; u++) {
            if (!is_shown(p, u, rank)) continue;
            r->n_parameters += p->code->units[u].n_parameters;
            r->n_units++;
        }
    }
}

void wfi_program_sum_blocks(wf_program *p) {
    for (int32_t k = 0; k < p->n_lowered; k++) count_units(p, p->lowered[k]);
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        wfi_rank *r = &p->ranks[block->rank];
        if (block->name.kind == WFI_BLOCK_STATE && block->is_state)
            r->optimizer_bytes += block->bytes;
        /* Parameters that are gathered several times count once. */
        if (block->name.kind == WFI_BLOCK_PARAM && !block->is_state &&
            block->name.copy != WFI_COPY_PART && block->name.turn <= 1)
            r->copied_bytes += block->bytes;
    }
}

const wf_program *wfi_program_largest(const wf_program *p, wfi_space space, int32_t rank) {
    const wf_program *largest = p;
    for (size_t t = 0; t < WFI_COUNT(p->tests); t++)
        if (p->tests[t] && p->tests[t]->ranks[rank].arenas[space].peak_bytes >
                               largest->ranks[rank].arenas[space].peak_bytes)
            largest = p->tests[t];
    return largest;
}

wf_rank_summary wf_program_rank(const wf_program *p, int rank) {
    if (rank < 0 || rank >= p->n_ranks) return (wf_rank_summary){.peak_unit = ""};
    const wf_program *largest = wfi_program_largest(p, WFI_SPACE_DEVICE, rank);
    const wfi_rank *r = &p->ranks[rank];
    wfi_arena_plan need[WFI_N_SPACES];
    for (int k = 0; k < WFI_N_SPACES; k++)
        need[k] = wfi_program_largest(p, (wfi_space)k, rank)->ranks[rank].arenas[k];
    wf_rank_summary s = {.peak_bytes = need[WFI_SPACE_DEVICE].peak_bytes,
                         .bound_bytes = need[WFI_SPACE_DEVICE].bound_bytes,
                         .state_bytes = r->arenas[WFI_SPACE_DEVICE].state_bytes,
                         .sent_bytes = r->sent_bytes,
                         .received_bytes = r->received_bytes,
                         .host_peak_bytes = need[WFI_SPACE_HOST].peak_bytes,
                         .disk_peak_bytes = need[WFI_SPACE_DISK].peak_bytes,
                         .fetched_bytes = r->fetched_bytes,
                         .evicted_bytes = r->evicted_bytes,
                         .n_parameters = r->n_parameters,
                         .n_units = r->n_units,
                         .peak_unit = ""};
    s.optimizer_bytes = r->optimizer_bytes;
    s.copied_bytes = r->copied_bytes;
    for (int st = 0; st < WFI_N_STREAMS; st++) s.n_instructions += r->n_stream[st];
    s.n_instructions += (int)r->n_repeated;
    int32_t peak = largest->ranks[rank].peak_instruction;
    const wf_program *code = wfi_emitted_of(largest);
    int32_t unit = peak < 0 ? -1 : wfi_rank_named_unit(code, rank, &code->instructions[peak]);
    if (unit >= 0 && s.peak_bytes) s.peak_unit = p->graph->units[unit].name;
    return s;
}

static wf_unit_summary summarize_unit(const wf_program *p, int32_t u) {
    const wfi_unit_code *code = &p->code->units[u];
    wf_unit_summary s = {.name = p->graph->units[u].name,
                         .n_parameters = code->n_parameters,
                         .activation_bytes = code->bytes[WFI_BLOCK_SAVED] +
                                             code->bytes[WFI_BLOCK_SAVED_W] + code->given_bytes,
                         .forward_us = p->costs->units[u].forward_us,
                         .backward_us = p->costs->units[u].backward_us,
                         .weight_us = p->costs->units[u].weight_us,
                         .recompute_us = p->costs->units[u].recompute_us};
    for (int part = 0; part < WFI_N_PARTS; part++) {
        if (!code->part[part]) continue;
        double *flops = part == WFI_PART_F ? &s.forward_flops : &s.backward_flops;
        *flops += code->part[part]->flops;
    }
    return s;
}

int wf_program_units(const wf_program *p, int rank, int first, int n, wf_unit_summary *units_out) {
    int number = 0, n_found = 0;
    bool exists = rank >= 0 && rank < p->n_ranks && first >= 0;
    for (int32_t k = 0; k < p->n_stages && exists && n_found < n; k++) {
        if (wfi_stage_replica_on(p, k, rank) < 0) continue;
        for (int32_t u = p->first_unit[k]; u < p->first_unit[k + 1] && n_found < n; u++)
            if (is_shown(p, u, rank) && number++ >= first)
                units_out[n_found++] = summarize_unit(p, u);
    }
    return n_found;
}

wf_unit_summary wf_program_unit(const wf_program *p, int rank, int unit) {
    wf_unit_summary s = {.name = ""};
    (void)wf_program_units(p, rank, unit, 1, &s);
    return s;
}
