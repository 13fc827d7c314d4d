/* Initial state: element i of a parameter is a function of (seed, name, i) alone, so
 * it is the same under every plan. The streams are idle meanwhile. */
#include "base/random.h"
#include "run/trainer.h"

#include <string.h>

const wfi_block *wfi_state_home(const wf_program *p, wfi_block_kind kind, int32_t unit) {
    int32_t home = wfi_program_rank_of(p, 0, wfi_program_stage_of(p, unit));
    for (int32_t b = 0; b < p->n_blocks; b++)
        if (p->blocks[b].rank == home && p->blocks[b].kind == kind && p->blocks[b].id == unit &&
            p->blocks[b].is_state)
            return &p->blocks[b];
    return NULL;
}

static char *block_address(const wf_trainer *t, const wfi_block *block) {
    return t->workers[block->rank].base + block->offset;
}

void *wfi_trainer_address(const wf_trainer *t, int32_t v) {
    const wf_program *p = t->ready[0]->program;
    const wfi_value *value = wfi_value_at(p->graph, v);
    wfi_block_kind kind = value->kind == WFI_VALUE_PARAM ? WFI_BLOCK_PARAM : WFI_BLOCK_BUFFER;
    return block_address(t, wfi_state_home(p, kind, value->unit)) + value->offset;
}

void *wfi_trainer_state_address(const wf_trainer *t, int32_t v, int i) {
    const wf_program *p = t->ready[0]->program;
    const wfi_value *value = wfi_value_at(p->graph, v);
    return block_address(t, wfi_state_home(p, WFI_BLOCK_STATE, value->unit)) +
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

static wf_status initialise(void *self) {
    wf_trainer *t = self;
    const wf_program *p = t->ready[0]->program;
    const wf_graph *g = p->graph;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        if (!block->is_state || wfi_state_home(p, block->kind, block->id) != block) continue;
        memset(block_address(t, block), 0, block->bytes);
    }
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        if (value->kind == WFI_VALUE_PARAM || value->kind == WFI_VALUE_BUFFER)
            fill(t, value, wfi_trainer_address(t, v));
    }
    return WF_OK;
}

wf_status wfi_trainer_initialise(wf_trainer *t) {
    return wfi_trainer_alone(t, "initialise", WFI_STATE_WRITE, initialise, t);
}
