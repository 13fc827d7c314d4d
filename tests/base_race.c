/* The thread sanitizer hears of what loops touch, which it does not see: two threads that add to
 * the same memory are a race, in all of it or in its last element, and beside each other they are
 * none. */
#include "kernel/cpu.h"
#include "test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 100000

typedef struct adder {
    float *sum;
    const float *summand;
    size_t n;
} adder;

static void *add(void *self) {
    const adder *a = self;
    wfi_cpu_add(WFI_BASELINE, a->sum, a->summand, a->n);
    return NULL;
}

/* In a process of its own, which a race ends. */
static int run_two(size_t n, size_t apart) {
    pid_t pid = fork();
    if (pid == 0) {
        static float sum[2 * MOST] __attribute__((aligned(64))), summand[MOST];
        adder each[2] = {{sum, summand, n}, {sum + apart, summand, n}};
        pthread_t threads[2];
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        for (int k = 0; k < 2; k++)
            if (pthread_create(&threads[k], NULL, add, &each[k])) _exit(1);
        for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

TEST_CASE(races_are_told) {
    for (size_t n = MOST / 100; n <= MOST; n *= 100) {
        assert_int_equal(run_two(n, n), 0);
#if defined(__SANITIZE_THREAD__)
        assert_int_not_equal(run_two(n, 0), 0);
        assert_int_not_equal(run_two(n, n - 1), 0);
#endif
    }
}
