/* Which shapes a model has, and which ways there are to compute each. */
#include "api/tune.h"

#include "base/env.h"
#include "compile/compile.h"

#include <string.h>

/* ---- which there are ---- */

static wf_status add_way(wf_tuning *t, wfi_tuned_shape *s, const wfi_kernel *kernel) {
    char name[WFI_WAY_TEXT];
    wfi_kernel_way_text(kernel, name);
    if (!wfi_tuned_may_name(name, strlen(name), WFI_WAY_TEXT - 2)) return WF_OK;
    for (int k = 0; k < s->n_ways; k++)
        if (!strcmp(s->ways[k].name, name)) return WF_OK;
    WF_TRY(WFI_GROW(t->ctx, s->ways, s->n_ways, s->way_capacity, "ways"));
    s->ways[s->n_ways] = (wfi_tuned_way){.way = kernel->way, .impl = kernel->impl};
    memcpy(s->ways[s->n_ways++].name, name, sizeof name);
    return WF_OK;
}

/* The usual one is the first. */
static wf_status find_ways(wf_tuning *t, wfi_tuned_shape *s) {
    wfi_kernel *kernel;
    WF_TRY(wfi_kernel_create(t->ctx, s->graph, s->node, &t->options, &kernel));
    const wfi_kernel_impl *impl = kernel->impl;
    wf_status status = add_way(t, s, kernel);
    wfi_kernel_destroy(kernel);
    const char *const *forms = s->n_ways ? wfi_forms(impl, s->node->op) : NULL;
    for (int f = 0; status == WF_OK && forms && forms[f]; f++)
        for (wfi_way at = {f, 0}; status == WF_OK; at.number++) {
            status =
                wfi_kernel_create_way(t->ctx, s->graph, s->node, &t->options, impl, at, &kernel);
            if (status != WF_OK || !kernel) break;
            status = add_way(t, s, kernel);
            wfi_kernel_destroy(kernel);
        }
    return status;
}

static wf_status add_node(wf_tuning *t, const wf_graph *g, const wfi_node *node) {
    char text[WFI_NODE_TEXT];
    if (!*wfi_node_text(g, node, text)) return WF_OK;
    for (int k = 0; k < t->n_shapes; k++)
        if (!strcmp(t->shapes[k].text, text)) {
            t->shapes[k].n_nodes++;
            return WF_OK;
        }
    WF_TRY(WFI_GROW(t->ctx, t->shapes, t->n_shapes, t->shape_capacity, "shapes"));
    wfi_tuned_shape *s = &t->shapes[t->n_shapes++];
    *s = (wfi_tuned_shape){.graph = g, .node = node, .n_nodes = 1, .chosen = -1};
    memcpy(s->text, text, sizeof text);
    return find_ways(t, s);
}

wf_status wfi_tuning_check_stop(const wf_tuning *t) {
    return t->stop && t->stop(t->stop_argument)
               ? wfi_fail(t->ctx, WF_INTERRUPTED, "tuning: stopped on request")
               : WF_OK;
}

static wf_status find_shapes(wf_tuning *t) {
    for (int32_t v = 0; v < t->program->n_variants; v++) {
        const wf_graph *g = t->program->variants[v].graph;
        for (int32_t n = 0; n < g->n_nodes; n++) {
            WF_TRY(wfi_tuning_check_stop(t));
            if (!g->nodes[n].dead && !wfi_node_is_alias(g, &g->nodes[n]))
                WF_TRY(add_node(t, g, &g->nodes[n]));
        }
    }
    int n_left = 0; /* those of which there is something to choose */
    for (int k = 0; k < t->n_shapes; k++) {
        wfi_tuned_shape s = t->shapes[k];
        if (s.n_ways > 1)
            t->shapes[n_left++] = s;
        else
            wfi_free(t->ctx, s.ways);
    }
    t->n_shapes = n_left;
    return WF_OK;
}

/* ---- life ---- */

static wf_status enter(void *self, void *argument) {
    const wf_tuning *t = self;
    int ignored;
    (void)argument;
    return wfi_backend_enter(t->options.backend, t->ctx, 0, t->options.n_threads, &ignored);
}

static wf_status open(wf_tuning *t) {
    WF_TRY(wfi_env_count(t->ctx, WFI_WEFT_TIMEOUT_MS, &t->owner.timeout_ms));
    WF_TRY(wfi_device_create(&t->owner, t->options.backend->device, 0, 1, &t->device));
    WF_TRY(wfi_stream_create(t->device, wfi_stream_name(WFI_STREAM_COMPUTE), 0, NULL, &t->stream));
    WF_TRY(wfi_stream_push(t->stream, enter, t, NULL));
    WF_TRY(wfi_event_wait(wfi_stream_record(t->stream)));
    return wfi_owner_check(&t->owner);
}

wf_status wf_tuning_create(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                           const wf_plan *plan, int (*stop)(void *argument), void *argument,
                           wf_tuning **tuning_out) {
    WF_TRY(wfi_check_struct(ctx, recipe, sizeof *recipe, "wf_recipe"));
    if (wfi_plan_mixes_kinds(plan))
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "tuning: a table is for one kind of device; give devices of one kind");
    wf_recipe untuned = *recipe;
    untuned.tuned = NULL;
    wf_tuning *t = wfi_alloc(ctx, 1, sizeof *t, "a tuning");
    if (!t) return WF_NO_MEMORY;
    t->ctx = ctx;
    t->stop = stop;
    t->stop_argument = argument;
    t->owner = (wfi_owner){.ctx = ctx, .failure = &t->failure};
    wf_status status = wf_program_create(ctx, model, &untuned, plan, WF_PROGRAM_TRAIN, &t->program);
    if (status == WF_OK) {
        t->options = wfi_program_kernel_options(t->program, 0);
        status = find_shapes(t);
    }
    if (status == WF_OK) status = open(t);
    if (status != WF_OK) {
        wf_tuning_destroy(t);
        return status;
    }
    *tuning_out = t;
    return WF_OK;
}

void wf_tuning_destroy(wf_tuning *t) {
    if (!t) return;
    if (t->stream) wfi_stream_finish(t->stream);
    wfi_stream_destroy(t->stream);
    wfi_device_destroy(t->device);
    for (int k = 0; k < t->n_shapes; k++) wfi_free(t->ctx, t->shapes[k].ways);
    wfi_free(t->ctx, t->shapes);
    wf_program_destroy(t->program);
    wfi_free(t->ctx, t);
}

int wf_tuning_n_shapes(const wf_tuning *t) {
    return t->n_shapes;
}

wf_tuned_shape wf_tuning_shape(const wf_tuning *t, int number) {
    if (number < 0 || number >= t->n_shapes) return (wf_tuned_shape){0};
    const wfi_tuned_shape *s = &t->shapes[number];
    return (wf_tuned_shape){s->text, s->n_nodes, s->n_ways, s->usual, s->chosen};
}

wf_tuned_way wf_tuning_way(const wf_tuning *t, int number, int place) {
    if (number < 0 || number >= t->n_shapes) return (wf_tuned_way){0};
    const wfi_tuned_shape *s = &t->shapes[number];
    if (place < 0 || place >= s->n_ways) return (wf_tuned_way){0};
    return (wf_tuned_way){s->ways[place].name, s->ways[place].time_us, s->ways[place].is_wrong};
}
