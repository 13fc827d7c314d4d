/* When a run advises fewer threads: others have taken the cores for long enough.
 *
 * label: serial once
 */
#include "cli/common/processor.h"
#include "test.h"

#include <math.h>

TEST_CASE(advises_one_thread_on_crowded_cores) {
    static const struct {
        effort spent;
        int n_threads;
        bool is_crowded;
    } cases[] = {
        {{4, 4, 8, 2}, 2, true},      /* half of two cores */
        {{4, 6.1, 8, 2}, 2, false},   /* less than a quarter */
        {{4, 7.9, 8, 2}, 2, false},   /* its own threads */
        {{4, 4, 8, 2}, 1, false},     /* no threads that wait for each other */
        {{2.9, 3, 5.8, 2}, 2, false}, /* too short */
        {{4, 4, NAN, 2}, 2, false},   /* not known */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (effort_is_crowded(&cases[i].spent, cases[i].n_threads) != cases[i].is_crowded)
            fail_msg("case %zu: others took %g", i, effort_of_others(&cases[i].spent));
}
