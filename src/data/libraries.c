/* Libraries that only data sets and tokenizers use, for reports. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <png.h>
#include <pthread.h>
#include <stdio.h>
#include <weft/data.h>
#include <zlib.h>

/* Versions of the loaded libraries, not of the headers that weft was built with. */
static char versions[3][80];

static void find_versions(void) {
    char pcre2[64] = ""; /* PCRE2 states that it needs fewer bytes */
    if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) <= (int)sizeof pcre2)
        pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    snprintf(versions[0], sizeof versions[0], "zlib %.30s", zlibVersion());
    snprintf(versions[1], sizeof versions[1], "PCRE2 %.50s", pcre2);
    snprintf(versions[2], sizeof versions[2], "libpng %.30s", png_get_libpng_ver(NULL));
}

const char *wf_data_library(int i) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_versions);
    return i >= 0 && i < 3 ? versions[i] : NULL;
}
