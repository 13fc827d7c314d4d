/* How far a word is from another: for sentences that propose the one that was meant. */
#include <stddef.h>
#include <string.h>
#include <weft/context.h>

int wf_text_distance(const char *a, const char *b) {
    int row[64];
    size_t n = strlen(b);
    if (n >= 64 || strlen(a) >= 64) return 64;
    for (size_t j = 0; j <= n; j++) row[j] = (int)j;
    for (size_t i = 1; *a; a++, i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int change = diagonal + (*a != b[j - 1]);
            int insert = row[j - 1] + 1, drop = row[j] + 1;
            diagonal = row[j];
            row[j] = change < insert ? change : insert;
            if (drop < row[j]) row[j] = drop;
        }
    }
    return row[n];
}
