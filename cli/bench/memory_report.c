/* weft bench memory: the rows as a table, as JSON and as pictures. */
#include "bench/memory.h"
#include "draw/chart.h"
#include "report.h"
#include "text.h"

#include <math.h>
#include <string.h>

static double ms_of(const memory_row *r) {
    return samples_median(&r->ms, 0);
}

/* The part of a step in which a disk that does nothing else could read and write what is there. */
static double disk_share_of(const memory_row *r) {
    return samples_median(&r->disk_ms, 0) / ms_of(r);
}

static const char *name_of(const memory_row *r, char name[100]) {
    snprintf(name, 100, "%s%.80s", r->peer ? "PyTorch " : "", *r->asked ? r->asked : "one rank");
    return name;
}

/* The name as a column of a CSV file, with `between` where its commas are. */
static void write_name(FILE *csv, const memory_row *r, const char *between) {
    char name[100];
    fputc('"', csv);
    for (const char *at = name_of(r, name); *at; at++)
        if (*at == ',')
            fputs(between, csv);
        else
            fputc(*at, csv);
    fputc('"', csv);
}

/* ---- table ---- */

static const char *bytes_or_none(char text[TEXT_BYTES], double bytes) {
    if (isnan(bytes)) return "-";
    return text_of_bytes(text, bytes);
}

static void say_disks(const bench_memory *b) {
    for (const memory_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        char name[100], bytes[TEXT_BYTES];
        if (!r->disk_ms.n) continue;
        say(b->c,
            "%s: %s on disk; plain reads and writes of as much take %.2f ms, %.0f %% of a step\n",
            name_of(r, name), text_of_bytes(bytes, r->disk_bytes), samples_median(&r->disk_ms, 0),
            100 * disk_share_of(r));
    }
}

void memory_say(const bench_memory *b) {
    say(b->c, "\n%-36s%6s%14s%14s%12s%14s\n", "plan", "ranks", "planned", "measured", "ms a step",
        "sent");
    for (const memory_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        char name[100], planned[TEXT_BYTES], measured[TEXT_BYTES], sent[TEXT_BYTES];
        if (*r->why)
            say(b->c, "%-36s%6d  no figures: %s\n", name_of(r, name), r->n_ranks, r->why);
        else
            say(b->c, "%-36s%6d%14s%14s%12.2f%14s\n", name_of(r, name), r->n_ranks,
                bytes_or_none(planned, memory_most(r->planned)),
                bytes_or_none(measured, memory_most(r->measured)), ms_of(r),
                bytes_or_none(sent, memory_most(r->sent)));
    }
    say(b->c, "\n"
              "bytes are those of the rank with the most; weft: bytes on its device; PyTorch: "
              "growth of the\n"
              "process since before the model was made\n"
              "all of weft's rows have the same weights, bit for bit\n");
    say_disks(b);
}

/* ---- JSON ---- */

static json_t *bytes_json(json_t *bytes) {
    return bytes ? json_incref(bytes) : json_null();
}

static json_t *row_json(const memory_row *r) {
    json_t *row =
        json_pack("{s:s, s:i, s:{s:o, s:o}, s:o, s:o, s:o}", "plan", r->peer ? r->peer : r->plan,
                  "ranks", r->n_ranks, "peak_bytes", "planned", bytes_json(r->planned), "measured",
                  bytes_json(r->measured), "step_ms", json_number(ms_of(r)), "runs",
                  samples_json(&r->ms), "sent_bytes", bytes_json(r->sent));
    if (*r->why) json_object_set_new(row, "no_figures", json_string(r->why));
    if (r->peer) return row;
    json_object_set_new(row, "parameter_bytes", json_integer((json_int_t)r->parameter_bytes));
    json_object_set_new(row, "optimizer_bytes", json_integer((json_int_t)r->optimizer_bytes));
    if (r->disk_ms.n) {
        json_object_set_new(row, "disk_bytes", json_integer((json_int_t)r->disk_bytes));
        json_object_set_new(row, "disk_plain_ms", json_number(samples_median(&r->disk_ms, 0)));
        json_object_set_new(row, "disk_share", json_number(disk_share_of(r)));
    }
    json_object_set_new(row, "weights_sha256", json_string(r->sha));
    return row;
}

