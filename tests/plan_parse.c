/* Plan strings: what is understood, and the sentence for what is not.
 *
 * label: serial
 */
#include "plan/plan.h"
#include "test.h"

#define PAIRWISE "dp=1,pp=1,schedule=1f1b,allreduce=pairwise,bucket="

TEST(good) {
    const struct {
        const char *text, *canonical;
        int n_ranks;
    } cases[] = {
        {"", "dp=1,pp=1,schedule=1f1b", 1},
        {"dp=2", "dp=2,pp=1,schedule=1f1b", 2},
        {"pp=2,schedule=gpipe", "dp=1,pp=2,schedule=gpipe", 2},
        {"schedule=1f1b,pp=3,dp=4,cut=a+b", "dp=4,pp=3,schedule=1f1b,cut=a+b", 12},
        {"allreduce=auto,sums=fixed,bucket=4MiB,overlap=on", "dp=1,pp=1,schedule=1f1b", 1},
        {"allreduce=direct", "dp=1,pp=1,schedule=1f1b,allreduce=direct", 1},
        {"dp=2,allreduce=ring", "dp=2,pp=1,schedule=1f1b,allreduce=ring", 2},
        {"allreduce=ring,sums=free,dp=3", "dp=3,pp=1,schedule=1f1b,allreduce=ring,sums=free", 3},
        {"dp=2,allreduce=engine", "dp=2,pp=1,schedule=1f1b,allreduce=engine", 2},
        {"overlap=off,allreduce=root", "dp=1,pp=1,schedule=1f1b,allreduce=root,overlap=off", 1},
        {"allreduce=tree,bucket=1", "dp=1,pp=1,schedule=1f1b,allreduce=tree,bucket=1", 1},
        {"allreduce=pairwise,bucket=3kb", PAIRWISE "3000", 1},
        {"allreduce=pairwise,bucket=25MiB", PAIRWISE "25MiB", 1},
        {"allreduce=pairwise,bucket=100MB", PAIRWISE "100000000", 1},
        {"allreduce=pairwise,bucket=2048", PAIRWISE "2KiB", 1},
        {"allreduce=pairwise,bucket=512B", PAIRWISE "512", 1},
        {"allreduce=pairwise,bucket=3gib", PAIRWISE "3GiB", 1},
        {"allreduce=pairwise,bucket=1TiB", PAIRWISE "1TiB", 1},
        {"pp=2,schedule=zbv", "dp=1,pp=2,schedule=zbv", 2},
        {"chunks=2,pp=2,schedule=vmin", "dp=1,pp=2,schedule=vmin,chunks=2", 2},
        {"chunks=3,schedule=interleaved,pp=4", "dp=1,pp=4,schedule=interleaved,chunks=3", 4},
        {"hold=3,schedule=auto,chunks=2,pp=2", "dp=1,pp=2,schedule=auto,chunks=2,hold=3", 2},
        {"zero=2,dp=2", "dp=2,pp=1,schedule=1f1b,zero=2", 2},
        {"pp=2,zero=3,dp=4,overlap=off", "dp=4,pp=2,schedule=1f1b,zero=3,overlap=off", 8},
        {"zero=3,prefetch=0", "dp=1,pp=1,schedule=1f1b,zero=3,prefetch=0", 1},
        {"zero=1", "dp=1,pp=1,schedule=1f1b,zero=1", 1},
        {"offload=state:disk+params,dp=2", "dp=2,pp=1,schedule=1f1b,offload=state:disk+params", 2},
        {"offload=params:host+state:host", "dp=1,pp=1,schedule=1f1b,offload=state+params", 1},
        {"offload=activations:disk,pp=2", "dp=1,pp=2,schedule=1f1b,offload=activations:disk", 2},
        {"prefetch=3,offload=state", "dp=1,pp=1,schedule=1f1b,offload=state,prefetch=3", 1},
        {"dataparallel=2,offload=state", "dataparallel=2,offload=state", 2},
        {"recompute=none", "dp=1,pp=1,schedule=1f1b", 1},
        {"overlap=off,recompute=all", "dp=1,pp=1,schedule=1f1b,recompute=all,overlap=off", 1},
        {"recompute=a+b.1:selective,pp=2", "dp=1,pp=2,schedule=1f1b,recompute=a+b.1:selective", 2},
        {"recompute=auto,dataparallel=2", "dataparallel=2,recompute=auto", 2},
        {"shard=2,zero=2,dp=4", "dp=4,pp=1,schedule=1f1b,zero=2,shard=2", 4},
        {"dp=4,zero=2,shard=4", "dp=4,pp=1,schedule=1f1b,zero=2", 4},
        {"sp,tp=2", "dp=1,pp=1,schedule=1f1b,tp=2,sp", 2},
        {"tp=4,sp=on,dp=2", "dp=2,pp=1,schedule=1f1b,tp=4,sp", 8},
        {"tp=2,sp=off", "dp=1,pp=1,schedule=1f1b,tp=2", 2},
        {"dataparallel=3", "dataparallel=3", 3},
        {"dp=1,pp=1,dataparallel=1", "dataparallel=1", 1},
        {"overlap=off,output=1,dataparallel=2", "dataparallel=2,output=1,overlap=off", 2},
        {"dataparallel=2,output=0,allreduce=root", "dataparallel=2,allreduce=root", 2},
        {"block2:dp=2", "block2:dp=2", 2},
        {"a:dp=2,allreduce=tree,b.0:dataparallel=4", "a:dp=2,b.0:dataparallel=4,allreduce=tree", 4},
        {"sums=free,a:dp=3,allreduce=ring", "a:dp=3,allreduce=ring,sums=free", 3},
        {"pp=2,axes=tp+pp+dp,dp=2", "dp=2,pp=2,schedule=1f1b", 4},
        {"pp=2,axes=dp+tp,dp=2", "dp=2,pp=2,schedule=1f1b,axes=dp+pp", 4},
        {"dp=2,pp=2,axes=dp", "dp=2,pp=2,schedule=1f1b,axes=dp+pp", 4},
        {"axes=dp+tp+pp,dp=2", "dp=2,pp=1,schedule=1f1b", 2},
        {"allreduce=ring,pp=2,dp=3,sums=free,axes=dp",
         "dp=3,pp=2,schedule=1f1b,allreduce=ring,sums=free,axes=dp+pp", 6},
        /* the older key of both */
        {"pp=2,order=dp,tp,dp=2", "dp=2,pp=2,schedule=1f1b,axes=dp+pp", 4},
        {"pp=2,order=tp,pp,dp,dp=2", "dp=2,pp=2,schedule=1f1b", 4},
        {"allreduce=ring,pp=2,dp=3,order=dp,free",
         "dp=3,pp=2,schedule=1f1b,allreduce=ring,sums=free,axes=dp+pp", 6},
        {"order=dp,fixed,dp=2,pp=2,overlap=off", "dp=2,pp=2,schedule=1f1b,axes=dp+pp,overlap=off",
         4},
        {"order=dp,tp,sp,tp=2,dp=2", "dp=2,pp=1,schedule=1f1b,tp=2,sp,axes=dp+tp", 4},
        {"a:dataparallel=4,b:dp=2,allreduce=ring", "a:dataparallel=4,b:dp=2,allreduce=ring", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scoped_plan plan = test_plan(ctx, cases[i].text);
        assert_string_equal(wf_plan_text(plan), cases[i].canonical);
        assert_int_equal(wf_plan_n_ranks(plan), cases[i].n_ranks);
        assert_int_equal(wf_plan_dp(plan) * wf_plan_pp(plan) * wf_plan_tp(plan), cases[i].n_ranks);
        scoped_plan again = test_plan(ctx, wf_plan_text(plan));
        assert_string_equal(wf_plan_text(again), wf_plan_text(plan));
    }
}

TEST(bad) {
    const struct {
        const char *text, *says;
    } cases[] = {
        {"dp=0", "dp='0' at position 1"},
        {"chunks=0,schedule=interleaved", "chunks='0' at position 1"},
        {"pp=2,chunks=2", "chunks=2 does not go with schedule=1f1b: it has one chunk a rank"},
        {"pp=2,schedule=zbv,chunks=3", "chunks=3 does not go with schedule=zbv: it has two chunks"},
        {"dataparallel=2,chunks=2", "chunks at position 16 does not go with dataparallel=2"},
        {"dp=-1", "dp='-1'"},
        {"dp=4096,pp=4096,tp=4096", "plan: 68719476736 ranks; a plan has at most 16777216"},
        {"dp=99999999999999999999", "whole number"},
        {"dp=2x", "dp='2x'"},
        {"pp=2,dp= 3", "position 6"},
        {"tp=0", "tp='0' at position 1; it takes a whole number from 1"},
        {"tp=2,dataparallel=2", "tp at position 1 does not go with dataparallel=2"},
        {"tp=4,allreduce=ring,sums=free",
         "allreduce=ring sums in an order that rotates, but tp=4 sums slices over one tree"},
        {"dp=2,tp=2,allreduce=engine", "over replicas of a whole model; with tp choose"},
        {"a:dp=2,allreduce=engine", "with units that have replicas of their own choose"},
        {"dp=2,zero=1,allreduce=engine", "allreduce=engine has no effect with zero, where"},
        {"dp=3,allreduce=engine", "dp=3 would not give one rank's bits; add sums=free"},
        {"sp", "sp divides rows over the ranks of tp, and tp has one rank; add tp=2"},
        {"tp=2,sp=1", "sp='1' at position 6; it takes off or on"},
        {"tp=2,sp,", "expected key=value at position 9"},
        {"dp", "expected key=value"},
        {"dp=2,", "expected key=value"},
        {",dp=2", "expected key=value"},
        {"dp=2,,pp=2", "expected key=value"},
        {"=2", "expected key=value"},
        {"dp=2,dp=2", "given twice"},
        {"schedule=fast",
         "there are naive, gpipe, 1f1b, interleaved, zb1, zb2, zbv, vhalf, vmin, breadth, auto"},
        {"cut=layer3", "add pp=2"},
        {"pp=2,cut=", "names no unit"},
        {"pp=2,cut=a+", "cut=a+ at position 6 names no unit"},
        {"pp=2,cut=a++b", "cut=a++b at position 6 names no unit"},
        {"dp=2\n", "is not text"},
        {"dp=2,allreduce=nccl", "no allreduce 'nccl' (position 6); there are root, ring, tree, "},
        {"allreduce=", "no allreduce ''"},
        {"dp=3,allreduce=ring", "dp=3 would not give one rank's bits; add sums=free"},
        {"allreduce=ring,dp=4,sums=fixed", "add sums=free"},
        {"dp=4,sums=free", "sums=free has no effect on sums in one rank's order; it is for"},
        {"dp=2,sums=free,allreduce=tree", "sums=free has no effect on sums in one rank's order"},
        {"dp=2,zero=3,sums=free", "sums=free has no effect on sums in one rank's order"},
        {"sums=any", "sums='any' at position 1; it takes fixed or free"},
        {"axes=", "axes='' at position 1; it takes axes, the innermost first, of tp, pp and dp"},
        {"axes=tp+dpp", "axes='tp+dpp' at position 1; it takes axes, the innermost first"},
        {"dp=2,axes=tp+dp+tp", "axes at position 6 names axis tp twice;"},
        {"axes=tp,axes=dp", "axes is given twice, again at position 9"},
        {"order=any", "axes='any' at position 1; it takes axes, the innermost first"},
        {"order=tp,dpp,dp=2", "axes='dpp' at position 10; it takes axes"},
        {"dp=2,order=tp,dp,tp", "axes at position 18 names axis tp twice;"},
        {"order=free,dp,fixed", "sums is given twice, again at position 15"},
        {"order=tp,order=dp", "axes is given twice, again at position 10"},
        {"order=tp,axes=dp", "axes is given twice, again at position 10"},
        {"order=tp,", "expected key=value at position 10"},
        {"dp=2,dp", "expected key=value at position 6, found 'dp'"},
        {"dp=2,overlap=yes", "overlap='yes' at position 6; it takes off or on"},
        {"bucket=", "bucket='' at position 1; it takes a size from 1 to 1TiB"},
        {"bucket=0", "bucket='0'"},
        {"bucket=-1", "bucket='-1'"},
        {"bucket=1.5MiB", "bucket='1.5MiB'"},
        {"bucket=MiB", "bucket='MiB'"},
        {"bucket=4 MiB", "bucket='4 MiB'"},
        {"bucket=4MiBs", "bucket='4MiBs'"},
        {"bucket=2TiB", "bucket='2TiB'"},
        {"bucket=1025GiB", "bucket='1025GiB'"},
        {"bucket=18446744073709551617", "such as 25MiB"},
        {"bucket=1,bucket=2", "given twice"},
        {"zero=4", "zero='4' at position 1; it takes 1 (optimizer state is divided), 2"},
        {"dp=2,zero=", "zero='' at position 6"},
        {"dp=2,zero=12", "zero='12' at position 6"},
        {"dp=2,zero=1,zero=2", "given twice"},
        {"dp=4,shard=2", "shard=2 sets the number of ranks that divide the state, but the state is "
                         "not divided; add zero"},
        {"dp=4,zero=1,shard=0", "shard='0' at position 13; it takes a whole number from 1"},
        {"dp=8,zero=1,shard=3", "shard=3 at position 13: groups of that many of the dp=8 replicas"},
        {"dp=8,zero=1,shard=16", "one rank's order; it takes 1, 2, 4 or 8"},
        {"dp=6,zero=1,shard=2", "it takes 1, 3 or 6"}, /* a tree of six is one of threes */
        {"zero=1,shard=2", "it takes 1"},
        {"dataparallel=2,shard=2", "shard at position 16 does not go with dataparallel=2"},
        {"dataparallel=2,zero=1", "zero at position 16 does not go with dataparallel=2; it div"},
        {"zero=2,a:dp=2", "zero at position 1 does not go with a:dp=2"},
        {"recompute=", "recompute='' at position 1; it takes none, all, selective, auto, or units"},
        {"dp=2,recompute=a++b", "recompute='a++b' at position 6"},
        {"recompute=+a", "recompute='+a' at position 1"},
        {"recompute=a+", "recompute='a+' at position 1"},
        {"recompute=:selective", "recompute=':selective' at position 1"},
        {"recompute", "expected key=value at position 1"},
        {"recompute=all,recompute=all", "recompute is given twice, again at position 15"},
        {"dp=2,prefetch=2",
         "prefetch=2 sets the number of units that parameters are gathered ahead"},
        {"zero=3,prefetch=x", "prefetch='x' at position 8; it takes a whole number from 0"},
        {"a:zero=2", "'a:zero' at position 1: zero divides the state of the whole model over dp"},
        {"dp=2,zero=1,allreduce=tree", "allreduce=tree has no effect with zero, where"},
        {"offload=", "offload= at position 1: '' is not one of state, params and activations"},
        {"dp=2,offload=state+", "at position 6: '' is not one of"},
        {"offload=state:", "'state:' is not one of"},
        {"offload=state:tape", "'state:tape' is not one of"},
        {"offload=state:disk:disk", "'state:disk:disk' is not one of"},
        {"offload=stat", "'stat' is not one of"},
        {"offload=params+state+params:disk", "names params twice"},
        {"offload=state,offload=params", "given twice"},
        {"a:dp=2,offload=params", "offload=params is not for units that are placed one by one"},
        {"dataparallel=0", "dataparallel='0' at position 1"},
        {"pp=1,block2:dp=x", "block2:dp='x' at position 6"},
        {"dataparallel=2,dataparallel=2",
         "the strategy of the model is given twice, again at position 16"},
        {"a:dp=2,a:dataparallel=3", "the strategy of a is given twice, again at position 8"},
        {":dp=2", "':dp' at position 1 names no unit; write UNIT:dp"},
        {"a:pp=2", "unknown key 'a:pp'"},
        {"dataparallel=2,pp=3", "pp at position 16 does not go with dataparallel=2; dp=2,pp=2 "},
        {"dp=2,dataparallel=2", "dp at position 1 does not go with dataparallel=2"},
        {"a:dp=2,dp=2", "dp at position 8 does not go with a:dp=2"},
        {"cut=b,dataparallel=2", "cut at position 1 does not go with dataparallel=2; dp=2,pp=2 "},
        {"dataparallel=2,schedule=gpipe", "leave schedule out"},
        {"dataparallel=2,hold=2", "schedule=auto,pp=2 obeys it"},
        {"dataparallel=2,allreduce=tree", "allreduce at position 16 does not go with"},
        {"a:dp=3,allreduce=ring", "dp=3 would not give one rank's bits; add sums=free"},
        {"dataparallel=2,a:dp=2", "dataparallel=2 at position 1 applies to all units"},
        {"output=1", "output=1 chooses the rank of the loss"},
        {"a:dp=2,output=1", "add dataparallel=N"},
        {"dataparallel=2,output=2", "output=2 at position 16, but dataparallel=2 has ranks 0 to 1"},
        {"dataparallel=2,output=-1", "output='-1' at position 16; it takes a whole number from 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_plan *plan;
        TEST_REFUSED(ctx, wf_plan_parse(ctx, cases[i].text, &plan), WF_INVALID_ARG, cases[i].says);
    }
}

/* A copy with other fields is another plan, and keeps every key that nobody has touched. */
TEST(edited) {
    static const char *const texts[] = {
        "dp=2,pp=2,schedule=auto,cut=b,hold=3,allreduce=ring,sums=free,bucket=1MiB,overlap=off",
        "dataparallel=2,output=1,bucket=1MiB", "a:dp=2,b:dataparallel=4,overlap=off"};
    for (int i = 0; i < 3; i++) {
        scoped_plan copy;
        scoped_plan plan = test_plan(ctx, texts[i]);
        TEST_OK(ctx, wfi_plan_copy(plan, &copy));
        assert_string_equal(wf_plan_text(copy), texts[i]);
        TEST_OK(ctx, wfi_plan_complete(copy));
        assert_string_equal(wf_plan_text(copy), texts[i]);
        if (i == 0) {
            copy->hold = 0;
            copy->schedule = wfi_schedule_find("zb1");
            wfi_plan_drop_cut(copy);
            TEST_OK(ctx, wfi_plan_complete(copy));
            assert_string_equal(wf_plan_text(copy), "dp=2,pp=2,schedule=zb1,allreduce=ring,"
                                                    "sums=free,bucket=1MiB,overlap=off");
            copy->hold = 3;
            TEST_REFUSED(ctx, wfi_plan_complete(copy), WF_INVALID_ARG, "hold=3 has no effect");
        } else {
            wfi_plan_drop_rules(copy);
            copy->pp = 2;
            TEST_OK(ctx, wfi_plan_complete(copy));
            assert_int_equal(wf_plan_dp(copy), i == 1 ? 2 : 4);
            assert_string_equal(strstr(wf_plan_text(copy), ",bucket") ? ",bucket" : ",overlap",
                                i == 1 ? ",bucket" : ",overlap");
        }
    }
}
