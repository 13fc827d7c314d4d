#include "plans/mesh.h"

/* Larger meshes are not shown as a grid, and more groups not at all. */
#define MOST_RANKS  16
#define MOST_GROUPS 8
#define FEW_GROUPS  3

enum { MOST_AXES = 8, GRID_AXES = 3 };

typedef struct axis {
    const char *name;
    int size, stride;
} axis;

/* Axes with several ranks, from the innermost on. Returns their number; others have size 1. */
static int find_axes(const wf_plan *plan, axis axes[MOST_AXES]) {
    axis a = {.stride = 1};
    int n = 0;
    for (int k = 0; k < MOST_AXES; k++) axes[k] = (axis){.size = 1};
    for (int k = 0; (a.name = wf_plan_axis(plan, k, &a.size)); k++, a.stride *= a.size)
        if (a.size > 1) axes[n++] = a;
    return n;
}

/* A row of ranks for each place along the second axis. */
static void say_block(const cli *c, const axis axes[MOST_AXES], int block) {
    int first = block * axes[2].stride;
    char label[32] = "";
    if (axes[2].size > 1) snprintf(label, sizeof label, "%s %d", axes[2].name, block);
    say(c, "  %-9s", label);
    for (int k = 0; k < axes[0].size; k++) {
        snprintf(label, sizeof label, "%s %d", axes[0].name, k);
        say(c, " %7s", label);
    }
    say(c, "\n");
    for (int row = 0; row < axes[1].size; row++) {
        label[0] = 0;
        if (axes[1].size > 1) snprintf(label, sizeof label, "%s %d", axes[1].name, row);
        say(c, "    %-7s", label);
        for (int k = 0; k < axes[0].size; k++)
            say(c, " %7d", first + row * axes[1].stride + k * axes[0].stride);
        say(c, "\n");
    }
}

/* "0 1 2 3", or of a large group "0 4 ... 44 (12)". */
static void say_group(const cli *c, const axis *a, int first) {
    int last = first + (a->size - 1) * a->stride;
    if (a->size > 4) {
        say(c, " %d %d ... %d (%d)", first, first + a->stride, last, a->size);
        return;
    }
    for (int k = 0; k < a->size; k++) say(c, " %d", first + k * a->stride);
}

static void say_groups(const cli *c, const axis *a, int n_ranks) {
    int n = 0, n_groups = n_ranks / a->size;
    int most = n_groups > MOST_GROUPS || a->size > 4 ? FEW_GROUPS : MOST_GROUPS;
    say(c, "  groups along %s:", a->name);
    for (int first = 0; first < n_ranks && n < most; first++) {
        if (first / a->stride % a->size) continue;
        say(c, n++ ? " |" : "");
        say_group(c, a, first);
    }
    if (n_groups > most) say(c, " | ... (%d groups)", n_groups);
    say(c, "\n");
}

void mesh_say(const cli *c, const wf_plan *plan) {
    axis axes[MOST_AXES];
    int n = find_axes(plan, axes), n_ranks = wf_plan_n_ranks(plan);
    say(c, "\nranks:\n");
    bool is_grid = n <= GRID_AXES && n_ranks <= MOST_RANKS;
    for (int block = 0; block < axes[2].size && is_grid; block++) say_block(c, axes, block);
    for (int k = 0; k < n; k++) say_groups(c, &axes[k], n_ranks);
}

static json_t *groups_json(const axis *a, int n_ranks) {
    json_t *groups = json_array();
    for (int first = 0; first < n_ranks && a->size > 1; first++) {
        if (first / a->stride % a->size) continue;
        json_t *group = json_array();
        for (int k = 0; k < a->size; k++)
            json_array_append_new(group, json_integer(first + k * a->stride));
        json_array_append_new(groups, group);
    }
    return groups;
}

json_t *mesh_json(const wf_plan *plan) {
    json_t *mesh = json_array();
    axis a = {.stride = 1};
    for (int k = 0; (a.name = wf_plan_axis(plan, k, &a.size)); k++, a.stride *= a.size)
        json_array_append_new(mesh, json_pack("{s:s, s:i, s:i, s:o}", "axis", a.name, "size",
                                              a.size, "stride", a.stride, "groups",
                                              groups_json(&a, wf_plan_n_ranks(plan))));
    return mesh;
}
