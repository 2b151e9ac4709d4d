/* Without exceptions: only the functions with an error code exist, and builders return empty
 * values. Compiled with -fno-exceptions. */
#include <cltrain/cltrain.hpp>

#include "check.hpp"

static_assert(!CLT_EXCEPTIONS);

int main()
{
    std::error_code ec;
    const clt::runtime runtime(clt::runtime_options(), ec);
    CHECK(runtime && !ec);
    const auto devices = clt::devices_open(runtime, test_devices(), clt::device_options(), ec);
    CHECK(!devices.empty() && !ec);
    CHECK(clt::devices_open(runtime, "nowhere", clt::device_options(), ec).empty() && ec);
    CHECK(ec.category() == clt::category() && clt::message().find("nowhere") != std::string::npos);

    const clt::graph graph = clt::mlp_regressor(2, {4}, 1, nullptr, ec);
    const clt::store store(graph, devices, 1, ec);
    clt::trainer_options options;
    options.batch = 0;
    const clt::trainer refused(graph, store, options, ec);
    CHECK(!refused && ec == clt::make_error_code(CLT_INVALID_ARGUMENT));
    options.batch = 4;
    options.optimizer = CLT_ADAM;
    options.lr = 0.01;
    clt::trainer trainer(graph, store, options, ec);
    CHECK(trainer && !ec);
    double x[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}}, y[4][1] = {{0}, {1}, {1}, {2}};
    const double first = clt::step_arrays(trainer, {{"x", x}, {"y", y}}, ec);
    double last = first;
    for (int i = 0; i < 300 && !ec; i++)
        last = clt::step_arrays(trainer, {{"x", x}, {"y", y}}, ec);
    CHECK(!ec && last < first / 4);
    (void)clt::step_arrays(trainer, {{"z", x}, {"y", y}}, ec);
    CHECK(ec && clt::message().find("z") != std::string::npos);
    const std::vector<float> kept(4);
    clt::predict_arrays(trainer, {{"x", x}}, {{"prediction", clt::view(kept, {4, 1})}}, ec);
    CHECK(ec == clt::make_error_code(CLT_INVALID_ARGUMENT) && kept[3] == 0);
    trainer.reset();
    trainer.wait(ec);
    CHECK(ec == clt::make_error_code(CLT_INVALID_ARGUMENT));
    CHECK(clt::message().find("the trainer is empty") != std::string::npos);

    const clt::graph wrong(ec);
    const clt::value a = clt::input(wrong, "a", CLT_F32, {CLT_BATCH, 3});
    CHECK(a && !clt::matmul(a, a, 0, 0) && !clt::relu(clt::matmul(a, a, 0, 0)));
    wrong.status(ec);
    CHECK(ec == clt::make_error_code(CLT_SHAPE));
    return report("codes");
}
