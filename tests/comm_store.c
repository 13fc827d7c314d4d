/* Stores: what all kinds do alike, and URLs that are refused. */
#include "stores.h"

TEST(operations) {
    for (store_kind kind = MEMORY; kind < N_KINDS; kind++) {
        wf_store *two[2];
        char got[8] = "";
        size_t n = 9;
        int64_t sum = 0, n_keys = -1;
        int was = -1;
        open_two(ctx, kind, TEST_TIMEOUT_MS, two);
        TEST_OK(ctx, wf_store_set(two[0], "a", "b\0c", 3));
        TEST_OK(ctx, wf_store_get(two[1], "a", got, sizeof got, &n));
        assert_int_equal(n, 3);
        assert_memory_equal(got, "b\0c", 3);
        TEST_OK(ctx, wf_store_set(two[1], "a", NULL, 0));
        TEST_OK(ctx, wf_store_get(two[0], "a", NULL, 0, &n));
        assert_int_equal(n, 0);
        TEST_OK(ctx, wf_store_add(two[0], "n", 40, &sum));
        TEST_OK(ctx, wf_store_add(two[1], "n", 2, &sum));
        assert_int_equal(sum, 42);
        TEST_OK(ctx, wf_store_get(two[0], "n", got, sizeof got, &n));
        assert_memory_equal(got, "42", 2);
        assert_int_equal(n, 2);
        TEST_OK(ctx, wf_store_compare_set(two[0], "c", NULL, 0, "x", 1, &was));
        assert_int_equal(was, 1);
        TEST_OK(ctx, wf_store_compare_set(two[1], "c", NULL, 0, "y", 1, &was));
        assert_int_equal(was, 0);
        TEST_OK(ctx, wf_store_compare_set(two[1], "c", "z", 1, "y", 1, &was));
        assert_int_equal(was, 0);
        TEST_OK(ctx, wf_store_compare_set(two[1], "c", "x", 1, "y", 1, &was));
        assert_int_equal(was, 1);
        TEST_OK(ctx, wf_store_get(two[0], "c", got, sizeof got, &n));
        assert_memory_equal(got, "y", 1);
        TEST_OK(ctx, wf_store_compare_set(two[1], "none", "x", 1, "y", 1, &was));
        assert_int_equal(was, 0);
        TEST_OK(ctx, wf_store_n_keys(two[1], &n_keys));
        assert_int_equal(n_keys, 3);
        TEST_OK(ctx, wf_store_delete(two[0], "a", &was));
        assert_int_equal(was, 1);
        TEST_OK(ctx, wf_store_delete(two[1], "a", &was));
        assert_int_equal(was, 0);
        TEST_OK(ctx, wf_store_n_keys(two[0], &n_keys));
        assert_int_equal(n_keys, 2);
        const char *keys[] = {"c", "n"};
        TEST_OK(ctx, wf_store_wait(two[1], keys, 2));
        close_two(two);
    }
}

