/* Passes that put other nodes in the place of some. Private to src/pass. */
#ifndef WFI_PASS_REWRITE_H
#define WFI_PASS_REWRITE_H

#include "graph/op.h"

/* Adds what stands for the node, in its unit: itself (wfi_rewrite_keep), or others. */
typedef void (*wfi_rewrite_function)(wf_graph *g, const wfi_node *node, const void *how);

/* Of all nodes, in their order. */
wf_status wfi_rewrite(wf_graph *g, wfi_rewrite_function function, const void *how);

void wfi_rewrite_keep(wf_graph *g, const wfi_node *node);
/* What the last node makes are these values, n of them, instead of new ones. */
void wfi_rewrite_give(wf_graph *g, const int32_t *values, int n);

#endif
