/* weft simulate --update: throughput, staleness and load of servers for given times. */
#include "common/text.h"
#include "draw/timeline_report.h"
#include "plans/simulate.h"

#include <stdlib.h>
#include <string.h>

#define DRAWN_STEPS      8
#define MOST_DRAWN_STEPS 32
#define MOST_ROWS        64 /* of a picture on the terminal */
#define DEFAULT_STEPS    100

static const char *update_of(const options *o, char text[TEXT_BYTES]) {
    return option_text(o, OPT_sim_update, text);
}

/* ---- options ---- */

enum { SYNC = 1, ASYNC = 2, LOCAL = 4, SCHEDULE = 8, UPDATES = SYNC | ASYNC | LOCAL };

static const struct {
    option_id id;
    unsigned modes;
    const char *use;
} uses[] = {
    {OPT_stages, SCHEDULE, "--update simulates workers, not a pipeline"},
    {OPT_n_micro, SCHEDULE, "--update simulates workers, not a pipeline"},
    {OPT_schedule, SCHEDULE, "--update simulates workers, not a pipeline"},
    {OPT_chunks, SCHEDULE, "--update simulates workers, not a pipeline"},
    {OPT_memory_limit, SCHEDULE, "--update simulates workers, not a pipeline"},
    {OPT_weight_held, SCHEDULE, "--update simulates workers, not a pipeline"},
    {OPT_sim_workers, UPDATES, "--update is not given"},
    {OPT_slow, UPDATES, "--update is not given"},
    {OPT_update_ms, UPDATES, "--update is not given"},
    {OPT_steps, UPDATES, "--update is not given"},
    {OPT_draw, UPDATES, "--update is not given; weft plan draws schedules"},
    {OPT_servers, ASYNC, "it is an option of --update async"},
    {OPT_sim_staleness, ASYNC, "it is an option of --update async"},
    {OPT_sim_local_steps, LOCAL, "it is an option of --update local"},
};

exit_status simulate_check_use(const options *o) {
    static const unsigned modes[] = {
        [WF_SIMULATION_SYNC] = SYNC, [WF_SIMULATION_ASYNC] = ASYNC, [WF_SIMULATION_LOCAL] = LOCAL};
    unsigned mode = option_is_given(o, OPT_sim_update) ? modes[o->sim_update] : SCHEDULE;
    char name[TEXT_BYTES];
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
        if (option_is_given(o, uses[i].id) && !(uses[i].modes & mode))
            return complain(EXIT_USAGE, "%s has no effect here: %s", option_name(name, uses[i].id),
                            uses[i].use);
    return EXIT_DONE;
}

static exit_status check_given(const options *o, option_id id) {
    char name[TEXT_BYTES];
    if (option_is_given(o, id)) return EXIT_DONE;
    return complain(EXIT_USAGE, "%s is missing: %s %s", option_name(name, id),
                    option_about(id).argument, option_about(id).help);
}

/* Reads a time; one that was not given is 0. */
static exit_status read_time(option_id id, const char *text, double *ms_out) {
    return text ? simulate_read_time(id, text, strlen(text), ms_out) : EXIT_DONE;
}

/* Returns the steps of the picture: whole rounds of local steps, unless they are too long. */
static int64_t n_drawn_steps(const wf_simulation_config *q) {
    int64_t round = q->local_steps < 1 ? 1 : q->local_steps, n = MOST_DRAWN_STEPS;
    if (round <= n) n = (DRAWN_STEPS + round - 1) / round * round;
    return n < q->n_steps ? n : q->n_steps;
}

static exit_status read_config(const options *o, wf_simulation_config *config) {
    exit_status bad = check_given(o, OPT_sim_workers);
    if (!bad) bad = check_given(o, OPT_forward_ms);
    if (!bad && o->sim_update == WF_SIMULATION_LOCAL) bad = check_given(o, OPT_sim_local_steps);
    if (!bad) bad = read_time(OPT_forward_ms, o->forward_ms, &config->forward_ms);
    if (!bad) bad = read_time(OPT_backward_ms, o->backward_ms, &config->backward_ms);
    if (!bad) bad = read_time(OPT_weight_ms, o->weight_ms, &config->weight_ms);
    config->update = (wf_simulation_update)o->sim_update;
    config->n_workers = o->sim_workers;
    config->n_servers = o->servers;
    config->n_steps = option_is_given(o, OPT_steps) ? o->steps : DEFAULT_STEPS;
    if (option_is_given(o, OPT_sim_staleness)) config->staleness = o->sim_staleness;
    if (option_is_given(o, OPT_sim_local_steps)) config->local_steps = o->sim_local_steps;
    config->slow = o->slow;
    config->transfer_ms = o->transfer_ms;
    config->update_ms = o->update_ms;
    config->timeline_steps = n_drawn_steps(config);
    return bad;
}

/* ---- report ---- */

