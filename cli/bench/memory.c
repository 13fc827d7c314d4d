/* weft bench memory: one recipe under many plans, each a row: the bytes that a rank needs, planned
 * and measured, the time of a step, and the bytes that it sends. PyTorch's DDP and FSDP beside
 * them. Rows take turns.
 */
#include "bench/memory.h"
#include "common/speed.h"
#include "common/text.h"
#include "job/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 64
#define SCRIPT   "pytorch_memory.py"

/* ---- rows ---- */

static exit_status add(rounds *b, const char *peer, const char *plan, size_t n, int n_ranks) {
    char asked[500];
    snprintf(asked, sizeof asked, "%.*s", (int)n, plan);
    json_t *row =
        json_pack("{s:s, s:s+, s:s, s:i, s:{s:n, s:n}, s:n, s:n, s:n}", ".asked", asked, ".name",
                  peer ? "PyTorch " : "", n ? asked : "one rank", "plan", asked, "ranks", n_ranks,
                  "peak_bytes", "planned", "measured", "step_ms", "runs", "sent_bytes");
    if (peer)
        json_object_set_new(row, ".peer", json_true());
    else
        json_object_update_new(row, json_pack("{s:n, s:n, s:n, s:n, s:n, s:n}", "parameter_bytes",
                                              "optimizer_bytes", "disk_bytes", "disk_plain_ms",
                                              "disk_share", "weights_sha256"));
    return rounds_add(b, row, MAX_ROWS);
}

/* A plan says how many ranks it wants, at most as many as are asked for. */
static exit_status add_plan(rounds *b, const char *text, size_t n) {
    wf_plan *plan;
    char *copy = strndup(text, n);
    if (!copy) return complain(EXIT_FAILED, "no memory left");
    wf_status status = wf_plan_parse(b->c->ctx, copy, &plan);
    free(copy);
    if (status != WF_OK) return complain_of(b->c, status);
    int n_ranks = wf_plan_n_ranks(plan);
    wf_plan_destroy(plan);
    if (option_is_given(&b->c->o, OPT_ranks) && n_ranks > b->c->o.ranks)
        return complain(EXIT_USAGE, "--plans: '%.*s' needs %d ranks, but --ranks is %lld", (int)n,
                        text, n_ranks, (long long)b->c->o.ranks);
    return add(b, NULL, text, n, n_ranks);
}

/* Plans that divide one more tensor over the replicas in each row. */
static exit_status add_usual_plans(rounds *b) {
    static const char *const more[] = {"", ",zero=1", ",zero=2", ",zero=3",
                                       ",zero=3,schedule=breadth"};
    char plan[100];
    exit_status bad = EXIT_DONE;
    for (size_t i = 0; i < sizeof more / sizeof *more && !bad; i++) {
        snprintf(plan, sizeof plan, "dp=%lld%s", (long long)b->c->o.ranks, more[i]);
        bad = add_plan(b, plan, strlen(plan));
    }
    return bad;
}

static exit_status add_rows(rounds *b) {
    static const char *const ways[] = {"ddp", "fsdp", "fsdp-recompute"};
    const options *o = &b->c->o;
    exit_status bad = EXIT_DONE;
    for (const char *at = o->plans; at && !bad;) {
        size_t n = strcspn(at, ";");
        bad = add_plan(b, at, n);
        at = at[n] ? at + n + 1 : NULL;
    }
    if (!o->plans) bad = add_usual_plans(b);
    for (size_t i = 0; o->peers && i < sizeof ways / sizeof *ways && !bad; i++)
        bad = add(b, ways[i], ways[i], strlen(ways[i]), (int)o->ranks);
    return bad;
}

/* ---- a run of weft ---- */

/* Sums have the same order under every plan: that of as many lanes as the largest has ranks. */
static void common_words(const rounds *b, const json_t *row, const char *name, words *w) {
    int n_most = 1;
    for (json_t *other = NULL; (other = next_row(b->rows, other));)
        n_most = (int)fmax(n_most, row_number(other, "ranks"));
    rounds_words(b, name, FOR_BENCH, w);
    if (!option_is_given(&b->c->o, OPT_n_lanes)) words_add(w, "--lanes=%d", n_most);
    if (!option_is_given(&b->c->o, OPT_n_micro)) words_add(w, "--micro=%d", n_most);
    words_add(w, "--plan=%s", row_text(row, ".asked"));
}

