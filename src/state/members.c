#include "state/members.h"
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

static void skip_space(wfi_members *p) {
    while (p->at < p->n_bytes && (p->bytes[p->at] == ' ' || p->bytes[p->at] == '\t' ||
                                  p->bytes[p->at] == '\n' || p->bytes[p->at] == '\r'))
        p->at++;
}

static bool take(wfi_members *p, char c) {
    skip_space(p);
    if (p->at == p->n_bytes || p->bytes[p->at] != c) return false;
    p->at++;
    return true;
}

static wf_status expected(wfi_members *p, const char *what) {
    return wfi_fail(p->ctx, WF_CORRUPT, "%s: %s is not JSON at byte %zu: %s expected", p->path,
                    p->part, p->at, what);
}

wf_status wfi_members_value(wfi_members *p, size_t max_bytes, json_t **value_out) {
    skip_space(p);
    size_t left = p->n_bytes - p->at;
    json_error_t error;
    /* Jansson stores in error.position, also after success, the number of bytes read. */
    json_t *value =
        json_loadb(p->bytes + p->at, left < max_bytes ? left : max_bytes,
                   JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, &error);
    if (!value && left > max_bytes && json_error_code(&error) == json_error_premature_end_of_input)
        return wfi_fail(p->ctx, WF_CORRUPT, "%s: %s has a value of more than %zu bytes at byte %zu",
                        p->path, p->part, max_bytes, p->at);
    if (!value && json_error_code(&error) == json_error_out_of_memory)
        return wfi_no_memory(p->ctx, left, p->path);
    if (!value)
        return wfi_fail(p->ctx, WF_CORRUPT, "%s: %s is not JSON at byte %zu: %s", p->path, p->part,
                        p->at + (size_t)error.position, error.text);
    p->at += (size_t)error.position;
    *value_out = value;
    return WF_OK;
}

static wf_status one_member(wfi_members *p, wfi_member member, void *self) {
    skip_space(p);
    if (p->at == p->n_bytes || p->bytes[p->at] != '"') return expected(p, "a name in quotes");
    json_t *key;
    WF_TRY(wfi_members_value(p, p->n_bytes, &key));
    wf_status status =
        take(p, ':') ? member(self, p, json_string_value(key)) : expected(p, "a colon");
    json_decref(key);
    return status;
}

wf_status wfi_members_each(wfi_members *p, wfi_member member, void *self) {
    if (!take(p, '{')) return expected(p, "an object");
    if (take(p, '}')) return WF_OK;
    do {
        WF_TRY(one_member(p, member, self));
    } while (take(p, ','));
    return take(p, '}') ? WF_OK : expected(p, "a comma or a closing brace");
}

wf_status wfi_members_end(wfi_members *p) {
    skip_space(p);
    return p->at == p->n_bytes ? WF_OK : expected(p, "nothing more");
}

/* ---- metadata ---- */

typedef struct metadata_reader {
    wfi_metadata_list *list;
    wfi_pool *pool;
    wfi_metadata_other other;
    void *self; /* of `other` */
} metadata_reader;

static wf_status add_pair(metadata_reader *r, const wfi_members *place, const char *key,
                          const char *value) {
    wfi_metadata_list *list = r->list;
    WF_TRY(WFI_GROW(place->ctx, list->pairs, list->n, list->capacity, place->path));
    wf_metadata *pair = &list->pairs[list->n++];
    pair->key = wfi_pool_format(r->pool, "%s", key);
    pair->value = wfi_pool_format(r->pool, "%s", value);
    return pair->key && pair->value ? WF_OK : WF_NO_MEMORY;
}

static wf_status metadata_member(void *self, wfi_members *place, const char *key) {
    metadata_reader *r = self;
    char shown[WFI_NAME_TEXT];
    json_t *value;
    WF_TRY(wfi_members_value(place, place->n_bytes, &value));
    wf_status status = WF_OK;
    if (json_is_string(value))
        status = add_pair(r, place, key, json_string_value(value));
    else if (r->other)
        r->other(r->self, key, value);
    else
        status =
            wfi_fail(place->ctx, WF_CORRUPT, "%s: __metadata__ has a value that is not text: %s",
                     place->path, wfi_name_text(key, shown));
    json_decref(value);
    return status;
}

static int compare_keys(const void *a, const void *b) {
    return strcmp(((const wf_metadata *)a)->key, ((const wf_metadata *)b)->key);
}

wf_status wfi_metadata_read(wfi_members *place, wfi_metadata_other other, void *self,
                            wfi_pool *pool, wfi_metadata_list *list) {
    metadata_reader r = {list, pool, other, self};
    char shown[WFI_NAME_TEXT];
    WF_TRY(wfi_members_each(place, metadata_member, &r));
    if (list->n) qsort(list->pairs, list->n, sizeof *list->pairs, compare_keys);
    for (size_t i = 1; i < list->n; i++)
        if (compare_keys(&list->pairs[i - 1], &list->pairs[i]) == 0)
            return wfi_fail(place->ctx, WF_CORRUPT, "%s: %s occurs twice in %s", place->path,
                            wfi_name_text(list->pairs[i].key, shown),
                            other ? "metadata" : "__metadata__");
    return WF_OK;
}