TEST(bounds) {
    static char large[WF_STORE_MAX_VALUE + 1], back[WF_STORE_MAX_VALUE];
    for (store_kind kind = MEMORY; kind < N_KINDS; kind++) {
        wf_store *two[2];
        char key[WF_STORE_MAX_KEY + 2] = "";
        size_t n;
        int64_t sum;
        open_two(ctx, kind, TEST_TIMEOUT_MS, two);
        memset(key, 'k', WF_STORE_MAX_KEY);
        for (size_t i = 0; i < sizeof large; i++) large[i] = (char)(i * 7);
        TEST_OK(ctx, wf_store_set(two[1], key, large, WF_STORE_MAX_VALUE));
        TEST_OK(ctx, wf_store_get(two[0], key, back, sizeof back, &n));
        assert_int_equal(n, WF_STORE_MAX_VALUE);
        assert_memory_equal(back, large, n);
        TEST_OK(ctx, wf_store_get(two[1], key, back, sizeof back, &n));
        assert_memory_equal(back, large, n);
        TEST_REFUSED(ctx, wf_store_get(two[1], key, back, 5, &n), WF_INVALID_ARG,
                     "has 65536 bytes, there is room for 5");
        TEST_REFUSED(ctx, wf_store_set(two[1], "k", large, sizeof large), WF_INVALID_ARG,
                     "65537 bytes");
        key[WF_STORE_MAX_KEY] = 'k';
        TEST_REFUSED(ctx, wf_store_set(two[0], key, "", 0), WF_INVALID_ARG, "1 to 128 printable");
        TEST_REFUSED(ctx, wf_store_set(two[0], "", "", 0), WF_INVALID_ARG, "1 to 128 printable");
        TEST_REFUSED(ctx, wf_store_set(two[0], "a b", "", 0), WF_INVALID_ARG, "printable");
        TEST_REFUSED(ctx, wf_store_add(two[1], "\033[2J", 1, &sum), WF_INVALID_ARG, "printable");
        TEST_OK(ctx, wf_store_set(two[0], "n", "007", 3));
        TEST_REFUSED(ctx, wf_store_add(two[1], "n", 1, &sum), WF_INVALID_ARG, "not a whole number");
        TEST_OK(ctx, wf_store_set(two[0], "n", "9223372036854775807", 19));
        TEST_REFUSED(ctx, wf_store_add(two[1], "n", 1, &sum), WF_INVALID_ARG, "too large");
        close_two(two);
    }
}

TEST(a_full_store_says_so) {
    wf_store *store;
    wf_store_config config = config_of("memory:", 0, 1);
    TEST_OK(ctx, wf_store_open(ctx, &config, &store));
    for (int i = 0; i < WFI_STORE_MAX_KEYS; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        TEST_OK(ctx, wf_store_set(store, key, "", 0));
    }
    TEST_REFUSED(ctx, wf_store_set(store, "more", "", 0), WF_INVALID_ARG, "is full: it takes 4096");
    TEST_OK(ctx, wf_store_set(store, "k0", "x", 1));
    wf_store_close(store);
}

/* Each of 4 threads adds with a handle of its own; rank 0 waits for what the others set. */
typedef struct adder {
    wf_context *ctx;
    wf_store *store;
    int rank;
    wf_status status;
} adder;

static void *add_many(void *self) {
    adder *a = self;
    char key[16];
    for (int i = 0; i < 50 && !a->status; i++) {
        int64_t sum;
        a->status = wf_store_add(a->store, "sum", a->rank + 1, &sum);
    }
    snprintf(key, sizeof key, "done/%d", a->rank);
    if (!a->status) a->status = wf_store_set(a->store, key, "", 0);
    return NULL;
}

TEST(sums_of_threads) {
    const char *const done[] = {"done/0", "done/1", "done/2", "done/3"};
    for (store_kind kind = MEMORY; kind < N_KINDS; kind++) {
        adder adders[4];
        pthread_t threads[4];
        int64_t sum = 0;
        for (int r = 0; r < 4; r++) {
            wf_store_config config = config_of(kind == MEMORY       ? "memory:"
                                               : kind == FILE_STORE ? file_url("sum")
                                                                    : "tcp://127.0.0.1:0",
                                               r, 4);
            if (kind == TCP && r) config.url = wf_store_url(adders[0].store);
            adders[r] = (adder){.ctx = ctx, .rank = r};
            if (kind == MEMORY && r)
                adders[r].store = adders[0].store;
            else
                TEST_OK(ctx, wf_store_open(ctx, &config, &adders[r].store));
        }
        for (int r = 0; r < 4; r++) pthread_create(&threads[r], NULL, add_many, &adders[r]);
        TEST_OK(ctx, wf_store_wait(adders[0].store, done, 4));
        for (int r = 0; r < 4; r++) {
            pthread_join(threads[r], NULL);
            TEST_OK(ctx, adders[r].status);
        }
        TEST_OK(ctx, wf_store_add(adders[0].store, "sum", 0, &sum));
        assert_int_equal(sum, 500);
        for (int r = 3; r > 0 && kind != MEMORY; r--) wf_store_close(adders[r].store);
        wf_store_close(adders[0].store);
    }
}

