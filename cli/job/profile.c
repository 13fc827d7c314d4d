/* Where the time went: a table by kind of op, and one by kernel. */
#include "common/text.h"
#include "job/report.h"

#include <string.h>

static void profile_line(const cli *c, const wf_profile_row *row, double total_ns) {
    char flops[TEXT_BYTES] = "";
    if (row->flops > 0 && row->time_ns > 0)
        snprintf(flops, sizeof flops, "%.1f", row->flops / (double)row->time_ns);
    say(c, "%-24.24s %8lld %10.1f %8s %6.1f %%  %s\n", row->label, (long long)row->n_calls,
        (double)row->time_ns / 1e6, flops, 100 * (double)row->time_ns / total_ns, row->kernel);
}

static json_t *profile_json(const wf_profile_row *row, double total_ns) {
    return json_pack("{s:s, s:s, s:I, s:f, s:f, s:f}", "op", row->label, "kernel", row->kernel,
                     "calls", (json_int_t)row->n_calls, "ms", (double)row->time_ns / 1e6,
                     "gflop_per_second", row->time_ns > 0 ? row->flops / (double)row->time_ns : 0.0,
                     "share", (double)row->time_ns / total_ns);
}

static void by_op(const cli *c, wf_trainer *trainer, double total_ns) {
    wf_profile_row row, sum[64];
    int n = 0;
    for (int i = 0; wf_trainer_profile(trainer, i, &row); i++) {
        int k = 0;
        while (k < n && strcmp(sum[k].label, row.label)) k++;
        if (k == 64) continue;
        if (k == n) sum[n++] = (wf_profile_row){.label = row.label, .kernel = ""};
        sum[k].n_calls += row.n_calls;
        sum[k].time_ns += row.time_ns;
        sum[k].flops += row.flops;
    }
    for (int done = 0; done < n; done++) { /* largest first */
        int best = done;
        for (int k = done + 1; k < n; k++)
            if (sum[k].time_ns > sum[best].time_ns) best = k;
        wf_profile_row swap = sum[done];
        sum[done] = sum[best];
        sum[best] = swap;
        profile_line(c, &sum[done], total_ns);
    }
}

void report_profile(const cli *c, wf_trainer *trainer, json_t *report) {
    wf_profile_row row;
    double total_ns = 0;
    json_t *rows = json_array();
    for (int i = 0; wf_trainer_profile(trainer, i, &row); i++) total_ns += (double)row.time_ns;
    if (!(total_ns > 0)) total_ns = 1;
    say(c, "\n%-24s %8s %10s %8s %8s  %s\n", "op", "calls", "ms", "GFLOP/s", "share", "kernel");
    by_op(c, trainer, total_ns);
    say(c, "\n");
    for (int i = 0; wf_trainer_profile(trainer, i, &row); i++) {
        profile_line(c, &row, total_ns);
        json_array_append_new(rows, profile_json(&row, total_ns));
    }
    if (report)
        json_object_set_new(report, "profile", rows);
    else
        json_decref(rows);
}
