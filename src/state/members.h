/* Walking through one JSON object member by member, so that a large header never becomes
 * a tree in memory. The strings and values themselves are jansson's work. Private. */
#pragma once

#include "state/header.h"

#include <jansson.h>

typedef struct wfi_members {
    wf_context *ctx;
    const char *path, *part; /* for sentences: the file, and "its header" or so */
    const char *bytes;
    size_t n_bytes, at;
} wfi_members;

/* Called with the place at a value; must read it with wfi_members_value or
 * wfi_members_each. `key` dies with the call. */
typedef wf_status (*wfi_member)(void *self, wfi_members *place, const char *key);

/* Reads `{ key : value, ... }` at the place. Keys may repeat: that is the caller's to check.
 * Errors: CORRUPT, and those of `member`. */
wf_status wfi_members_each(wfi_members *place, wfi_member member, void *self);

/* Reads one value of at most max_bytes; free with json_decref. Errors: CORRUPT. */
wf_status wfi_members_value(wfi_members *place, size_t max_bytes, json_t **value_out);

/* Called with a value that is no text. */
typedef void (*wfi_metadata_other)(void *self, const char *key, const json_t *value);

/* Reads an object of texts into `list`, and sorts it. Other values go to `other`; without one they
 * are refused. Errors: CORRUPT (also a key that occurs twice), NO_MEMORY. */
wf_status wfi_metadata_read(wfi_members *place, wfi_metadata_other other, void *self,
                            wfi_pool *pool, wfi_metadata_list *list);

/* Only white space may follow. Errors: CORRUPT. */
wf_status wfi_members_end(wfi_members *place);
