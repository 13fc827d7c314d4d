/* Lines of ranks: whose come first, which are printed once. With times of our own.
 *
 * label: serial
 */
#include "launch/merge.h"
#include "test.h"

#include <fcntl.h>
#include <unistd.h>

enum { OUT = WFI_STREAM_OUT, ERR = WFI_STREAM_ERR };

typedef struct bench {
    wf_context *ctx;
    wfi_merge m;
    int into[2], out[2]; /* from ranks; to the reader: both streams in one pipe */
} bench;

static void begin(bench *b) {
    b->ctx = test_context();
    assert_int_equal(pipe2(b->into, O_NONBLOCK), 0);
    assert_int_equal(pipe2(b->out, O_NONBLOCK), 0);
    TEST_OK(b->ctx, wfi_merge_init(&b->m, b->ctx, 64, b->out[1], b->out[1]));
}

static void say(bench *b, int rank, int stream, const char *text, int64_t now_ms) {
    bool is_open;
    assert_int_equal(write(b->into[1], text, strlen(text)), (int)strlen(text));
    TEST_OK(b->ctx, wfi_merge_read(&b->m, rank, stream, b->into[0], now_ms, &is_open));
    assert_true(is_open);
}

/* What has been printed up to now. */
static void expect(bench *b, int64_t now_ms, const char *want) {
    char got[4096];
    while (wfi_merge_due_ms(&b->m, now_ms) == 0) TEST_OK(b->ctx, wfi_merge_write(&b->m));
    ssize_t n = read(b->out[0], got, sizeof got - 1);
    got[n > 0 ? n : 0] = 0;
    assert_string_equal(got, want);
}

static void end(bench *b) {
    wfi_merge_release(&b->m);
    for (int i = 0; i < 2; i++) {
        close(b->into[i]);
        close(b->out[i]);
    }
    test_context_end(b->ctx);
}

TEST_WITH(bench, b, lines_wait_a_moment) {
    assert_int_equal(wfi_merge_due_ms(&b->m, 0), -1);
    say(b, 0, OUT, "one\ntwo", 1000);
    expect(b, 1000, "");
    assert_true(wfi_merge_due_ms(&b->m, 1000) > 0);
    expect(b, 1100, "one\n");
    say(b, 0, OUT, " and a half\n", 1100);
    expect(b, 1200, "two and a half\n");
    say(b, 0, OUT, "no end", 1200);
    expect(b, 1300, "");
    TEST_OK(b->ctx, wfi_merge_end(&b->m, 0, OUT, 1300));
    TEST_OK(b->ctx, wfi_merge_end(&b->m, 0, OUT, 1300));
    expect(b, 1400, "no end\n");
}

TEST_WITH(bench, b, equal_lines_once) {
    say(b, 0, OUT, "a\na\nb\n", 0);
    say(b, 1, OUT, "a\nb\na\n", 0);
    say(b, 2, OUT, "a\na\na\n", 0); /* its third is its own */
    say(b, 2, ERR, "b\n", 0);       /* another stream */
    expect(b, 100, "a\na\nb\na\nb\n");
    say(b, 1, OUT, "a\n", 1000); /* the third of rank 2 */
    say(b, 0, OUT, "b\n", 1000); /* its second */
    expect(b, 1100, "b\n");
    say(b, 1, OUT, "b\n", 10000); /* long after */
    expect(b, 10100, "b\n");
}

TEST_WITH(bench, b, failed_rank_first) {
    say(b, 0, OUT, "earlier\n", 0);
    expect(b, 70, "earlier\n");
    say(b, 0, ERR, "rank 2 has died\n", 100);
    say(b, 2, OUT, "step 5\n", 110);
    say(b, 1, ERR, "rank 2 has died\n", 110);
    say(b, 2, ERR, "disk full\n", 110);
    wfi_merge_delay(&b->m);
    expect(b, 10000, "");
    wfi_merge_put_first(&b->m, 2);
    expect(b, 150, "step 5\ndisk full\nrank 2 has died\n");
    wfi_merge_know(&b->m, "rank 2 ended");
    wfi_merge_know(&b->m, "rank 2 has died");
    say(b, 0, ERR, "weft: rank 2 has died; its last call: step 5\n", 150);
    say(b, 0, ERR, "weft: rank 2 ended with 1\n", 150);
    say(b, 1, ERR, "end\n", 150);
    expect(b, 150, "end\n");
}

