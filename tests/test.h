/* What every cmocka test needs, in the order that cmocka wants it. */
#pragma once

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <weft/weft.h>

/* Of a large grid, tests take one field of so many: under a sanitizer each takes several times as
 * long, and more of them take no other path. */
#if defined(__SANITIZE_THREAD__)
#define TEST_SAMPLE 5
#elif defined(__SANITIZE_ADDRESS__)
#define TEST_SAMPLE 3
#else
#define TEST_SAMPLE 1
#endif

/* Whether each grid runs whole: WEFT_TEST_FULL=1. */
static inline bool test_is_full(void) {
    const char *full = getenv("WEFT_TEST_FULL");
    return full && !strcmp(full, "1");
}

static inline wf_context *test_context(void) {
    wf_context *ctx = NULL;
    assert_int_equal(wf_context_create(NULL, &ctx), WF_OK);
    return ctx;
}

/* Destroys the context; nothing that was made from it may be left. */
static inline void test_context_end(wf_context *ctx) {
    wf_memory_count memory = wf_context_memory(ctx);
    if (memory.n_live) fail_msg("%d blocks were never freed", (int)memory.n_live);
    wf_context_destroy(ctx);
}

/* The tests of this program. */
static struct CMUnitTest test_cases[64];
static size_t test_n_cases;

static inline void test_add(struct CMUnitTest test) {
    if (test_n_cases == sizeof test_cases / sizeof *test_cases) abort();
    test_cases[test_n_cases++] = test;
}

/* Begins a test, and adds it before `main` begins, in the order of the file; `...`: other members
 * of CMUnitTest. */
#define TEST_CASE(test, ...)                                                                       \
    static void test(void **state);                                                                \
    __attribute__((constructor(1000 + __LINE__))) static void test##_add(void) {                   \
        test_add((struct CMUnitTest){.name = #test, .test_func = test, ##__VA_ARGS__});            \
    }                                                                                              \
    static void test(void **state)

/* Begins a test with a context, `ctx`, which it may not leave anything in. */
#define TEST(name)                                                                                 \
    static void name##_in(wf_context *ctx);                                                        \
    TEST_CASE(name) {                                                                              \
        wf_context *own_context = test_context();                                                  \
        name##_in(own_context);                                                                    \
        test_context_end(own_context);                                                             \
    }                                                                                              \
    static void name##_in(wf_context *ctx)

/* Begins a test with a `type` of the file, `*v`, which its functions begin and end set up. */
#define TEST_WITH(type, v, name)                                                                   \
    static void name##_in(type *v);                                                                \
    TEST_CASE(name) {                                                                              \
        static type own;                                                                           \
        begin(&own);                                                                               \
        name##_in(&own);                                                                           \
        end(&own);                                                                                 \
    }                                                                                              \
    static void name##_in(type *v)

static inline int test_run(CMFixtureFunction setup, CMFixtureFunction teardown) {
    return _cmocka_run_group_tests("tests", test_cases, test_n_cases, setup, teardown);
}

/* A file of tests of the program tests/run. */
typedef struct test_file {
    const char *source;
    int (*run)(void);
    const struct CMUnitTest *cases;
    const size_t *n_cases;
    struct test_file *next;
} test_file;

void test_register(test_file *file);

#ifdef TEST_IN_RUN
/* Adds this file to tests/run. */
static CMFixtureFunction test_setup, test_teardown;
static int test_run_all(void) {
    return test_run(test_setup, test_teardown);
}
__attribute__((constructor)) static void test_add_file(void) {
    static test_file self = {__BASE_FILE__, test_run_all, test_cases, &test_n_cases, NULL};
    test_register(&self);
}

/* Functions that run before and after all tests of the file. */
#define TEST_FIXTURE(setup, teardown)                                                              \
    __attribute__((constructor)) static void test_add_fixture(void) {                              \
        test_setup = setup;                                                                        \
        test_teardown = teardown;                                                                  \
    }
#endif

/* A setup of tests whose trainers check the order of events. */
static inline int test_check_events(void **state) {
    return setenv("WEFT_CHECK_EVENTS", "1", 1);
}

/* Fails, with the context's sentence, unless the call succeeds. */
#define TEST_OK(ctx, call)                                                                         \
    do {                                                                                           \
        wf_status test_status_ = (call);                                                           \
        if (test_status_ != WF_OK)                                                                 \
            fail_msg("%s: %s: %s", #call, wf_status_name(test_status_), wf_context_error(ctx));    \
    } while (0)

/* Fails unless the call is refused with `status` and a sentence that contains `words`. */
#define TEST_REFUSED(ctx, call, status, words)                                                     \
    do {                                                                                           \
        wf_status test_status_ = (call);                                                           \
        if (test_status_ != (status))                                                              \
            fail_msg("%s: %s, expected %s", #call, wf_status_name(test_status_),                   \
                     wf_status_name(status));                                                      \
        if (!strstr(wf_context_error(ctx), words))                                                 \
            fail_msg("%s: the sentence '%s' does not say '%s'", #call, wf_context_error(ctx),      \
                     words);                                                                       \
    } while (0)

/* A deadline that nobody misses, however slow the machine: WEFT_TIMEOUT_MS where that is not set,
 * so configurations leave it open. */
#define TEST_TIMEOUT_MS 600000

/* Tries a test in which somebody misses a deadline with ever longer ones: on a slow or busy machine
 * a short one is missed by others, too. The attempt returns NULL, or what is wrong. */
static inline void test_deadlines(const char *(*attempt)(void *self, int timeout_ms), void *self) {
    const char *wrong = "";
    for (int ms = 150; ms < TEST_TIMEOUT_MS / 10 && wrong; ms *= 4) wrong = attempt(self, ms);
    if (wrong) fail_msg("%s", wrong);
}

/* How many descriptors this process has open; with the one that counts. */
static inline int test_descriptors(void) {
    DIR *listing = opendir("/proc/self/fd");
    int n = 0;
    assert_non_null(listing);
    while (readdir(listing)) n++;
    closedir(listing);
    return n;
}

#include "scoped.h"
