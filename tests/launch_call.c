/* wf_launch as a library: what it refuses, what it leaves as it was, and memory that runs out.
 *
 * label: serial
 */
#include "launch/watchdog.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static char *const shell[] = {"sh", "-c", "echo $RANK; exit $RANK", NULL};

static wf_launch_config config_of(int n_ranks, char *const *argv, int fd) {
    wf_launch_config config = WF_LAUNCH_CONFIG_INIT;
    config.n_ranks = n_ranks;
    config.argv = argv;
    config.out = config.err = fd;
    return config;
}

TEST(refused) {
    wf_launch_result result;
    wf_launch_config config = config_of(2, shell, 1);
    config.n_ranks = 0;
    TEST_REFUSED(ctx, wf_launch(ctx, &config, &result), WF_INVALID_ARG, "1 to 1024");
    config.n_ranks = 1025;
    TEST_REFUSED(ctx, wf_launch(ctx, &config, &result), WF_INVALID_ARG, "1 to 1024");
    config = config_of(2, shell, 1);
    config.timeout_ms = -1;
    TEST_REFUSED(ctx, wf_launch(ctx, &config, &result), WF_INVALID_ARG, "begin at 0");
    config = config_of(2, NULL, 1);
    TEST_REFUSED(ctx, wf_launch(ctx, &config, &result), WF_INVALID_ARG, "no program");
    config = config_of(2, shell, 1);
    config.struct_size--;
    TEST_REFUSED(ctx, wf_launch(ctx, &config, &result), WF_INVALID_ARG, "begin it with its _INIT");
    config = config_of(2, shell, 1000);
    TEST_REFUSED(ctx, wf_launch(ctx, &config, &result), WF_IO, "(descriptor 1000) is closed");
    config = config_of(2, shell, 1);
    config.program = "/no/such";
    TEST_REFUSED(ctx, wf_launch(ctx, &config, &result), WF_INVALID_ARG, "/no/such cannot be");
    signal(SIGCHLD, SIG_IGN);
    config = config_of(2, shell, 1);
    TEST_REFUSED(ctx, wf_launch(ctx, &config, &result), WF_INVALID_ARG, "ignores SIGCHLD");
    signal(SIGCHLD, SIG_DFL);
}

TEST(nothing_is_left) {
    wf_launch_result result;
    sigset_t before, after;
    int ends[2], n_open;
    char text[100];
    assert_int_equal(pipe(ends), 0);
    n_open = test_descriptors();
    sigprocmask(SIG_SETMASK, NULL, &before);
    wf_launch_config config = config_of(3, shell, ends[1]);
    TEST_OK(ctx, wf_launch(ctx, &config, &result));
    assert_int_equal(result.exit_status, result.failed_rank);
    assert_true(result.failed_rank > 0);
    assert_int_equal(result.signal, 0);
    assert_int_equal(result.interrupted_by, 0);
    assert_non_null(strstr(result.sentence, "ended with exit status"));
    assert_true(read(ends[0], text, sizeof text) >= 2);
    assert_int_equal(test_descriptors(), n_open);
    sigprocmask(SIG_SETMASK, NULL, &after);
    for (int i = 1; i < 32; i++) assert_int_equal(sigismember(&before, i), sigismember(&after, i));
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child */
    close(ends[0]);
    close(ends[1]);
}

/* A signal that waits interrupts, and the rank does not inherit the block: SIGTERM ends it. */
TEST(a_blocked_signal) {
    char *const program[] = {"sleep", "600", NULL}; /* a shell may unblock signals */
    wf_launch_result result;
    sigset_t held, before;
    sigemptyset(&held);
    sigaddset(&held, SIGTERM);
    sigprocmask(SIG_BLOCK, &held, &before);
    raise(SIGTERM);
    wf_launch_config config = config_of(1, program, 2);
    TEST_OK(ctx, wf_launch(ctx, &config, &result));
    sigprocmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(result.interrupted_by, SIGTERM);
    assert_int_equal(result.n_killed, 0);
}

/* ---- the n-th allocation fails ---- */

static int n_left;

static void *scarce_alloc(void *self, size_t bytes) {
    void *block = NULL;
    if (n_left-- == 0) return NULL;
    return posix_memalign(&block, 64, bytes) ? NULL : block;
}

static void scarce_free(void *self, void *block) {
    free(block);
}

TEST_CASE(memory_runs_out) {
    char *const program[] = {"sh", "-c", "echo $RANK", NULL};
    int n = 0, fd = open("/dev/null", O_WRONLY), n_open = test_descriptors();
    clearenv(); /* each variable is an allocation */
    setenv("PATH", "/usr/bin:/bin", 1);
    for (wf_status status = WF_NO_MEMORY; status != WF_OK; n++) {
        wf_context_config scarce = WF_CONTEXT_CONFIG_INIT;
        scoped_context ctx;
        wf_launch_result result;
        scarce.allocator = (wf_allocator){scarce_alloc, scarce_free, NULL};
        n_left = 1 + n;
        assert_int_equal(wf_context_create(&scarce, &ctx), WF_OK);
        wf_launch_config config = config_of(2, program, fd);
        status = wf_launch(ctx, &config, &result);
        if (status != WF_OK) {
            assert_int_equal(status, WF_NO_MEMORY);
            assert_non_null(strstr(wf_context_error(ctx), "no host memory left"));
        }
        assert_int_equal(test_descriptors(), n_open);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    }
    assert_true(n > 10);
    close(fd);
}

/* The orders fill the pipe of a watchdog that is stopped: it is killed, and no call waits. */
TEST(a_stopped_watchdog) {
    wfi_watchdog watchdog;
    siginfo_t info;
    signal(SIGPIPE, SIG_IGN); /* a launcher blocks it */
    TEST_OK(ctx, wfi_watchdog_start(ctx, &watchdog));
    assert_int_equal(kill(watchdog.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(watchdog.pid, NULL, WUNTRACED), watchdog.pid);
    for (int i = 0; i < 100000; i++) wfi_watchdog_watch(&watchdog, INT32_MAX); /* no such group */
    assert_int_equal(waitid(P_PID, (id_t)watchdog.pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(info.si_status, SIGKILL);
    wfi_watchdog_end(&watchdog);
}
