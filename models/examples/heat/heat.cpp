/* Rods warm up from their ends. heat.cpp is heat_untouched.cpp with a network that learns meanwhile
 * to predict a rod ten time steps later. */
#include <array>
#include <cltrain/cltrain.hpp>
#include <cstdio>
#include <numeric>
#include <vector>

constexpr std::size_t rods = 64, cells = 32;
constexpr int steps = 200;
using rod = std::array<float, cells>;

/* Ten explicit steps of the heat equation. A rod conducts better where it is warm. */
static rod advance(rod u)
{
    for (int n = 0; n < 10; n++) {
        const rod old = u;
        for (std::size_t i = 1; i < cells - 1; i++)
            u[i] = old[i] + 0.2f * (1 + old[i] * old[i]) * (old[i - 1] - 2 * old[i] + old[i + 1]);
    }
    return u;
}

int main()
try {
    std::vector<rod> now(rods), next(rods);
    for (std::size_t r = 0; r < rods; r++) {
        now[r].front() = static_cast<float>(r % 8) / 8;
        now[r].back() = static_cast<float>(r / 8) / 16;
    }
    const clt::runtime runtime;
    const auto devices = clt::devices_open(runtime, "cpu");
    const clt::graph graph = clt::mlp_regressor(cells, {64}, cells, "tanh");
    const clt::store store(graph, devices, 0);
    auto options = clt::optimizer_defaults(CLT_ADAM);
    options.batch = rods;
    const clt::dataset samples = clt::dataset::create_reservoir("rods", 1024);
    const clt::trainer trainer(graph, store, options);
    trainer.set_reservoir(samples);
    for (int step = 1; step <= steps; step++) {
        double sum = 0;
        for (std::size_t r = 0; r < rods; r++) {
            next[r] = advance(now[r]);
            sum = std::accumulate(next[r].begin(), next[r].end(), sum);
        }
        std::printf("step %d: mean temperature %.6f\n", step, sum / (rods * cells));
        samples.push({now, next}, {});
        std::printf("loss %.9g\n", clt::step_reservoir(trainer, 1));
        now.swap(next);
    }
    store.save("heat.safetensors");
} catch (const clt::error &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
