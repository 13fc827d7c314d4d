/* Describes the kernels of equal nodes once: a library's state of a kernel is the largest part of a
 * planned node. For programs that are inspected and never run. Private.
 */
#pragma once

#include "kernel/kernel.h"

typedef struct wfi_descriptions wfi_descriptions;

/* For the nodes of graph `g`, which outlives the descriptions. */
wf_status wfi_descriptions_create(const wf_graph *g, wfi_descriptions **descriptions_out);
/* All kernels made from the descriptions must be destroyed first. NULL is allowed. */
void wfi_descriptions_destroy(wfi_descriptions *descriptions);

/* wfi_kernel_create, or, if it `adds`, wfi_kernel_create_adding, for that node of the graph. The
 * kernel is neither prepared nor run. */
wf_status wfi_descriptions_kernel(wfi_descriptions *descriptions, const wfi_node *node,
                                  const wfi_kernel_options *options, bool adds,
                                  wfi_kernel **kernel_out);
