/* Keys and values, and the operations on them. A store is small and slow by design, so a linear
 * search is enough. */
#include "comm/store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void wfi_store_table_init(wfi_store_table *t, wf_context *ctx) {
    *t = (wfi_store_table){.ctx = ctx};
}

void wfi_store_table_release(wfi_store_table *t) {
    for (size_t i = 0; i < t->n; i++) wfi_free(t->ctx, t->entries[i].key);
    wfi_free(t->ctx, t->entries);
    *t = (wfi_store_table){.ctx = t->ctx};
}

static wfi_store_entry *find(wfi_store_table *t, const wfi_store_request *r) {
    for (size_t i = 0; i < t->n; i++)
        if (t->entries[i].n_key == r->n_key && !memcmp(t->entries[i].key, r->key, r->n_key))
            return &t->entries[i];
    return NULL;
}

static const uint8_t *value_of(const wfi_store_entry *entry) {
    return (const uint8_t *)entry->key + entry->n_key;
}

static void drop(wfi_store_table *t, wfi_store_entry *entry) {
    t->n_bytes -= (size_t)entry->n_key + entry->n_value;
    wfi_free(t->ctx, entry->key);
    *entry = t->entries[--t->n];
}

static wfi_store_result put(wfi_store_table *t, const wfi_store_request *r, const void *value,
                            uint32_t n_value) {
    wfi_store_entry *entry = find(t, r);
    size_t n_old = entry ? (size_t)entry->n_key + entry->n_value : 0;
    size_t n_new = (size_t)r->n_key + n_value;
    if ((!entry && t->n == WFI_STORE_MAX_KEYS) || t->n_bytes - n_old + n_new > WFI_STORE_MAX_BYTES)
        return WFI_STORE_FULL;
    if (!entry && WFI_GROW(t->ctx, t->entries, t->n, t->capacity, "a store's keys") != WF_OK)
        return WFI_STORE_NO_ROOM;
    char *block = wfi_alloc(t->ctx, n_new, 1, "a store's value");
    if (!block) return WFI_STORE_NO_ROOM;
    memcpy(block, r->key, r->n_key);
    if (n_value) memcpy(block + r->n_key, value, n_value);
    if (entry)
        wfi_free(t->ctx, entry->key);
    else
        entry = &t->entries[t->n++];
    *entry = (wfi_store_entry){r->n_key, n_value, block};
    t->n_bytes += n_new - n_old;
    return WFI_STORE_DONE;
}

/* Reads a whole number; only the encoding that add writes is valid. */
static bool read_number(const wfi_store_entry *entry, int64_t *number_out) {
    char text[24], again[24];
    if (entry->n_value >= sizeof text) return false;
    memcpy(text, value_of(entry), entry->n_value);
    text[entry->n_value] = 0;
    *number_out = strtoll(text, NULL, 10);
    snprintf(again, sizeof again, "%" PRId64, *number_out);
    return !strcmp(text, again) && strlen(text) == entry->n_value;
}

static wfi_store_result add(wfi_store_table *t, const wfi_store_request *r,
                            wfi_store_reply *reply) {
    const wfi_store_entry *entry = find(t, r);
    int64_t number = 0;
    if ((entry && !read_number(entry, &number)) ||
        __builtin_add_overflow(number, r->amount, &number))
        return WFI_STORE_NO_COUNT;
    int n = snprintf(t->number, sizeof t->number, "%" PRId64, number);
    reply->number = number;
    return put(t, r, t->number, (uint32_t)n);
}

static wfi_store_result compare_set(wfi_store_table *t, const wfi_store_request *r) {
    const wfi_store_entry *entry = find(t, r);
    if (!r->has_expected) return entry ? WFI_STORE_DIFFERS : put(t, r, r->value, r->n_value);
    if (!entry) return WFI_STORE_ABSENT;
    if (entry->n_value != r->n_expected ||
        (r->n_expected && memcmp(value_of(entry), r->expected, r->n_expected)))
        return WFI_STORE_DIFFERS;
    return put(t, r, r->value, r->n_value);
}

void wfi_store_table_act(wfi_store_table *t, const wfi_store_request *r,
                         wfi_store_reply *reply_out) {
    wfi_store_entry *entry;
    *reply_out = (wfi_store_reply){.result = WFI_STORE_DONE};
    switch (r->verb) {
    case WFI_STORE_SET:
        reply_out->result = put(t, r, r->value, r->n_value);
        break;
    case WFI_STORE_GET:
    case WFI_STORE_DELETE:
        entry = find(t, r);
        if (!entry) {
            reply_out->result = WFI_STORE_ABSENT;
        } else if (r->verb == WFI_STORE_DELETE) {
            drop(t, entry);
        } else {
            reply_out->value = value_of(entry);
            reply_out->n_value = entry->n_value;
        }
        break;
    case WFI_STORE_ADD:
        reply_out->result = add(t, r, reply_out);
        break;
    case WFI_STORE_COMPARE_SET:
        reply_out->result = compare_set(t, r);
        break;
    case WFI_STORE_COUNT:
        reply_out->number = (int64_t)t->n;
        break;
    case WFI_STORE_HELLO:
    case WFI_STORE_N_VERBS:
        break;
    }
}
