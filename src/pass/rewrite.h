/* Passes that put other nodes in the place of some. Private to src/pass. */
#pragma once

#include "graph/op.h"

/* Adds the node (wfi_rewrite_keep), or its replacements, to its unit. */
typedef void (*wfi_rewrite_function)(wf_graph *g, const wfi_node *node, void *how);

/* Calls the function for all nodes, in their order. What it adds is in the unit of the node, except
 * repeated nodes. */
wf_status wfi_rewrite(wf_graph *g, wfi_rewrite_function function, void *how);

void wfi_rewrite_keep(wf_graph *g, const wfi_node *node);
/* Makes these n values the outputs of the last node, instead of new ones. */
void wfi_rewrite_give(wf_graph *g, const int32_t *values, int n);

/* A new value like v, but of this type and layout, in the unit of `near`; -1: no memory. */
int32_t wfi_rewrite_value(wf_graph *g, int32_t v, const wfi_node *near, wf_dtype dtype,
                          wfi_layout layout);
/* Adds a node that makes value `to` from `from`, in the unit of `near`. `attr`: NULL: zeros. */
void wfi_rewrite_add(wf_graph *g, const wfi_op *op, const wfi_attr *attr, const wfi_node *near,
                     wfi_phase phase, int32_t from, int32_t to);
