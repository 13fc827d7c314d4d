/* The useful time of a run that is started again: the time up to the mark of the checkpoint or
 * snapshot from which the next attempt continues.
 *
 * label: serial
 */
#include "cli/job/progress.h"
#include "cli/restart/restart.h"
#include "test.h"

#include <unistd.h>

static history *begin(void) {
    int fd;
    history *h = history_create(&fd);
    assert_non_null(h);
    close(fd);
    history_begin(h, 0);
    return h;
}

/* The seconds pass, and the attempt has done `n_done` steps then. */
static void work(history *h, double seconds, int64_t n_done) {
    h->attempt_s -= seconds;
    h->begun_s -= seconds;
    history_step(h, n_done);
}

static double lost_s(const history *h) {
    double lost, all;
    history_seconds(h, &lost, &all);
    assert_true(all >= lost);
    return lost;
}

/* Continues after `n_done` steps, where `mark` counts; at least `seconds` are useful up to there.
 */
static void continues(history *h, int64_t n_done, const restart_mark *mark, double seconds) {
    assert_int_equal(mark->step, n_done);
    assert_true(mark->useful_s >= seconds);
    history_begin(h, n_done);
    assert_true(h->base_s == mark->useful_s);
}

TEST_CASE(from_snapshots) {
    history *h = begin();
    work(h, 100, 10);
    history_mark_snapshot(h, 10);
    work(h, 10, 12);
    history_mark_snapshot(h, 12);
    work(h, 10, 12);
    history_mark_snapshot(h, 12); /* again, after the steps were repeated */
    work(h, 50, 13);
    continues(h, 12, &h->snapshots[0], 120);
    assert_int_equal(h->n_repeated, 1);
    assert_true(lost_s(h) > 25 && lost_s(h) < h->attempt_s - h->begun_s - 119);
    work(h, 1, 13);
    continues(h, 10, &h->snapshots[1], 100); /* the newest was not whole */
    assert_int_equal(h->n_repeated, 4);
    history_begin(h, 0); /* neither was: all is lost */
    assert_true(h->base_s == 0);
    assert_int_equal(h->most_done, 13);
    history_release(h);
}

TEST_CASE(from_checkpoints) {
    history *h = begin();
    for (int64_t step = 1; step <= N_MARKS + 2; step++) {
        work(h, 1, step);
        history_mark(h, step);
        work(h, 1, step);
        history_mark(h, step);
    }
    assert_int_equal(h->n_marks, N_MARKS + 2);
    history_mark_snapshot(h, 3);
    const restart_mark marks[] = {h->marks[2], h->marks[1]};
    continues(h, 3, &marks[0], 6);
    continues(h, N_MARKS + 2, &marks[1], 2 * N_MARKS + 4);
    history_begin(h, 2); /* its mark has been replaced */
    assert_true(h->base_s == 0);
    history_release(h);
}

/* Between two attempts a signal waits until the launcher takes it. */
TEST_CASE(signals_are_held) {
    sigset_t before, after;
    interrupt_hold(&before);
    raise(SIGTERM);
    assert_int_equal(interrupt_wait(10), SIGTERM);
    interrupt_release(&before);
    sigprocmask(SIG_BLOCK, NULL, &after);
    assert_false(sigismember(&after, SIGTERM));
}
