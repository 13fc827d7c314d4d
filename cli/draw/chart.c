#include "draw/chart.h"
#include "draw/gnuplot.h"

#include <stdlib.h>

/* gnuplot's own format begins with a space, which moves labels off their tics; a legend in the plot
 * would cut the lines of the grid. */
#define STYLE                                                                                      \
    "set terminal pngcairo size 1280,720 font 'sans,18' background rgb 'white';"                   \
    "set datafile separator ','; set border 3 lc rgb '#555555'; set tics nomirr out;"              \
    "set grid ytics lt 1 lc rgb '#e0e0e0' lw 1; set bars 1.5; set tmargin 3.5; set rmargin 4;"     \
    "set format '%%g';"                                                                            \
    "set key outside bottom center horizontal Left reverse samplen 1.5 maxrows 3;"                 \
    "set style fill solid 1 noborder;"

exit_status chart_draw(const cli *c, const char *name, const char *csv, const char *title,
                       const char *script) {
    char *all, path[4096];
    int status;
    output out;
    snprintf(path, sizeof path, "%s/%s.csv", c->o.out, name);
    TRY(output_begin(&out, c, "--out:", path));
    fprintf(out.stream, "%s\n", csv);
    TRY(output_end(&out));
    if (asprintf(&all, STYLE "csv='%s.csv'; set title \"%s\"; %s", name, title, script) < 0)
        return complain(EXIT_FAILED, "no memory left");
    snprintf(path, sizeof path, "%s/%s.png", c->o.out, name);
    exit_status bad = gnuplot_draw(c, c->o.out, all, path, &status);
    free(all);
    if (bad) return bad;
    if (status == 0)
        say(c, "drawn   %s\n", path);
    else
        say(c, "%s, so there is no %s.png; %s/%s.csv has the numbers\n", gnuplot_meaning(status),
            name, c->o.out, name);
    return EXIT_DONE;
}
