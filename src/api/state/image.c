/* The complete state as an image in memory that all processes of a job share.
 *
 * Each process copies pieces of its ranks to the place that their tensors have in every image, so
 * the image does not depend on the plan. Replicas take turns with the tensors that all of them
 * hold. An image is whole when the entries of all processes have its step. */
#include "api/state/state.h"
#include "base/hash.h"

#include <string.h>

#define MAGIC UINT64_C(0x77656674696D6701)
#define NONE  (-1)

typedef struct image_entry {
    int64_t step; /* atomic access; NONE: the process is not done */
    uint64_t sum; /* of the bytes that the process has copied */
} image_entry;

typedef struct image_head {
    uint64_t magic;
    uint64_t hash; /* of the tensors and the order of sums */
    int64_t n_steps, n_entries;
    wfi_plateau plateau;
    image_entry entries[WFI_CONTROL_RANKS];
} image_head;

#define HEAD_BYTES ((size_t)32768)
_Static_assert(sizeof(image_head) <= HEAD_BYTES, "the head has its place");

/* ---- layout ---- */

static size_t bytes_of(const wf_program *p, int32_t v) {
    const wfi_value *value = wfi_value_at(p->graph, v);
    size_t n_samples = (size_t)(value->kind == WFI_VALUE_HIDDEN ? value->shape.dim[0] : 1);
    size_t bytes = wfi_value_bytes(p->graph, v) / n_samples;
    if (value->kind == WFI_VALUE_HIDDEN) bytes *= (size_t)p->recipe.batch;
    return wfi_round_up(bytes, WFI_ALIGN_BYTES);
}

size_t wf_program_image_bytes(const wf_program *p) {
    size_t n_states = (size_t)wfi_recipe_n_states(&p->recipe), bytes = HEAD_BYTES;
    for (int32_t v = 0; v < p->graph->n_values; v++) {
        const wfi_value *value = wfi_value_at(p->graph, v);
        bool is_hidden = value->kind == WFI_VALUE_HIDDEN;
        if (!wfi_value_is_state(value) && !is_hidden) continue;
        bool is_trained = value->kind != WFI_VALUE_BUFFER && !value->is_frozen && !is_hidden;
        bytes += (is_trained ? 1 + n_states : 1) * bytes_of(p, v);
    }
    return bytes;
}

/* Fills x->at; *hash_out is that of the layout. */
static wf_status lay_out(wfi_state_call *x, uint64_t *hash_out) {
    char sums[WFI_SUMS_BYTES];
    size_t at = HEAD_BYTES;
    x->at = wfi_pool_alloc(&x->pool, (size_t)x->list.n_tensors, sizeof *x->at);
    if (!x->at) return WF_NO_MEMORY;
    wfi_state_sums(x->t, sums);
    uint64_t hash = wfi_hash_add(WFI_HASH_INIT, sums, strlen(sums));
    for (int32_t i = 0; i < x->list.n_tensors; i++) {
        const wfi_state_tensor *tensor = &x->list.tensors[i];
        x->at[i] = at;
        at += bytes_of(x->t->ready[0]->program, tensor->value);
        hash = wfi_hash_add(hash, tensor->name, strlen(tensor->name));
        hash = wfi_hash_add(hash, &at, sizeof at);
    }
    *hash_out = hash;
    return WF_OK;
}

/* ---- sums ---- */

/* Odd, so that any word that differs changes the sum. */
static uint32_t factor(size_t word) {
    return (uint32_t)word * UINT32_C(2654435761) | 1;
}

/* Adds up for the whole, however it is cut into parts. */
static uint64_t sum_bytes(const char *data, size_t bytes, size_t at) {
    uint64_t sum = 0;
    uint32_t word;
    size_t i = 0;
    for (; i < bytes && (at + i) % sizeof word; i++)
        sum += ((uint64_t)(unsigned char)data[i] << 8 * ((at + i) % 4)) * factor((at + i) / 4);
    for (; i + sizeof word <= bytes; i += sizeof word) {
        memcpy(&word, data + i, sizeof word);
        sum += (uint64_t)word * factor((at + i) / 4);
    }
    for (; i < bytes; i++)
        sum += ((uint64_t)(unsigned char)data[i] << 8 * ((at + i) % 4)) * factor((at + i) / 4);
    return sum;
}

/* Part of rank 0's sum. */
static uint64_t sum_plateau(const image_head *head) {
    return sum_bytes((const char *)&head->plateau, sizeof head->plateau, 0);
}

/* ---- writing ---- */

/* The piece that the image gets, of those that are equal. */
static const wfi_state_piece *turn(const wfi_state_call *x, const wfi_state_part *now) {
    return &now->pieces[(now->tensor - x->list.tensors) % now->n_equal];
}

static size_t place_of(const wfi_state_call *x, const wfi_state_part *now) {
    return x->at[now->tensor - x->list.tensors] + now->offset;
}

static wf_status write_part(wfi_state_call *x, const wfi_state_part *now) {
    const wfi_state_piece *piece = turn(x, now);
    const wfi_worker *w = &x->t->workers[piece->rank];
    size_t at = place_of(x, now);
    if (!w->is_local) return WF_OK;
    WF_TRY(wfi_memory_copy(w->copier, NULL, x->dst + at, WFI_SPACE_HOST,
                           w->arenas[piece->space].base + piece->at + now->at, piece->space,
                           now->bytes));
    x->sum += sum_bytes(x->dst + at, now->bytes, at);
    return WF_OK;
}

