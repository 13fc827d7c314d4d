/* Finds the likeliest classes or tokens from a model's logits. */
#pragma once

#include <stdint.h>

/* The n places of `logits`, the largest first, of equal ones the first. */
void logits_sort(const float *logits, int64_t n, int32_t *order_out);
