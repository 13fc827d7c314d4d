/* From model, recipe and plan to a checked program. */
#include "base/env.h"
#include "compile/compile.h"
#include "compile/recompute.h"
#include "compile/short_form.h"
#include "layout/layout.h"
#include "lower/lower.h"
#include "lower/schedule.h"
#include "nn/model.h"
#include "pass/pass.h"
#include "program/map.h"
#include "program/stage.h"
#include "prove/actions.h"
#include "prove/prove.h"
#include "show/show.h"

#include <string.h>

static wf_status check_rows(const wf_program *p, const wf_graph *g) {
    if (g->has_uneven_rows)
        return wfi_fail(p->ctx, WF_INVALID_ARG,
                        "plan: sp, but slices=%d do not divide the tokens of a sample into parts "
                        "that begin at a cache line; choose other --tokens, or leave sp out",
                        (int)g->n_slices);
    return WF_OK;
}

static void warn_without_rows(const wf_program *p) {
    bool has_rows = false;
    for (int32_t u = 0; u < p->graph->n_units; u++) has_rows |= p->graph->units[u].is_rows;
    if (p->plan->divides_rows && !has_rows && wfi_updates(p))
        wfi_log(p->ctx, WF_LOG_WARN, "plan",
                "sp divides nothing in this model: it has no norm or sum next to its pairs");
}

static wf_status create_graph(wf_program *p, int64_t n_samples, wf_graph **graph_out) {
    wf_graph_config config = WF_GRAPH_CONFIG_INIT;
    config.batch = n_samples;
    config.training = wfi_differentiates(p);
    config.freeze = p->recipe.freeze.text;
    config.lr_scale = p->recipe.lr_scale.text;
    WF_TRY(wfi_graph_create(p->ctx, &config, (int32_t)p->recipe.n_slices, p->plan->n_rules > 0,
                            p->model->function, p->model->config, graph_out));
    if (p->plan->divides_rows)
        WF_TRY(check_rows(p, *graph_out));
    else
        WF_TRY(wfi_graph_join_rows(*graph_out));
    bool has_layouts = p->backend->has_layouts && !wfi_plan_mixes_kinds(p->plan);
    if (p->recipe.kernels == WF_KERNELS_FAST && has_layouts) WF_TRY(wfi_graph_layout(*graph_out));
    WF_TRY(wfi_graph_cast(*graph_out, p->recipe.dtype));
    return config.training ? wfi_plan_recompute(p->plan, *graph_out) : WF_OK;
}

/* The same model gives the same graph for every size, as long as it does not look at it. */
static bool same_graph(const wf_graph *a, const wf_graph *b) {
    bool same = a->n_nodes == b->n_nodes && a->n_values == b->n_values && a->n_units == b->n_units;
    for (int32_t n = 0; n < a->n_nodes && same; n++)
        same = a->nodes[n].op == b->nodes[n].op && a->nodes[n].unit == b->nodes[n].unit &&
               a->nodes[n].dead == b->nodes[n].dead;
    return same;
}

static wf_status add_variant(wf_program *p, int64_t n_samples, int64_t first_micro) {
    wfi_micro_variant *v = &p->variants[p->n_variants++];
    v->first_micro = first_micro;
    return create_graph(p, n_samples, &v->graph);
}

static wf_status create_graphs(wf_program *p) {
    const wf_recipe *r = &p->recipe;
    int64_t n_least = r->batch / r->n_micro, n_larger = r->batch % r->n_micro;
    if (n_larger) WF_TRY(add_variant(p, n_least + 1, 0));
    WF_TRY(add_variant(p, n_least, n_larger));
    p->graph = p->variants[0].graph;
    if (same_graph(p->graph, p->variants[p->n_variants - 1].graph)) return WF_OK;
    return wfi_fail(
        p->ctx, WF_UNSUPPORTED,
        "the model builds other ops for %lld samples than for %lld, so its microbatches "
        "have to be equal: choose --micro so that it divides the batch of %lld",
        (long long)n_least, (long long)n_least + 1, (long long)r->batch);
}

