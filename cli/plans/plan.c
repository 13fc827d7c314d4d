/* weft plan: the cost of a plan, before a run. */
#include "checkpoint/checkpoint.h"
#include "common/fold.h"
#include "common/text.h"
#include "common/tuned.h"
#include "draw/timeline_report.h"
#include "job/job.h"
#include "job/progress.h"
#include "job/report.h"
#include "plans/cluster.h"
#include "plans/mesh.h"
#include "plans/units.h"
#include "restart/snapshot.h"
#include "train/updates.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MISSING_BYTES 400

/* The share of the peak that is gaps between blocks: the peak less the bytes alive at once. */
static double fragmentation_of(const wf_rank_summary *r) {
    return r->peak_bytes ? 1 - (double)r->bound_bytes / (double)r->peak_bytes : 0;
}

/* The copy of --on-nan skip is host memory too. */
static wf_rank_summary summarize(const cli *c, const wf_program *p, int rank) {
    wf_rank_summary r = wf_program_rank(p, rank);
    if (c->o.on_nan == ON_NAN_SKIP) r.host_peak_bytes += wf_program_undo_bytes(p, rank);
    return r;
}

static double worst_fragmentation(const wf_program *p) {
    double worst = 0;
    for (int rank = 0; rank < wf_program_n_ranks(p); rank++) {
        wf_rank_summary r = wf_program_rank(p, rank);
        worst = fmax(worst, fragmentation_of(&r));
    }
    return worst;
}

/* ---- the answer ---- */

static size_t bytes_at(const cli *c, const wf_program *p, int rank, size_t field) {
    wf_rank_summary r = summarize(c, p, rank);
    return *(const size_t *)((const char *)&r + field);
}

/* Marks the ranks with the most bytes, as they are printed. `field`: an offset in a summary.
 * Returns the first. */
static int find_largest(const cli *c, const wf_program *p, size_t field, size_t *most_out,
                        int *same_as) {
    int n_ranks = wf_program_n_ranks(p), first = -1;
    char most[TEXT_BYTES], own[TEXT_BYTES];
    *most_out = 0;
    for (int r = 0; r < n_ranks; r++)
        if (bytes_at(c, p, r, field) > *most_out) *most_out = bytes_at(c, p, r, field);
    text_of_bytes(most, (double)*most_out);
    for (int r = 0; r < n_ranks; r++) {
        bool is_largest = !strcmp(text_of_bytes(own, (double)bytes_at(c, p, r, field)), most);
        if (is_largest && first < 0) first = r;
        same_as[r] = is_largest ? first : -1;
    }
    return first;
}

/* "peak 1.5 MiB on ranks 0-3, in unit head; limit 1.0 MiB" */
static void say_peak(const cli *c, const wf_program *p, const unit_table *units, int *same_as) {
    char peak[TEXT_BYTES], limit[TEXT_BYTES], ranks[RANKS_BYTES];
    size_t most;
    int n_ranks = wf_program_n_ranks(p),
        first = find_largest(c, p, offsetof(wf_rank_summary, peak_bytes), &most, same_as);
    wf_rank_summary r = summarize(c, p, first);
    text_of_ranks(ranks, same_as, n_ranks, first);
    text_of_bytes(peak, (double)most);
    say(c, "%-8s%s%s%s", "peak", peak, n_ranks > 1 ? " on " : "", n_ranks > 1 ? ranks : "");
    if (*r.peak_unit) say(c, ", in unit %.*s", units_name_bytes(units, r.peak_unit), r.peak_unit);
    if (c->o.device_memory)
        say(c, "; limit %s\n", text_of_bytes(limit, (double)c->o.device_memory));
    else
        say(c, "; --device-memory SIZE tests if it fits\n");
    if (c->o.snapshot)
        say(c, "%-8s%s of host memory for snapshots, shared by all ranks\n", "",
            text_of_bytes(peak, (double)snapshot_bytes(p)));
    first = find_largest(c, p, offsetof(wf_rank_summary, host_peak_bytes), &most, same_as);
    if (!most) return;
    text_of_bytes(peak, (double)most);
    say(c, "%-8s%s of host memory%s%s\n", "", peak, n_ranks > 1 ? " on " : "",
        n_ranks > 1 ? text_of_ranks(ranks, same_as, n_ranks, first) : "");
}

