/* A pairwise covering array: each row is a plan, a recipe and a carrier, the way in which ranks run
 * and reach each other. Every pair of values that can go together is in one row at least. */
#pragma once

#include "group_ranks.h"

#define MOST_VALUES 20 /* of an option */
#define MOST_ROWS   6000

enum {
    GRID,
    SCHEDULE,
    ZERO,
    ALLREDUCE,
    BUCKET,
    OVERLAP,
    OFFLOAD,
    RECOMPUTE,
    NET,
    WAY,
    USE,
    CARRIER,
    DELAY,
    N_OPTIONS
};
enum { WIDE, SMALL, PLAIN, TOKENS, TOKENS_BF16, N_NETS };
enum { TRAINED, RESUMED, CONTINUED };
enum { MPI = PROCESSES + 1, OPENCL, CUDA }; /* carriers, as a ranks_way */

/* A plan is the values from GRID to RECOMPUTE. A strategy with a colon comes first, for
 * sharded_parse. */
static const char *const options[N_OPTIONS][MOST_VALUES] = {
    [GRID] = {"dp=2", "dp=2,pp=2", "pp=3,cut=block+last", "dp=4", "dataparallel=2", "", "dp=2,pp=3",
              "head:dp=2", "pp=2", "dp=3,pp=2", "dataparallel=4,output=3",
              "block:dp=4,head:dataparallel=2", "tp=2,sp", "tp=2,dp=2,axes=dp+tp", "tp=2,sp,pp=2",
              "dp=2,lanes=3+1", "pp=4", "dp=4,pp=2"},
    [SCHEDULE] = {"", ",schedule=zb1", ",schedule=breadth", ",schedule=gpipe", ",schedule=zbv",
                  ",schedule=interleaved", ",schedule=auto", ",schedule=zb2", ",schedule=vhalf",
                  ",schedule=vmin"},
    [ZERO] = {"", ",zero=1", ",zero=2", ",zero=3", "whole gradient: ", ",zero=3,prefetch=0",
              ",zero=3,prefetch=3", ",zero=1,shard=2", ",zero=3,shard=2"},
    [ALLREDUCE] = {"", ",allreduce=tree", ",allreduce=root", ",allreduce=pairwise",
                   ",allreduce=direct", ",allreduce=ring"},
    [BUCKET] = {"", ",bucket=1", ",bucket=1KiB", ",bucket=12KiB"},
    [OVERLAP] = {"", ",overlap=off"},
    [OFFLOAD] = {"", ",offload=state", ",offload=params:disk", ",offload=activations",
                 ",offload=params+state:disk", ",offload=activations:disk", ",offload=params",
                 ",offload=activations+params:disk+state"},
    [RECOMPUTE] = {"", ",recompute=all", ",recompute=selective", ",recompute=head"},
    [NET] = {[WIDE] = "wide", "small", "plain", "tokens", "tokens in bf16"},
    [WAY] = {"AdamW", "SGD, clipped", "uneven, AdamW, clipped", "uneven, descent",
             "few microbatches"},
    [USE] = {[TRAINED] = "trained", "resumed", "continued"},
    [CARRIER] = {[THREADS] = "threads", "messages", "processes", "MPI", "OpenCL", "CUDA"},
    [DELAY] = {"", "delayed"},
};

typedef struct row {
    int8_t value[N_OPTIONS]; /* -1: open */
} row;

static int n_values(int option) {
    int n = 0;
    while (n < MOST_VALUES && options[option][n]) n++;
    return n;
}

static const char *text_at(const row *r, int option) {
    return options[option][(int)r->value[option]];
}

static int number_after(const char *text, const char *key) {
    const char *at = strstr(text, key);
    return at ? atoi(at + strlen(key)) : 1;
}

static int n_replicas(const char *grid) {
    int n = number_after(grid, "dp="), n_spread = number_after(grid, "dataparallel=");
    return n > n_spread ? n : n_spread;
}

static int n_ranks(const char *grid) {
    return n_replicas(grid) * number_after(grid, "pp=") * number_after(grid, "tp=");
}

static bool has(const char *text, const char *words) {
    return strstr(text, words) != NULL;
}

/* ---- pairs that cannot be ---- */

/* Whether a schedule gives each device two stages. */
static bool has_chunks(const char *schedule) {
    return has(schedule, "zbv") || has(schedule, "interleaved") || has(schedule, "=v");
}

/* Of uneven lanes no parameters move. */
static bool lanes_fit(int option, int y, const char *value) {
    if (option == WAY) return y < 2;
    if (option == ZERO) return !has(value, "zero=3") && !has(value, "shard");
    return option != OFFLOAD || !has(value, "params");
}

/* Eight ranks are for schedules of two stages a rank with state that four of them divide. */
static bool eight_fit(int option, int y, const char *value) {
    if (option == SCHEDULE) return has_chunks(value);
    if (option == ZERO) return has(value, "shard");
    return option == NET ? y == SMALL : option == WAY || !y;
}

