/* Elementwise formulas of x and y. In a forward they are inputs. In a backward x is the gradient
 * and y is the forward's output, or for gelu its input. A NaN stays NaN. */

#ifndef FACTOR /* else plain C (elements.c) defines them */
#define FACTOR ((float)a.f[0])
#define IS_TANH ((int)a.n[1])
#endif

#define UNARY(name, value)                                                                         \
    KERNEL(name) {                                                                                 \
        FOR_ELEMENT(i) {                                                                           \
            float x = GET(IN(0), i);                                                               \
            PUT(OUT(0), i, (value));                                                               \
        }                                                                                          \
    }
#define BINARY(name, value)                                                                        \
    KERNEL(name) {                                                                                 \
        FOR_ELEMENT(i) {                                                                           \
            float x = GET(IN(0), i), y = GET(IN(1), i);                                            \
            PUT(OUT(0), i, (value));                                                               \
        }                                                                                          \
    }

UNARY(relu, x <= 0 ? 0 : x)
UNARY(tanh_forward, (float)tanh((double)x))
UNARY(sigmoid, (float)(1 / (1 + exp(-(double)x))))
UNARY(silu, (float)(x / (1 + exp(-(double)x))))
UNARY(scale, x * FACTOR)
UNARY(leaky_relu, x <= 0 ? FACTOR * x : x)

BINARY(relu_backward, y <= 0 ? 0 : x)
BINARY(leaky_relu_backward, y <= 0 ? FACTOR * x : x)
BINARY(tanh_backward, (float)(x * (1 - (double)y * y)))
BINARY(sigmoid_backward, (float)(x * ((double)y * (1 - (double)y))))

BINARY(add, x + y)
BINARY(add_relu, x + y <= 0 ? 0 : x + y)
BINARY(mul, x * y)

DEVICE double gelu_of(double x, int is_tanh) {
    if (is_tanh) return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    return 0.5 * x * (1 + erf(x * 0.7071067811865476));
}

DEVICE double gelu_slope(double x, int is_tanh) {
    if (is_tanh) {
        double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
        double inner = 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
    }
    return 0.5 * (1 + erf(x * 0.7071067811865476)) + x * (exp(-0.5 * x * x) * 0.3989422804014327);
}

DEVICE double silu_slope(double x) {
    double s = 1 / (1 + exp(-x));
    return s * (1 + x * (1 - s));
}

BINARY(silu_backward, (float)(x * silu_slope(y)))
UNARY(gelu, (float)gelu_of(x, IS_TANH))
BINARY(gelu_backward, (float)(x * gelu_slope(y, IS_TANH)))
