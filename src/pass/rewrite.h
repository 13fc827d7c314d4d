/* Passes that put other nodes in the place of some. Private to src/pass. */
#ifndef WFI_PASS_REWRITE_H
#define WFI_PASS_REWRITE_H

#include "graph/op.h"

/* Adds the node (wfi_rewrite_keep), or its replacements, to its unit. */
typedef void (*wfi_rewrite_function)(wf_graph *g, const wfi_node *node, const void *how);

/* Calls the function for all nodes, in their order. */
wf_status wfi_rewrite(wf_graph *g, wfi_rewrite_function function, const void *how);

void wfi_rewrite_keep(wf_graph *g, const wfi_node *node);
/* Makes these n values the outputs of the last node, instead of new ones. */
void wfi_rewrite_give(wf_graph *g, const int32_t *values, int n);

/* The nodes of a graph in a new order, while a pass makes them. wfi_free their
 * `nodes`. */
typedef struct wfi_node_list {
    wfi_node *nodes;
    int32_t n;
    size_t capacity;
} wfi_node_list;
wf_status wfi_node_push(wf_graph *g, wfi_node_list *list, const wfi_node *node);
/* The list replaces the graph's nodes and is empty then. */
void wfi_node_list_take(wf_graph *g, wfi_node_list *list);

#endif
