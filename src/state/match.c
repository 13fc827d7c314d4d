#include "state/match.h"
#include "base/names.h"
#include "state/header.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define N_LISTED    10     /* names of each sort in a sentence */
#define PIECE_BYTES 262144 /* read at once when two tensors are compared */

/* A tensor of the file under the name that is left when the wrappers' prefixes are off. */
typedef struct candidate {
    const char *bare;
    int number; /* in the file */
} candidate;

typedef struct matcher {
    wf_context *ctx;
    const wf_safetensors *file;
    const wfi_wanted *wanted;
    int n_wanted;
    const char *skip;      /* names that keep their values */
    int *found;            /* [n_wanted], -1 */
    candidate *candidates; /* [n_tensors], by bare name, then number */
    int n_tensors;
    bool *used; /* [n_tensors], by number */
} matcher;

const char *wfi_bare_name(const char *name) {
    static const char *const prefix[] = {"module.", "_orig_mod.", "transformer."};
    for (size_t i = 0; i < WFI_COUNT(prefix);) {
        size_t n = strlen(prefix[i]);
        if (strncmp(name, prefix[i], n) == 0) {
            name += n;
            i = 0; /* wrappers come in any order */
        } else {
            i++;
        }
    }
    return name;
}

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

static int compare_candidates(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    int order = strcmp(x->bare, y->bare);
    return order ? order : x->number - y->number;
}

/* The first unused tensor of that bare name, or -1. */
static int find_unused(const matcher *m, const char *bare) {
    int low = 0, high = m->n_tensors;
    WFI_BISECT(low, high, middle, strcmp(m->candidates[middle].bare, bare) < 0);
    for (; low < m->n_tensors && strcmp(m->candidates[low].bare, bare) == 0; low++)
        if (!m->used[m->candidates[low].number]) return m->candidates[low].number;
    return -1;
}

static void take(matcher *m, int i, int number) {
    if (number < 0) return;
    m->found[i] = number;
    m->used[number] = true;
}

static bool is_skipped(const matcher *m, const char *name) {
    return wfi_names_has(m->skip, wfi_bare_name(name));
}

/* Whether the file is still looked through for wanted[i]. */
static bool is_sought(const matcher *m, int i) {
    return m->found[i] < 0 && !is_skipped(m, m->wanted[i].name);
}

static void assign(matcher *m) {
    for (int i = 0; i < m->n_wanted; i++) {
        m->found[i] = -1;
        if (is_sought(m, i)) take(m, i, wf_safetensors_find(m->file, m->wanted[i].name));
    }
    for (int i = 0; i < m->n_wanted; i++)
        if (is_sought(m, i)) take(m, i, find_unused(m, wfi_bare_name(m->wanted[i].name)));
    /* Some programs save only the second of two tied tensors. */
    for (int i = 0; i < m->n_wanted; i++)
        if (is_sought(m, i) && strcmp(wfi_bare_name(m->wanted[i].name), "wte.weight") == 0)
            take(m, i, find_unused(m, "lm_head.weight"));
}

/* ---- a head that should be tied ---- */

static wf_status check_equal(const matcher *m, int a, int b) {
    const wf_safetensors_entry *x = wf_safetensors_get(m->file, a);
    const wf_safetensors_entry *y = wf_safetensors_get(m->file, b);
    bool equal = x->n_bytes == y->n_bytes && strcmp(x->dtype_name, y->dtype_name) == 0;
    char *pieces = equal ? wfi_alloc(m->ctx, 2, PIECE_BYTES, "comparing two tensors") : NULL;
    if (equal && !pieces) return WF_NO_MEMORY;
    wf_status status = WF_OK;
    for (uint64_t done = 0; equal && status == WF_OK && done < x->n_bytes; done += PIECE_BYTES) {
        uint64_t left = x->n_bytes - done;
        size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        status = wfi_safetensors_read_part(m->file, a, x->dtype, done, pieces, n, NULL);
        if (status == WF_OK)
            status = wfi_safetensors_read_part(m->file, b, y->dtype, done, pieces + PIECE_BYTES, n,
                                               NULL);
        if (status == WF_OK) equal = memcmp(pieces, pieces + PIECE_BYTES, n) == 0;
    }
    wfi_free(m->ctx, pieces);
    if (status == WF_OK && !equal)
        return wfi_fail(m->ctx, WF_SHAPE,
                        "%s: lm_head.weight differs from wte.weight, but the model ties the two",
                        wfi_safetensors_path(m->file, 0));
    return status;
}

/* Passes over a head that repeats the embedding, or is skipped with it. */
static wf_status pass_tied(matcher *m) {
    int head = find_unused(m, "lm_head.weight");
    if (head < 0) return WF_OK;
    for (int i = 0; i < m->n_wanted; i++) {
        bool is_missing = m->found[i] < 0, skips = is_skipped(m, m->wanted[i].name);
        if ((is_missing && !skips) || strcmp(wfi_bare_name(m->wanted[i].name), "wte.weight") != 0)
            continue;
        if (!skips) WF_TRY(check_equal(m, m->found[i], head));
        m->used[head] = true;
        return WF_OK;
    }
    return WF_OK;
}

/* ---- mismatches ---- */

static bool may_be_missing(const matcher *m, const char *name) {
    return ends_with(name, "num_batches_tracked") || is_skipped(m, name);
}

static bool is_mask(const char *name) {
    return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias");
}

static void list_name(wfi_text *text, int n, const char *name) {
    char shown[WFI_NAME_TEXT];
    if (n < N_LISTED) wfi_text_add(text, "%s%s", n ? ", " : "", wfi_name_text(name, shown));
    if (n == N_LISTED) wfi_text_add(text, ", ...");
}