static const wfi_backend *backend_of(const wf_program *p, int32_t unit) {
    return p->unit_backends ? p->unit_backends[unit] : p->backend;
}

wfi_kernel_options wfi_program_kernel_options(const wf_program *p, int32_t unit) {
    const wf_recipe *r = &p->recipe;
    const wfi_backend *backend = backend_of(p, unit);
    return (wfi_kernel_options){.backend = backend,
                                .n_threads = r->n_threads,
                                .conv = r->conv,
                                .tuned = r->tuned,
                                .reference = r->kernels == WF_KERNELS_REFERENCE,
                                .multiplies_bf16 = wfi_backend_bf16_speed(backend) == WFI_BF16_FAST,
                                .multiplies_tf32 = r->matmul_precision == WF_MATMUL_TF32};
}

wf_status wfi_program_copy_code(const wf_program *p, int32_t variant, wfi_code **code_out) {
    const wf_graph *g = p->variants[variant].graph;
    bool splits = wfi_differentiates(p) && p->plan->schedule->splits_weight;
    wfi_kernel_options *options =
        wfi_alloc(p->ctx, (size_t)g->n_units, sizeof *options, "a program's code");
    if (!options) return WF_NO_MEMORY;
    for (int32_t u = 0; u < g->n_units; u++) { /* they look at the processor, which takes long */
        bool is_same = u > 0 && options[u - 1].backend == backend_of(p, u);
        options[u] = is_same ? options[u - 1] : wfi_program_kernel_options(p, u);
    }
    bool is_run = p->use >= WFI_USE_RUN;
    wf_status status =
        wfi_code_create(p->ctx, g, splits, is_run, variant, p->gap_bytes, options, code_out);
    wfi_free(p->ctx, options);
    return status;
}

static wf_status compile_code(wf_program *p) {
    for (int32_t v = 0; v < p->n_variants; v++) {
        wfi_code_destroy(p->variants[v].code);
        p->variants[v].code = NULL;
        WF_TRY(wfi_program_copy_code(p, v, &p->variants[v].code));
    }
    p->code = p->variants[0].code;
    return WF_OK;
}

/* Where stages are on devices of several kinds: until they are cut, all code is the CPU's, which
 * has a kernel for everything; then each unit's is made again for the ranks that it is on. */
static wf_status compile_for_stages(wf_program *p) {
    size_t n_units = (size_t)p->graph->n_units;
    p->unit_backends = wfi_pool_alloc(&p->pool, n_units, sizeof *p->unit_backends);
    if (!p->unit_backends) return WF_NO_MEMORY;
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        int32_t rank = wfi_program_rank_of(p, 0, wfi_program_stage_of(p, u), 0);
        p->unit_backends[u] = wfi_backend_of(wfi_plan_device(p->plan, rank).kind);
    }
    return compile_code(p);
}

static void borrow_parts(wf_program *p, const wf_program *parts) {
    p->parts = parts;
    p->model = parts->model;
    memcpy(p->variants, parts->variants, sizeof p->variants);
    p->n_variants = parts->n_variants;
    p->graph = parts->graph;
    p->code = parts->code;
    p->costs = parts->costs;
}

static wf_status make_parts(wf_program *p, const wf_model *model, const wf_plan *plan,
                            const wf_program *like) {
    WF_TRY(wfi_model_copy(model, &p->model));
    WFI_PROGRESS(p->ctx, "building the graph");
    WF_TRY(create_graphs(p));
    WF_TRY(wfi_plan_costs(plan, p->graph, &p->costs));
    WFI_PROGRESS(p->ctx, "describing the kernels of %d units", p->graph->n_units);
    WF_TRY(compile_code(p));
    if (wfi_differentiates(p) && wfi_plan_chooses_chunks(p->plan) && !like) {
        WF_TRY(wfi_program_choose_chunks(p));
        if (p->code->splits_weight != p->plan->schedule->splits_weight) WF_TRY(compile_code(p));
    }
    return WF_OK;
}

