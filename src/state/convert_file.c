/* A file of tensors written again, in another type or other shards: some of a tensor at a time. */
#include "state/header.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define N_AT_ONCE 131072 /* elements */

typedef struct conversion {
    wf_context *ctx;
    wf_safetensors *file;
    wf_safetensors_writer *writer;
    const char *to; /* "F16", "BF16", "F32"; NULL: each tensor keeps its type */
    unsigned char *raw, *made;
    float *values;
    uint64_t n_bytes; /* of all tensors, in the new file */
} conversion;

/* The type of a tensor in the new file. */
static const char *type_of(const conversion *c, const wf_safetensors_entry *e) {
    bool is_float = e->dtype == WF_F32 || wfi_convert_bytes(e->dtype_name, WF_F32);
    return c->to && is_float ? c->to : e->dtype_name;
}

static wf_status find_type(conversion *c, const char *dtype) {
    static const char *const types[] = {"F16", "BF16", "F32"};
    for (size_t k = 0; k < WFI_COUNT(types) && dtype; k++)
        if (!strcasecmp(types[k], dtype)) c->to = types[k];
    if (c->to || !dtype) return WF_OK;
    return wfi_fail(c->ctx, WF_INVALID_ARG, "convert: '%.40s' is not one of f16, bf16 and f32",
                    dtype);
}

static wf_status declare(conversion *c) {
    wfi_safetensors_writer_add_digests(c->writer, false);
    for (int i = 0; wf_safetensors_metadata_get(c->file, i); i++) {
        const wf_metadata *pair = wf_safetensors_metadata_get(c->file, i);
        if (!wfi_safetensors_is_digest(pair->key))
            WF_TRY(wf_safetensors_writer_add_metadata(c->writer, pair->key, pair->value));
    }
    for (int i = 0; i < wf_safetensors_n_tensors(c->file); i++) {
        wf_safetensors_entry e = *wf_safetensors_get(c->file, i);
        uint64_t was = wfi_safetensors_element_bytes(e.dtype_name);
        e.dtype_name = type_of(c, &e);
        if (was) e.n_bytes = e.n_bytes / was * wfi_safetensors_element_bytes(e.dtype_name);
        c->n_bytes += e.n_bytes;
        WF_TRY(wfi_safetensors_writer_add_entry(c->writer, &e));
    }
    return WF_OK;
}

/* Element `at` of the tensor, which has a value that the new type has not. */
static wf_status refuse(const conversion *c, const wf_safetensors_entry *e, uint64_t at,
                        double value) {
    char shown[WFI_NAME_TEXT];
    return wfi_fail(c->ctx, WF_NOT_FINITE,
                    "%s: element %llu of %s is %g, which is too large for %s",
                    wfi_safetensors_path(c->file, 0), (unsigned long long)at,
                    wfi_name_text(e->name, shown), value, c->to);
}

/* n elements from `first` on. */
static wf_status round_some(const conversion *c, const wf_safetensors_entry *e, uint64_t first,
                            size_t n) {
    bool is_double = !strcmp(e->dtype_name, "F64");
    if (is_double && strcmp(c->to, "F32") != 0)
        wfi_convert_to_odd(c->raw, n, c->values);
    else
        wfi_convert(e->dtype_name, c->raw, n, c->values);
    size_t bad = wfi_convert_to(c->to, c->values, n, c->made);
    for (size_t i = 0; i < n && is_double; i++) {
        double value;
        memcpy(&value, c->raw + i * sizeof value, sizeof value);
        bool is_lost = isinf(c->values[i]) && !isinf(value);
        if (i == bad || is_lost) return refuse(c, e, first + i, value);
    }
    return bad == n ? WF_OK : refuse(c, e, first + bad, (double)c->values[bad]);
}

static wf_status convert_tensor(const conversion *c, int i) {
    const wf_safetensors_entry *e = wf_safetensors_get(c->file, i);
    const char *type = type_of(c, e);
    bool stays = !strcmp(type, e->dtype_name);
    uint64_t bytes = stays ? 1 : wfi_safetensors_element_bytes(e->dtype_name);
    uint64_t new_bytes = stays ? 1 : wfi_safetensors_element_bytes(type), n = e->n_bytes / bytes;
    uint32_t read = 0, written = 0;
    for (uint64_t at = 0, n_now; at < n; at += n_now) {
        n_now = n - at < N_AT_ONCE ? n - at : N_AT_ONCE;
        unsigned char *now = stays ? c->raw : c->made;
        size_t n_bytes = (size_t)(n_now * new_bytes);
        WF_TRY(wfi_safetensors_read_part(c->file, i, WF_N_DTYPES, at * bytes, c->raw,
                                         (size_t)(n_now * bytes), &read));
        if (!stays) WF_TRY(round_some(c, e, at, (size_t)n_now));
        WF_TRY(wfi_safetensors_writer_write_part(c->writer, i, at * new_bytes, now, n_bytes));
        written ^= wfi_safetensors_digest_part(now, n_bytes, (n - at - n_now) * new_bytes);
    }
    wfi_safetensors_writer_set_digest(c->writer, i, written);
    return wfi_safetensors_check_digest(c->file, i, read);
}

static wf_status convert(conversion *c, const char *from, const char *to,
                         const wf_convert_config *config) {
    WF_TRY(find_type(c, config->dtype));
    WF_TRY(wf_safetensors_open(c->ctx, from, &c->file));
    if (c->to && wf_safetensors_metadata(c->file, WFI_STEPS_KEY))
        return wfi_fail(c->ctx, WF_INVALID_ARG,
                        "%s is a training state, from which a run could not resume unchanged: "
                        "convert the weights, or keep the type",
                        from);
    WF_TRY(wf_safetensors_writer_create(c->ctx, to, &c->writer));
    WF_TRY(wf_safetensors_writer_divide(c->writer, config->shard_bytes));
    WF_TRY(declare(c));
    c->raw = wfi_alloc(c->ctx, N_AT_ONCE, sizeof(double), "some of a tensor");
    c->made = wfi_alloc(c->ctx, N_AT_ONCE, sizeof(float), "some of a tensor");
    c->values = wfi_alloc(c->ctx, N_AT_ONCE, sizeof(float), "some of a tensor");
    if (!c->raw || !c->made || !c->values) return WF_NO_MEMORY;
    for (int i = 0; i < wf_safetensors_n_tensors(c->file); i++) WF_TRY(convert_tensor(c, i));
    return wf_safetensors_writer_commit(c->writer);
}

wf_status wf_safetensors_convert(wf_context *ctx, const char *from, const char *to,
                                 const wf_convert_config *config, int *n_tensors_out,
                                 uint64_t *n_bytes_out) {
    conversion c = {.ctx = ctx};
    WF_TRY(wfi_check_struct(ctx, config, sizeof *config, "wf_convert_config"));
    wf_status status = convert(&c, from, to, config);
    if (status == WF_OK) {
        *n_tensors_out = wf_safetensors_n_tensors(c.file);
        *n_bytes_out = c.n_bytes;
    }
    wf_safetensors_writer_destroy(c.writer);
    wf_safetensors_close(c.file);
    wfi_free(ctx, c.raw);
    wfi_free(ctx, c.made);
    wfi_free(ctx, c.values);
    return status;
}
