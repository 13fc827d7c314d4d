/* Update rules, PyTorch's formulas, for a parameter p, its gradient and its states. The including
 * file defines RULE (a formula and its number of states), NUMBER (one of the step's,
 * wfi_update_rule) and the square root. Plain C (rules.c) includes this, as do kernels that devices
 * compile (kernel/gpu/source/step.cl). */

#define SCALE NUMBER(0) /* gradients are multiplied by it first */
#define DECAY NUMBER(1)
#define RATE NUMBER(2)
#define MOMENTUM NUMBER(3)

RULE(sgd, 0, p -= RATE * (given * SCALE + DECAY * p))
RULE(momentum, 1, first = MOMENTUM * first + (given * SCALE + DECAY * p); p -= RATE * first)
RULE(nesterov, 1, float g = given * SCALE + DECAY * p; first = MOMENTUM * first + g;
     p -= RATE * (g + MOMENTUM * first))

#define KEEP NUMBER(3)
#define BETA1 NUMBER(4)
#define WEIGHT1 NUMBER(5)
#define BETA2 NUMBER(6)
#define WEIGHT2 NUMBER(7)
#define CORRECTION NUMBER(8)
#define EPSILON NUMBER(9)

RULE(adam, 2, p = p * KEEP; float g = given * SCALE + DECAY * p; first = BETA1 * first + WEIGHT1 * g;
     second = BETA2 * second + WEIGHT2 * g * g;
     p = p - RATE * first / (ROOT(second) / CORRECTION + EPSILON))
