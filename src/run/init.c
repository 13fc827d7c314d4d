/* Initial state: element i of a parameter is a function of (seed, name, i) alone, so
 * it is the same under every plan. Runs on the copy stream, like all that writes the
 * arena. */
#include "base/random.h"
#include "run/trainer.h"

#include <string.h>

static const wfi_block *find_block(const wf_program *p, wfi_block_kind kind, int32_t unit) {
    for (int32_t b = 0; b < p->n_blocks; b++)
        if (p->blocks[b].kind == kind && p->blocks[b].id == unit && p->blocks[b].is_state)
            return &p->blocks[b];
    return NULL;
}

void *wfi_trainer_address(const wf_trainer *t, int32_t v) {
    const wf_program *p = t->ready[0]->program;
    const wfi_value *value = wfi_value_at(p->graph, v);
    wfi_block_kind kind = value->kind == WFI_VALUE_PARAM ? WFI_BLOCK_PARAM : WFI_BLOCK_BUFFER;
    return t->base + find_block(p, kind, value->unit)->offset + value->offset;
}

void *wfi_trainer_state_address(const wf_trainer *t, int32_t v, int i) {
    const wf_program *p = t->ready[0]->program;
    const wfi_value *value = wfi_value_at(p->graph, v);
    return t->base + find_block(p, WFI_BLOCK_STATE, value->unit)->offset +
           (size_t)i * p->graph->units[value->unit].param_bytes + value->offset;
}

static void fill(const wf_trainer *t, const wfi_value *value, void *data) {
    int64_t n = wf_shape_n_elem(&value->shape);
    if (value->dtype == WF_I64) {
        int64_t *integers = data;
        for (int64_t i = 0; i < n; i++) integers[i] = (int64_t)value->init.value;
        return;
    }
    float *floats = data, a = value->init.value;
    wfi_random_key key = {t->recipe.seed, wfi_random_name(value->name)};
    switch (value->init.kind) {
    case WF_INIT_CONSTANT:
        for (int64_t i = 0; i < n; i++) floats[i] = a;
        break;
    case WF_INIT_UNIFORM:
        wfi_random_fill_uniform(key, 0, 0, n, floats);
        for (int64_t i = 0; i < n; i++) floats[i] = (2 * floats[i] - 1) * a;
        break;
    case WF_INIT_NORMAL:
        wfi_random_fill_normal(key, 0, a, n, floats);
        break;
    }
}

static wf_status initialise(void *self, void *argument) {
    (void)argument;
    wf_trainer *t = self;
    const wf_program *p = t->ready[0]->program;
    const wf_graph *g = p->graph;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        if (!p->blocks[b].is_state) continue;
        memset(t->base + p->blocks[b].offset, 0, p->blocks[b].bytes);
    }
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        if (value->kind == WFI_VALUE_PARAM || value->kind == WFI_VALUE_BUFFER)
            fill(t, value, wfi_trainer_address(t, v));
    }
    return WF_OK;
}

wf_status wfi_trainer_initialise(wf_trainer *t) {
    return wfi_stream_call(t->streams[WFI_STREAM_COPY], initialise, t, NULL);
}