static json_t *report_of(const bench_memory *b) {
    json_t *rows = json_array(), *peers = json_array();
    for (const memory_row *r = b->rows; r < b->rows + b->n_rows; r++)
        json_array_append_new(r->peer ? peers : rows, row_json(r));
    json_t *report = json_pack("{s:s, s:O, s:I, s:i, s:i, s:o}", "weft", WEFT_VERSION, "recipe",
                               b->recipe, "steps", (json_int_t)b->c->o.steps, "repeat",
                               b->n_repeats, "cores", apart_n_cores(), "rows", rows);
    effort_report(&b->spent, report);
    json_object_set_new(report, "peers", peers);
    if (b->c->o.peers) json_object_set_new(report, "peer_version", json_string(b->peer_version));
    return report;
}

/* ---- pictures ---- */

#define MIB 1048576.0

/* A bar a row, from the bottom: what is held for ever, and what comes and goes. */
static exit_status plot_peaks(const bench_memory *b) {
    char drawing[2500], title[200];
    chart p;
    exit_status bad = chart_begin(&p, b->c, "memory", "row,parameters,optimizer,others,all");
    if (bad) return bad;
    int n = 0;
    for (const memory_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        if (*r->why) continue;
        double most = memory_most(r->measured) / MIB;
        double kept = (r->parameter_bytes + r->optimizer_bytes) / MIB;
        write_name(p.csv, r, "\\n");
        fprintf(p.csv, ",%.6g,%.6g,%.6g,%.6g\n", r->parameter_bytes / MIB, r->optimizer_bytes / MIB,
                most - kept, most);
        n++;
    }
    snprintf(
        drawing, sizeof drawing,
        "set ylabel 'MiB of the rank with the most'; set xtics scale 0 font ',13'; set bmargin "
        "8;set style data histograms; set style histogram rowstacked; set boxwidth 0.6;set style "
        "fill solid 1 noborder;stats 'memory.csv' skip 1 using 5 nooutput name 'top';set yrange "
        "[0:top_max*1.12]; set xrange [-0.6:%d.6];plot 'memory.csv' skip 1 using 2:xtic(1) lc rgb "
        "'#0072b2' title 'parameters','' skip 1 using 3 lc rgb '#e69f00' title 'optimizer','' skip "
        "1 using 4 lc rgb '#999999' title 'gradients, activations, gathered parameters; PyTorch: "
        "all','' skip 1 using 0:5:(sprintf('%%.4g',$5)) with labels offset 0,0.7 notitle;",
        n - 1);
    snprintf(title, sizeof title, "%.40s, batch %lld: peak bytes by plan", b->c->o.model,
             (long long)b->c->o.recipe.batch);
    return chart_end(&p, title, drawing);
}

/* Where a plan stands between bytes and time. */
static exit_status plot_trade(const bench_memory *b) {
    char title[200];
    chart p;
    exit_status bad = chart_begin(&p, b->c, "memory_time", "row,mib,ms,peer");
    if (bad) return bad;
    for (const memory_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        if (*r->why) continue;
        write_name(p.csv, r, " ");
        fprintf(p.csv, ",%.6g,%.6g,%d\n", memory_most(r->measured) / MIB, ms_of(r),
                r->peer != NULL);
    }
    snprintf(title, sizeof title, "%.40s, batch %lld: a step's time against its bytes",
             b->c->o.model, (long long)b->c->o.recipe.batch);
    return chart_end(
        &p, title,
        "set xlabel 'MiB of the rank with the most'; set ylabel 'ms a step';stats "
        "'memory_time.csv' skip 1 using 2:3 nooutput name 'top';set xrange [0:top_max_x*1.35]; set "
        "yrange [0:top_max_y*1.3];plot 'memory_time.csv' skip 1 using ($4==0?$2:NaN):3 with points "
        "pt 7 ps 2 lc rgb '#0072b2' title 'weft','' skip 1 using ($4==1?$2:NaN):3 with points pt 5 "
        "ps 2 lc rgb '#e69f00' title 'PyTorch','' skip 1 using 2:3:1 with labels left offset 1,0.4 "
        "font ',14' notitle;");
}

exit_status memory_write(const bench_memory *b) {
    exit_status bad = EXIT_DONE;
    if (b->c->o.out) bad = plot_peaks(b);
    if (b->c->o.out && !bad) bad = plot_trade(b);
    return bad ? bad : report_write(b->c, report_of(b));
}
