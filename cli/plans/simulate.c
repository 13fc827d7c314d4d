/* weft simulate: the cost of a pipeline schedule for given times. No model, no devices. */
#include "plans/simulate.h"

#include "common/text.h"
#include "draw/picture.h"
#include "job/report.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ROWS 64 /* of the table and the picture */

/* ---- options ---- */

static exit_status check_counts(const options *o) {
    static const option_id needed[] = {OPT_stages, OPT_n_micro, OPT_forward_ms, OPT_backward_ms,
                                       OPT_weight_ms};
    char name[TEXT_BYTES], text[TEXT_BYTES];
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!option_is_given(o, needed[i]))
            return complain(EXIT_USAGE, "%s is missing: %s %s", option_name(name, needed[i]),
                            option_about(needed[i]).argument, option_about(needed[i]).help);
    if (o->stages < 1 || o->stages > WF_SCHEDULE_MAX_STAGES)
        return complain(EXIT_USAGE, "--stages: %lld; a pipeline has 1 to %d", (long long)o->stages,
                        WF_SCHEDULE_MAX_STAGES);
    int64_t most = WF_SCHEDULE_MAX_CELLS / o->stages;
    if (o->recipe.n_micro < 1 || o->recipe.n_micro > most)
        return complain(EXIT_USAGE, "--micro: %s; with %lld stages there may be 1 to %lld",
                        option_text(o, OPT_n_micro, text), (long long)o->stages, (long long)most);
    if (option_is_given(o, OPT_memory_limit) && o->memory_limit < 1)
        return complain(EXIT_USAGE, "--memory-limit: a stage must hold 1 microbatch at least");
    if (option_is_given(o, OPT_chunks) && (o->chunks < 1 || o->chunks > most / o->recipe.n_micro))
        return complain(EXIT_USAGE, "--chunks: %s; with so many stages and microbatches 1 to %lld",
                        option_text(o, OPT_chunks, text), (long long)(most / o->recipe.n_micro));
    if (!(o->weight_held >= 0 && o->weight_held <= 1))
        return complain(EXIT_USAGE, "--weight-held: %g is not from 0 to 1", o->weight_held);
    if (!(o->transfer_ms >= 0 && o->transfer_ms <= WF_SCHEDULE_MAX_TIME_MS))
        return complain(EXIT_USAGE, "--transfer-ms: %g is not from 0 to %g", o->transfer_ms,
                        WF_SCHEDULE_MAX_TIME_MS);
    return EXIT_DONE;
}

exit_status simulate_read_time(option_id id, const char *text, size_t n, double *time_out) {
    char word[64] = "", name[TEXT_BYTES];
    if (n < sizeof word) memcpy(word, text, n);
    if (text_to_real(word, time_out) && *time_out >= 0 && *time_out <= WF_SCHEDULE_MAX_TIME_MS)
        return EXIT_DONE;
    return complain(EXIT_USAGE, "%s: '%.*s' is not a time from 0 to %g ms", option_name(name, id),
                    (int)(n < 60 ? n : 60), text, WF_SCHEDULE_MAX_TIME_MS);
}

/* "X" for all stages or "X,Y,..." with one for each, into the field at `offset` of each. */
static exit_status read_times(const options *o, option_id id, const char *text,
                              wf_stage_times *times, size_t offset) {
    char name[TEXT_BYTES], *field = (char *)times + offset;
    int64_t n = 0;
    option_name(name, id);
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        double time;
        TRY(simulate_read_time(id, at, length, &time));
        if (n < o->stages) memcpy(field + n * (int64_t)sizeof *times, &time, sizeof time);
        n++;
        at += length;
        if (!*at) break;
    }
    if (n != 1 && n != o->stages)
        return complain(EXIT_USAGE, "%s has %lld times for %lld stages; give 1, or one a stage",
                        name, (long long)n, (long long)o->stages);
    for (int64_t s = n; s < o->stages; s++)
        memcpy(field + s * (int64_t)sizeof *times, field, sizeof(double));
    return EXIT_DONE;
}

static exit_status read_all_times(const options *o, wf_stage_times *times) {
    exit_status bad =
        read_times(o, OPT_forward_ms, o->forward_ms, times, offsetof(wf_stage_times, forward_ms));
    if (!bad)
        bad = read_times(o, OPT_backward_ms, o->backward_ms, times,
                         offsetof(wf_stage_times, backward_ms));
    if (!bad)
        bad =
            read_times(o, OPT_weight_ms, o->weight_ms, times, offsetof(wf_stage_times, weight_ms));
    return bad;
}