static wf_status begin(wf_program *p, const wf_model *model, const wf_plan *plan,
                       const wf_program *like, const wf_program *parts) {
    int64_t gap_bytes;
    WF_TRY(wfi_env_count(p->ctx, WFI_WEFT_ARENA_GAP, &gap_bytes));
    p->gap_bytes = wfi_round_up((size_t)gap_bytes, WFI_ALIGN_BYTES);
    WF_TRY(wfi_plan_copy(plan, &p->plan));
    if (parts)
        borrow_parts(p, parts);
    else
        WF_TRY(make_parts(p, model, plan, like));
    WF_TRY(wfi_program_map(p, like));
    if (wfi_plan_mixes_kinds(p->plan)) WF_TRY(compile_for_stages(p));
    return wfi_program_find_classes(p);
}

/* Ranks and groups are the same in both. */
static wf_status take_shorter(wf_program *p, wfi_short_form *form) {
    wf_program *s = form->shorter;
    WF_TRY(wfi_short_form_mark(form));
    p->shorter = s;
    form->shorter = NULL;
    wfi_program_sum_blocks(s);
    WF_TRY(wfi_program_count_traffic(s));
    for (int32_t r = 0; r < p->n_ranks; r++) p->ranks[r] = s->ranks[r];
    return p->use == WFI_USE_DRAFT ? WF_OK : wfi_program_check_ordered(s);
}

static wf_status compile(wf_program *p, wfi_pool *pool, const wfi_action_list *lists,
                         wfi_short_form *form) {
    /* Ranks that share cores are simulated with all instructions. */
    bool fits, is_short = p->use <= WFI_USE_LOOK_SHORT && !p->costs->shares_cores;
    if (is_short || p->use != WFI_USE_DRAFT) WF_TRY(wfi_short_form_find(p, pool, lists, form));
    if (form->shorter && is_short) return take_shorter(p, form);
    if (!form->shorter) WF_TRY(wfi_sequence_make(p, pool, lists, false, &form->sequence));
    WF_TRY(wfi_program_lower(p, lists, &form->sequence));
    WFI_PROGRESS(p->ctx, "ordering %d instructions", p->n_instructions);
    WF_TRY(wfi_program_depend(p));
    WF_TRY(wfi_program_order(p));
    WF_TRY(form->shorter ? wfi_short_form_copy(form, p) : wfi_program_place(p, NULL, 0, 0, &fits));
    if (p->use == WFI_USE_DRAFT) return WF_OK;
    wfi_program_sum_blocks(p);
    WF_TRY(wfi_program_count_traffic(p));
    return wfi_program_check_ordered(p);
}

wf_status wfi_program_compile(wf_program *p, const wfi_action_list *lists) {
    wfi_short_form form = {0};
    wfi_pool pool;
    wfi_pool_init(&pool, p->ctx);
    wf_status status = compile(p, &pool, lists, &form);
    wfi_program_end_shorter(form.shorter);
    wfi_pool_release(&pool);
    return status;
}

static wf_status begin_with(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                            const wf_plan *plan, const wfi_backend *backend, wf_program_kind kind,
                            wfi_program_use use, const wf_program *like, const wf_program *parts,
                            wf_program **program_out) {
    WF_TRY(wfi_check_struct(ctx, recipe, sizeof *recipe, "wf_recipe"));
    if ((int)kind < 0 || kind > WF_PROGRAM_GRADIENT)
        return wfi_fail(ctx, WF_INVALID_ARG, "%d is not a kind of program", (int)kind);
    wf_recipe resolved = *recipe;
    if (!wfi_properties_of(kind).differentiates) {
        /* A forward run has one microbatch; the training recipe's number is ignored. */
        resolved.n_micro = resolved.n_lanes = 1;
        WF_TRY(wfi_recipe_resolve_forward(ctx, &resolved, model, plan, &resolved));
    } else {
        WF_TRY(wf_recipe_resolve(ctx, &resolved, model, plan, &resolved));
    }
    wf_program *p = wfi_alloc(ctx, 1, sizeof *p, "a program");
    if (!p) return WF_NO_MEMORY;
    p->ctx = ctx;
    p->kind = kind;
    p->recipe = resolved;
    p->use = use;
    p->backend = wfi_plan_mixes_kinds(plan) ? wfi_backend_of(&wfi_device_cpu) : backend;
    p->like = like;
    wfi_pool_init(&p->pool, ctx);
    wf_status status = begin(p, model, plan, like, parts);
    if (status != WF_OK) {
        wf_program_destroy(p);
        return status;
    }
    *program_out = p;
    return WF_OK;
}

