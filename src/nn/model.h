/* The model handle. Private. */
#pragma once

#include "base/base.h"

#include <weft/model.h>

struct wf_model {
    wf_context *ctx;
    char *name;
    wf_model_function function;
    void *config; /* copied, or NULL */
    size_t config_bytes;
};

wf_status wfi_model_copy(const wf_model *model, wf_model **model_out);

/* The number of layers, if models of the family differ only in that; otherwise 0. */
int64_t wfi_model_n_layers(const wf_model *model);
/* The same with so many. */
wf_status wfi_model_with_layers(const wf_model *model, int64_t n_layers, wf_model **model_out);