/* What a reader has half of is not torn. */
TEST_WITH(bench, b, begun_line_first) {
    char line[9001];
    memset(line, 'x', 9000);
    line[8999] = '\n';
    line[9000] = 0;
    say(b, 0, OUT, line, 0);
    say(b, 1, OUT, "one\n", 0);
    say(b, 2, OUT, "two\n", 0);
    TEST_OK(b->ctx, wfi_merge_write(&b->m));
    wfi_merge_delay(&b->m);
    wfi_merge_put_first(&b->m, 2);
    for (size_t n_read = 0; n_read < 9000;) {
        char got[9000];
        TEST_OK(b->ctx, wfi_merge_write(&b->m));
        ssize_t n = read(b->out[0], got, sizeof got - n_read);
        assert_true(n > 0 && !memcmp(got, line + n_read, (size_t)n));
        n_read += (size_t)n;
    }
    expect(b, 0, "two\none\n");
    say(b, 1, OUT, "more\n", 0); /* the list's end is where it belongs */
    expect(b, 0, "more\n");
}

TEST_WITH(bench, b, much_does_not_wait) {
    char line[4001];
    memset(line, 'x', 4000);
    line[3999] = '\n';
    line[4000] = 0;
    int n = 0;
    for (; wfi_merge_due_ms(&b->m, 0) != 0; n++) say(b, n % 60, OUT, line, 0);
    assert_true(n > 16 && !wfi_merge_is_full(&b->m));
    for (; !wfi_merge_is_full(&b->m); n++) say(b, n % 60, OUT, line, 0);
    assert_true(n < 1000);
    wfi_merge_abandon(&b->m);
    assert_int_equal(wfi_merge_due_ms(&b->m, 0), -1);
    say(b, 0, OUT, "nobody\n", 0);
    expect(b, 1000, "");
}

/* On a terminal a bar of rank 0 stands below the lines. */
TEST_WITH(bench, b, bar_of_rank_0) {
    b->m.is_terminal = true;
    say(b, 0, ERR, "\r\033[K## 1", 0);
    wfi_merge_draw(&b->m);
    expect(b, 0, "\r\033[K## 1"); /* at once */
    wfi_merge_draw(&b->m);
    expect(b, 0, ""); /* and once */
    say(b, 1, OUT, "news\n", 0);
    expect(b, 100, "\r\033[Knews\n");
    wfi_merge_draw(&b->m);
    expect(b, 100, "\r\033[K## 1"); /* again */
    say(b, 0, ERR, "\r\033[K### 2\r\033[K#### 3", 100);
    wfi_merge_draw(&b->m);
    expect(b, 100, "\r\033[K#### 3");
    say(b, 0, ERR, "\r\033[K", 100);
    wfi_merge_draw(&b->m);
    expect(b, 100, "\r\033[K");
    say(b, 0, ERR, "weft: end\n", 100); /* as other ranks say it: printed once */
    say(b, 1, ERR, "weft: end\n", 100);
    expect(b, 200, "\r\033[Kweft: end\n");
    say(b, 0, ERR, "\r\033[K## 4\r\033[Kweft: late\n", 200);
    expect(b, 300, "weft: late\n");
    /* a carriage return at the end may be half of a line's end */
    say(b, 0, ERR, "one\r", 200);
    wfi_merge_draw(&b->m);
    say(b, 0, ERR, "\n\r5 %", 200);
    expect(b, 300, "one\r\n");
    wfi_merge_draw(&b->m);
    expect(b, 300, "\r5 %");
    say(b, 0, ERR, " done\n", 300); /* what was drawn becomes a line */
    expect(b, 400, "\r\033[K\r5 % done\n");
    say(b, 1, ERR, "\rmine", 400);
    say(b, 0, OUT, "\rmine", 400);
    wfi_merge_draw(&b->m);
    expect(b, 500, "");
    say(b, 0, ERR, "\r\033[K#", 500);
    wfi_merge_draw(&b->m);
    expect(b, 500, "\r\033[K#");
    say(b, 0, ERR, "\r\033[K", 500);
    TEST_OK(b->ctx, wfi_merge_end(&b->m, 0, ERR, 500));
    expect(b, 600, "\r\033[K"); /* and no line of nothing */
}

TEST_WITH(bench, b, no_bar_elsewhere) {
    say(b, 0, ERR, "\r\033[K## 1", 0);
    wfi_merge_draw(&b->m);
    expect(b, 100, "");
    say(b, 0, ERR, "\n", 100);
    expect(b, 200, "\r\033[K## 1\n");
}
