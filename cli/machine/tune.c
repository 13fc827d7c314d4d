/* weft tune: measures the ways to compute each shape, and writes which is the fastest. */
#include "common/output.h"
#include "common/processor.h"
#include "common/tuned.h"
#include "job/progress.h"
#include "job/report.h"

#include <string.h>

static int wants_stop(void *argument) {
    (void)argument;
    return interrupt_status();
}

static exit_status complain_of_tuning(const cli *c, wf_status status) {
    return status == WF_INTERRUPTED ? complain(interrupt_status(), "interrupted")
                                    : complain_of(c, status);
}

static exit_status measure(const cli *c, wf_tuning *tuning) {
    int n = wf_tuning_n_shapes(tuning);
    wf_status status = WF_OK;
    progress bar;
    progress_open(&bar, !c->o.quiet);
    for (int k = 0; k < n && status == WF_OK; k++) {
        progress_show(&bar, (double)k / n, wf_tuning_shape(tuning, k).shape);
        status = wf_tuning_measure(tuning, k, c->o.repeat);
    }
    progress_clear(&bar);
    return complain_of_tuning(c, status);
}

static json_t *row_json(const wf_tuning *tuning, int number) {
    wf_tuned_shape s = wf_tuning_shape(tuning, number);
    wf_tuned_way chosen = wf_tuning_way(tuning, number, s.chosen),
                 usual = wf_tuning_way(tuning, number, s.usual);
    json_t *ways = json_object();
    for (int k = 0; k < s.n_ways; k++) {
        wf_tuned_way way = wf_tuning_way(tuning, number, k);
        json_object_set_new(ways, way.name, way.is_wrong ? json_null() : json_real(way.time_us));
    }
    return json_pack("{s:s, s:s, s:f, s:s, s:f, s:i, s:o}", "shape", s.shape, "choice", chosen.name,
                     "time_us", chosen.time_us, "usual", usual.name, "usual_us", usual.time_us,
                     "nodes", s.n_nodes, "ways_us", ways);
}

/* Prints the shapes that gain, and their total. */
static void say_table(const cli *c, const wf_tuning *tuning) {
    double before_us = 0, after_us = 0;
    int n = wf_tuning_n_shapes(tuning), n_gain = 0, n_wrong = 0;
    for (int k = 0; k < n; k++) {
        wf_tuned_shape s = wf_tuning_shape(tuning, k);
        wf_tuned_way usual = wf_tuning_way(tuning, k, s.usual),
                     chosen = wf_tuning_way(tuning, k, s.chosen);
        before_us += usual.time_us * s.n_nodes;
        after_us += chosen.time_us * s.n_nodes;
        for (int way = 0; way < s.n_ways; way++) n_wrong += wf_tuning_way(tuning, k, way).is_wrong;
        if (s.chosen == s.usual) continue;
        if (!n_gain++)
            say(c, "%6s %10s %10s %7s  %s\n", "nodes", "usual us", "chosen us", "less", "shape");
        say(c, "%6d %10.1f %10.1f %5.1f %%  %s\n%37s  %s, not %s\n", s.n_nodes, usual.time_us,
            chosen.time_us, 100 * (1 - chosen.time_us / usual.time_us), s.shape, "", chosen.name,
            usual.name);
    }
    say(c, "%d of %d shapes are faster with another kernel", n_gain, n);
    if (n_wrong) say(c, "; %d kernels give wrong numbers", n_wrong);
    if (n)
        say(c, "\na microbatch's kernels take %.2f ms, chosen so %.2f (%.1f %% less)",
            before_us / 1e3, after_us / 1e3, 100 * (1 - after_us / before_us));
    say(c, "\n");
}

static void warn_empty(const cli *c) {
    bool widens = c->o.recipe.dtype == WF_BF16 && strcmp(wf_info_bf16(), "bf16");
    complain(EXIT_DONE,
             "no shape of this step has several kernels to choose from, so the table is empty%s",
             widens ? "; bf16 is multiplied as f32 here, with the kernels of f32's table: leave "
                      "--dtype bf16 out to measure them"
                    : "");
}

static exit_status tune(cli *c, const job *j) {
    wf_tuning *tuning;
    tuned_place here;
    wf_status status = tuned_here(c, c->o.recipe.n_threads, &here);
    if (status == WF_OK)
        status =
            wf_tuning_create(c->ctx, j->model, &c->o.recipe, j->plan, wants_stop, NULL, &tuning);
    if (status != WF_OK) return complain_of_tuning(c, status);
    effort begin = effort_now(), spent;
    exit_status bad = measure(c, tuning);
    json_t *rows = json_array();
    for (int k = 0; k < wf_tuning_n_shapes(tuning) && !bad; k++)
        json_array_append_new(rows, row_json(tuning, k));
    json_t *table = json_pack("{s:i, s:s, s:s, s:s, s:i, s:o}", "weft_kernels", TUNED_VERSION,
                              "weft", WEFT_VERSION, "processor", here.processor, "library",
                              here.library, "threads", here.n_threads, "rows", rows);
    if (!bad && !wf_tuning_n_shapes(tuning)) warn_empty(c);
    if (!bad) say_table(c, tuning);
    wf_tuning_destroy(tuning);
    if (!bad) bad = complain_of(c, effort_since(c, &begin, &spent));
    if (!bad) effort_say(c, &spent);
    if (!bad && c->o.out) bad = report_put(c, table, "the table", c->o.out);
    if (!bad && c->o.out) say(c, "saved   %s\n", c->o.out);
    exit_status written = bad ? bad : report_write(c, json_incref(table));
    json_decref(table);
    return written;
}

exit_status run_tune(cli *c) {
    job j;
    if (!option_is_given(&c->o, OPT_repeat)) c->o.repeat = 5;
    if (c->o.repeat < 1) return complain(EXIT_USAGE, "--repeat must be at least 1");
    interrupt_watch();
    if (c->o.out) TRY(output_check("the table", c->o.out));
    TRY(job_open(c, 1, &j));
    job_describe(&j);
    exit_status bad = tune(c, &j);
    job_close(&j);
    return bad;
}
