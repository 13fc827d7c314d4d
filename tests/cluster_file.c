/* Cluster files: those that come with weft are read, and bad ones refused with a sentence.
 *
 * label: serial
 */
#include "cluster/cluster.h"
#include "test.h"

TEST(shipped) {
    int n = 0;
    for (; wf_cluster_shipped(n); n++) {
        scoped_cluster c;
        TEST_OK(ctx, wf_cluster_load(ctx, wf_cluster_shipped(n), &c));
        assert_string_equal(wf_cluster_name(c), wf_cluster_shipped(n));
    }
    assert_int_equal(n, 7);
    assert_null(wf_cluster_shipped(-1));
    assert_null(wf_cluster_shipped_text("nowhere"));
}

#define DEVICE                                                                                     \
    "\"device\":{\"memory_bytes\":8e9,\"memory_bandwidth\":1e12,\"peak_flops\":{\"f32\":1e13,"     \
    "\"f16\":1e13,\"bf16\":1e13}"
#define HEAD "{\"name\":\"x\"," DEVICE "}"
#define LINK(of, count, bandwidth, latency)                                                        \
    HEAD ",\"levels\":[{\"name\":\"n\",\"of\":\"" of "\",\"count\":" count                         \
         ",\"bandwidth\":" bandwidth ",\"latency_us\":" latency "}]}"
#define LEVEL "{\"name\":\"node\",\"of\":\"device\",\"count\":4,\"bandwidth\":1e9,\"latency_us\":1"

static const struct bad {
    const char *text, *why;
} bads[] = {
    {"{", "line 1"},
    {"[]", "the file is not an object"},
    {"{}", "name is missing"},
    {"{\"name\":\"\"}", "name is not a text of 1 to 47 bytes"},
    {"{\"name\":\"012345678901234567890123456789012345678901234567\"}", "text of 1 to 47 bytes"},
    {"{\"name\":\"x\"}", "device.memory_bytes is missing"},
    {"{\"name\":\"x\",\"name\":\"y\"}", "duplicate"},
    {"{\"name\":\"x\",\"device\":{\"memory_bytes\":0}}", "device.memory_bytes is 0; it must be"},
    {"{\"name\":\"x\",\"device\":{\"memory_bytes\":-8e9}}", "is -8e+09; it must be from 1e+06"},
    {"{\"name\":\"x\",\"device\":{\"memory_bytes\":1e300}}", "is 1e+300; it must be"},
    {"{\"name\":\"x\",\"device\":{\"memory_bytes\":\"80 GB\"}}", "memory_bytes is not a number"},
    {"{\"name\":\"x\",\"device\":{\"memory_byte\":1}}", "did you mean 'device.memory_bytes'?"},
    {"{\"name\":\"x\",\"devices\":1}", "'devices' is not a field of a cluster"},
    {"{\"name\":\"x\",\"device\":1}", "device is not an object"},
    {HEAD ",\"levels\":1}", "levels is not an array"},
    {HEAD ",\"levels\":[1]}", "levels[0] is not an object"},
    {HEAD ",\"levels\":[1,1,1,1,1]}", "levels is not an array of at most 4"},
    {HEAD ",\"levels\":[{}]}", "levels[0].name is missing"},
    {HEAD ",\"levels\":[" LEVEL ",\"shared\":1}]}", "levels[0].shared is not true or false"},
    {HEAD ",\"levels\":[" LEVEL ",\"lanes\":1}]}", "'levels[0].lanes' is not a field"},
    {HEAD ",\"levels\":[" LEVEL "}," LEVEL "}]}",
     "levels[1] links members called 'device'; the level before is 'node'"},
    {HEAD ",\"levels\":[{\"name\":\"n\",\"of\":\"device\",\"count\":1.5,\"bandwidth\":1e9,"
          "\"latency_us\":1}]}",
     "not a whole number"},
    {HEAD ",\"levels\":[{\"name\":\"n\",\"of\":\"device\",\"count\":0,\"bandwidth\":1e9,"
          "\"latency_us\":1}]}",
     "levels[0].count is 0; it must be from 1"},
    {LINK("device", "-4", "1e9", "1"), "levels[0].count is -4; it must be from 1"},
    {LINK("device", "1e9", "1e9", "1"), "levels[0].count is 1e+09; it must be from 1 to 1e+06"},
    {LINK("device", "4", "0", "1"), "levels[0].bandwidth is 0; it must be from 1000"},
    {LINK("device", "4", "1e400", "1"), "line 1"},
    {LINK("device", "4", "1e9", "-1"), "levels[0].latency_us is -1; it must be from 0"},
    {LINK("rack", "4", "1e9", "1"), "links members called 'rack'; the level before is 'device'"},
    {HEAD ",\"levels\":[" LEVEL "},{\"name\":\"all\",\"of\":\"node\",\"count\":1e6,"
          "\"bandwidth\":1e9,\"latency_us\":1},{\"name\":\"more\",\"of\":\"all\",\"count\":1e6,"
          "\"bandwidth\":1e9,\"latency_us\":1}]}",
     "the levels have more than 1e+08 devices"},
    {HEAD ",\"host\":{\"memory_bytes\":-1}}", "host.memory_bytes is -1; it must be from 0"},
    {HEAD ",\"software\":{\"overlap\":{\"dp\":2}}}", "software.overlap.dp is 2; it must be from 0"},
    {"{\"name\":\"x\"," DEVICE ",\"product\":{\"tiles\":[[0,1,1]]}}}", "tiles[0] is not [rows"},
    {"{\"name\":\"x\"," DEVICE ",\"product\":{\"tiles\":[]}}}", "an array of 1 to 8"},
    {"{\"name\":\"x\"," DEVICE ",\"product\":{\"tiles\":[1,1,1,1,1,1,1,1,1]}}}",
     "an array of 1 to 8"},
};