static void say_step(const cli *c, const wf_program *p, const wf_timeline *simulated,
                     const wf_dry_run *run, int *same_as) {
    char step[TEXT_BYTES], sent[TEXT_BYTES], flops[TEXT_BYTES], ranks[RANKS_BYTES];
    bool is_measured = wf_costs_is_measured(wf_program_costs(p));
    size_t most;
    int n_ranks = wf_program_n_ranks(p),
        first = find_largest(c, p, offsetof(wf_rank_summary, sent_bytes), &most, same_as);
    say(c, "%-8s%s, %s FLOP; simulated with %s\n", "step",
        text_of_us(step, wf_timeline_step_us(simulated)), text_of_count(flops, run->flops),
        is_measured ? "measured costs" : "assumed rates (--costs measured measures them)");
    if (n_ranks == 1) return;
    text_of_ranks(ranks, same_as, n_ranks, first);
    say(c, "%-8s%s a step by %s", "sent", text_of_bytes(sent, (double)most), ranks);
    say(c, "; %s in all\n", text_of_bytes(sent, (double)run->sent_bytes));
}

/* ---- ranks ---- */

enum { UNITS_BYTES = 64, LINE_BYTES = 400, ALIVE = 1, HELD = 2, N_COLUMNS = 12 };

/* The table of ranks. A column without any bytes is left out. */
static const struct {
    const char *title, *field; /* of the rank in the report */
} columns[N_COLUMNS] = {
    {"peak", "peak_bytes"},           {"alive", "bound_bytes"},     {"held", "state_bytes"},
    {"optimizer", "optimizer_bytes"}, {"copied", "copied_bytes"},   {"sent", "sent_bytes"},
    {"received", "received_bytes"},   {"host", "host_peak_bytes"},  {"disk", "disk_peak_bytes"},
    {"fetched", "fetched_bytes"},     {"evicted", "evicted_bytes"}, {"save", "save_bytes"}};

static double cell_of(const cli *c, const json_t *rank, int k) {
    double bytes = json_member(rank, columns[k].field);
    double optimizer = json_member(rank, "optimizer_bytes");
    if (k == HELD && optimizer <= bytes) return bytes - optimizer; /* offload= moves it away */
    return (k == ALIVE && !c->o.verbose) || isnan(bytes) ? 0 : bytes;
}

static char *row_text(const cli *c, const json_t *rank, const char *units, int width,
                      const bool *is_shown) {
    char line[LINE_BYTES], cell[TEXT_BYTES];
    snprintf(line, sizeof line, "%-*s %10s", width, units,
             text_of_count(cell, json_member(rank, "parameters")));
    for (int k = 0; k < N_COLUMNS; k++)
        if (is_shown[k]) TEXT_ADD(line, " %10s", text_of_bytes(cell, cell_of(c, rank, k)));
    return strdup(line);
}

/* `units`: of each rank, as units_add has them. */
static void say_ranks(const cli *c, const json_t *ranks, char (*units)[UNITS_BYTES]) {
    bool is_shown[N_COLUMNS] = {true};
    int width = 0, n_ranks = (int)json_array_size(ranks);
    char heading[LINE_BYTES], **texts = calloc((size_t)n_ranks, sizeof *texts);
    for (int r = 0; r < n_ranks; r++) {
        const json_t *rank = json_array_get(ranks, (size_t)r);
        for (int k = 0; k < N_COLUMNS; k++) is_shown[k] |= cell_of(c, rank, k) > 0;
        if ((int)strlen(units[r]) > width) width = (int)strlen(units[r]);
    }
    snprintf(heading, sizeof heading, "%-*s %10s", width, "units", "parameters");
    for (int k = 0; k < N_COLUMNS; k++)
        if (is_shown[k]) TEXT_ADD(heading, " %10s", columns[k].title);
    for (int r = 0; r < n_ranks && texts; r++)
        texts[r] = row_text(c, json_array_get(ranks, (size_t)r), units[r], width, is_shown);
    say(c, "\n");
    say_by_rank(c, NULL, heading, texts, n_ranks, FOLD_MOST_ROWS);
}