/* ---- results ---- */

static void say_result(const cli *c, const wf_schedule_result *result) {
    const options *o = &c->o;
    wf_schedule_summary sum = wf_schedule_result_summary(result);
    int n_rows = (int)(o->stages < MAX_ROWS ? o->stages : MAX_ROWS);
    bool chose = strcmp(sum.schedule, o->schedule) != 0;
    say(c, "%s%s%s, %lld stage%s", o->schedule, chose ? ": " : "", chose ? sum.schedule : "",
        (long long)o->stages, o->stages == 1 ? "" : "s");
    if (sum.n_chunks > 1) say(c, " of %d chunks", sum.n_chunks);
    say(c, ", %lld microbatch%s\n", (long long)o->recipe.n_micro,
        o->recipe.n_micro == 1 ? "" : "es");
    say(c, "step %.3f ms (longest of a stage), makespan %.3f ms, bubble %.2f %%\n\n", sum.step_ms,
        sum.makespan_ms, 100 * sum.bubble);
    say(c, "%5s %14s %14s %7s %5s\n", "stage", "span ms", "computes ms", "idle", "holds");
    for (int s = 0; s < n_rows; s++) {
        wf_schedule_stage stage = wf_schedule_result_stage(result, s);
        double idle = stage.span_ms > 0 ? 100 * (1 - stage.work_ms / stage.span_ms) : 0;
        say(c, "%5d %14.3f %14.3f %5.1f %% %5.4g\n", s, stage.span_ms, stage.work_ms,
            idle > 0 ? idle : 0, stage.held);
    }
    say(c, "\n");
    say_schedule(c, result, n_rows);
    if (n_rows < o->stages)
        say(c, "  the first %d of %lld stages; --json has all\n", n_rows, (long long)o->stages);
}

static exit_status write_result(const cli *c, const wf_schedule_result *result) {
    const options *o = &c->o;
    wf_schedule_summary sum = wf_schedule_result_summary(result);
    json_t *held = json_array();
    for (int s = 0; s < (int)o->stages; s++)
        json_array_append_new(held, json_real(wf_schedule_result_stage(result, s).held));
    return report_write(c, json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:f, s:f, s:f, s:o}", "weft",
                                     WEFT_VERSION, "schedule", o->schedule, "chosen", sum.schedule,
                                     "chunks", sum.n_chunks, "stages", (json_int_t)o->stages,
                                     "micro", (json_int_t)o->recipe.n_micro, "bubble", sum.bubble,
                                     "step_ms", sum.step_ms, "makespan_ms", sum.makespan_ms,
                                     "peak_activations", held));
}

static exit_status simulate(cli *c, const wf_stage_times *times) {
    const options *o = &c->o;
    wf_schedule_request request = WF_SCHEDULE_REQUEST_INIT;
    request.schedule = o->schedule;
    request.n_stages = (int)o->stages;
    request.n_micro = (int)o->recipe.n_micro;
    request.times = times;
    request.transfer_ms = o->transfer_ms;
    request.n_chunks = (int)o->chunks;
    request.weight_held = o->weight_held;
    /* More than all of them is no limit. */
    request.max_in_flight =
        (int)(o->memory_limit < o->recipe.n_micro ? o->memory_limit : o->recipe.n_micro);
    wf_schedule_result *result;
    TRY(complain_of(c, wf_schedule_simulate(c->ctx, &request, &result)));
    say_result(c, result);
    exit_status bad = write_result(c, result);
    wf_schedule_result_destroy(result);
    return bad;
}

static exit_status run_schedule(cli *c) {
    TRY(check_counts(&c->o));
    wf_stage_times *times = calloc((size_t)c->o.stages, sizeof *times);
    if (!times) return complain(EXIT_FAILED, "no memory left");
    exit_status bad = read_all_times(&c->o, times);
    if (!bad) bad = simulate(c, times);
    free(times);
    return bad;
}

exit_status run_simulate(cli *c) {
    TRY(simulate_check_use(&c->o));
    return option_is_given(&c->o, OPT_sim_update) ? simulate_updates(c) : run_schedule(c);
}