TEST(refused) {
    for (size_t k = 0; k < WFI_COUNT(bads); k++) {
        wf_cluster *c = NULL;
        wf_status status =
            wf_cluster_parse(ctx, bads[k].text, strlen(bads[k].text), "file.json", &c);
        assert_int_equal(status, WF_CORRUPT);
        if (!strstr(wf_context_error(ctx), bads[k].why) ||
            strncmp(wf_context_error(ctx), "file.json", 9))
            fail_msg("%s: %s", bads[k].text, wf_context_error(ctx));
        assert_null(c);
    }
}

TEST(names) {
    wf_cluster *c;
    TEST_REFUSED(ctx, wf_cluster_load(ctx, "dgx-a10", &c), WF_INVALID_ARG, "did you mean dgx-a100");
    assert_int_equal(wf_cluster_load(ctx, "./no-such.json", &c), WF_IO);
    TEST_OK(ctx, wf_cluster_load(ctx, "laptop", &c));
    assert_int_equal(wf_cluster_n_devices(c), 1);
    assert_int_equal(wf_cluster_set_nodes(c, 2), WF_INVALID_ARG);
    wf_cluster_destroy(c);
    TEST_OK(ctx, wf_cluster_load(ctx, "dgx-a100", &c));
    TEST_OK(ctx, wf_cluster_set_nodes(c, 2048));
    assert_int_equal(wf_cluster_n_devices(c), 16384);
    assert_int_equal(wf_cluster_set_nodes(c, 0), WF_INVALID_ARG);
    wf_cluster_destroy(c);
    /* 8 devices a node, 2 nodes a group. */
    wf_cluster groups = {.ctx = ctx, .n_levels = 3, .levels = {{.count = 8}, {.count = 2}}};
    TEST_OK(ctx, wf_cluster_set_nodes(&groups, 6));
    assert_int_equal(wf_cluster_n_devices(&groups), 48);
    TEST_REFUSED(ctx, wf_cluster_set_nodes(&groups, 5), WF_INVALID_ARG, "multiples");
}
