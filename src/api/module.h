/* Modules' insides. Private. */
#pragma once

#include "api/array.h"
#include "api/trainer.h"

#include <weft/module.h>

/* A trainer of one rank that runs forward only. */
struct wf_module {
    wf_context *ctx;
    wf_trainer *trainer;
    wf_module_config config; /* its texts are not used after the making */
    char device[WF_DEVICE_NAME_BYTES];
    int32_t input, output; /* values of the trainer's first graph */
};

/* On the device that is number list->place[0] of list->n_places. */
wf_status wfi_module_create_on(wf_context *ctx, const wf_model *model,
                               const wf_module_config *config, const wfi_device_list *list,
                               wf_module **module_out);
