/* libsodium is begun before anything of it is used; where it cannot begin, there is no context, so
 * nothing else either. Its function is replaced here.
 * label: serial
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <weft/context.h>

int sodium_init(void);

static int n_calls, answer;

int sodium_init(void) {
    n_calls++;
    return answer;
}

static void begins_libsodium(void **state) {
    wf_context *ctx = NULL;
    answer = 1; /* it had begun before */
    assert_int_equal(wf_context_create(NULL, &ctx), WF_OK);
    assert_int_equal(n_calls, 1);
    wf_context_destroy(ctx);
}

static void fails_with_it(void **state) {
    wf_context *ctx = NULL;
    answer = -1;
    assert_int_equal(wf_context_create(NULL, &ctx), WF_DEVICE);
    assert_null(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(begins_libsodium),
        cmocka_unit_test(fails_with_it),
    };
    return cmocka_run_group_tests_name("base_sodium", tests, NULL, NULL);
}