/* Whether a grid goes with value y of another option. Networks have four units, `plain` two. */
static bool grid_fits(const char *grid, int option, int y) {
    const char *value = options[option][y];
    bool is_spread = has(grid, "dataparallel") || has(grid, ":"), is_tensor = has(grid, "tp=");
    int n_stages = number_after(grid, "pp="), n = n_ranks(grid);
    if (option == NET && y == PLAIN && (n_stages > 2 || has(grid, "block"))) return false;
    if (option == NET && is_tensor != (y >= TOKENS)) return !is_tensor;
    if (option == CARRIER && y == MPI) return n == 2 || n == 4;
    if (option == CARRIER && y == OPENCL && (is_tensor || n_stages > 2 || has(grid, "block")))
        return false;
    if (option == CARRIER && y) return n > 1 && n <= 4; /* each compiles the program of all */
    if (has(grid, "dp=4,pp=2")) return eight_fit(option, y, value);
    if (has(grid, "lanes") && !lanes_fit(option, y, value)) return false;
    if (!*value) return true;
    if (option == SCHEDULE) return !is_spread && (!has_chunks(value) || n_stages == 2);
    if (option == ALLREDUCE) /* a ring of more sums in another order */
        return !is_spread && (!has(value, "ring") || (n_replicas(grid) == 2 && !has(grid, "tp=4")));
    if (option == OFFLOAD && has(value, "params")) return !is_spread;
    if (option == ZERO) return !is_spread && (!has(value, "shard") || n_replicas(grid) == 4);
    return true;
}

static bool pair_fits(int a, int x, int b, int y) {
    const char *one = options[a][x], *other = options[b][y];
    if (a == GRID) return grid_fits(one, b, y);
    if (a == ZERO && b == ALLREDUCE) return !*other || !has(one, "zero");
    if (a == SCHEDULE && (b == NET ? y == PLAIN : b == CARRIER && y == OPENCL))
        return !has_chunks(one);
    /* Kernels of few networks are compiled, and emulated. */
    if (a == NET && b == CARRIER && y >= OPENCL) return x == PLAIN || (x == TOKENS && y == CUDA);
    if (a == USE && b == CARRIER && y >= OPENCL) return x == TRAINED;
    if (a == CARRIER && b == DELAY && x >= MPI) return !y;
    return true;
}

/* Whether the value goes with all that are set. */
static bool fits(const row *r, int option, int value) {
    for (int k = 0; k < N_OPTIONS; k++) {
        if (k == option || r->value[k] < 0) continue;
        if (!(k < option ? pair_fits(k, r->value[k], option, value)
                         : pair_fits(option, value, k, r->value[k])))
            return false;
    }
    return true;
}

/* ---- rows ---- */

static row rows[MOST_ROWS];
static int n_rows;
static bool is_covered[N_OPTIONS][MOST_VALUES][N_OPTIONS][MOST_VALUES];

static int count_new(const row *r, int option, int value) {
    int n = 0;
    for (int k = 0; k < N_OPTIONS; k++)
        n += r->value[k] >= 0 && !is_covered[option][value][k][(int)r->value[k]];
    return n;
}

/* The value that covers most new pairs, of those that were not tried; in full runs any; or -1. Of
 * equal ones the cheapest use and carrier, or any value in turn. */
static int choose(const row *r, int option, const bool *is_tried) {
    int n = n_values(option), best = -1, most = -1;
    bool by_cost = option >= USE && !test_is_full();
    uint64_t from = by_cost ? 0 : ((uint64_t)n_rows * 2654435761u >> 7) + (uint64_t)option;
    for (int k = 0; k < n; k++) {
        int value = (int)((from + (uint64_t)k) % (uint64_t)n);
        if (is_tried[value] || !fits(r, option, value)) continue;
        int n_new = test_is_full() ? 0 : count_new(r, option, value);
        if (n_new > most) best = value, most = n_new;
    }
    return best;
}

/* Sets the options that are open; false: none go together. */
static bool complete(row *r) {
    bool is_tried[MOST_VALUES] = {false};
    int option = 0, value;
    while (option < N_OPTIONS && r->value[option] >= 0) option++;
    if (option == N_OPTIONS) return true;
    while ((value = choose(r, option, is_tried)) >= 0) {
        is_tried[value] = true;
        r->value[option] = (int8_t)value;
        if (complete(r)) return true;
        r->value[option] = -1;
    }
    return false;
}

/* Adds a row with this pair. */
static bool add_row(int a, int x, int b, int y) {
    row *r = &rows[n_rows];
    memset(r->value, -1, sizeof r->value);
    r->value[a] = (int8_t)x;
    r->value[b] = (int8_t)y;
    if (!complete(r)) return false;
    for (int k = 0; k < N_OPTIONS; k++)
        for (int i = 0; i < N_OPTIONS; i++)
            is_covered[k][(int)r->value[k]][i][(int)r->value[i]] = true;
    assert_true(++n_rows < MOST_ROWS);
    return true;
}

/* Fills `rows`; returns how many pairs fit but are in no row, and names them if `names`. */
static int add_rows(bool names) {
    int n_open = 0;
    for (int a = 0; a < N_OPTIONS; a++)
        for (int b = a + 1; b < N_OPTIONS; b++)
            for (int x = 0; x < n_values(a); x++)
                for (int y = 0; y < n_values(b); y++) {
                    if (!pair_fits(a, x, b, y)) continue;
                    if (is_covered[a][x][b][y] && !test_is_full()) continue;
                    if (add_row(a, x, b, y)) continue;
                    n_open++;
                    if (names)
                        print_message("no row has '%s' and '%s'\n", options[a][x], options[b][y]);
                }
    return n_open;
}

/* The plan's text. */
static void plan_text(const row *r, char text[200]) {
    const char *zero = text_at(r, ZERO);
    bool is_named = has(zero, ": ");
    int used = snprintf(text, 200, "%s", is_named ? zero : "");
    for (int k = GRID; k <= RECOMPUTE; k++) {
        const char *value = k == ZERO && is_named ? "" : text_at(r, k);
        bool is_first = !used || text[used - 1] == ' ';
        used +=
            snprintf(text + used, 200 - (size_t)used, "%s", value + (is_first && *value == ','));
    }
}
