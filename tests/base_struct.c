/* A configuration that is missing, or of another version, is a sentence and no crash.
 *
 * label: serial
 */
#include "small_models.h"

#define EXPECT(words, call)                                                                        \
    do {                                                                                           \
        assert_int_equal(call, WF_INVALID_ARG);                                                    \
        assert_non_null(strstr(wf_context_error(ctx), words));                                     \
    } while (0)

TEST_CASE(missing) {
    wf_context *ctx = test_context();
    wf_job *job;
    wf_store *store;
    wf_launch_result result;
    EXPECT("wf_job_config is NULL", wf_job_join(ctx, NULL, &job));
    EXPECT("wf_store_config is NULL", wf_store_open(ctx, NULL, &store));
    EXPECT("wf_launch_config is NULL", wf_launch(ctx, NULL, &result));
    wf_context_destroy(ctx);
}

TEST_CASE(of_another_version) {
    wf_context *ctx = test_context();
    wf_job_config config = WF_JOB_CONFIG_INIT;
    wf_job *job;
    config.struct_size--;
    EXPECT("begin it with its _INIT", wf_job_join(ctx, &config, &job));
    wf_context_destroy(ctx);
}

TEST_CASE(of_results) {
    wf_context *ctx = test_context();
    wf_prediction_request q = WF_PREDICTION_REQUEST_INIT;
    wf_prediction p = WF_PREDICTION_INIT;
    wf_choice choices[WF_N_STRATEGIES] = {WF_CHOICE_INIT};
    int n;
    p.struct_size--, choices[0].struct_size--;
    EXPECT("wf_prediction", wf_predict(ctx, &q, &p));
    EXPECT("wf_choice", wf_cluster_search(ctx, &q, 1, choices, &n));
    EXPECT("wf_choice", wf_cluster_advise(ctx, &q, choices));
    wf_context_destroy(ctx);
}