/* Ranks with the same units share a list of them: 16,384 ranks have a few hundred lists. */
typedef struct unit_lists {
    struct unit_list {
        const char **names; /* [n] those of the program */
        int n, rank;        /* the first with these units */
        json_t *json;
    } * items;
    int n;
} unit_lists;

static json_t *units_json(const wf_unit_summary *units, int n) {
    json_t *all = json_array();
    for (int u = 0; u < n; u++) {
        wf_unit_summary s = units[u];
        json_array_append_new(
            all,
            json_pack("{s:s, s:I, s:f, s:f, s:I, s:f, s:f, s:f, s:f}", "name", s.name, "parameters",
                      (json_int_t)s.n_parameters, "forward_flops", s.forward_flops,
                      "backward_flops", s.backward_flops, "activation_bytes",
                      (json_int_t)s.activation_bytes, "forward_us", s.forward_us, "backward_us",
                      s.backward_us, "weight_us", s.weight_us, "recompute_us", s.recompute_us));
    }
    return all;
}

static bool has_units(const struct unit_list *list, const wf_unit_summary *units, int n) {
    int u = 0;
    while (u < n && n == list->n && units[u].name == list->names[u]) u++;
    return n == list->n && u == n;
}

/* The list with these units, made for the rank if there is none; NULL: no memory left. */
static const struct unit_list *find_units(unit_lists *lists, int rank, const wf_unit_summary *units,
                                          int n) {
    for (int k = lists->n - 1; k >= 0; k--)
        if (has_units(&lists->items[k], units, n)) return &lists->items[k];
    struct unit_list *larger = realloc(lists->items, ((size_t)lists->n + 1) * sizeof *lists->items);
    if (larger) lists->items = larger;
    const char **names = larger ? calloc((size_t)n + 1, sizeof *names) : NULL;
    if (!names) return NULL;
    for (int u = 0; u < n; u++) names[u] = units[u].name;
    lists->items[lists->n] = (struct unit_list){names, n, rank, units_json(units, n)};
    return &lists->items[lists->n++];
}

static void end_lists(unit_lists *lists) {
    for (int k = 0; k < lists->n; k++) {
        json_decref(lists->items[k].json);
        free((void *)lists->items[k].names);
    }
    free(lists->items);
}

/* Up to so many ranks, each rank of the report lists its units. A report of 1,536 ranks of 96
 * layers would have 726 MB.
 */
#define LISTED_RANKS 16

static json_t *rank_json(const job *j, const wf_program *p, int rank,
                         const struct unit_list *list) {
    wf_rank_summary r = summarize(j->c, p, rank);
    char device[WF_DEVICE_NAME_BYTES];
    json_t *json = json_pack(
        "{s:s, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:i}",
        "device", job_device(j, rank, device), "parameters", (json_int_t)r.n_parameters,
        "peak_bytes", (json_int_t)r.peak_bytes, "bound_bytes", (json_int_t)r.bound_bytes,
        "fragmentation", fragmentation_of(&r), "state_bytes", (json_int_t)r.state_bytes,
        "optimizer_bytes", (json_int_t)r.optimizer_bytes, "copied_bytes",
        (json_int_t)r.copied_bytes, "sent_bytes", (json_int_t)r.sent_bytes, "received_bytes",
        (json_int_t)r.received_bytes, "host_peak_bytes", (json_int_t)r.host_peak_bytes,
        "disk_peak_bytes", (json_int_t)r.disk_peak_bytes, "fetched_bytes",
        (json_int_t)r.fetched_bytes, "evicted_bytes", (json_int_t)r.evicted_bytes, "peak_unit",
        r.peak_unit, "instructions", r.n_instructions);
    if (list->rank == rank || wf_program_n_ranks(p) <= LISTED_RANKS)
        json_object_set(json, "units", list->json);
    else
        json_object_set_new(json, "units_of", json_integer(list->rank));
    if (j->c->o.save_async)
        json_object_set_new(json, "save_bytes",
                            json_integer((json_int_t)wf_program_save_bytes(p, rank)));
    return json;
}

