/* The libraries that compute, as text. */
#include "common/made_by.h"
#include "common/tuned.h"

#include <string.h>

static void add_library(const cli *c, const char *kind, char text[LIBRARY_BYTES]) {
    size_t n = strlen(text);
    const char *and = n ? " and " : "";
    tuned_place place;
    if (strcmp(kind, "cpu")) {
        if (tuned_on(c, kind, &place) != WF_OK) place = (tuned_place){.processor = "?"};
        snprintf(text + n, LIBRARY_BYTES - n, "%s%s (%s: %s)", and, place.library, kind,
                 place.processor);
        return;
    }
    bool is_bf16 = c->o.recipe.dtype == WF_BF16;
    snprintf(text + n, LIBRARY_BYTES - n, "%s%.60s%s%s", and, wf_info_library(0),
             is_bf16 ? ", bf16 multiplied as " : "", is_bf16 ? wf_info_bf16() : "");
}

const char *made_by_library(const cli *c, char text[LIBRARY_BYTES]) {
    char kind[WF_DEVICE_NAME_BYTES], last[WF_DEVICE_NAME_BYTES] = "";
    int n_ranks = 0;
    *text = 0;
    if (c->o.devices && wf_devices_count(c->ctx, c->o.devices, &n_ranks) != WF_OK) n_ranks = 0;
    for (int rank = 0; rank < n_ranks; rank++, strcpy(last, kind)) {
        if (wf_devices_name(c->ctx, c->o.devices, rank, kind) != WF_OK) break;
        kind[strcspn(kind, ":")] = 0;
        if (strcmp(kind, last)) add_library(c, kind, text);
    }
    if (!n_ranks) add_library(c, "cpu", text);
    return text;
}

const char *made_by_text(const char *version, const char *library, char text[MADE_BY_BYTES]) {
    snprintf(text, MADE_BY_BYTES, "weft %.60s on %.*s", version, LIBRARY_BYTES, library);
    return text;
}
