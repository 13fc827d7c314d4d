/* Sets of pictures in files: a folder a class, or any pictures without classes. Private. */
#pragma once

#include "base/base.h"
#include "data/picture.h"

#include <stdatomic.h>
#include <weft/data.h>

typedef struct wfi_picture_file {
    const char *path; /* as it is opened */
    size_t n_folder;  /* how much of it is its folder */
    int32_t label;
    _Atomic(wfi_picture *) kept; /* decoded; NULL: not yet, or there is no room */
} wfi_picture_file;

/* A split: its files, and the names of their classes. */
typedef struct wfi_picture_list {
    wfi_picture_file *files; /* [n] */
    const char **classes;    /* [n_classes] */
    size_t n, capacity, n_classes, classes_capacity;
} wfi_picture_list;

/* ---- pictures_list.c ---- */

/* The pictures of `root`/CLASS/..., as torchvision's ImageFolder numbers them: classes in the order
 * of their names, and of each the files in the order of their folders' names, then their own; links
 * are followed. Names are the pool's. Errors: IO, CORRUPT (no classes, a class without pictures, or
 * one of a format that weft does not read, which with `skips` is left out). */
wf_status wfi_pictures_list(wfi_pool *pool, const char *root, bool skips, wfi_picture_list *list);
/* The same without classes: those anywhere under `root`, or the file `root` itself. */
wf_status wfi_pictures_list_plain(wfi_pool *pool, const char *root, bool skips,
                                  wfi_picture_list *list);
void wfi_pictures_list_release(wf_context *ctx, wfi_picture_list *list);