wf_status wfi_program_begin(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                            const wf_plan *plan, const wfi_backend *backend, wf_program_kind kind,
                            wfi_program_use use, const wf_program *like, wf_program **program_out) {
    return begin_with(ctx, model, recipe, plan, backend, kind, use, like, NULL, program_out);
}

/* Programs that work on the same arena have their state in the same places. A rank that was not
 * lowered has it where the one is that it is like. */
static wf_status same_state(const wf_program *p, const wf_program *like) {
    like = wfi_emitted_of(like);
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        bool is_own = block->name.kind == WFI_BLOCK_HIDDEN && !wfi_differentiates(p);
        bool found = !block->is_state || is_own;
        const wfi_rank *rank = &like->ranks[block->rank];
        for (int32_t k = rank->first_block; k < rank->end_block && !found; k++) {
            const wfi_block *other = &like->blocks[k];
            found = other->is_state && other->name.kind == block->name.kind &&
                    wfi_rank_unit(like, block->rank, other->name.owner) == block->name.owner &&
                    other->offset == block->offset && other->bytes == block->bytes;
        }
        if (!found)
            return wfi_fail(p->ctx, WF_BUG, "rank %d has the %s of unit %s at another place",
                            block->rank, wfi_block_kind_name(block->name.kind),
                            p->graph->units[block->name.owner].name);
    }
    return WF_OK;
}

/* Recipes and plans of several sets of parameters, or that are not complete. */
static wf_status check_form(const wf_recipe *recipe, const wf_plan *plan, wf_program_kind kind) {
    bool is_several = recipe->update != WF_UPDATE_SYNC && kind != WF_PROGRAM_FORWARD;
    if (is_several || plan->n_servers)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "a program has one set of parameters; update=async with its ps=, and "
                        "update=local, are of wf_workers_create (weft train, weft plan)");
    if (!plan->measures_lanes) return WF_OK;
    return wfi_fail(plan->ctx, WF_INVALID_ARG,
                    "plan: lanes=measured stands for shares that are still to be measured "
                    "(wf_plan_measure_lanes)");
}

static wf_status schedule_and_compile(wf_program *p) {
    wfi_action_list *lists;
    WFI_PROGRESS(p->ctx, "scheduling %d ranks", p->n_ranks);
    WF_TRY(wfi_program_schedule(p, &lists));
    wf_status status = wfi_program_check_actions(p, lists);
    if (status == WF_OK) status = wfi_program_compile(p, lists);
    wfi_schedule_free(p->ctx, lists, p->n_ranks);
    return status;
}

wf_status wfi_program_create(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                             const wf_plan *plan, const wfi_backend *backend, wf_program_kind kind,
                             wfi_program_use use, const wf_program *like,
                             wf_program **program_out) {
    wf_program *p;
    bool chooses = kind != WF_PROGRAM_FORWARD && wfi_plan_chooses_recompute(plan);
    if (like) plan = like->plan; /* where all has been chosen */
    WF_TRY(check_form(recipe, plan, kind));
    WF_TRY(wfi_program_begin(ctx, model, recipe, plan, backend, kind, use, like, &p));
    wf_status status = schedule_and_compile(p);
    if (status == WF_OK && like) status = same_state(p, like);
    if (status == WF_OK && chooses && !like) status = wfi_program_choose_recompute(&p);
    p->like = NULL;
    if (status != WF_OK) {
        wf_program_destroy(p);
        return status;
    }
    warn_without_rows(p); /* a refused plan gets one sentence */
    *program_out = p;
    return WF_OK;
}

