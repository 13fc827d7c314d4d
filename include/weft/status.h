/* Status codes. Every function of weft that can fail returns one; zero is success.
 *
 * The function that detects an error records a sentence in the context: the operation, the place
 * and the sizes (see wf_context_error). Its callers only return the code. Outputs are written only
 * on success, unless a function documents otherwise.
 */
#ifndef WEFT_STATUS_H
#define WEFT_STATUS_H

#if defined(__GNUC__)
#define WF_API       __attribute__((visibility("default")))
#define WF_NODISCARD __attribute__((warn_unused_result))
#else
#define WF_API
#define WF_NODISCARD
#endif

/* name, value, meaning */
#define WF_STATUS_LIST(X)                                                                          \
    X(OK, 0, "done")                                                                               \
    X(INVALID_ARG, -1, "an argument has a value that is not allowed")                              \
    X(SHAPE, -2, "shapes or dtypes do not fit together")                                           \
    X(UNSUPPORTED, -3, "legal, but not available in this build or combination")                    \
    X(NO_MEMORY, -4, "host memory could not be allocated")                                         \
    X(DOES_NOT_FIT, -5, "the plan needs more device memory than it was given")                     \
    X(IO, -6, "a file could not be read or written")                                               \
    X(CORRUPT, -7, "a file or message does not follow its format")                                 \
    X(TIMEOUT, -8, "a wait reached its deadline")                                                  \
    X(REMOTE, -9, "another rank failed")                                                           \
    X(DEVICE, -10, "a device or its library reported an error")                                    \
    X(INTERRUPTED, -11, "the caller asked to stop")                                                \
    X(BUG, -12, "weft broke one of its own rules; please report it")                               \
    X(NOT_FINITE, -13, "a loss, gradient or weight is infinite or no number")

typedef enum wf_status {
#define WF_STATUS_ENUM(name, value, meaning) WF_##name = value,
    WF_STATUS_LIST(WF_STATUS_ENUM)
#undef WF_STATUS_ENUM
} wf_status;

#ifdef __cplusplus
extern "C" {
#endif

/* The name ("NO_MEMORY") and the meaning of a status; "UNKNOWN" for other values. Static. */
WF_API const char *wf_status_name(wf_status status);
WF_API const char *wf_status_meaning(wf_status status);

#ifdef __cplusplus
}
#endif
#endif
