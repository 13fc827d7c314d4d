/* weft bench memory: the rows as pictures. */
#include "bench/memory.h"

#include <math.h>

#define MIB 1048576.0

/* A column of names, with `between` where their commas are. */
static void write_name(FILE *csv, const json_t *row, const char *between) {
    fputc('"', csv);
    for (const char *at = row_text(row, ".name"); *at; at++)
        if (*at == ',')
            fputs(between, csv);
        else
            fputc(*at, csv);
    fputc('"', csv);
}

/* A bar a row, from the bottom: permanent memory, then temporary memory. */
static exit_status plot_peaks(const rounds *b) {
    const options *o = &b->c->o;
    chart p;
    exit_status bad =
        chart_begin(&p, b->c, "memory", "row,parameters,optimizer,others,all",
                    "%.40s, batch %lld: peak bytes by plan", o->model, (long long)o->recipe.batch);
    if (bad) return bad;
    int n = 0;
    for (json_t *row = NULL; (row = next_row(b->rows, row));) {
        double most = row_number(row, "peak_bytes.measured") / MIB;
        double parameters = fmax(0, row_number(row, "parameter_bytes") / MIB);
        double optimizer = fmax(0, row_number(row, "optimizer_bytes") / MIB);
        if (isnan(most)) continue;
        write_name(p.csv, row, "\\n");
        fprintf(p.csv, ",%.6g,%.6g,%.6g,%.6g\n", parameters, optimizer,
                most - parameters - optimizer, most);
        n++;
    }
    return chart_end(
        &p,
        "set ylabel 'MiB of the rank with the most'; set xtics scale 0 font ',13'; set bmargin "
        "8;set style data histograms; set style histogram rowstacked; set boxwidth 0.6;"
        "stats csv skip 1 using 5 nooutput name 'top';set yrange "
        "[0:top_max*1.12]; set xrange [-0.6:%d.6];plot csv skip 1 using 2:xtic(1) lc rgb "
        "'#0072b2' title 'parameters','' skip 1 using 3 lc rgb '#e69f00' title 'optimizer','' skip "
        "1 using 4 lc rgb '#999999' title 'gradients, activations, gathered parameters; PyTorch: "
        "all','' skip 1 using 0:5:(sprintf('%%.4g',$5)) with labels offset 0,0.7 notitle;",
        n - 1);
}

/* Where a plan stands between bytes and time. */
static exit_status plot_trade(const rounds *b) {
    const options *o = &b->c->o;
    chart p;
    exit_status bad = chart_begin(&p, b->c, "memory_time", "row,mib,ms,peer",
                                  "%.40s, batch %lld: a step's time against its bytes", o->model,
                                  (long long)o->recipe.batch);
    if (bad) return bad;
    for (json_t *row = NULL; (row = next_row(b->rows, row));) {
        double most = row_number(row, "peak_bytes.measured") / MIB;
        if (isnan(most)) continue;
        write_name(p.csv, row, " ");
        fprintf(p.csv, ",%.6g,%.6g,%d\n", most, row_number(row, "step_ms"),
                json_object_get(row, ".peer") != NULL);
    }
    return chart_end(
        &p,
        "set xlabel 'MiB of the rank with the most'; set ylabel 'ms a step';stats "
        "csv skip 1 using 2:3 nooutput name 'top';set xrange [0:top_max_x*1.35]; set "
        "yrange [0:top_max_y*1.3];plot csv skip 1 using ($4==0?$2:NaN):3 with points "
        "pt 7 ps 2 lc rgb '#0072b2' title 'weft','' skip 1 using ($4==1?$2:NaN):3 with points pt 5 "
        "ps 2 lc rgb '#e69f00' title 'PyTorch','' skip 1 using 2:3:1 with labels left offset 1,0.4 "
        "font ',14' notitle;");
}

exit_status memory_plot(const rounds *b) {
    exit_status bad = plot_peaks(b);
    return bad ? bad : plot_trade(b);
}