/* ---- proposals ---- */

/* Prints and reports whether it fits, and which plans would fit. */
static exit_status check_fits(const job *j, const wf_program *p, json_t *report) {
    wf_proposal *found;
    int n_found;
    progress waiting;
    progress_wait(j->c, &waiting);
    wf_status status =
        wf_program_fits(p, j->c->o.device_memory, j->c->o.host_memory, &found, &n_found);
    progress_wait_end(j->c);
    exit_status bad = complain_of(j->c, status);
    int n = cluster_keep_fitting(j, found, n_found);
    if (bad == EXIT_DOES_NOT_FIT) say(j->c, "%-8sno%s", "fits", n ? "; " : "\n");
    if (bad == EXIT_DOES_NOT_FIT) would_fit_say(j->c, found, n, j->c->o.quiet);
    if (!bad) bad = cluster_check_shares(j);
    if (!bad && (bad = complain_of(j->c, snapshot_check_room(j->c, p))))
        say(j->c, "%-8sno\n", "fits");
    if (!bad && j->c->o.device_memory) say(j->c, "%-8syes\n", "fits");
    would_fit_report(report, bad == EXIT_DONE, found, n);
    wf_proposals_destroy(j->c->ctx, found, n_found);
    return bad;
}

/* ---- the command ---- */

/* Why this machine lacks a device of the list, for the first such device; or "". */
static const char *find_missing(const job *j, char why[MISSING_BYTES]) {
    char kind[WF_DEVICE_NAME_BYTES];
    *why = 0;
    for (int r = 0; j->c->o.devices && r < wf_plan_n_ranks(j->plan) && !*why; r++) {
        job_device(j, r, kind);
        kind[strcspn(kind, ":")] = 0;
        if (wf_info_devices(j->c->ctx, kind, why, MISSING_BYTES) == WF_UNSUPPORTED)
            snprintf(why, MISSING_BYTES, "%s", wf_context_error(j->c->ctx));
        else
            *why = 0; /* or it is a CPU */
    }
    return why;
}

static void say_missing(const cli *c, const char *missing) {
    if (*missing)
        say(c,
            "devices not on this machine (%s): planned with weft's own kernels; those of libraries "
            "may need other memory to work in%s\n",
            missing,
            c->o.device_memory ? ""
                               : "; what a device has is not known, --device-memory SIZE says it");
}

/* Says all ranks and units, and appends the ranks to `ranks`. */
static exit_status report_ranks(const job *j, const wf_program *p, unit_table *table,
                                json_t *ranks) {
    int n_ranks = wf_program_n_ranks(p), most = 1;
    for (int r = 0; r < n_ranks; r++)
        if (wf_program_rank(p, r).n_units > most) most = wf_program_rank(p, r).n_units;
    wf_unit_summary *units = calloc((size_t)most, sizeof *units);
    char(*rows)[UNITS_BYTES] = calloc(n_ranks > 0 ? (size_t)n_ranks : 1, sizeof *rows);
    unit_lists lists = {NULL, 0};
    bool good = units && rows;
    for (int r = 0; r < n_ranks && good; r++) {
        int n = wf_program_units(p, r, 0, most, units);
        const struct unit_list *list = find_units(&lists, r, units, n);
        good = list != NULL;
        if (!good) break;
        json_array_append_new(ranks, rank_json(j, p, r, list));
        if (list->rank == r || j->c->o.verbose)
            units_add(r, units, n, table, rows[r], sizeof rows[r]);
        else
            memcpy(rows[r], rows[list->rank], sizeof rows[r]);
    }
    exit_status bad = good ? EXIT_DONE : complain(EXIT_FAILED, "no memory left");
    end_lists(&lists);
    if (!bad) say_ranks(j->c, ranks, rows);
    if (!bad) units_say(table);
    free(rows);
    free(units);
    return bad;
}

