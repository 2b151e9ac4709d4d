/* Bad input between steps: one exception with one line that names what is wrong, and nothing is
 * lost. A trainer that saw all of it has the bits of one that saw none. */
#include <cltrain/cltrain.hpp>

#include <cstdio>
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
        cycles();
    } catch (const std::exception &e) {
        std::printf("unexpected: %s\n", e.what());
        failures++;
    }
    return report("bad input");
}
