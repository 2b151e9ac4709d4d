/* Training, prediction and evaluation through <cltrain/cltrain.hpp>, compared with the same updates
 * in double. */
#include <cltrain/cltrain.hpp>

#include <filesystem>
#include <random>

#include <stdlib.h>

#include "check.hpp"

namespace
{

constexpr std::size_t samples = 24, inputs = 3;

struct problem {
    std::vector<std::array<double, inputs>> x = std::vector<std::array<double, inputs>>(samples);
    std::vector<double> y = std::vector<double>(samples);
    problem()
    {
        std::mt19937 random(7);
        std::uniform_real_distribution<double> uniform(-1, 1);
        for (std::size_t i = 0; i < samples; i++) {
            for (double &v : x[i])
                v = uniform(random);
            y[i] = 2 * x[i][0] - x[i][1] + 0.5 * x[i][2] + 0.25;
        }
    }
};

/* A linear layer with a mean squared error. */
clt::graph linear_graph()
{
    clt::graph g;
    auto x = clt::input(g, "x", CLT_F32, {CLT_BATCH, std::int64_t{inputs}});
    auto y = clt::input(g, "y", CLT_F32, {CLT_BATCH, 1});
    auto w = clt::parameter(g, "w", {1, std::int64_t{inputs}}, {CLT_INIT_CONSTANT, 0.1, 0});
    auto b = clt::parameter(g, "b", {1}, {CLT_INIT_ZERO, 0, 0});
    auto p = clt::output(clt::linear(x, w, b), "prediction");
    auto [sum, weight] = clt::mse(p, y);
    clt::loss(g, "loss", sum, weight, 1);
    CHECK(p.rank() == 2 && p.dim(0) == CLT_BATCH && p.dim(1) == 1 && p.dtype() == CLT_F32);
    CHECK(p.name() == "prediction");
    return g;
}

struct setup {
    clt::runtime runtime;
    std::vector<clt::device> devices = clt::devices_open(runtime, test_devices());
    clt::graph graph = linear_graph();
    clt::store store{graph, devices, 1};
    clt::trainer trainer;
    explicit setup(double lr = 0.2)
    {
        clt::trainer_options options;
        options.optimizer = CLT_SGD;
        options.lr = lr;
        options.batch = samples;
        trainer = clt::trainer(graph, store, options);
    }
};

/* One step of gradient descent in double. Returns the loss before it. */
double reference_step(const problem &p, std::array<double, inputs> &w, double &b, double lr)
{
    double loss = 0, db = 0;
    std::array<double, inputs> dw{};
    for (std::size_t i = 0; i < samples; i++) {
        double error = b - p.y[i];
        for (std::size_t k = 0; k < inputs; k++)
            error += w[k] * p.x[i][k];
        loss += error * error / samples;
        for (std::size_t k = 0; k < inputs; k++)
            dw[k] += 2 * error * p.x[i][k] / samples;
        db += 2 * error / samples;
    }
    for (std::size_t k = 0; k < inputs; k++)
        w[k] -= lr * dw[k];
    b -= lr * db;
    return loss;
}

void steps_equal_the_reference()
{
    const problem p;
    setup s;
    std::array<double, inputs> w{0.1, 0.1, 0.1};
    double b = 0;
    for (int step = 0; step < 20; step++) {
        const double expected = reference_step(p, w, b, 0.2);
        double loss = 0;
        if (step % 2) {
            loss = clt::step_arrays(s.trainer, {{"x", p.x}, {"y", clt::view(p.y, {-1, 1})}});
        } else {
            clt::step_batch batch;
            batch.count = samples;
            batch.feeds = {{"x", p.x}, {"y", clt::view(p.y, {samples, 1})}};
            s.trainer.step(batch);
            const clt_step_result result = s.trainer.result(step);
            CHECK(result.samples == samples && result.finite);
            loss = result.loss;
        }
        CHECK_NEAR(loss, expected, 1e-6);
    }
    std::vector<float> got(inputs);
    s.store.get("w", got);
    for (std::size_t k = 0; k < inputs; k++)
        CHECK_NEAR(got[k], w[k], 1e-5);
    std::array<double, 1> bias{};
    s.store.get_array("b", bias);
    CHECK_NEAR(bias[0], b, 1e-5);

    /* The parts of a step, with the gradient in an array of doubles. */
    const std::array<double, inputs> before = w;
    reference_step(p, w, b, 0.2);
    clt::step_batch batch;
    batch.count = samples;
    batch.feeds = {{"x", p.x}, {"y", clt::view(p.y, {samples, 1})}};
    s.trainer.forward(batch);
    s.trainer.backward();
    s.trainer.reduce();
    double gradient[1][inputs];
    s.trainer.gradient_array(0, "w", gradient);
    for (std::size_t k = 0; k < inputs; k++)
        CHECK_NEAR(gradient[0][k], (before[k] - w[k]) / 0.2, 1e-4);
    s.trainer.apply();
    CHECK(s.trainer.steps() == 21);
}

void predictions_and_evaluations()
{
    const problem p;
    setup s;
    s.store.set_array("w", std::array<std::array<double, inputs>, 1>{{{2, -1, 0.5}}});
    s.store.set("b", std::array<float, 1>{0.25F});

    /* Every second column of a table gets the prediction. */
    std::vector<double> table(2 * samples, -9);
    clt::predict_arrays(s.trainer, {{"x", p.x}},
                        {{"prediction", clt::strided(table, {samples, 1}, {2, 1})}});
    for (std::size_t i = 0; i < samples; i++) {
        CHECK_NEAR(table[2 * i], p.y[i], 1e-6);
        CHECK(table[2 * i + 1] == -9);
    }

    clt::predictor_options options;
    options.batch = samples;
    const clt::predictor predictor(s.graph, s.store, options);
    CHECK(predictor.input_count() == 1 && predictor.output_count() == 1);
    const auto described = predictor.output(0);
    CHECK(described.name == "prediction" &&
          described.dims == (std::vector<std::int64_t>{CLT_BATCH, 1}));
    std::vector<float> y(samples);
    clt::step_batch batch;
    batch.count = samples;
    batch.feeds = {{"x", p.x}};
    batch.fetches = {{"prediction", clt::view(y, {samples, 1})}};
    predictor.run(batch);
    predictor.wait();
    for (std::size_t i = 0; i < samples; i++)
        CHECK_NEAR(y[i], p.y[i], 1e-6);

    clt::means means;
    batch.fetches.clear();
    batch.feeds.emplace_back("y", clt::view(p.y, {samples, 1}));
    s.trainer.evaluate(batch, means);
    s.trainer.evaluate(batch, means);
    CHECK(means.weights.size() == 1 && s.trainer.means_count() == 1 &&
          means.weights[0] == 2.0 * samples);
    CHECK_NEAR(means[0], 0, 1e-10);
}

void fit_and_checkpoints(const std::string &folder)
{
    const problem p;
    setup s;
    const clt::dataset data = clt::dataset::create_arrays("line", samples);
    CHECK(data.add_array("x", p.x, CLT_DATA_COPY) == 0);
    CHECK(data.add_array("y", clt::view(p.y, {samples, 1}), CLT_DATA_COPY) == 1);
    CHECK(data.count() == samples && data.name() == "line");
    const auto field = data.field_info(0);
    CHECK(field.name == "x" && field.shape == std::vector<std::int64_t>{inputs});

    clt::fit_options options;
    options.epochs = 100;
    options.checkpoint_dir = folder + "/fit";
    options.checkpoint_every = -1;
    options.keep = 2;
    int steps = 0, epochs = 0;
    double loss = 1;
    options.on_step = [&](const clt_progress &report) { steps += report.samples == samples; };
    options.on_epoch = [&](const clt_progress &report) {
        epochs++;
        loss = report.test_loss;
    };
    clt::fit(s.trainer, data, data, options);
    CHECK(steps == 100 && epochs == 100 && loss < 0.01);
    CHECK_NEAR(clt::evaluate(s.trainer, data)[0], loss, 1e-6);

    s.trainer.set_section("time", "3.5");
    s.trainer.save_state(folder + "/state", 1);
    setup other;
    other.trainer.restore_state(folder + "/state");
    CHECK(other.trainer.section("time") == "3.5" && other.trainer.steps() == 100);
    std::vector<float> a(inputs), b(inputs);
    s.store.get("w", a);
    other.store.get("w", b);
    CHECK(a == b);
    const clt::checkpoint saved(nullptr);
    CHECK(!saved);
    const clt::checkpoint opened = clt::checkpoint::open(std::string_view(folder + "/state"));
    CHECK(opened.run()->step == 100 && clt_tensors_count(opened.model()) == 2);
    s.store.save(folder + "/model.safetensors");
    other.store.set("w", std::vector<float>(inputs));
    other.store.load(folder + "/model.safetensors");
    other.store.get("w", b);
    CHECK(a == b);
}

void reservoirs()
{
    const clt::dataset d = clt::dataset::create_reservoir("pushed", samples);
    d.add_field("x", CLT_F32, {inputs});
    d.add_field("y", CLT_F32, {});
    std::vector<std::array<float, inputs>> x(samples), drawn(samples);
    std::vector<float> y(samples), drawn_y(samples);
    for (std::size_t i = 0; i < samples; i++) {
        x[i].fill(static_cast<float>(i));
        y[i] = -static_cast<float>(i);
    }
    d.push({x, y}, {});
    CHECK(d.draw(0, 0, 0, samples, {drawn, drawn_y}) == samples);
    for (std::size_t i = 0; i < samples; i++)
        CHECK(drawn[i][0] == -drawn_y[i] && drawn[i][inputs - 1] == -drawn_y[i]);
}

} /* namespace */

int main()
{
    char folder[] = "/tmp/cltrain-cpp-XXXXXX";
    if (!mkdtemp(folder))
        return 2;
    try {
        steps_equal_the_reference();
        predictions_and_evaluations();
        fit_and_checkpoints(folder);
        reservoirs();
    } catch (const std::exception &e) {
        std::printf("unexpected: %s\n", e.what());
        failures++;
    }
    std::filesystem::remove_all(folder);
    return report("training");
}