/* Begins the report; `ranks` is filled later. Programs read some fields by their order. */
static json_t *report_begin(const job *j, const wf_program *p, json_t *ranks) {
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "weft", WEFT_VERSION, "costs", costs_text(p),
                     "plan", wf_program_plan(p), "recipe", options_recipe(&j->c->o), "mesh",
                     mesh_json(j->plan), "ranks", ranks);
}

static void report_costs(const job *j, const wf_program *p, const wf_dry_run *run,
                         const wf_timeline *simulated, json_t *report) {
    size_t memory = j->c->o.device_memory;
    json_object_set_new(report, "fragmentation", json_real(worst_fragmentation(p)));
    json_object_set_new(report, "flops", json_real(run->flops));
    json_object_set_new(report, "sent_bytes", json_integer((json_int_t)run->sent_bytes));
    json_object_set_new(report, "device_memory",
                        memory ? json_integer((json_int_t)memory) : json_null());
    if (j->c->o.snapshot)
        json_object_set_new(report, "snapshot_bytes", json_integer((json_int_t)snapshot_bytes(p)));
    json_object_set_new(report, "recipe_needed", job_needed_json(j));
    json_object_set_new(report, "step_ms", json_real(wf_timeline_step_us(simulated) / 1e3));
}

/* Prints the prediction for --cluster and adds it to the report. */
static exit_status show_predicted(const job *j, json_t *report) {
    wf_prediction p = WF_PREDICTION_INIT;
    if (!j->cluster) return EXIT_DONE;
    TRY(cluster_predict(j, &p));
    cluster_say(j, &p);
    cluster_report(j, &p, report);
    return EXIT_DONE;
}

static exit_status write_certificate(const cli *c, const wf_program *p) {
    char *text = NULL;
    wf_status status = wf_program_certificate(p, &text);
    if (status == WF_OK) status = wf_file_replace(c->ctx, c->o.certificate, text, strlen(text));
    if (text) wf_text_free(c->ctx, text);
    return complain_of(c, status);
}

/* Prints the answer first: the fit, plans that would fit, the costs; then the plan; then details.
 */
static exit_status show_all(const job *j, const wf_program *p, const wf_dry_run *run,
                            const wf_timeline *simulated, unit_table *units, int *same_as) {
    cli *c = j->c;
    char *text = NULL, why[MISSING_BYTES];
    const char *missing = find_missing(j, why);
    json_t *ranks = json_array(), *report = report_begin(j, p, ranks);
    exit_status fits = check_fits(j, p, report);
    report_costs(j, p, run, simulated, report);
    say_peak(c, p, units, same_as);
    say_step(c, p, simulated, run, same_as);
    exit_status bad = show_predicted(j, report);
    job_describe(j);
    job_describe_chosen(j, p);
    say_missing(c, missing);
    if (wf_program_n_ranks(p) > 1) mesh_say(c, j->plan);
    if (!bad) bad = report_ranks(j, p, units, ranks);
    if (*missing) json_object_set_new(report, "missing_devices", json_string(missing));
    if (!bad && c->o.program) bad = complain_of(c, wf_program_text(p, &text));
    if (text) say(c, "\n%s", text);
    if (text) json_object_set_new(report, "program", json_string(text));
    wf_text_free(c->ctx, text);
    if (!bad && c->o.certificate) bad = write_certificate(c, p);
    bool draws_search = c->o.draw && cluster_draws_search(&c->o);
    exit_status drawn =
        timeline_plan(c, j->plan, simulated, draws_search ? NULL : c->o.draw, report);
    if (!drawn && draws_search) drawn = cluster_draw_search(j);
    exit_status written = report_write(c, report);
    return bad ? bad : fits ? fits : drawn ? drawn : written;
}

