/* The learning curve: log.jsonl -> curve.csv -> gnuplot -> curve.png. */
#include "common/output.h"
#include "common/samples.h"
#include "common/text.h"
#include "draw/gnuplot.h"
#include "job/log.h"

#include <math.h>
#include <stdlib.h>

#define SMOOTHING 0.05 /* of the bold line: about the last 20 steps */

typedef struct table {
    FILE *csv;
    double loss, accuracy; /* smoothed */
    int n_steps;
    bool has_accuracy, has_test;
} table;

static void write_cell(FILE *csv, double value) {
    if (isfinite(value))
        fprintf(csv, ",%.17g", value);
    else
        fputc(',', csv);
}

/* Exponential, of about the last third of the first values. */
static double smooth(double *average, int n_before, double value) {
    if (isnan(value)) return NAN;
    double weight = fmax(SMOOTHING, 3.0 / (n_before + 3));
    *average = n_before ? *average + weight * (value - *average) : value;
    return *average;
}

static void write_row(table *t, const json_t *entry) {
    double loss = json_member(entry, "loss"), accuracy = json_member(entry, "accuracy");
    double test_loss = json_member(entry, "test_loss"),
           test_accuracy = json_member(entry, "test_accuracy");
    fprintf(t->csv, "%.0f", json_member(entry, "step"));
    write_cell(t->csv, loss);
    write_cell(t->csv, smooth(&t->loss, t->n_steps, loss));
    write_cell(t->csv, accuracy);
    write_cell(t->csv, smooth(&t->accuracy, t->n_steps, accuracy));
    write_cell(t->csv, test_loss);
    write_cell(t->csv, test_accuracy);
    fputc('\n', t->csv);
    t->n_steps += isfinite(loss);
    t->has_accuracy |= isfinite(accuracy);
    t->has_test |= isfinite(test_loss);
}

static exit_status write_table(const cli *c, const char *log_path, table *t) {
    char path[4096], *line = NULL;
    size_t bytes = 0;
    output out;
    int fd;
    *t = (table){0};
    TRY(complain_of(c, wf_file_open(c->ctx, log_path, &fd, NULL)));
    FILE *log = fdopen(fd, "r");
    snprintf(path, sizeof path, "%s/curve.csv", c->o.out);
    exit_status bad = output_begin(&out, c, "the table", path);
    if (!bad) {
        t->csv = out.stream;
        fputs("step,loss,smooth_loss,accuracy,smooth_accuracy,test_loss,test_accuracy\n", t->csv);
    }
    while (!bad && log && getline(&line, &bytes, log) > 0) {
        json_t *entry = json_loads(line, 0, NULL);
        if (json_is_object(entry)) write_row(t, entry);
        json_decref(entry);
    }
    free(line);
    if (log) fclose(log);
    return bad ? bad : output_end(&out);
}

/* Adds a panel: the raw values faint, smoothed ones bold, the test set's as points. `column` of
 * the raw values; the smoothed follow. */
static void add_panel(char *text, size_t bytes, const char *label, int column, int test_column,
                      const char *color, const char *factor, const char *training, bool has_test) {
    text_add(text, bytes,
             "set ylabel '%s';"
             "plot 'curve.csv' using 1:($%d*%s) with lines lc rgb '#b0%s' lw 1 notitle,"
             "'' using 1:($%d*%s) with lines lc rgb '#%s' lw 2.5 title '%s'",
             label, column, factor, color, column + 1, factor, color, training);
    if (has_test)
        text_add(text, bytes,
                 ",'' using ($%d==$%d?$1:1/0):($%d*%s) with linespoints lc rgb '#d55e00' lw 2 pt 7 "
                 "ps 1.4 title 'test'",
                 test_column, test_column, test_column, factor);
    text_add(text, bytes, ";");
}

/* Why the loss of training is above that of tests, which are of plain pictures and labels. */
static const char *training_title(const options *o) {
    return o->label_smoothing > 0 ? "training (with label smoothing)"
           : o->mixup > 0         ? "training (of mixed pictures)"
                                  : "training";
}

static void write_script(const table *t, const options *o, const char *title, char *script,
                         size_t bytes) {
    snprintf(script, bytes,
             "set terminal pngcairo size 1000,%d font 'sans,12' background rgb 'white';"
             "set datafile separator ','; set datafile missing '';"
             "set border 3 lc rgb '#555555'; set tics nomirr out;"
             "set grid lt 1 lc rgb '#e0e0e0' lw 1; set lmargin 10; set rmargin 5;"
             "set format '%%g'; set key outside top center horizontal Left reverse;"
             "set multiplot layout %d,1 title \"%s\" font 'sans,14';set xlabel 'step';",
             t->has_accuracy ? 760 : 460, t->has_accuracy ? 2 : 1, title);
    add_panel(script, bytes, "loss", 2, 6, "0072b2", "1", training_title(o), t->has_test);
    if (t->has_accuracy)
        add_panel(script, bytes, "accuracy, %", 4, 7, "009e73", "100", "training", t->has_test);
    text_add(script, bytes, "unset multiplot;");
}

exit_status plot_curve(const cli *c, const char *log_path, const char *title, bool is_last) {
    table t;
    char script[4096], path[4096];
    const char *dir = c->o.out;
    int status;
    exit_status bad = write_table(c, log_path, &t);
    if (bad || t.n_steps < 2) return bad; /* one point is no curve */
    write_script(&t, &c->o, title, script, sizeof script);
    snprintf(path, sizeof path, "%s/curve.png", dir);
    TRY(gnuplot_draw(c, dir, script, path, &status));
    if (status && is_last)
        say(c, "%s, so there is no new picture; %s/curve.csv has the numbers\n",
            gnuplot_meaning(status), dir);
    return EXIT_DONE;
}
