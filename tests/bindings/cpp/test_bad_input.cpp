/* Bad input between steps: one exception with one line that names what is wrong, and nothing is
 * lost. A trainer that saw all of it has the bits of one that saw none. */
#include <cltrain/cltrain.hpp>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "check.hpp"

namespace
{

constexpr int count = 4;
const float xs[count][2] = {{0.5F, 1}, {-1, 2}, {0, 0}, {1, 1}},
            ys[count][1] = {{0}, {1}, {2}, {3}};

struct scene {
    clt::runtime runtime;
    std::vector<clt::device> devices = clt::devices_open(runtime, test_devices());
    clt::graph graph = clt::mlp_regressor(2, {4}, 1, nullptr);
    clt::store store{graph, devices, 1};
    clt::trainer trainer;

    scene()
    {
        clt::trainer_options options;
        options.batch = count;
        options.lr = 0.1;
        trainer = clt::trainer(graph, store, options);
        trainer.set_section("time", "1.5");
    }

    double step() const
    {
        return clt::step_arrays(trainer, {{"x", xs}, {"y", ys}});
    }
};

void open_csv(const char *rows)
{
    std::string path = "/tmp/bad-input-XXXXXX";
    std::FILE *file = fdopen(mkstemp(path.data()), "w");
    std::fputs(rows, file);
    std::fclose(file);
    try {
        const clt::dataset opened = clt::dataset::open("csv:" + path);
    } catch (...) {
        std::remove(path.c_str());
        throw;
    }
    std::remove(path.c_str());
}

void nothing_is_lost()
{
    const scene clean, s;
    const clt::trainer &t = s.trainer;
    const std::vector<float> flat(2 * count), wide(3 * count);
    std::vector<float> one(1);
    struct row {
        std::function<void()> call;
        clt_status status;
        const char *text;
    };
    clt::trainer freed = scene().trainer;
    freed.reset();
    const std::string cut("time\0", 5);
    const clt::graph other;
    const clt::value input = clt::input(other, "in", CLT_F32, {4, 3});
    const row rows[] = {
        {[&] {
             clt::step_arrays(t, {{"x", flat}, {"y", ys}});
         },
         CLT_INVALID_ARGUMENT, "feed y has 4 samples, and feeds before it 8"},
        {[&] {
             clt::step_arrays(t, {{"x", clt::view(wide, {count, 3})}, {"y", ys}});
         },
         CLT_INVALID_ARGUMENT, "feed x is f32 [4, 3], and must be f32 [4, 2]"},
        {[&] {
             clt::step_arrays(t, {{"x", clt::view(flat, {2, count})}, {"y", ys}});
         },
         CLT_INVALID_ARGUMENT, "feed"},
        {[&] {
             const std::vector<std::int32_t> kinds(2 * count);
             clt::step_arrays(t, {{"x", clt::view(kinds, {count, 2})}, {"y", ys}});
         },
         CLT_INVALID_ARGUMENT, "feed x is i32 [4, 2], and must be f32 [4, 2]"},
        {[&] {
             clt::step_arrays(t, {{"x", clt::strided(flat, {count, 2}, {3, 1})}, {"y", ys}});
         },
         CLT_INVALID_ARGUMENT, "feed x"},
        {[&] {
             clt::step_arrays(t, {{"z", xs}, {"y", ys}});
         },
         CLT_NOT_FOUND, "z"},
        {[&] {
             clt::step_arrays(t, {{"x", xs}});
         },
         CLT_INVALID_ARGUMENT, "y"},
        {[&] { s.store.get("fc1.weight", one); }, CLT_INVALID_ARGUMENT, "fc1.weight"},
        {[&] { s.store.get("fc1.wieght", one); }, CLT_NOT_FOUND, "fc1.weight"},
        {[&] { (void)t.section("tme"); }, CLT_NOT_FOUND, "did you mean 'time'?"},
        {[&] {
             clt::step_arrays(freed, {{"x", xs}, {"y", ys}});
         },
         CLT_INVALID_ARGUMENT, "the trainer is empty"},
        /* 0 bytes, where C would end a text */
        {[&] { t.set_section(cut, "1"); }, CLT_INVALID_ARGUMENT, "clt_trainer_set_section: name"},
        {[&] { t.set_section("mesh", cut); }, CLT_INVALID_ARGUMENT, "text has a 0 byte"},
        {[&] { (void)t.section(std::string_view(cut)); }, CLT_INVALID_ARGUMENT, "0 byte"},
        {[&] { (void)clt::dataset::create_arrays(cut, 1); }, CLT_INVALID_ARGUMENT, "0 byte"},
        {[&] { (void)clt::output(clt::relu(input), cut); }, CLT_INVALID_ARGUMENT,
         "clt_output: name has a 0 byte"},
        {[&] { (void)clt::apply(other, cut, input); }, CLT_INVALID_ARGUMENT, "0 byte"},
        {[&] { (void)clt::devices_open(s.runtime, cut); }, CLT_INVALID_ARGUMENT, "0 byte"},
        {[&] {
             clt::trainer_options options;
             options.variants = cut;
             (void)clt::trainer(s.graph, s.store, options);
         },
         CLT_INVALID_ARGUMENT, "trainer_options.variants has a 0 byte"},
        {[&] { open_csv("a,b,y\n1,2,3\n4,NaN,6\n7,8,9\n"); }, CLT_FORMAT, "line 3, column 2 ('b')"},
        {[&] { open_csv("a,b,y\n1,2,3\n4,5,6,7\n7,8,9\n"); }, CLT_FORMAT, "line 3, column 4"},
        {[&] { open_csv("a,b,y\n1,2,3\n4,5,6\n7,8\n"); }, CLT_FORMAT, "line 4, column 3 ('y')"},
    };
    for (const row &r : rows) {
        CHECK_ERROR(r.call(), r.status, r.text);
        CHECK(clt::message().find('\n') == std::string::npos);
        CHECK(clean.step() == s.step());
    }
    std::vector<float> a(8), b(8);
    clean.store.get("fc1.weight", a);
    s.store.get("fc1.weight", b);
    CHECK(a == b);
}

/* Vectors that have fewer or more elements than C reads. */
void lengths()
{
    const char *list = std::getenv("CLT_TEST_DEVICES");
    const clt::runtime runtime;
    const std::vector<clt::device> devices =
        clt::devices_open(runtime, list && *list ? list : "pocl/2");
    const std::size_t n = devices.size();
    clt::graph graph;
    const clt::value x = clt::input(graph, "x", CLT_F32, {CLT_BATCH, 2}),
                     y = clt::input(graph, "y", CLT_F32, {CLT_BATCH, 1}),
                     w = clt::parameter(graph, "w", {1, 2}, {CLT_INIT_UNIFORM, 0.5, 0}),
                     p = clt::output(clt::linear(x, w, clt::value()), "p");
    const auto [sum, weight] = clt::mse(p, y);
    const auto [sum2, weight2] = clt::mse(clt::relu(p), y);
    clt::loss(graph, "first", sum, weight, 1);
    clt::loss(graph, "second", sum2, weight2, 1);
    const clt::store store(graph, devices, 1);
    clt::trainer_options options;
    options.batch = count;
    options.rebalance = 1;
    options.weights.assign(n + 1, 1);
    CHECK_ERROR(clt::trainer(graph, store, options), CLT_INVALID_ARGUMENT,
                "trainer_options.weights has");
    if (n > 1) {
        options.weights.assign(n - 1, 1);
        CHECK_ERROR(clt::trainer(graph, store, options), CLT_INVALID_ARGUMENT,
                    "the weights need a finite number for each of");
    }
    options.weights.assign(n, 1);
    const clt::trainer trainer(graph, store, options);
    clt::step_batch batch;
    batch.count = count;
    batch.feeds = {{"x", xs}, {"y", ys}};
    batch.offsets = {0};
    CHECK_ERROR(trainer.step(batch), CLT_INVALID_ARGUMENT, "the batch's offsets");
    CHECK_ERROR(trainer.predict(batch), CLT_INVALID_ARGUMENT, "the batch's offsets");
    batch.offsets.assign(n + 2, count);
    batch.offsets[0] = 0;
    CHECK_ERROR(trainer.step(batch), CLT_INVALID_ARGUMENT, "step_batch.offsets has");
    clt::means means;
    CHECK_ERROR(trainer.evaluate(batch, means), CLT_INVALID_ARGUMENT, "step_batch.offsets has");
    clt::predictor_options predictions;
    predictions.batch = count;
    const clt::predictor predictor(graph, store, predictions);
    batch.offsets = {0};
    CHECK_ERROR(predictor.run(batch), CLT_INVALID_ARGUMENT, "offsets");
    batch.offsets.clear();
    batch.loss_weights = {count};
    CHECK_ERROR(trainer.step(batch), CLT_INVALID_ARGUMENT,
                "step_batch.loss_weights has 1 elements, and needs 2");
    CHECK_ERROR(trainer.set_weights({}, 1), CLT_INVALID_ARGUMENT, "weights is empty");
    CHECK_ERROR(trainer.set_weights(std::vector<double>(n + 1, 1), 1), CLT_INVALID_ARGUMENT,
                "clt_trainer_set_weights: weights has");
    if (n > 1)
        CHECK_ERROR(trainer.set_weights(std::vector<double>(n - 1, 1), 1), CLT_INVALID_ARGUMENT,
                    "weight of part");
    trainer.set_weights(std::vector<double>(n, 1), 1);
    batch.loss_weights = {count, count};
    batch.offsets.assign(n + 1, count);
    batch.offsets[0] = 0;
    trainer.step(batch);
    trainer.wait();
    CHECK(trainer.steps() == 1);

    clt::reservoir_options kept;
    kept.policy = CLT_RESERVOIR_WEIGHTED;
    const clt::dataset reservoir = clt::dataset::create_reservoir("r", 8, kept);
    trainer.set_reservoir(reservoir);
    CHECK_ERROR(reservoir.push({xs, ys}, {1, 1, 1}), CLT_INVALID_ARGUMENT,
                "weights has 3 elements, and needs 4");
    reservoir.push({xs, ys}, {1, 1, 1, 1});
    const clt::dataset data = clt::dataset::create_arrays("d", count);
    data.add_array("x", xs, CLT_DATA_BORROW);
    data.add_array("y", ys, CLT_DATA_BORROW);
    CHECK_ERROR(data.set_sample_weights({1}), CLT_INVALID_ARGUMENT,
                "weights has 1 elements, and needs 4");
    data.set_sample_weights({1, 1, 0, 1});
    data.set_sample_weights({});
    clt::fit_options fit;
    fit.epochs = 1;
    fit.mean = {0.5}; /* without std, which is 1 then */
    CHECK_ERROR(clt::fit(trainer, data, clt::dataset(), fit), CLT_INVALID_ARGUMENT,
                "mean and std are given");

    clt::loader_desc desc;
    desc.dataset = data;
    desc.batch = count;
    desc.parts = 2;
    desc.bounds = {0, 4};
    CHECK_ERROR(clt::loader(desc), CLT_INVALID_ARGUMENT, "parts + 1 is 3");
    clt::cross_entropy_options weighted;
    weighted.class_weights = {1, 2};
    clt::graph classes;
    const clt::value logits = clt::input(classes, "l", CLT_F32, {CLT_BATCH, 3}),
                     labels = clt::input(classes, "c", CLT_I32, {CLT_BATCH});
    CHECK_ERROR(clt::cross_entropy(logits, labels, weighted), CLT_INVALID_ARGUMENT,
                "class_weights has 2 elements, but there are 3 classes");
    clt::planner_options quick;
    quick.seconds = 0.01;
    const clt::planner planner(graph, devices, options, quick);
    CHECK_ERROR(planner.predict(std::vector<int>(n + 1, 1), 0), CLT_INVALID_ARGUMENT, "use has");
    CHECK_ERROR(planner.weights(static_cast<int>(n) + 1), CLT_INVALID_ARGUMENT, "not the number");
}

/* Everything comes and goes again and again. AddressSanitizer finds what is left. */
void cycles()
{
    for (int i = 0; i < 20; i++) {
        const scene s;
        CHECK(s.step() > 0);
    }
}

} // namespace

int main()
{
    try {
        nothing_is_lost();
        lengths();
        cycles();
    } catch (const std::exception &e) {
        std::printf("unexpected: %s\n", e.what());
        failures++;
    }
    return report("bad input");
}
