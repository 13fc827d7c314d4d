/* libsodium is begun before anything of it is used; where it cannot begin, there is no context, so
 * nothing else either. Its function is replaced here.
 * label: serial
 */
#include "test.h"

int sodium_init(void);

static int n_calls, answer;

int sodium_init(void) {
    n_calls++;
    return answer;
}

TEST_CASE(begins_libsodium) {
    wf_context *ctx = NULL;
    answer = 1; /* it had begun before */
    assert_int_equal(wf_context_create(NULL, &ctx), WF_OK);
    assert_int_equal(n_calls, 1);
    wf_context_destroy(ctx);
}

TEST_CASE(fails_with_it) {
    wf_context *ctx = NULL;
    answer = -1;
    assert_int_equal(wf_context_create(NULL, &ctx), WF_DEVICE);
    assert_null(ctx);
}

int main(void) {
    return test_run(NULL, NULL);
}
