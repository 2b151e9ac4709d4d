/* Handles, errors, callbacks and views of <cltrain/cltrain.hpp>. */
#include <cltrain/cltrain.hpp>

#include <stdexcept>

#include "check.hpp"
#if __has_include(<span>)
#include <span>
#endif

namespace
{

clt::graph regressor()
{
    return clt::mlp_regressor(2, {4}, 1, nullptr);
}

clt::trainer trainer_on(const clt::store &store, const clt::graph &graph)
{
    clt::trainer_options options;
    options.batch = 4;
    return {graph, store, options};
}

/* What a trainer needs lives as long as the trainer, in whatever order the handles go. */
void lifetimes()
{
    clt::trainer trainer;
    clt::predictor predictor;
    {
        clt::runtime runtime;
        std::vector<clt::device> devices = clt::devices_open(runtime, test_devices());
        clt::graph graph = regressor();
        clt::store store(graph, devices, 1);
        trainer = trainer_on(store, graph);
        predictor = clt::predictor(graph, store);
        store.reset();
        CHECK(!store);
        CHECK_ERROR(store.count(), CLT_INVALID_ARGUMENT, "the store is empty");
        CHECK_ERROR(trainer_on(store, graph), CLT_INVALID_ARGUMENT, "the store is empty");
        CHECK_ERROR(clt::store(graph, clt::device(), 1), CLT_INVALID_ARGUMENT,
                    "the device is empty");
    }
    double x[4][2] = {{0.5, 1}, {-1, 2}, {0, 0}, {1, 1}}, y[4][1] = {{0}, {1}, {2}, {3}};
    const double first = clt::step_arrays(trainer, {{"x", x}, {"y", y}});
    CHECK(first > 0);

    clt::trainer moved = std::move(trainer);
    CHECK(!trainer && moved);
    CHECK_ERROR(trainer.wait(), CLT_INVALID_ARGUMENT, "the trainer is empty");
    CHECK_ERROR(clt::step_arrays(trainer, {{"x", x}}), CLT_INVALID_ARGUMENT,
                "the trainer is empty");
    CHECK_ERROR(trainer.steps(), CLT_INVALID_ARGUMENT, "the trainer is empty");

    /* A trainer keeps the reservoir that it draws from, and gives up the one before. */
    for (int i = 0; i < 2; i++) {
        const clt::dataset reservoir = clt::dataset::create_reservoir("r", 8);
        moved.set_reservoir(reservoir);
        reservoir.push({x, y}, {});
    }
    CHECK(clt::step_reservoir(moved, 2) > 0);
    moved = clt::trainer();
    moved.reset();
    moved.reset();
    predictor.wait();
    predictor = nullptr;

    /* A value keeps its graph. */
    clt::value a;
    {
        clt::graph graph;
        a = clt::input(graph, "a", CLT_F32, {CLT_BATCH, 2});
    }
    CHECK(clt::relu(a).dim(1) == 2);
}

void many_cycles()
{
    const clt::runtime runtime;
    const std::vector<clt::device> devices = clt::devices_open(runtime, test_devices());
    for (int i = 0; i < 20; i++) {
        const clt::graph graph = regressor();
        const clt::store store(graph, devices, 1);
        const clt::trainer trainer = trainer_on(store, graph);
    }
}

void errors()
{
    clt::graph graph;
    const clt::value a = clt::input(graph, "a", CLT_F32, {CLT_BATCH, 3});
    CHECK_ERROR(clt::matmul(a, a, 0, 0), CLT_SHAPE, "matmul");
    CHECK_ERROR(clt::relu(a), CLT_SHAPE, "matmul"); /* the graph keeps its first failure */
    CHECK_ERROR(graph.status(), CLT_SHAPE, "matmul");
    CHECK_ERROR(clt::relu(clt::value()), CLT_INVALID_ARGUMENT, "clt_relu");

    std::error_code ec;
    const clt::dataset data = clt::dataset::open("nothing", clt::dataset_options(), ec);
    CHECK(!data && ec == clt::make_error_code(CLT_NOT_FOUND));
    CHECK(ec.message() == clt_status_text(CLT_NOT_FOUND) &&
          clt::message().find("nothing") != std::string::npos);
    CHECK(std::string(ec.category().name()) == "cltrain");
    const clt::dataset made = clt::dataset::create_arrays("d", 2, ec);
    CHECK(made && !ec);
    try {
        clt::dataset::open("nothing");
        CHECK(false);
    } catch (const clt::error &e) {
        CHECK(e.status() == CLT_NOT_FOUND && e.code() == clt::make_error_code(CLT_NOT_FOUND));
        CHECK(std::string(e.what()).find("nothing") != std::string::npos);
    }

    clt::graph other;
    const clt::value b = clt::input(other, "b", CLT_F32, {4, 3});
    CHECK_ERROR(clt::slice(b, {0}, {1}, {1}), CLT_INVALID_ARGUMENT,
                "start needs an element for each");
    CHECK_ERROR(clt::transpose(b, {0, 1, 2}), CLT_INVALID_ARGUMENT, "permutation");
    CHECK(clt::slice(b, {0, 0}, {2, CLT_TO_END}, {}).dim(0) == 2);
    CHECK(clt::chunk(b, 2, 0).size() == 2 && clt::concat({b, b}, 1).dim(1) == 6);
    CHECK(clt::constant(other, clt::view(std::array<float, 6>{}, {2, 3})).dim(1) == 3);
    CHECK(clt::apply(other, "relu", b).at(0).dim(0) == 4);
    CHECK_ERROR(clt::apply(other, "reluu", b), CLT_NOT_FOUND, "relu");
    CHECK(clt::split(10, 3, {}, 1) == (std::vector<std::int64_t>{0, 4, 7, 10}));
    CHECK_ERROR(clt::split(10, 3, {1.0}, 1), CLT_INVALID_ARGUMENT, "another length");
    CHECK_ERROR(clt::split(10, -3, {}, 1), CLT_INVALID_ARGUMENT, "negative");
    CHECK(clt::printable("a\nb") == "a\\nb");
    CHECK(clt::encode(clt::tokenizer::open("bytes"), "ab") ==
          (std::vector<std::int32_t>{'a', 'b'}));
}

/* The defaults of an option class are those of C, byte for byte. */
template <class C, class In, class Options> void same_defaults(void (*init)(C *))
{
    C expected;
    std::memset(static_cast<void *>(&expected), 0, sizeof expected);
    init(&expected);
    const Options options;
    const In in(options);
    CHECK(in.c.struct_size == expected.struct_size);
    CHECK(!std::memcmp(&in.c, &expected, sizeof expected));
}
#define SAME_DEFAULTS(name)                                                                        \
    same_defaults<clt_##name, clt::detail::in_##name, clt::name>(clt_##name##_init)

void options()
{
    SAME_DEFAULTS(trainer_options);
    SAME_DEFAULTS(store_options);
    SAME_DEFAULTS(fit_options);
    SAME_DEFAULTS(predictor_options);
    SAME_DEFAULTS(device_options);
    SAME_DEFAULTS(local_options);
    SAME_DEFAULTS(conv2d_options);
    SAME_DEFAULTS(pool2d_options);
    SAME_DEFAULTS(attention_options);
    SAME_DEFAULTS(batch_norm_options);
    CHECK(clt::dataset_options().split == "train" && clt::dataset_options().sequence == 0);
    clt::runtime_options folder;
    CHECK(!clt::detail::in_runtime_options(folder).c.cache_dir);
    folder.cache_dir = "";
    CHECK(*clt::detail::in_runtime_options(folder).c.cache_dir == 0);
    clt::fit_options fit;
    fit.mean = {0.5, 0.5};
    fit.std = {1};
    const clt::detail::in_fit_options in(fit);
    CHECK(in.c.channels == 2 && in.check());
}

void callbacks()
{
    const clt::runtime runtime;
    const std::vector<clt::device> devices = clt::devices_open(runtime, test_devices());
    const clt::graph graph = regressor();
    const clt::store store(graph, devices, 1);
    clt::trainer trainer = trainer_on(store, graph);
    std::vector<std::array<float, 2>> x(40);
    std::vector<std::array<float, 1>> y(40);
    const clt::dataset data = clt::dataset::create_arrays("zeros", 40);
    data.add_array("x", x, CLT_DATA_BORROW);
    data.add_array("y", y, CLT_DATA_BORROW);

    clt::fit_options fit;
    fit.epochs = 50;
    int steps = 0;
    fit.on_step = [&](const clt_progress &) {
        if (++steps == 3)
            throw std::logic_error("enough");
    };
    try {
        clt::fit(trainer, data, clt::dataset(), fit);
        CHECK(false);
    } catch (const std::logic_error &e) {
        CHECK(std::string(e.what()) == "enough");
    }
    CHECK(steps < 8); /* the run was stopped, and not at the end of 500 steps */
    fit.on_step = nullptr;
    fit.epochs = 1;
    clt::fit(trainer, data, data, fit); /* nothing is left of the exception */

    trainer = trainer_on(store, graph); /* a trainer goes on from its last step */
    fit.should_stop = [] { return 1; };
    CHECK_ERROR(clt::fit(trainer, data, clt::dataset(), fit), CLT_STOPPED, "");
    fit.should_stop = nullptr;

    const clt::dataset filled = clt::dataset::create_callback(
        "filled", 16, [](const std::int64_t *indices, std::int64_t count, void *const *fields) {
            for (std::int64_t i = 0; i < count; i++) {
                if (indices[i] == 9)
                    throw std::out_of_range("sample 9 is missing");
                if (fields[0])
                    static_cast<float *>(fields[0])[2 * i] =
                        static_cast<float *>(fields[0])[2 * i + 1] = 1;
                if (fields[1])
                    static_cast<float *>(fields[1])[i] = 0;
            }
        });
    filled.add_field("x", CLT_F32, {2});
    filled.add_field("y", CLT_F32, {1});
    trainer = trainer_on(store, graph);
    try {
        clt::fit(trainer, filled, clt::dataset(), fit);
        CHECK(false);
    } catch (const std::out_of_range &e) {
        CHECK(std::string(e.what()) == "sample 9 is missing");
    }

    /* Policies: the library's, and one of functions. The parts of a data set keep the whole. */
    clt::dataset_split_result parts;
    {
        const clt::dataset whole = clt::dataset::create_arrays("whole", 40);
        whole.add_array("x", x, CLT_DATA_BORROW);
        whole.add_array("y", y, CLT_DATA_BORROW);
        parts = whole.split(0.25, 1);
    }
    CHECK(parts.rest.count() == 30 && parts.part.count() == 10);
    trainer = trainer_on(store, graph);
    clt::watched watch;
    watch.metric = "val_loss";
    int evaluations = 0;
    clt::policy_functions functions;
    functions.name = "count";
    functions.evaluated = [&](clt_policy_run *run, const clt_evaluation &evaluation) {
        CHECK(clt_evaluation_value(&evaluation, "val_loss", nullptr) >= 0);
        if (++evaluations == 4)
            clt::policy_stop(run, "four are enough");
    };
    fit.epochs = 20;
    fit.validation = parts.part;
    fit.policies = {clt::policy::patience(watch, 100), clt::make_policy(functions)};
    std::string said;
    fit.on_policy = [&](std::int64_t, const char *what) { said = what; };
    clt::fit(trainer, parts.rest, clt::dataset(), fit);
    CHECK(evaluations == 4 && said.find("four are enough") != std::string::npos);
    functions.evaluated = [](clt_policy_run *, const clt_evaluation &) {
        throw std::domain_error("no number");
    };
    fit.policies = {clt::make_policy(functions)};
    trainer = trainer_on(store, graph);
    try {
        clt::fit(trainer, parts.rest, clt::dataset(), fit);
        CHECK(false);
    } catch (const std::domain_error &e) {
        CHECK(std::string(e.what()) == "no number");
    }
    watch.metric = "x";
    CHECK_ERROR(clt::policy::patience(watch, 0), CLT_INVALID_ARGUMENT, "");

    int told = 0;
    clt::compile_set([&](const char *, int, int done, int total) {
        told += done <= total;
        throw std::domain_error("dropped");
    });
    clt::runtime_options cold; /* programs are built anew */
    cold.cache_dir = "";
    const clt::store again(graph, clt::devices_open(clt::runtime(cold), test_devices()), 1);
    trainer = trainer_on(again, graph);
    clt::compile_set(nullptr);
    CHECK(told > 0);

    std::string lines;
    clt::log_set([&](clt_log_level, const char *line) { lines += line, throw 1; }, CLT_LOG_DEBUG);
    clt::log_set(nullptr, CLT_LOG_ERROR);
}

/* A callback resets or moves what the run uses, which lives until the run ends. */
void destroyed_in_callbacks()
{
    std::vector<std::array<float, 2>> x(16, {1, 2});
    std::vector<std::array<float, 1>> y(16, {3});
    std::vector<double> losses;
    for (int mode = 0; mode < 5; mode++) {
        clt::trainer trainer, elsewhere;
        clt::dataset data = clt::dataset::create_arrays("ones", 16);
        data.add_array("x", x, CLT_DATA_COPY);
        data.add_array("y", y, CLT_DATA_COPY);
        clt::fit_options fit;
        fit.epochs = 3;
        clt::policy_functions named;
        named.name = "named";
        fit.policies = {clt::make_policy(named)};
        {
            const clt::runtime runtime;
            const clt::graph graph = regressor();
            trainer =
                trainer_on(clt::store(graph, clt::devices_open(runtime, test_devices()), 1), graph);
        } /* the trainer alone keeps its store, and the store its devices */
        int epochs = 0;
        const auto change = [&] {
            if (mode == 1 || mode == 4)
                trainer.reset();
            if (mode == 2 && trainer)
                elsewhere = std::move(trainer);
            if (mode == 3 || mode == 4)
                data.reset();
        };
        fit.on_epoch = [&](const clt_progress &report) {
            if (++epochs == 3)
                losses.push_back(report.loss);
            change();
        };
        fit.on_gradients = [&](clt_trainer *, const clt_progress &) {
            change();
            return 0;
        };
        clt::fit(trainer, data, clt::dataset(), fit);
        CHECK(epochs == 3 && losses.back() == losses.front());
        CHECK(static_cast<bool>(trainer) == (mode == 0 || mode == 3));
        CHECK(static_cast<bool>(elsewhere) == (mode == 2));
    }

    /* C's own destroy takes effect when the run ends. */
    const clt::runtime runtime;
    const clt::graph graph = regressor();
    const clt::store store(graph, clt::devices_open(runtime, test_devices()), 1);
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = 4;
    clt_trainer *made = nullptr;
    CHECK(clt_trainer_create(graph.c(), store.c(), &options, &made) == CLT_OK);
    const clt::dataset data = clt::dataset::create_arrays("ones", 16);
    data.add_array("x", x, CLT_DATA_COPY);
    data.add_array("y", y, CLT_DATA_COPY);
    clt_fit_options fit;
    clt_fit_options_init(&fit);
    fit.user = made;
    fit.on_epoch = [](void *user, const clt_progress *) {
        clt_trainer_destroy(static_cast<clt_trainer *>(user));
    };
    CHECK(clt_fit(made, data.c(), nullptr, &fit) == CLT_OK);

    /* A function that fills samples gives its data set up, and fails. */
    clt::trainer trainer = trainer_on(store, graph);
    clt::dataset filled;
    filled = clt::dataset::create_callback(
        "filled", 16,
        [&](const std::int64_t *, std::int64_t, void *const *) {
            filled.reset();
            throw std::out_of_range("no sample");
        },
        true);
    filled.add_field("x", CLT_F32, {2});
    filled.add_field("y", CLT_F32, {1});
    try {
        clt::fit(trainer, filled);
        CHECK(false);
    } catch (const std::out_of_range &e) {
        CHECK(std::string(e.what()) == "no sample");
    } catch (const clt::error &e) {
        CHECK(false);
    }
}

/* What std::mdspan has, for compilers whose library lacks it. */
struct columns {
    const double *data;
    static constexpr std::size_t rank()
    {
        return 2;
    }
    const double *data_handle() const
    {
        return data;
    }
    std::size_t extent(std::size_t i) const
    {
        return i ? 2 : 3;
    }
    std::size_t stride(std::size_t i) const
    {
        return i ? 3 : 1;
    }
};

void views()
{
    std::vector<double> x(6);
    const std::vector<std::array<float, 4>> nested(3);
    std::int64_t labels[2][5] = {};
    const clt::array a(x), b(nested), c(labels);
    CHECK(a.rank == 1 && a.shape[0] == 6 && a.dtype == CLT_F64 && a.host == x.data() &&
          a.bytes == 48);
    CHECK(b.rank == 2 && b.shape[0] == 3 && b.shape[1] == 4 && b.strides[0] == 16 &&
          b.dtype == CLT_F32);
    CHECK(a.writable() && !b.writable());
    CHECK(c.rank == 2 && c.shape[1] == 5 && c.dtype == CLT_I64 && c.strides[0] == 40);
    const std::int64_t huge = std::int64_t{1} << 32;
    CHECK_ERROR(clt::view(x, {huge, huge}), CLT_INVALID_ARGUMENT, "do not make this shape");
    CHECK_ERROR(clt::view(x, {-2, 3}), CLT_INVALID_ARGUMENT, "do not make this shape");
    CHECK_ERROR(clt::view(x, {-1, -1}), CLT_INVALID_ARGUMENT, "do not make this shape");
    const clt::array far = clt::view(x.data(), {huge, huge}),
                     apart = clt::strided(x, {huge, huge}, {1, 1});
    CHECK(clt_array_check(&far, "x") != CLT_OK && clt_array_check(&apart, "x") != CLT_OK);
    const clt::array d = clt::view(x, {-1, 2});
    CHECK(d.shape[0] == 3 && d.shape[1] == 2 && d.strides[0] == 16);
    CHECK_ERROR(clt::view(x, {-1, 4}), CLT_INVALID_ARGUMENT, "6 elements do not make this shape");
    CHECK_ERROR(clt::view(x, {7}), CLT_INVALID_ARGUMENT, "6 elements do not make this shape");
    CHECK_ERROR(clt::strided(x, {2}, {1, 2}), CLT_INVALID_ARGUMENT, "1 dimensions, but 2 strides");
    const clt::array inside = clt::strided(x, {2, 2}, {3, 1}),
                     beyond = clt::strided(x, {2, 2}, {5, 1});
    CHECK(clt_array_check(&inside, "x") == CLT_OK);
    CHECK(clt_array_check(&beyond, "x") == CLT_INVALID_ARGUMENT);
    const clt::array m(columns{x.data()});
    CHECK(m.rank == 2 && m.shape[0] == 3 && m.strides[0] == 8 && m.strides[1] == 24 &&
          !m.writable());
    CHECK_ERROR(clt::fetch("p", nested), CLT_INVALID_ARGUMENT, "const memory");
    std::vector<std::uint8_t> nothing;
    const clt::array empty(nothing);
    CHECK(empty.shape[0] == 0 && clt_array_check(&empty, "empty") == CLT_OK);
#ifdef __cpp_lib_span
    const clt::array s(std::span<double>(x).subspan(2));
    CHECK(s.shape[0] == 4 && s.host == x.data() + 2);
#endif

    /* Numbers that do not fit are refused by the library, not cut. */
    const clt::dataset data = clt::dataset::create_arrays("labels", 2);
    labels[1][2] = std::int64_t{1} << 40;
    CHECK_ERROR(data.add_array("label", labels, CLT_DATA_COPY), CLT_INVALID_ARGUMENT, "");
}

} /* namespace */

int main()
{
    try {
        lifetimes();
        many_cycles();
        errors();
        options();
        callbacks();
        destroyed_in_callbacks();
        views();
    } catch (const std::exception &e) {
        std::printf("unexpected: %s\n", e.what());
        failures++;
    }
    return report("handles");
}