/* The highest peak keeps parameters and the optimizer's state all the time. */
static exit_status plan_weft(rounds *b, json_t *row) {
    words w = {0};
    json_t *report;
    double most = -1;
    common_words(b, row, "plan", &w);
    exit_status bad = apart_run(&b->run, APART_SELF, &w, 0, 1, false, &report);
    words_release(&w);
    if (bad) return bad;
    const json_t *ranks = json_object_get(report, "ranks");
    for (json_t *rank = NULL; (rank = next_row(ranks, rank));) {
        if (row_number(rank, "peak_bytes") <= most) continue;
        most = row_number(rank, "peak_bytes");
        double optimizer = row_number(rank, "optimizer_bytes");
        json_object_set(row, "optimizer_bytes", json_object_get(rank, "optimizer_bytes"));
        json_object_set_new(
            row, "parameter_bytes",
            json_integer((json_int_t)(row_number(rank, "state_bytes") - optimizer)));
    }
    json_decref(report);
    return EXIT_DONE;
}

/* Every run of a row does the same. */
static exit_status keep(json_t *row, const json_t *report) {
    json_t *peaks = json_object_get(report, "peak_bytes");
    json_t *measured = json_object_get(peaks, "measured");
    json_t *before = json_object_get(json_object_get(row, "peak_bytes"), "measured");
    const char *plan = row_text(row, "plan");
    if (!measured) return complain(EXIT_FAILED, "a run of %s reports no peak", plan);
    if (!json_is_null(before) && !json_equal(before, measured))
        return complain(EXIT_FAILED,
                        "plan %s: two runs have different peaks; this is a bug of weft", plan);
    json_object_set(row, "peak_bytes", peaks);
    json_object_set(row, "sent_bytes", json_object_get(report, "sent_bytes"));
    return EXIT_DONE;
}

static exit_status add_time(json_t *row, json_t *report) {
    double ms = row_number(report, "step_ms.median");
    json_decref(report);
    if (!(ms > 0))
        return complain(EXIT_FAILED, "a run of %s reports no step's time", row_text(row, "plan"));
    return row_append(row, "runs", ms);
}

/* The bytes of all ranks' files together. */
static void add_disk(json_t *row, const json_t *report) {
    const json_t *list = json_object_get(json_object_get(report, "disk_peak_bytes"), "planned");
    json_int_t sum = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        sum += (json_int_t)json_number_value(json_array_get(list, i));
    if (sum) json_object_set_new(row, "disk_bytes", json_integer(sum));
}

/* Larger sizes are measured by a part. */
#define MOST_BYTES ((size_t)1 << 30)

/* Where the row has "disk_bytes": adds to ".disk_ms" how long its disk needs for as much, read once
 * and written once by plain calls. In the folder that files of offload= are in, and past the
 * system's cache as these. Complains. */
static exit_status measure_disk(rounds *b, json_t *row) {
    char path[300];
    double ms, bytes = row_number(row, "disk_bytes");
    if (!(bytes > 0)) return EXIT_DONE;
    size_t n = bytes < (double)MOST_BYTES ? (size_t)bytes : MOST_BYTES;
    n = (n + SPEED_DISK_CHUNK - 1) / SPEED_DISK_CHUNK * SPEED_DISK_CHUNK;
    if (!speed_of_disk(apart_path(&b->run, "disk", path), n, &ms))
        return complain(EXIT_FAILED, "a file of %zu bytes in %s: %s", n, b->run.folder,
                        strerror(errno));
    return row_append(row, ".disk_ms", ms * bytes / (double)n);
}

static exit_status run_weft(rounds *b, json_t *row) {
    int n_ranks = (int)row_number(row, "ranks");
    words w = {0};
    json_t *report;
    exit_status bad = json_is_array(json_object_get(row, "runs")) ? EXIT_DONE : plan_weft(b, row);
    if (bad) return bad;
    common_words(b, row, "bench train", &w);
    words_add(&w, "--repeat=%lld", (long long)b->c->o.steps);
    if (n_ranks > 1) words_add(&w, "--ranks=%d", n_ranks);
    bad = rounds_weft(b, row, &w, &report);
    if (bad) return bad;
    bad = keep(row, report);
    add_disk(row, report);
    if (bad) {
        json_decref(report);
        return bad;
    }
    bad = add_time(row, report);
    return bad ? bad : measure_disk(b, row);
}

/* ---- PyTorch ---- */

