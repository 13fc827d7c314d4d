/* Which pictures there are, as torchvision's ImageFolder sees them. */
#include "data/pictures.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_DEPTH 64 /* of folders: a link that leads back has no end */

typedef struct listing {
    wfi_pool *pool;
    wf_context *ctx;
    const char *root;
    wfi_picture_list *list;
    int32_t label;
    bool skips;
} listing;

typedef enum file_kind { NO_PICTURE, READABLE, UNREADABLE } file_kind;

/* By its suffix: those of torchvision, of which weft reads the first. */
static file_kind kind_of(const char *name) {
    static const char *const suffix[] = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                         ".pgm", ".tif",  ".tiff", ".webp"};
    size_t n = strlen(name);
    for (size_t i = 0; i < WFI_COUNT(suffix); i++) {
        size_t n_suffix = strlen(suffix[i]);
        if (n >= n_suffix && !strcasecmp(name + n - n_suffix, suffix[i]))
            return i < 3 ? READABLE : UNREADABLE;
    }
    return NO_PICTURE;
}

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static const char *join(wfi_pool *pool, const char *folder, const char *name) {
    return wfi_pool_format(pool, "%s/%s", folder, name);
}

static wf_status add_file(listing *l, const char *folder, const char *name) {
    file_kind kind = kind_of(name);
    wfi_picture_list *list = l->list;
    if (kind == NO_PICTURE) return WF_OK;
    const char *path = join(l->pool, folder, name);
    if (!path) return WF_NO_MEMORY;
    if (kind == UNREADABLE && l->skips) {
        wfi_log(l->ctx, WF_LOG_WARN, "data", "%s is skipped: it is neither JPEG nor PNG", path);
        return WF_OK;
    }
    if (kind == UNREADABLE)
        return wfi_fail(l->ctx, WF_CORRUPT,
                        "%s is a picture that is neither JPEG nor PNG, the formats that weft reads",
                        path);
    if (list->n >= INT32_MAX)
        return wfi_fail(l->ctx, WF_CORRUPT, "%s holds too many pictures", l->root);
    WF_TRY(WFI_GROW(l->ctx, list->files, list->n, list->capacity, "a list of pictures"));
    list->files[list->n++] =
        (wfi_picture_file){.path = path, .n_folder = strlen(folder), .label = l->label};
    return WF_OK;
}

static wf_status add_folder(listing *l, const char *folder, int depth);

static wf_status add_entry(listing *l, const char *folder, const struct dirent *e, int depth) {
    bool may_be_folder = e->d_type == DT_DIR || e->d_type == DT_LNK || e->d_type == DT_UNKNOWN;
    const char *path = may_be_folder ? join(l->pool, folder, e->d_name) : NULL;
    if (may_be_folder && !path) return WF_NO_MEMORY;
    if (may_be_folder && is_folder(path)) return add_folder(l, path, depth + 1);
    return add_file(l, folder, e->d_name);
}

static wf_status cannot_be_read(wf_context *ctx, const char *folder) {
    return wfi_fail(ctx, WF_IO, "%s cannot be read: %s", folder, strerror(errno));
}

static bool is_dots(const char *name) {
    return !strcmp(name, ".") || !strcmp(name, "..");
}

static wf_status add_folder(listing *l, const char *folder, int depth) {
    if (depth > MAX_DEPTH)
        return wfi_fail(
            l->ctx, WF_IO,
            "%s has more than %d nested folders; is one of them a link that leads back?", l->root,
            MAX_DEPTH);
    DIR *d = opendir(folder);
    wf_status status = d ? WF_OK : cannot_be_read(l->ctx, folder);
    for (struct dirent *e; status == WF_OK && (e = readdir(d));)
        if (!is_dots(e->d_name)) status = add_entry(l, folder, e, depth);
    if (d) closedir(d);
    return status;
}

/* By folder, then by name. */
static int compare_files(const void *a, const void *b) {
    const wfi_picture_file *x = a, *y = b;
    size_t n = x->n_folder < y->n_folder ? x->n_folder : y->n_folder;
    int order = memcmp(x->path, y->path, n);
    if (order || x->n_folder == y->n_folder) return order ? order : strcmp(x->path, y->path);
    return x->n_folder < y->n_folder ? -1 : 1;
}

static wf_status list_files(listing *l, const char *folder) {
    size_t first = l->list->n;
    WF_TRY(add_folder(l, folder, 0));
    if (l->list->n > first)
        qsort(l->list->files + first, l->list->n - first, sizeof *l->list->files, compare_files);
    return WF_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static wf_status add_class(listing *l, const struct dirent *e) {
    wfi_picture_list *list = l->list;
    const char *path = join(l->pool, l->root, e->d_name);
    if (!path) return WF_NO_MEMORY;
    if (is_dots(e->d_name) || !is_folder(path)) return WF_OK;
    /* Files of weights and reports, which name the classes, are JSON. */
    if (wf_text_valid(e->d_name, strlen(e->d_name)) != strlen(e->d_name))
        return wfi_fail(l->ctx, WF_CORRUPT,
                        "the folder of a class, %s, has a name that is not UTF-8", path);
    WF_TRY(WFI_GROW(l->ctx, list->classes, list->n_classes, list->classes_capacity,
                    "names of classes"));
    list->classes[list->n_classes++] = path + strlen(l->root) + 1;
    return WF_OK;
}

static wf_status find_classes(listing *l) {
    DIR *d = opendir(l->root);
    wf_status status = d ? WF_OK : cannot_be_read(l->ctx, l->root);
    for (struct dirent *e; status == WF_OK && (e = readdir(d));) status = add_class(l, e);
    if (d) closedir(d);
    if (status != WF_OK) return status;
    if (!l->list->n_classes)
        return wfi_fail(l->ctx, WF_CORRUPT, "%s contains no class folder", l->root);
    qsort(l->list->classes, l->list->n_classes, sizeof *l->list->classes, compare_names);
    return WF_OK;
}

wf_status wfi_pictures_list(wfi_pool *pool, const char *root, bool skips, wfi_picture_list *list) {
    listing l = {pool, pool->ctx, root, list, 0, skips};
    WF_TRY(find_classes(&l));
    for (size_t k = 0; k < list->n_classes; k++) {
        const char *folder = join(pool, root, list->classes[k]);
        size_t before = list->n;
        if (!folder) return WF_NO_MEMORY;
        l.label = (int32_t)k;
        WF_TRY(list_files(&l, folder));
        if (list->n == before)
            return wfi_fail(l.ctx, WF_CORRUPT, "%s contains no picture: a class needs one", folder);
    }
    return WF_OK;
}

wf_status wfi_pictures_list_plain(wfi_pool *pool, const char *root, bool skips,
                                  wfi_picture_list *list) {
    listing l = {pool, pool->ctx, root, list, 0, skips};
    if (is_folder(root)) {
        WF_TRY(list_files(&l, root));
        if (list->n) return WF_OK;
        return wfi_fail(l.ctx, WF_CORRUPT, "%s contains no picture", root);
    }
    WF_TRY(WFI_GROW(l.ctx, list->files, list->n, list->capacity, "a list of pictures"));
    list->files[list->n++] = (wfi_picture_file){.path = root};
    return WF_OK;
}

void wfi_pictures_list_release(wf_context *ctx, wfi_picture_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        wfi_picture *kept = atomic_load(&list->files[i].kept);
        if (kept) wfi_free(ctx, kept->rgb);
        wfi_free(ctx, kept);
    }
    wfi_free(ctx, list->files);
    wfi_free(ctx, list->classes);
}