static exit_status show(cli *c, const job *j, const wf_program *p) {
    int *same_as = calloc((size_t)wf_program_n_ranks(p), sizeof *same_as);
    wf_timeline *simulated = NULL;
    unit_table units;
    wf_dry_run run;
    bool good = units_begin(c, p, &units) && same_as;
    wf_status status = good ? wf_program_dry_run(p, &run) : WF_OK;
    if (good && status == WF_OK) status = wf_program_simulate(p, NULL, &simulated);
    exit_status bad = good ? complain_of(c, status) : complain(EXIT_FAILED, "no memory left");
    if (!bad) {
        wf_program_warn(p);
        tuned_warn(c, p);
        bad = show_all(j, p, &run, simulated, &units, same_as);
    }
    units_release(&units);
    wf_timeline_destroy(simulated);
    free(same_as);
    return bad;
}

/* Devices that are not the plan's. Other options of weft train are taken and change nothing
 * here; a plan may also have more ranks than this machine could run. */
static exit_status check_ranks(const job *j) {
    const options *o = &j->c->o;
    int n_ranks = wf_plan_n_ranks(j->plan);
    int n_devices = n_ranks;
    if (o->devices) TRY(complain_of(j->c, wf_devices_count(j->c->ctx, o->devices, &n_devices)));
    if (n_devices != n_ranks)
        return complain(EXIT_USAGE, "--devices %.60s: the plan %s has %d rank%s", o->devices,
                        wf_plan_text(j->plan), n_ranks, n_ranks == 1 ? "" : "s");
    if (o->ranks != 1 && o->ranks != n_ranks)
        return complain(EXIT_USAGE, "--ranks %lld: the plan %s has %d rank%s", (long long)o->ranks,
                        wf_plan_text(j->plan), n_ranks, n_ranks == 1 ? "" : "s");
    return EXIT_DONE;
}

/* A search on a cluster chooses the number of devices. */
static exit_status check_search(const options *o) {
    bool searches = o->cluster && o->plan && !strcmp(o->plan, "auto");
    if (!searches || o->ranks == 1) return EXIT_DONE;
    return complain(EXIT_USAGE,
                    "--ranks %lld: --plan auto chooses how many devices of a cluster it takes; use "
                    "--nodes to limit them",
                    (long long)o->ranks);
}

static wf_status create(job *j, wf_program **program_out) {
    cli *c = j->c;
    wf_status status = (c->o.proof || c->o.certificate ? wf_program_create_full
                        : c->o.program                 ? wf_program_create
                                                       : wf_program_create_short)(
        c->ctx, j->model, &c->o.recipe, j->plan, WF_PROGRAM_TRAIN, program_out);
    return status == WF_OK ? job_plan_tests(j, *program_out) : status;
}

exit_status run_plan(cli *c) {
    job j;
    resumed from;
    progress waiting;
    wf_program *p = NULL;
    TRY(!c->o.draw                    ? EXIT_DONE
        : cluster_draws_search(&c->o) ? draw_check_picture(c->o.draw)
                                      : draw_check(c->o.draw));
    if (c->o.resume) TRY(checkpoint_read(c, EXIT_DONE, &from));
    TRY(updates_check(c));
    TRY(check_search(&c->o));
    TRY(job_open(c, -1, &j));
    exit_status bad = check_ranks(&j);
    if (bad) {
        job_close(&j);
        return bad;
    }
    if (updates_need_workers(&c->o)) {
        bad = c->o.program || c->o.draw
                  ? complain(EXIT_USAGE,
                             "--program and --draw show the program of all ranks; with "
                             "--update %s each worker has its own",
                             c->o.recipe.update == WF_UPDATE_ASYNC ? "async" : "local")
                  : updates_plan(&j);
        job_close(&j);
        return bad;
    }
    wf_status status = WF_OK;
    do {
        bool is_predicted;
        bad = status == WF_OK ? cluster_begin(&j, &is_predicted) : complain_of(c, status);
        if (bad || is_predicted) {
            if (!bad) bad = cluster_show(&j);
            job_close(&j);
            return bad;
        }
        progress_wait(c, &waiting);
        status = create(&j, &p);
        progress_wait_end(c);
    } while (job_take_another(&j, &status, &p));
    bad = status == WF_OK ? show(c, &j, p) : complain_of(c, status);
    wf_program_destroy(p);
    job_close(&j);
    return bad;
}