/* A way that fails is left out; the table says why. */
static exit_status run_row(rounds *b, json_t *row) {
    const wf_recipe *recipe = &b->c->o.recipe;
    int n_ranks = (int)row_number(row, "ranks");
    words w = {0};
    json_t *report = NULL;
    char why[300] = SCRIPT " is not installed with weft";
    exit_status bad = EXIT_DONE;
    if (!json_object_get(row, ".peer")) return run_weft(b, row);
    if (peer_train_words(&b->run, SCRIPT, NULL, recipe->batch / n_ranks, &w)) {
        words_add(&w, "--way=%s", row_text(row, "plan"));
        bad = peer_run(&b->run, &w, n_ranks, n_ranks * recipe->n_threads, why, b->peer_version,
                       &report);
    }
    if (bad) return bad;
    if (!report) {
        json_object_set_new(row, ".left_out", json_true());
        json_object_set_new(row, "no_figures", json_string(why));
        return EXIT_DONE;
    }
    json_object_set(json_object_get(row, "peak_bytes"), "measured",
                    json_object_get(report, "peak_bytes"));
    return add_time(row, report);
}

/* ---- results ---- */

/* A plan says where things are, and may change no bit of them; with sums=free it may. */
static exit_status check_bits(const rounds *b) {
    const json_t *first = NULL;
    for (json_t *row = NULL; (row = next_row(b->rows, row));) {
        const char *sha = row_text(row, "weights_sha256");
        if (json_object_get(row, ".peer") || strstr(row_text(row, "plan"), "sums=free")) continue;
        if (!first) first = row;
        if (strcmp(row_text(first, "weights_sha256"), sha))
            return complain(EXIT_FAILED,
                            "the weights are %.12s... under the plan %s and %.12s... under %s; "
                            "this is a bug of weft",
                            row_text(first, "weights_sha256"), row_text(first, "plan"), sha,
                            row_text(row, "plan"));
    }
    return EXIT_DONE;
}

/* "disk_share" is the part of a step in which a disk that does nothing else could read and write
 * the bytes that are there. */
static exit_status finish_rows(rounds *b) {
    for (json_t *row = NULL; (row = next_row(b->rows, row));) {
        double ms = row_median(row, "runs"), disk_ms = row_median(row, ".disk_ms");
        row_set(row, "step_ms", ms);
        row_set(row, "disk_plain_ms", disk_ms);
        row_set(row, "disk_share", disk_ms / ms);
        if (!isnan(disk_ms)) continue;
        json_object_del(row, "disk_bytes");
        json_object_del(row, "disk_plain_ms");
        json_object_del(row, "disk_share");
    }
    return check_bits(b);
}

static void say_disks(const rounds *b) {
    for (json_t *row = NULL; (row = next_row(b->rows, row));) {
        char bytes[TEXT_BYTES];
        if (isnan(row_number(row, "disk_share"))) continue;
        say(b->c,
            "%s: %s on disk; plain reads and writes of as much take %.2f ms, %.0f %% of a step\n",
            row_text(row, ".name"), text_of_bytes(bytes, row_number(row, "disk_bytes")),
            row_number(row, "disk_plain_ms"), 100 * row_number(row, "disk_share"));
    }
}

static void say_rows(const rounds *b) {
    static const column columns[] = {{"plan", ".name", -35, AS_TEXT},
                                     {"ranks", "ranks", 6, AS_TEXT},
                                     {"planned", "peak_bytes.planned", 13, AS_BYTES},
                                     {"measured", "peak_bytes.measured", 13, AS_BYTES},
                                     {"ms a step", "step_ms", 11, 2},
                                     {"sent", "sent_bytes", 13, AS_BYTES}};
    say(b->c, "\n");
    SAY_COLUMNS(b->c, b->rows, columns);
    say(b->c, "\n"
              "bytes are those of the rank with the most; weft: bytes on its device; PyTorch: "
              "growth of the\n"
              "process since before the model was made\n"
              "all of weft's rows have the same weights, bit for bit\n");
    say_disks(b);
}

/* ---- the command ---- */

static exit_status resolve(cli *c) {
    const options *o = &c->o;
    exit_status bad = apart_resolve(c, 3);
    if (bad) return bad;
    if (o->recipe.n_micro == MICRO_AUTO)
        return complain(EXIT_USAGE,
                        "--micro auto: rows are compared, so all have as many microbatches; give "
                        "their number");
    if (o->peers && o->recipe.batch % o->ranks)
        return complain(EXIT_USAGE,
                        "--peers: PyTorch's %lld ranks have equal parts of a batch, which --batch "
                        "%lld has not",
                        (long long)o->ranks, (long long)o->recipe.batch);
    return EXIT_DONE;
}

exit_status run_bench_memory(cli *c) {
    static const bench parts = {add_rows, run_row, .finish = finish_rows, .say_rows = say_rows,
                                .plot = memory_plot};
    rounds b = {0};
    exit_status bad = resolve(c);
    return bad ? bad : rounds_bench(&b, c, &parts);
}
