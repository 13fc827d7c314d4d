/* Numbers as people read and type them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TEXT_BYTES 40 /* room for any of the texts below */

/* Each writes into `text` and returns it. */
char *text_of_bytes(char text[TEXT_BYTES], double n);      /* "312.4 MiB", "1.15 GiB" */
char *text_of_count(char text[TEXT_BYTES], double n);      /* "11.69 M", also for FLOPs */
char *text_of_us(char text[TEXT_BYTES], double us);        /* "1.83 s", "2.91 ms", "12.0 us" */
char *text_of_seconds(char text[TEXT_BYTES], double s);    /* "2:07", "1:04:10" */
char *text_of_real(char text[TEXT_BYTES], double value);   /* shortest that reads back equal */
char *text_of_thousands(char text[TEXT_BYTES], int64_t n); /* "60,000" */

/* Appends to a text with room for so many bytes; the rest is cut off. */
void text_add(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define TEXT_ADD(array, ...) text_add(array, sizeof(array), __VA_ARGS__)

/* "2GiB", "512MB", "1.5G" (= GiB), "4096": bytes. */
bool text_to_bytes(const char *text, size_t *bytes_out);
bool text_to_int(const char *text, int64_t *value_out);
bool text_to_seed(const char *text, uint64_t *value_out);
bool text_to_real(const char *text, double *value_out); /* finite */

/* Whether it holds a character that a terminal would obey, where the text is repeated. */
bool text_has_control(const char *text);

/* The same as UTF-8: invalid bytes become U+FFFD; free() it. NULL: no memory left. */
char *text_repaired(const char *text, size_t n_bytes);
