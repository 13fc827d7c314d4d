#include "draw/chart.h"
#include "draw/gnuplot.h"

#include <stdarg.h>
#include <string.h>

/* gnuplot's own format begins with a space, which moves labels off their tics; a legend in the plot
 * would cut the lines of the grid. */
#define STYLE                                                                                      \
    "set terminal pngcairo size 1280,720 font 'sans,18' background rgb 'white';"                   \
    "set datafile separator ','; set border 3 lc rgb '#555555'; set tics nomirr out;"              \
    "set grid ytics lt 1 lc rgb '#e0e0e0' lw 1; set bars 1.5; set tmargin 3.5; set rmargin 4;"     \
    "set format '%%g';"                                                                            \
    "set key outside bottom center horizontal Left reverse samplen 1.5 maxrows 3;"                 \
    "set style fill solid 1 noborder;"

exit_status chart_begin(chart *p, const cli *c, const char *name, const char *header,
                        const char *title, ...) {
    char path[4096];
    va_list args;
    *p = (chart){.c = c, .name = name};
    va_start(args, title);
    vsnprintf(p->title, sizeof p->title, title, args);
    va_end(args);
    snprintf(path, sizeof path, "%s/%s.csv", c->o.out, name);
    exit_status bad = output_begin(&p->out, c, "--out:", path);
    if (bad) return bad;
    p->csv = p->out.stream;
    fprintf(p->csv, "%s\n", header);
    return EXIT_DONE;
}

exit_status chart_end(chart *p, const char *drawing, ...) {
    const char *out = p->c->o.out;
    char script[7000], path[4096];
    va_list args;
    int status;
    exit_status bad = output_end(&p->out);
    if (bad) return bad;
    snprintf(path, sizeof path, "%s/%s.png", out, p->name);
    int n = snprintf(script, sizeof script, STYLE "csv='%s.csv'; set title \"%s\"; ", p->name,
                     p->title);
    va_start(args, drawing);
    vsnprintf(script + n, sizeof script - (size_t)n, drawing, args);
    va_end(args);
    bad = gnuplot_draw(p->c, out, script, path, &status);
    if (bad) return bad;
    if (status == 0)
        say(p->c, "drawn   %s\n", path);
    else
        say(p->c, "%s, so there is no %s.png; %s/%s.csv has the numbers\n", gnuplot_meaning(status),
            p->name, out, p->name);
    return EXIT_DONE;
}
