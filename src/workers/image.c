#include "workers/image.h"
#include "program/stage.h"

#include <string.h>

static wfi_block_kind kind_of(wfi_image image) {
    static const wfi_block_kind kinds[] = {[WFI_IMAGE_PARAMETERS] = WFI_BLOCK_PARAM,
                                           [WFI_IMAGE_GRADIENTS] = WFI_BLOCK_GRADIENT,
                                           [WFI_IMAGE_STATES] = WFI_BLOCK_STATE,
                                           [WFI_IMAGE_BUFFERS] = WFI_BLOCK_BUFFER};
    return kinds[image];
}

static bool is_wanted(const wf_program *p, const wfi_block *b, wfi_image image, int32_t unit) {
    if (b->name.kind != kind_of(image) || b->name.owner != unit) return false;
    return image == WFI_IMAGE_GRADIENTS ? wfi_is_summed(p, b) : b->is_state;
}

static const wfi_block *find(const wf_program *p, wfi_image image, int32_t unit) {
    for (int32_t b = 0; b < p->n_blocks; b++)
        if (is_wanted(p, &p->blocks[b], image, unit)) return &p->blocks[b];
    return NULL;
}

/* The unit's range within the whole vector, and the place of its elements in the block. */
typedef struct stretch {
    size_t begin, end; /* of the image, in its elements */
    size_t size, skip; /* bytes of an element, and before the first one in the block */
} stretch;

static stretch stretch_of(const wfi_vector *l, wfi_image image, int state, int32_t u) {
    if (image == WFI_IMAGE_BUFFERS)
        return (stretch){l->first_buffer[u], l->first_buffer[u + 1], 1, 0};
    size_t n = l->first[u + 1] - l->first[u];
    return (stretch){l->first[u], l->first[u + 1], sizeof(float),
                     (size_t)state * n * sizeof(float)};
}

wf_status wfi_image_move(const wf_trainer *t, const wfi_vector *l, wfi_image image, int state,
                         size_t first, size_t end, void *host, bool reads) {
    const wf_program *p =
        image == WFI_IMAGE_GRADIENTS ? t->ran_last->program : t->ready[0]->program;
    const wfi_worker *w = t->workers;
    for (int32_t u = 0; u < l->n_units; u++) {
        stretch s = stretch_of(l, image, state, u);
        size_t begin = s.begin > first ? s.begin : first, last = s.end < end ? s.end : end;
        if (begin >= last) continue;
        const wfi_block *b = find(p, image, u);
        if (!b) return wfi_fail(t->ctx, WF_BUG, "workers: a unit has no memory to copy");
        char *there = w->arenas[b->space].base + b->offset + s.skip + (begin - s.begin) * s.size;
        char *here = (char *)host + (begin - first) * s.size;
        size_t bytes = (last - begin) * s.size;
        WF_TRY(
            reads ? wfi_memory_copy(w->copier, NULL, here, WFI_SPACE_HOST, there, b->space, bytes)
                  : wfi_memory_copy(w->copier, NULL, there, b->space, here, WFI_SPACE_HOST, bytes));
    }
    return WF_OK;
}

size_t wfi_image_bytes(const wfi_vector *l, wfi_image image) {
    size_t n = wfi_vector_n(l) * sizeof(float);
    if (image == WFI_IMAGE_BUFFERS) return wfi_vector_buffer_bytes(l);
    return image == WFI_IMAGE_STATES ? n * (size_t)wfi_recipe_n_states(&l->program->recipe) : n;
}

/* ---- statistics ---- */

static const wfi_block *find_stats(const wf_program *p, int32_t unit, int64_t micro) {
    for (int32_t b = 0; b < p->n_blocks; b++)
        if (p->blocks[b].name.kind == WFI_BLOCK_STATS && p->blocks[b].name.owner == unit &&
            p->blocks[b].name.micro == micro)
            return &p->blocks[b];
    return NULL;
}

static wf_status read_stat(const wf_trainer *t, const wfi_vector *l, int64_t micro, int32_t s,
                           float *to) {
    const wf_program *p = t->ran_last->program;
    const wfi_stat *stat = &wfi_program_graph_of(p, micro)->stats[s];
    const wfi_place *place = wfi_program_code_of(p, micro)->place;
    const wfi_block *b = find_stats(p, stat->unit, micro);
    const wfi_worker *w = t->workers;
    size_t bytes = l->stats[s].n * sizeof(float);
    if (!b) return wfi_fail(t->ctx, WF_BUG, "workers: a statistic has no memory to copy");
    const char *from = w->arenas[b->space].base + b->offset;
    WF_TRY(wfi_memory_copy(w->copier, NULL, to + l->stats[s].at, WFI_SPACE_HOST,
                           from + place[stat->mean].offset, b->space, bytes));
    return wfi_memory_copy(w->copier, NULL, to + l->stats[s].at + l->stats[s].n, WFI_SPACE_HOST,
                           from + place[stat->var].offset, b->space, bytes);
}

wf_status wfi_image_read_stats(const wf_trainer *t, const wfi_vector *l, float *to) {
    const wf_program *p = t->ran_last->program;
    for (int64_t m = 0; m < l->n_micro; m++) {
        for (int32_t s = 0; s < l->n_stats; s++) {
            int64_t n = wfi_program_graph_of(p, m)->stats[s].n_reduced;
            WF_TRY(read_stat(t, l, m, s, to));
            memcpy(to + l->n_stat_floats + 2 * s, &n, sizeof n);
        }
        to += l->n_stat_floats + 2 * (size_t)l->n_stats;
    }
    return WF_OK;
}