static wf_status report_names(const matcher *m, wfi_text *missing, wfi_text *unexpected) {
    int n_missing = 0, n_unexpected = 0;
    for (int i = 0; i < m->n_wanted; i++)
        if (m->found[i] < 0 && !may_be_missing(m, m->wanted[i].name))
            list_name(missing, n_missing++, m->wanted[i].name);
    for (int i = 0; i < m->n_tensors; i++) {
        const char *name = wf_safetensors_get(m->file, i)->name;
        if (!m->used[i] && !is_mask(name) && !is_skipped(m, name))
            list_name(unexpected, n_unexpected++, name);
    }
    if (!n_missing && !n_unexpected) return WF_OK;
    WF_TRY(wfi_text_status(missing));
    WF_TRY(wfi_text_status(unexpected));
    return wfi_fail(m->ctx, WF_SHAPE,
                    "%s does not fit the model: %d names are missing%s%s, %d are unexpected%s%s",
                    wfi_safetensors_path(m->file, 0), n_missing, n_missing ? ": " : "",
                    n_missing ? missing->data : "", n_unexpected, n_unexpected ? ": " : "",
                    n_unexpected ? unexpected->data : "");
}

static wf_status check_names(const matcher *m) {
    wfi_text missing = {.ctx = m->ctx}, unexpected = {.ctx = m->ctx};
    wf_status status = report_names(m, &missing, &unexpected);
    wfi_free(m->ctx, missing.data);
    wfi_free(m->ctx, unexpected.data);
    return status;
}

static void add_shape(wfi_text *text, const int64_t *dim, int n_dims) {
    wfi_text_add(text, "[");
    for (int d = 0; d < n_dims; d++) wfi_text_add(text, "%s%" PRId64, d ? ", " : "", dim[d]);
    wfi_text_add(text, "]");
}

static wf_status mismatch(const matcher *m, const wfi_wanted *wanted,
                          const wf_safetensors_entry *held) {
    char name[WFI_NAME_TEXT], dtype[WFI_NAME_TEXT];
    wfi_text text = {.ctx = m->ctx};
    wfi_text_add(&text, "%s: tensor %s is %s ", wfi_safetensors_path(m->file, 0),
                 wfi_name_text(held->name, name), wfi_name_text(held->dtype_name, dtype));
    add_shape(&text, held->dim, held->n_dims);
    wfi_text_add(&text, ", but the model's %s is %s ", wanted->name, wf_dtype_name(wanted->dtype));
    add_shape(&text, wanted->shape.dim, wanted->shape.n_dims);
    wf_status status = wfi_text_status(&text);
    if (status == WF_OK) status = wfi_fail(m->ctx, WF_SHAPE, "%s", text.data);
    wfi_free(m->ctx, text.data);
    return status;
}

static wf_status check_sizes(const matcher *m) {
    for (int i = 0; i < m->n_wanted; i++) {
        if (m->found[i] < 0) continue;
        const wfi_wanted *wanted = &m->wanted[i];
        const wf_safetensors_entry *held = wf_safetensors_get(m->file, m->found[i]);
        bool fits =
            (held->dtype == wanted->dtype || wfi_convert_bytes(held->dtype_name, wanted->dtype)) &&
            held->n_dims == wanted->shape.n_dims;
        for (int d = 0; fits && d < held->n_dims; d++) fits = held->dim[d] == wanted->shape.dim[d];
        if (!fits) return mismatch(m, wanted, held);
    }
    return WF_OK;
}

/* A name without a tensor is a mistake. */
static wf_status check_skip(const matcher *m) {
    for (wfi_word word = {0}; wfi_names_next(m->skip, &word);) {
        bool names_any = false;
        for (int i = 0; i < m->n_wanted && !names_any; i++)
            names_any = wfi_word_names(word, wfi_bare_name(m->wanted[i].name));
        if (!names_any)
            return wfi_fail(m->ctx, WF_INVALID_ARG,
                            "init_skip: nothing of the model is called '%.*s', or has a name that "
                            "begins with '%.*s.'",
                            (int)word.n, word.start, (int)word.n, word.start);
    }
    return WF_OK;
}

static wf_status match(matcher *m) {
    size_t n = (size_t)m->n_tensors;
    m->candidates = wfi_alloc(m->ctx, n + 1, sizeof *m->candidates, "names of weights");
    if (!m->candidates) return WF_NO_MEMORY;
    m->used = wfi_alloc(m->ctx, n + 1, sizeof *m->used, "names of weights");
    if (!m->used) return WF_NO_MEMORY;
    for (int i = 0; i < m->n_tensors; i++)
        m->candidates[i] = (candidate){wfi_bare_name(wf_safetensors_get(m->file, i)->name), i};
    qsort(m->candidates, n, sizeof *m->candidates, compare_candidates);
    WF_TRY(check_skip(m));
    assign(m);
    WF_TRY(pass_tied(m));
    WF_TRY(check_names(m));
    return check_sizes(m);
}

wf_status wfi_match_weights(wf_context *ctx, const wf_safetensors *file, const wfi_wanted *wanted,
                            int n_wanted, const char *skip, int *index_out) {
    matcher m = {.ctx = ctx,
                 .file = file,
                 .wanted = wanted,
                 .n_wanted = n_wanted,
                 .skip = skip,
                 .n_tensors = wf_safetensors_n_tensors(file)};
    m.found = wfi_alloc(ctx, (size_t)n_wanted + 1, sizeof *m.found, "names of weights");
    if (!m.found) return WF_NO_MEMORY;
    wf_status status = match(&m);
    if (status == WF_OK && n_wanted) memcpy(index_out, m.found, (size_t)n_wanted * sizeof(int));
    wfi_free(ctx, m.found);
    wfi_free(ctx, m.candidates);
    wfi_free(ctx, m.used);
    return status;
}