/* "async, 4 workers, 2 servers, staleness at most 1" */
static void describe(const options *o, const wf_simulation_config *q, char *text, size_t bytes) {
    char update[TEXT_BYTES];
    snprintf(text, bytes, "%s, %lld worker%s", update_of(o, update), (long long)q->n_workers,
             q->n_workers == 1 ? "" : "s");
    if (q->slow > 1) text_add(text, bytes, " (worker 0 slowed %g x)", q->slow);
    if (q->update == WF_SIMULATION_LOCAL)
        text_add(text, bytes, ", %lld local step%s", (long long)q->local_steps,
                 q->local_steps == 1 ? "" : "s");
    if (q->update != WF_SIMULATION_ASYNC) return;
    text_add(text, bytes, ", %lld server%s", (long long)q->n_servers, q->n_servers == 1 ? "" : "s");
    if (q->staleness >= 0)
        text_add(text, bytes, ", staleness at most %lld", (long long)q->staleness);
}

static void say_staleness(const cli *c, const wf_simulation *s, const wf_simulation_config *q) {
    double all = (double)(q->n_steps * q->n_workers);
    int64_t n = wf_simulation_summarize(s).n_staleness, most = n < MOST_ROWS ? n : MOST_ROWS;
    say(c, "\n%9s %9s\n", "staleness", "pushes");
    for (int64_t k = 0; k < most; k++)
        say(c, "%9lld %9lld %5.1f %%\n", (long long)k, (long long)wf_simulation_staleness(s, k),
            100 * (double)wf_simulation_staleness(s, k) / all);
    if (most < n) say(c, "  the first %d of %lld rows; --json has all\n", MOST_ROWS, (long long)n);
}

static void say_summary(const cli *c, const wf_simulation *s, const wf_simulation_config *q,
                        const char *title) {
    wf_simulation_summary sum = wf_simulation_summarize(s);
    say(c, "%s\n", title);
    say(c, "step %.3f ms, %.4g steps/s in %lld step%s; workers compute %.1f %% of the time\n",
        sum.step_ms, sum.steps_per_second, (long long)q->n_steps, q->n_steps == 1 ? "" : "s",
        100 * sum.worker_busy);
    if (q->update != WF_SIMULATION_ASYNC) return;
    say(c, "a server's link is busy %.1f %% of the time, its updates take %.1f %%\n",
        100 * sum.link_busy, 100 * sum.update_busy);
    say_staleness(c, s, q);
}

static json_t *histogram(const wf_simulation *s) {
    json_t *rows = json_array();
    for (int64_t k = 0; k < wf_simulation_summarize(s).n_staleness; k++)
        json_array_append_new(rows, json_integer((json_int_t)wf_simulation_staleness(s, k)));
    return rows;
}

static exit_status write_report(const cli *c, const wf_simulation *s,
                                const wf_simulation_config *q) {
    wf_simulation_summary sum = wf_simulation_summarize(s);
    char update[TEXT_BYTES];
    return report_write(
        c, json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "weft",
                     WEFT_VERSION, "update", update_of(&c->o, update), "workers",
                     (json_int_t)q->n_workers, "servers",
                     (json_int_t)(q->update == WF_SIMULATION_ASYNC ? q->n_servers : 0), "steps",
                     (json_int_t)q->n_steps, "step_ms", sum.step_ms, "steps_per_second",
                     sum.steps_per_second, "worker_busy", sum.worker_busy, "server_busy",
                     sum.server_busy, "link_busy", sum.link_busy, "update_busy", sum.update_busy,
                     "staleness", histogram(s)));
}

/* ---- picture ---- */

static exit_status draw(const cli *c, const drawing *d, int n_rows) {
    if (!c->o.quiet && n_rows <= MOST_ROWS) {
        say(c, "\n");
        (void)draw_text(c->say, d, columns_of(c->say, 60, 200), has_color(c->say));
    } else if (n_rows > MOST_ROWS) {
        say(c, "\nthe picture of %d rows is left out; --draw FILE draws it\n", n_rows);
    }
    return c->o.draw ? draw_file(c, c->o.draw, d) : EXIT_DONE;
}

static exit_status draw_timeline(const cli *c, const wf_simulation *s,
                                 const wf_simulation_config *q, const char *title) {
    char heading[200];
    wf_trace_part part = {"simulated", wf_simulation_timeline(s)};
    int n_rows = wf_timeline_n_ranks(part.timeline);
    const char **names = timeline_worker_names("worker", (int)q->n_workers, n_rows);
    snprintf(heading, sizeof heading, "the first %lld of %lld steps", (long long)q->timeline_steps,
             (long long)q->n_steps);
    drawing_words words = {names, heading,
                           q->update == WF_SIMULATION_ASYNC ? "version of the parameters" : "step",
                           NULL};
    drawing d = {title, NULL, &part, 1, &words};
    exit_status bad = names ? draw(c, &d, n_rows) : complain(EXIT_FAILED, "no memory left");
    free((void *)names);
    return bad;
}

exit_status simulate_updates(cli *c) {
    wf_simulation_config config = WF_SIMULATION_CONFIG_INIT;
    wf_simulation *s;
    char title[200];
    TRY(read_config(&c->o, &config));
    if (c->o.draw) TRY(draw_check(c->o.draw));
    TRY(complain_of(c, wf_simulation_run(c->ctx, &config, &s)));
    describe(&c->o, &config, title, sizeof title);
    say_summary(c, s, &config, title);
    exit_status bad = draw_timeline(c, s, &config, title);
    exit_status written = write_report(c, s, &config);
    wf_simulation_destroy(s);
    return bad ? bad : written;
}