/* Rank 0's process does this before the others write. Entries may have the same step already: of an
 * earlier write that a kill has ended. */
static void forget_entries(image_head *head) {
    for (int k = 0; k < WFI_CONTROL_RANKS; k++)
        __atomic_store_n(&head->entries[k].step, NONE, __ATOMIC_SEQ_CST);
}

static wf_status write_image(wfi_state_call *x) {
    const wf_trainer *t = x->t;
    image_head *head = (image_head *)(void *)x->dst;
    image_entry *own = &head->entries[t->job ? wf_job_rank(t->job) : 0];
    uint64_t hash;
    WF_TRY(lay_out(x, &hash));
    if (wfi_trainer_is_root(t)) {
        head->magic = MAGIC;
        head->hash = hash;
        head->n_steps = t->n_steps;
        head->n_entries = t->job ? t->n_workers : 1;
        head->plateau = t->plateau;
        x->sum = sum_plateau(head);
    }
    WF_TRY(wfi_state_visit_all(x, write_part));
    own->sum = x->sum;
    __atomic_store_n(&own->step, t->n_steps, __ATOMIC_RELEASE);
    return WF_OK;
}

/* ---- reading ---- */

int64_t wf_image_step(const void *image) {
    const image_head *head = image;
    if (head->magic != MAGIC || head->n_entries < 1 || head->n_entries > WFI_CONTROL_RANKS)
        return NONE;
    for (int64_t k = 0; k < head->n_entries; k++)
        if (__atomic_load_n(&head->entries[k].step, __ATOMIC_ACQUIRE) != head->n_steps) return NONE;
    return head->n_steps;
}

static wf_status add_part(wfi_state_call *x, const wfi_state_part *now) {
    size_t at = place_of(x, now);
    if (x->t->workers[turn(x, now)->rank].is_local)
        x->sum += sum_bytes(x->src + at, now->bytes, at);
    return WF_OK;
}

static wf_status check_sum(wfi_state_call *x, const image_head *head) {
    const wf_trainer *t = x->t;
    const wfi_control_numbers *all;
    wfi_control_numbers own = {0};
    uint64_t want = 0;
    for (int64_t k = 0; k < head->n_entries; k++) want += head->entries[k].sum;
    if (wfi_trainer_is_root(t)) x->sum = sum_plateau(head);
    WF_TRY(wfi_state_visit_all(x, add_part));
    own[0] = (int64_t)x->sum;
    if (t->job) {
        WF_TRY(wfi_control_all_gather(t->job, "compare an image", own, &all));
        x->sum = 0;
        for (int r = 0; r < t->n_workers; r++) x->sum += (uint64_t)all[r][0];
    }
    if (x->sum == want) return WF_OK;
    return wfi_fail(t->ctx, WF_CORRUPT,
                    "the image of step %lld is damaged: its sum is %016llx, not %016llx",
                    (long long)head->n_steps, (unsigned long long)x->sum, (unsigned long long)want);
}

static wf_status read_part(wfi_state_call *x, const wfi_state_part *now) {
    if (wfi_state_serves(x, now)) memcpy(x->buffer, x->src + place_of(x, now), now->bytes);
    return wfi_state_put(x, now);
}

static wf_status read_image(wfi_state_call *x) {
    wf_trainer *t = x->t;
    const image_head *head = (const image_head *)(const void *)x->src;
    uint64_t hash;
    WF_TRY(lay_out(x, &hash));
    if (wf_image_step(head) < 0 || head->hash != hash)
        return wfi_fail(t->ctx, WF_CORRUPT,
                        "the image is not one of this model, optimizer and recipe");
    WF_TRY(check_sum(x, head));
    WF_TRY(wfi_trainer_barrier(t, "read an image"));
    WF_TRY(wfi_state_visit_all(x, read_part));
    t->is_spoiled = false;
    t->n_steps = head->n_steps;
    t->plateau = head->plateau;
    t->resets_hidden[WF_PROGRAM_TRAIN] = false;
    t->resets_hidden[WF_PROGRAM_FORWARD] = true;
    return WF_OK;
}

/* ---- calls ---- */

static wf_status check(const wf_trainer *t, size_t bytes, const char *what) {
    WF_TRY(wfi_trainer_check_average(t, what));
    if (t->job && wfi_control_transport(t->job))
        return wfi_fail(t->ctx, WF_UNSUPPORTED,
                        "%s: processes without shared memory have none for an image; save the "
                        "state to a file",
                        what);
    size_t want = wf_program_image_bytes(t->ready[0]->program);
    if (bytes == want) return WF_OK;
    return wfi_fail(t->ctx, WF_SHAPE, "%s: it has %zu bytes, not %zu", what, want, bytes);
}

wf_status wf_trainer_write_image(wf_trainer *t, void *image, size_t bytes) {
    WF_TRY(check(t, bytes, "write an image"));
    if (t->is_spoiled)
        return wfi_fail(t->ctx, WF_NOT_FINITE,
                        "write an image: a step has left numbers that are not finite");
    if (wfi_trainer_is_root(t)) forget_entries(image);
    return wfi_state_perform(&(wfi_state_call){.t = t, .dst = image}, "write an image",
                             WFI_STATE_ALL, write_image);
}

wf_status wf_trainer_read_image(wf_trainer *t, const void *image, size_t bytes) {
    WF_TRY(check(t, bytes, "read an image"));
    return wfi_state_perform(&(wfi_state_call){.t = t, .src = image}, "read an image",
                             WFI_STATE_ALL, read_image);
}
