/* weft plan of workers with parameters of their own: memory and traffic of each rank. */
#include "common/fold.h"
#include "common/text.h"
#include "job/report.h"
#include "train/updates.h"

#include <stdlib.h>
#include <string.h>

/* "workers 0-1, server 0" */
static void name_role(const wf_workers *workers, int rank, char text[TEXT_BYTES]) {
    int first, n, server;
    wf_workers_place(workers, rank, &first, &n, &server);
    *text = 0;
    if (n) text_add(text, TEXT_BYTES, n > 1 ? "workers %d-%d" : "worker %d", first, first + n - 1);
    if (server >= 0) text_add(text, TEXT_BYTES, "%sserver %d", n ? ", " : "", server);
}

static char *row_text(const char *role, const wf_workers_rank *r) {
    char line[300], cells[3][TEXT_BYTES];
    snprintf(line, sizeof line, "%-22s %10s %10s %10s", role,
             text_of_bytes(cells[0], (double)r->memory.planned_peak_bytes),
             text_of_bytes(cells[1], (double)r->memory.planned_host_peak_bytes),
             text_of_bytes(cells[2], (double)r->sent_bytes));
    return strdup(line);
}

static json_t *rank_json(const char *role, const wf_workers_rank *r) {
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "role", role, "peak_bytes",
                     (json_int_t)r->memory.planned_peak_bytes, "host_peak_bytes",
                     (json_int_t)r->memory.planned_host_peak_bytes, "disk_peak_bytes",
                     (json_int_t)r->memory.planned_disk_peak_bytes, "sent_bytes",
                     (json_int_t)r->sent_bytes, "received_bytes", (json_int_t)r->received_bytes);
}

/* Fills the rows and the report's ranks. *most_out gets the largest figures of any rank. */
static wf_status fill(wf_workers *workers, const job *j, char **rows, json_t *ranks,
                      wf_workers_rank *most_out) {
    *most_out = (wf_workers_rank){0};
    for (int r = 0; r < wf_plan_n_ranks(j->plan); r++) {
        char role[TEXT_BYTES];
        wf_workers_rank of;
        TRY(wf_workers_rank_get(workers, r, &of));
        name_role(workers, r, role);
        rows[r] = row_text(role, &of);
        json_array_append_new(ranks, rank_json(role, &of));
        if (of.memory.planned_peak_bytes > most_out->memory.planned_peak_bytes)
            most_out->memory.planned_peak_bytes = of.memory.planned_peak_bytes;
        if (of.memory.planned_host_peak_bytes > most_out->memory.planned_host_peak_bytes)
            most_out->memory.planned_host_peak_bytes = of.memory.planned_host_peak_bytes;
        if (of.sent_bytes > most_out->sent_bytes) most_out->sent_bytes = of.sent_bytes;
    }
    return WF_OK;
}

static bool say_most(const cli *c, const wf_workers_rank *most) {
    char text[TEXT_BYTES], limit[TEXT_BYTES];
    size_t cap = c->o.device_memory, host = c->o.host_memory;
    bool fits = (!cap || most->memory.planned_peak_bytes <= cap) &&
                (!host || most->memory.planned_host_peak_bytes <= host);
    if (cap || host) say(c, "%-8s%s\n", "fits", fits ? "yes" : "no");
    say(c, "%-8s%s", "peak", text_of_bytes(text, (double)most->memory.planned_peak_bytes));
    if (cap) say(c, "; limit %s", text_of_bytes(limit, (double)cap));
    say(c, "\n%-8s%s of host memory", "",
        text_of_bytes(text, (double)most->memory.planned_host_peak_bytes));
    if (host) say(c, "; limit %s", text_of_bytes(limit, (double)host));
    say(c, "\n%-8s%s a step by the rank that sends most\n", "sent",
        text_of_bytes(text, (double)most->sent_bytes));
    return fits;
}

static exit_status show(const job *j, wf_workers *workers) {
    int n_ranks = wf_plan_n_ranks(j->plan);
    char **rows = calloc((size_t)n_ranks, sizeof *rows);
    json_t *ranks = json_array();
    wf_workers_rank most;
    wf_status status = rows ? fill(workers, j, rows, ranks, &most) : WF_NO_MEMORY;
    if (status != WF_OK) {
        for (int r = 0; r < n_ranks && rows; r++) free(rows[r]);
        free(rows);
        json_decref(ranks);
        return status == WF_NO_MEMORY ? complain(EXIT_FAILED, "no memory left")
                                      : complain_of(j->c, status);
    }
    bool fits = say_most(j->c, &most);
    job_describe(j);
    char heading[200];
    snprintf(heading, sizeof heading, "%-22s %10s %10s %10s", "", "peak", "host", "sent");
    say(j->c, "\n");
    say_by_rank(j->c, NULL, heading, rows, n_ranks, FOLD_MOST_ROWS);
    json_t *report =
        json_pack("{s:s, s:s, s:o, s:o, s:b}", "weft", WEFT_VERSION, "plan", wf_plan_text(j->plan),
                  "recipe", options_recipe(&j->c->o), "ranks", ranks, "fits", (int)fits);
    exit_status written = report_write(j->c, report);
    return fits ? written
                : complain(EXIT_DOES_NOT_FIT, "the plan needs more memory than the limit");
}

exit_status updates_plan(const job *j) {
    wf_workers *workers = NULL;
    wf_workers_config config = WF_WORKERS_CONFIG_INIT;
    config.plan_only = j->c->o.ranks > 1 ? 2 : 1;
    config.n_test = j->about.n_test;
    config.n_test_at_once = j->about.n_test ? job_eval_samples(j, WF_DATA_TEST) : 0;
    wf_status status =
        wf_workers_create(j->c->ctx, j->model, &j->c->o.recipe, j->plan, &config, &workers);
    exit_status bad = status == WF_OK ? show(j, workers) : complain_of(j->c, status);
    wf_workers_destroy(workers);
    return bad;
}
