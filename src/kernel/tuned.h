/* The recipe's `tuned`: which way computes a node, by its shape. Private.
 *
 * "SHAPE=WAY+SHAPE=WAY": a shape is the op with its operands and attributes, a way one of those
 * that an implementation has for it (kernel.h). A shape that is not in the table, or cannot use the
 * algorithm named, uses the default algorithm.
 */
#pragma once

#include "graph/op.h"

#define WFI_NODE_TEXT 256
#define WFI_WAY_TEXT  96

/* "conv2d:32x64x8x8c:64x64x3x3:32x64x8x8c:1.1.1.0": operands by their dims, c: blocked by 16
 * channels, h: BF16, -: absent; then attributes. "" if there is no room. */
const char *wfi_node_text(const wf_graph *g, const wfi_node *node, char text[WFI_NODE_TEXT]);
/* The way of that shape; "": none is named. */
const char *wfi_tuned_find(const char *tuned, const char *shape, char way[WFI_WAY_TEXT]);
/* Whether `name` may stand in a table: no separator is in it, and it is not too long. */
bool wfi_tuned_may_name(const char *name, size_t n, size_t most);
/* Errors: INVALID_ARG: the text is not one of shapes and ways, or has a shape twice. */
wf_status wfi_tuned_check(wf_context *ctx, const char *tuned);
