#include "mesh.h"

/* More columns, rows, blocks of rows and groups are not shown as text. */
#define MOST_COLUMNS 16
#define MOST_ROWS    16
#define MOST_BLOCKS  8
#define MOST_GROUPS  8

enum { MOST_AXES = 3 };

typedef struct axis {
    const char *name;
    int size, stride;
} axis;

/* Those with several ranks in front, from the innermost on. Returns how many these are. */
static int find_axes(const wf_plan *plan, axis axes[MOST_AXES]) {
    int n = 0, end = MOST_AXES, stride = 1;
    for (int k = 0; k < MOST_AXES; k++) {
        axis a = {.stride = stride};
        a.name = wf_plan_axis(plan, k, &a.size);
        axes[a.size > 1 ? n++ : --end] = a;
        stride *= a.size;
    }
    return n;
}

static int least(int a, int b) {
    return a < b ? a : b;
}

/* A row of ranks for each place along the second axis. */
static void say_block(const cli *c, const axis axes[MOST_AXES], int block) {
    int first = block * axes[2].stride, n = least(axes[0].size, MOST_COLUMNS);
    char label[32] = "";
    if (axes[2].size > 1) snprintf(label, sizeof label, "%s %d", axes[2].name, block);
    say(c, "  %-9s", label);
    for (int k = 0; k < n; k++) {
        snprintf(label, sizeof label, "%s %d", axes[0].name, k);
        say(c, " %7s", label);
    }
    say(c, "%s\n", n < axes[0].size ? " ..." : "");
    for (int row = 0; row < least(axes[1].size, MOST_ROWS); row++) {
        label[0] = 0;
        if (axes[1].size > 1) snprintf(label, sizeof label, "%s %d", axes[1].name, row);
        say(c, "    %-7s", label);
        for (int k = 0; k < n; k++)
            say(c, " %7d", first + row * axes[1].stride + k * axes[0].stride);
        say(c, "%s\n", n < axes[0].size ? " ..." : "");
    }
    if (axes[1].size > MOST_ROWS) say(c, "    ...\n");
}

static void say_groups(const cli *c, const axis *a, int n_ranks) {
    int n = 0;
    say(c, "  groups along %s:", a->name);
    for (int first = 0; first < n_ranks && n <= MOST_GROUPS; first++) {
        if (first / a->stride % a->size) continue;
        say(c, n++ ? " |" : "");
        for (int k = 0; k < least(a->size, MOST_COLUMNS) && n <= MOST_GROUPS; k++)
            say(c, " %d", first + k * a->stride);
        if (n > MOST_GROUPS || a->size > MOST_COLUMNS) say(c, " ...");
    }
    say(c, "\n");
}

void mesh_say(const cli *c, const wf_plan *plan) {
    axis axes[MOST_AXES];
    int n = find_axes(plan, axes), n_ranks = wf_plan_n_ranks(plan);
    say(c, "\nranks:\n");
    for (int block = 0; block < least(axes[2].size, MOST_BLOCKS); block++)
        say_block(c, axes, block);
    if (axes[2].size > MOST_BLOCKS) say(c, "  ...\n");
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
    int stride = 1;
    for (int k = 0; k < MOST_AXES; k++) {
        axis a = {.stride = stride};
        a.name = wf_plan_axis(plan, k, &a.size);
        stride *= a.size;
        json_array_append_new(mesh, json_pack("{s:s, s:i, s:i, s:o}", "axis", a.name, "size",
                                              a.size, "stride", a.stride, "groups",
                                              groups_json(&a, wf_plan_n_ranks(plan))));
    }
    return mesh;
}
