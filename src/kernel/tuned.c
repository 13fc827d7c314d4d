#include "kernel/tuned.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- shapes ---- */

static void add(char *text, const char *more) {
    size_t n = strlen(text);
    if (n < WFI_NODE_TEXT) snprintf(text + n, WFI_NODE_TEXT - n, "%s", more);
}

static void add_operand(char *text, const wf_graph *g, int32_t v) {
    char number[32];
    add(text, ":");
    if (v < 0) add(text, "-");
    if (v < 0) return;
    const wfi_value *value = wfi_value_at(g, v);
    for (int d = 0; d < value->shape.n_dims; d++) {
        snprintf(number, sizeof number, "%s%" PRId64, d ? "x" : "", value->shape.dim[d]);
        add(text, number);
    }
    if (value->layout == WFI_C16) add(text, "c");
    if (value->dtype == WF_BF16) add(text, "h");
}

const char *wfi_node_text(const wf_graph *g, const wfi_node *node, char text[WFI_NODE_TEXT]) {
    char attr[WFI_ATTR_TEXT];
    snprintf(text, WFI_NODE_TEXT, "%s", node->op->name);
    for (int i = 0; i < node->n_in; i++) add_operand(text, g, node->in[i]);
    for (int i = 0; i < node->n_out; i++) add_operand(text, g, node->out[i]);
    (void)wfi_attr_text(node->op, &node->attr, attr);
    for (char *c = attr; *c; c++)
        if (*c == ' ') *c = '.';
    add(text, ":");
    add(text, attr);
    if (!wfi_tuned_may_name(text, strlen(text), WFI_NODE_TEXT - 2)) *text = 0;
    return text;
}

/* ---- the table ---- */

bool wfi_tuned_may_name(const char *name, size_t n, size_t most) {
    if (!n || n > most) return false;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_word && !(c && strchr(":._-", c))) return false;
    }
    return true;
}

typedef struct entry {
    const char *shape, *way;
    size_t n_shape, n_way;
} entry;

/* The next one; false at the end. One without '=' has no way. */
static bool entry_next(const char **at, entry *out) {
    if (!**at) return false;
    size_t n = strcspn(*at, "+");
    *out = (entry){.shape = *at, .n_shape = strcspn(*at, "+=")};
    out->way = *at + out->n_shape + (out->n_shape < n);
    out->n_way = (size_t)(*at + n - out->way);
    *at += n + ((*at)[n] == '+');
    return true;
}

static bool find(const char *tuned, const char *shape, size_t n_shape, entry *out) {
    while (entry_next(&tuned, out))
        if (out->n_shape == n_shape && !memcmp(out->shape, shape, n_shape)) return true;
    return false;
}

const char *wfi_tuned_find(const char *tuned, const char *shape, char way[WFI_WAY_TEXT]) {
    entry found;
    *way = 0;
    if (find(tuned, shape, strlen(shape), &found))
        snprintf(way, WFI_WAY_TEXT, "%.*s", (int)found.n_way, found.way);
    return way;
}

wf_status wfi_tuned_check(wf_context *ctx, const char *tuned) {
    entry now, first;
    for (const char *at = tuned; entry_next(&at, &now);) {
        int n_shown = now.n_shape < 80 ? (int)now.n_shape : 80;
        if (!wfi_tuned_may_name(now.shape, now.n_shape, WFI_NODE_TEXT - 1) ||
            !wfi_tuned_may_name(now.way, now.n_way, WFI_WAY_TEXT - 1))
            return wfi_fail(ctx, WF_INVALID_ARG,
                            "recipe: tuned at '%.*s': it takes SHAPE=WAY joined by +, as weft tune "
                            "writes them",
                            n_shown, now.shape);
        find(tuned, now.shape, now.n_shape, &first);
        if (first.shape != now.shape)
            return wfi_fail(ctx, WF_INVALID_ARG, "recipe: tuned has the shape '%.*s' twice",
                            n_shown, now.shape);
    }
    return WF_OK;
}
