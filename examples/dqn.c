/* PyTorch's DQN tutorial: a network learns to keep a pole upright on a cart (Gym's CartPole-v1,
 * written out here) from what it has tried. A step takes 64 transitions out of a memory of 10,000
 * and moves Q(s, a) to r + 0.99 Q'(s', the best action there by Q) by Huber's loss; Q' is the
 * target network, which is given the other's weights now and then. It is solved when 100 episodes
 * last 195 on average.
 *
 *     dqn [EPISODES [PLAN [SEED]]]    e.g. dqn 1000 dp=2 0; it stops when the task is solved
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

enum { BATCH = 64, MEMORY = 10000, MOST_STEPS = 500, COPY_EVERY = 250, N_MEAN = 100 };

#define TRY(call)                                                                                  \
    if ((status = (call)) != WF_OK) goto end

static void network(wf_graph *g, const void *config) {
    (void)config;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(4));
    wf_tensor action = wf_input(g, "action", WF_I32, WF_SCALAR);
    wf_tensor wanted = wf_input(g, "wanted", WF_F32, WF_SCALAR);
    x = wf_relu(wf_linear(x, "layer1", 128));
    x = wf_next_stage(wf_relu(wf_linear(x, "layer2", 128)), "head");
    wf_tensor q = wf_linear(x, "layer3", 2);
    wf_output(q, "q");
    wf_loss(wf_smooth_l1(wf_gather(q, action), wanted));
}

/* ---- the cart: where it is, how fast, the pole's angle, and how fast that grows ---- */

static uint32_t seed;

static double random_unit(void) {
    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    return seed * 0x1p-32;
}

static void put_up(float s[4]) {
    for (int i = 0; i < 4; i++) s[i] = (float)(random_unit() * 0.1 - 0.05);
}

/* Whether it fell, or has left the track. */
static int push(const float s[4], int action, float next_out[4]) {
    double force = action ? 10 : -10, sine = sin(s[2]), cosine = cos(s[2]);
    double t = (force + 0.05 * s[3] * s[3] * sine) / 1.1;
    double turn = (9.8 * sine - cosine * t) / (0.5 * (4.0 / 3 - 0.1 * cosine * cosine / 1.1));
    double speed_up = t - 0.05 * turn * cosine / 1.1;
    next_out[0] = (float)(s[0] + 0.02 * s[1]);
    next_out[1] = (float)(s[1] + 0.02 * speed_up);
    next_out[2] = (float)(s[2] + 0.02 * s[3]);
    next_out[3] = (float)(s[3] + 0.02 * turn);
    return fabsf(next_out[0]) > 2.4f || fabsf(next_out[2]) > 12 * 3.14159265f / 180;
}

/* ---- the memory ---- */

static struct {
    float s[4], next[4];
    int32_t action, is_end;
} memory[MEMORY];
static int64_t n_seen;

static wf_status q_of(wf_trainer *t, const float *s, int n, float *q_out) {
    wf_feed feed = {"x", s, (size_t)n * 4 * sizeof *s};
    return wf_trainer_forward(t, &feed, 1, n, "q", q_out, (size_t)n * 2 * sizeof *q_out);
}

static wf_status learn(wf_trainer *policy, wf_trainer *target) {
    static float s[BATCH][4], next[BATCH][4], q[BATCH][2], q_target[BATCH][2], wanted[BATCH];
    static int32_t action[BATCH], is_end[BATCH];
    wf_step_result result;
    for (int i = 0; i < BATCH; i++) {
        int k = (int)(random_unit() * (double)(n_seen < MEMORY ? n_seen : MEMORY));
        memcpy(s[i], memory[k].s, sizeof s[i]);
        memcpy(next[i], memory[k].next, sizeof next[i]);
        action[i] = memory[k].action;
        is_end[i] = memory[k].is_end;
    }
    wf_status status = q_of(policy, next[0], BATCH, q[0]);
    if (!status) status = q_of(target, next[0], BATCH, q_target[0]);
    if (status) return status;
    for (int i = 0; i < BATCH; i++)
        wanted[i] = 1 + (is_end[i] ? 0 : 0.99f * q_target[i][q[i][1] > q[i][0]]);
    const wf_feed feeds[] = {
        {"x", s, sizeof s}, {"action", action, sizeof action}, {"wanted", wanted, sizeof wanted}};
    status = wf_trainer_step(policy, feeds, 3, BATCH, &result);
    if (status || wf_trainer_n_steps(policy) % COPY_EVERY) return status;
    return wf_trainer_copy_weights(target, policy, NULL);
}

/* How many steps the pole stays upright; it learns after each. */
static wf_status run_episode(wf_trainer *policy, wf_trainer *target, int *n_out) {
    float s[4], q[2] = {0, 0};
    int is_end = 0;
    put_up(s);
    for (*n_out = 0; *n_out < MOST_STEPS && !is_end; ++*n_out) {
        int k = (int)(n_seen % MEMORY), action = random_unit() < 0.5;
        double explore = 0.01 + 0.89 * exp(-(double)n_seen / 2500);
        wf_status status = WF_OK;
        if (random_unit() >= explore) {
            if ((status = q_of(policy, s, 1, q))) return status;
            action = q[1] > q[0];
        }
        memcpy(memory[k].s, s, sizeof s);
        is_end = push(s, memory[k].action = action, memory[k].next);
        memory[k].is_end = is_end;
        memcpy(s, memory[k].next, sizeof s);
        if (++n_seen >= BATCH && (status = learn(policy, target))) return status;
    }
    return WF_OK;
}

int main(int argc, char **argv) {
    int n_episodes = argc > 1 ? atoi(argv[1]) : 1000, lasted[N_MEAN] = {0}, sum = 0;
    char recipe[100];
    wf_context *ctx;
    wf_trainer *policy = NULL, *target = NULL;
    wf_status status;
    seed = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) * 2654435761u + 1 : 1;
    snprintf(recipe, sizeof recipe, "batch=%d,optimizer=adamw,lr=0.0003,weight_decay=0.01,seed=%u",
             BATCH, (unsigned)seed);
    if (wf_context_create(NULL, &ctx)) return 1;
    TRY(wf_trainer_open(ctx, network, NULL, recipe, argc > 2 ? argv[2] : "", &policy));
    TRY(wf_trainer_open(ctx, network, NULL, recipe, "", &target));
    TRY(wf_trainer_copy_weights(target, policy, NULL));
    for (int i = 0; i < n_episodes; i++) {
        sum -= lasted[i % N_MEAN];
        TRY(run_episode(policy, target, &lasted[i % N_MEAN]));
        sum += lasted[i % N_MEAN];
        double mean = (double)sum / (i + 1 < N_MEAN ? i + 1 : N_MEAN);
        int is_solved = i + 1 >= N_MEAN && mean >= 195;
        if ((i + 1) % 50 == 0 || is_solved || i + 1 == n_episodes)
            printf("episode %d: %.1f steps on average\n", i + 1, mean);
        if (is_solved) printf("solved: 195 over %d episodes\n", N_MEAN);
        if (is_solved) break;
    }

end:
    if (status) fprintf(stderr, "%s\n", wf_context_error(ctx));
    wf_trainer_destroy(target);
    wf_trainer_destroy(policy);
    wf_context_destroy(ctx);
    return status != WF_OK;
}
