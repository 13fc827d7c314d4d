/* weft bench predict: the rows as a table, as JSON and as a picture. */
#include "bench/predict.h"
#include "common/text.h"
#include "draw/chart.h"
#include "job/report.h"

#include <math.h>

double predict_error(const predict_row *r) {
    return r->predicted_ms / r->measured_ms - 1;
}

static double most_of(const json_t *bytes) {
    double most = 0;
    for (size_t k = 0; k < json_array_size(bytes); k++)
        most = fmax(most, json_number_value(json_array_get(bytes, k)));
    return most;
}

void predict_say(const bench_predict *b) {
    say(b->c, "\n%-40s%12s%12s%10s%12s%12s\n", "plan", "measured ms", "predicted", "error", "peak",
        "planned");
    for (const predict_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        char peak[TEXT_BYTES], planned[TEXT_BYTES];
        say(b->c, "%-40s%12.2f%12.2f%+8.1f %%%12s%12s\n", wf_plan_text(r->plan), r->measured_ms,
            r->predicted_ms, 100 * predict_error(r), text_of_bytes(peak, most_of(r->measured)),
            text_of_bytes(planned, most_of(r->planned)));
    }
    say(b->c, "mean error %.1f %%, worst %.1f %%; steps by the CPU time of their instructions\n",
        100 * b->mean_error, 100 * b->worst_error);
}

static json_t *report_of(const bench_predict *b) {
    json_t *rows = json_array();
    for (const predict_row *r = b->rows; r < b->rows + b->n_rows; r++)
        json_array_append_new(
            rows, json_pack("{s:s, s:f, s:f, s:f, s:f, s:{s:O, s:O}}", "plan",
                            wf_plan_text(r->plan), "measured_ms", r->measured_ms, "predicted_ms",
                            r->predicted_ms, "error", predict_error(r), "fastest_ms", r->fastest_ms,
                            "peak_bytes", "planned", r->planned, "measured", r->measured));
    json_t *report =
        json_pack("{s:s, s:o, s:I, s:I, s:o, s:f, s:f}", "weft", WEFT_VERSION, "recipe",
                  options_recipe(&b->c->o), "steps", (json_int_t)b->c->o.steps, "repeat",
                  (json_int_t)b->c->o.repeat, "rows", rows, "mean_error", b->mean_error,
                  "worst_error", b->worst_error);
    effort_report(&b->spent, report);
    return report;
}

static exit_status plot(const bench_predict *b) {
    char title[200];
    chart p;
    exit_status bad = chart_begin(&p, b->c, "predict", "measured,predicted,plan");
    if (bad) return bad;
    for (const predict_row *r = b->rows; r < b->rows + b->n_rows; r++)
        fprintf(p.csv, "%.6g,%.6g,\"%s\"\n", r->measured_ms, r->predicted_ms,
                wf_plan_text(r->plan));
    snprintf(title, sizeof title, "%.40s, batch %lld: a step's time, predicted and measured",
             b->c->o.model, (long long)b->c->o.recipe.batch);
    return chart_end(
        &p, title,
        "set xlabel 'measured ms'; set ylabel 'predicted ms'; set size square; stats "
        "'predict.csv' skip 1 using 1:2 nooutput name 'top'; m = "
        "1.1*(top_max_x>top_max_y?top_max_x:top_max_y); set xrange [0:m]; set yrange "
        "[0:m]; plot x with lines lc rgb '#999999' title 'equal', 'predict.csv' skip 1 "
        "using 1:2 with points pt 7 ps 2 lc rgb '#0072b2' title 'plans';");
}

exit_status predict_write(const bench_predict *b) {
    exit_status bad = b->c->o.out ? plot(b) : EXIT_DONE;
    return bad ? bad : report_write(b->c, report_of(b));
}
