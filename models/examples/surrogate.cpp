/* surrogate.c in C++17: a network learns sin(x0) * x1 from arrays of doubles while they are made.
 */
#include <cltrain/cltrain.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

int main()
{
    constexpr int n = 256;
    static double x[n][2], y[n][1], guess[n][1];
    double worst = 0;
    try {
        const clt::runtime runtime;
        const auto devices = clt::devices_open(runtime, "cpu");
        const clt::graph graph = clt::mlp_regressor(2, {32, 32}, 1, "tanh");
        const clt::store store(graph, devices, 1);
        clt::trainer_options options;
        options.optimizer = CLT_ADAM;
        options.lr = 0.01;
        options.batch = n;
        const clt::trainer trainer(graph, store, options);
        for (int step = 0; step < 600; step++) {
            for (int i = 0; i < n; i++) {
                x[i][0] = 3.0 * std::rand() / RAND_MAX, x[i][1] = 2.0 * std::rand() / RAND_MAX - 1;
                y[i][0] = std::sin(x[i][0]) * x[i][1];
            }
            const double loss = clt::step_arrays(trainer, {{"x", x}, {"y", y}});
            if (step % 100 == 99)
                std::printf("step %d: loss %.6f\n", step + 1, loss);
        }
        clt::predict_arrays(trainer, {{"x", x}}, {{"prediction", guess}});
    } catch (const clt::error &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
    for (int i = 0; i < n; i++)
        worst = std::max(worst, std::fabs(guess[i][0] - y[i][0]));
    std::printf("largest error %.3f\n", worst);
    return worst < 0.2 ? 0 : 1;
}