wf_status wfi_program_draft(const wf_program *of, const wf_plan *plan, const wf_program *parts,
                            wf_program **draft_out) {
    wf_program *p;
    WF_TRY(begin_with(of->ctx, of->model, &of->recipe, plan, of->backend, of->kind, WFI_USE_DRAFT,
                      NULL, parts, &p));
    wf_status status = schedule_and_compile(p);
    if (status == WF_OK)
        *draft_out = p;
    else
        wf_program_destroy(p);
    return status;
}

wf_status wf_program_create(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                            const wf_plan *plan, wf_program_kind kind, wf_program **program_out) {
    return wfi_program_create(ctx, model, recipe, plan,
                              wfi_backend_of(wfi_plan_device(plan, 0).kind), kind, WFI_USE_LOOK,
                              NULL, program_out);
}

wf_status wf_program_create_short(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                                  const wf_plan *plan, wf_program_kind kind,
                                  wf_program **program_out) {
    return wfi_program_create(ctx, model, recipe, plan,
                              wfi_backend_of(wfi_plan_device(plan, 0).kind), kind,
                              WFI_USE_LOOK_SHORT, NULL, program_out);
}

wf_status wf_program_create_full(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                                 const wf_plan *plan, wf_program_kind kind,
                                 wf_program **program_out) {
    return wfi_program_create(ctx, model, recipe, plan,
                              wfi_backend_of(wfi_plan_device(plan, 0).kind), kind,
                              WFI_USE_LOOK_AT_ALL, NULL, program_out);
}

wf_status wf_program_create_like(const wf_program *like, wf_program_kind kind, int64_t n_samples,
                                 wf_program **program_out) {
    wf_recipe recipe = like->recipe;
    recipe.batch = n_samples;
    return wfi_program_create(like->ctx, like->model, &recipe, like->plan, like->backend, kind,
                              like->use, like, program_out);
}

wf_status wf_program_plan_tests(wf_program *p, int64_t n_samples, int64_t n_at_once) {
    int64_t most = n_at_once ? n_at_once : p->recipe.batch / p->recipe.n_micro;
    int64_t piece = wfi_min_i64(most, n_samples);
    if (n_samples < 0 || n_at_once < 0 || p->tests[0])
        return wfi_fail(p->ctx, WF_INVALID_ARG,
                        "a program's tests: %lld samples, %lld at once, planned once",
                        (long long)n_samples, (long long)n_at_once);
    p->n_test = n_samples;
    p->n_at_once = n_at_once;
    if (!piece) return WF_OK;
    WF_TRY(wf_program_create_like(p, WF_PROGRAM_FORWARD, piece, &p->tests[0]));
    if (n_samples % piece == 0) return WF_OK;
    return wf_program_create_like(p, WF_PROGRAM_FORWARD, n_samples % piece, &p->tests[1]);
}

void wf_program_destroy(wf_program *p) {
    if (!p) return;
    for (size_t t = 0; t < WFI_COUNT(p->tests); t++) wf_program_destroy(p->tests[t]);
    wfi_program_end_shorter(p->shorter);
    for (int32_t v = 0; v < p->n_variants && !p->parts; v++) {
        wfi_code_destroy(p->variants[v].code);
        wf_graph_destroy(p->variants[v].graph);
    }
    if (!p->parts) {
        wf_model_destroy(p->model);
        wf_costs_destroy(p->costs);
    }
    wf_plan_destroy(p->plan);
    wfi_free(p->ctx, p->blocks);
    wfi_free(p->ctx, p->instructions);
    wfi_free(p->ctx, p->clock);
    wfi_free(p->ctx, p->order);
    wfi_pool_release(&p->pool);
    wfi_free(p->ctx, p);
}