static const char *try_missing(void *self, int timeout_ms) {
    static const char *const keys[] = {"here", "rank/1", "rank/2"};
    static char text[1000], words[100];
    wf_context *ctx = test_context();
    wf_store *two[2];
    size_t n;
    if (try_two(ctx, *(store_kind *)self, timeout_ms, two)) {
        test_context_end(ctx);
        return "the store is not opened in time";
    }
    snprintf(words, sizeof words, "waited %d ms for 3 keys, but no rank has set rank/1, rank/2 in",
             timeout_ms);
    wf_status set = wf_store_set(two[0], "here", "", 0);
    wf_status waited = set ? set : wf_store_wait(two[1], keys, 3);
    snprintf(text, sizeof text, "%s: %s", wf_status_name(waited), wf_context_error(ctx));
    const char *wrong = waited == WF_TIMEOUT && strstr(text, words) ? NULL : text;
    if (!wrong) {
        wf_status got = wf_store_get(two[1], "there", NULL, 0, &n);
        snprintf(text, sizeof text, "%s: %s", wf_status_name(got), wf_context_error(ctx));
        if (got != WF_TIMEOUT || !strstr(text, "for the key there, but no rank has set it"))
            wrong = text;
    }
    close_two(two);
    test_context_end(ctx);
    return wrong;
}

TEST_CASE(waits_end_and_name_what_is_missing) {
    for (store_kind kind = MEMORY; kind < N_KINDS; kind++) test_deadlines(try_missing, &kind);
}

TEST(urls_that_are_refused) {
    const struct {
        const char *url;
        wf_status status;
        const char *words;
    } wrong[] = {
        {"", WF_INVALID_ARG, "it takes memory:, file:///path or tcp://"},
        {"http://x", WF_INVALID_ARG, "it takes memory:, file:///path or tcp://"},
        {"file://", WF_INVALID_ARG, "write file:///path"},
        {"file://host/path", WF_INVALID_ARG, "write file:///path"},
        {"file:///", WF_INVALID_ARG, "write file:///path"},
        {"file:///no/such/folder/file", WF_IO, "cannot be opened: No such file"},
        {"tcp://127.0.0.1", WF_INVALID_ARG, "with a port from 1 to 65535"},
        {"tcp://127.0.0.1:", WF_INVALID_ARG, "with a port from 1 to 65535"},
        {"tcp://127.0.0.1:65536", WF_INVALID_ARG, "with a port from 1 to 65535"},
        {"tcp://127.0.0.1:1e3", WF_INVALID_ARG, "with a port from 1 to 65535"},
        {"tcp://0.0.0.0:29500", WF_UNSUPPORTED, "across machines start the ranks by mpirun"},
        {"tcp://10.1.2.3:29500", WF_UNSUPPORTED, "'10.1.2.3' is not a loopback address"},
        {"tcp://[::]:29500", WF_UNSUPPORTED, "mpirun"},
        {"tcp://node7.example.org:29500", WF_UNSUPPORTED, "mpirun"},
    };
    wf_store *store;
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        wf_store_config config = config_of(wrong[k].url, 0, 1);
        TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), wrong[k].status, wrong[k].words);
    }
    wf_store_config config = config_of("tcp://127.0.0.1:0", 1, 2);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG, "from 1 to 65535");
    config = config_of("memory:", 2, 2);
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG, "rank 2 of 2");
    config.struct_size--;
    TEST_REFUSED(ctx, wf_store_open(ctx, &config, &store), WF_INVALID_ARG,
                 "begin it with its _INIT");
}

TEST_FIXTURE(make_folder, remove_folder)
