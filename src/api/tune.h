/* A tuning: the shapes of a model, and the ways to compute each. Private. */
#pragma once

#include "device/device.h"
#include "program/program.h"

#include <weft/tune.h>

typedef struct wfi_tuned_way {
    wfi_way way;
    const wfi_kernel_impl *impl;
    char name[WFI_WAY_TEXT];
    double time_us;
    bool is_wrong;
} wfi_tuned_way;

typedef struct wfi_tuned_shape {
    const wf_graph *graph;
    const wfi_node *node; /* the first of them */
    char text[WFI_NODE_TEXT];
    int n_nodes, n_ways, usual, chosen;
    wfi_tuned_way *ways;
    size_t way_capacity;
} wfi_tuned_shape;

struct wf_tuning {
    wf_context *ctx;
    wf_program *program;
    wfi_kernel_options options;
    wfi_failure failure;
    wfi_owner owner;
    wfi_device *device;
    wfi_stream_queue *stream;
    int (*stop)(void *argument);
    void *stop_argument;
    wfi_tuned_shape *shapes;
    int n_shapes;
    size_t shape_capacity;
};

/* Errors: INTERRUPTED, if the caller wants to stop. */
wf_status wfi_tuning_check_stop(const wf_tuning *t);
