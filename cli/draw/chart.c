#include "draw/chart.h"
#include "draw/gnuplot.h"

#include <errno.h>
#include <string.h>

#define STYLE                                                                                      \
    "set terminal pngcairo size 1280,720 font 'sans,18' background rgb 'white';"                   \
    "set datafile separator ','; set border 3 lc rgb '#555555'; set tics nomirror out;"            \
    "set grid ytics lt 1 lc rgb '#e0e0e0' lw 1; set bars 1.5; set tmargin 3.5; set rmargin 4;"

static exit_status failed(const chart *p) {
    return complain(EXIT_FAILED, "--out: %s/%s.csv cannot be written: %s", p->c->o.out, p->name,
                    strerror(errno));
}

exit_status chart_begin(chart *p, const cli *c, const char *name, const char *header) {
    char path[4096];
    *p = (chart){c, name, NULL};
    snprintf(path, sizeof path, "%s/%s.csv", c->o.out, name);
    p->csv = fopen(path, "w");
    if (!p->csv) return failed(p);
    fprintf(p->csv, "%s\n", header);
    return EXIT_DONE;
}

exit_status chart_end(chart *p, const char *title, const char *drawing) {
    const char *out = p->c->o.out;
    char script[6000];
    if (fclose(p->csv)) return failed(p);
    snprintf(script, sizeof script, STYLE "set output '%s.png'; set title \"%s\"; %s", p->name,
             title, drawing);
    int status = gnuplot_run(out, script);
    if (status == 0)
        say(p->c, "drawn   %s/%s.png\n", out, p->name);
    else
        say(p->c, "%s, so there is no %s.png; %s/%s.csv has the numbers\n",
            status == GNUPLOT_MISSING ? "gnuplot is not installed" : "gnuplot failed", p->name, out,
            p->name);
    return EXIT_DONE;
}
