/* Meshes: reading their text, coordinates and groups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "graph/mesh.h"

static clt_mesh mesh_of(const char *text, int devices)
{
    clt_mesh m;
    if (clt_mesh_parse(text, devices, &m) != CLT_OK)
        fail_msg("%s: %s", text, clt_error_message());
    return m;
}

static void axes_are_read(void **state)
{
    (void)state;
    const clt_mesh all = mesh_of(NULL, 5), none = mesh_of("", 1);
    assert_int_equal(all.size[CLT_AXIS_DATA], 5);
    assert_int_equal(all.size[CLT_AXIS_TENSOR], 1);
    assert_int_equal(none.size[CLT_AXIS_DATA], 1);
    const clt_mesh m = mesh_of("pp=3,dp=2,tp=4:sequence", 24);
    assert_int_equal(m.stride[CLT_AXIS_TENSOR], 1);
    assert_int_equal(m.stride[CLT_AXIS_DATA], 4);
    assert_int_equal(m.stride[CLT_AXIS_PIPELINE], 8);
    assert_true(m.sequence && !mesh_of("tp=2", 2).sequence);
    const clt_mesh rest = mesh_of("pp=3,dp=*,tp=4", 24), want = mesh_of("pp=3,dp=2,tp=4", 24);
    assert_memory_equal(&rest, &want, sizeof rest);
    assert_int_equal(mesh_of("dp=*", 5).size[CLT_AXIS_DATA], 5);
}

/* The coordinates of a participant are the digits of its number, and lead back to it. */
static void coordinates_count_through_the_grid(void **state)
{
    static const int size[] = {2, 3, 4};
    static const clt_axis axis[] = {CLT_AXIS_TIME, CLT_AXIS_DATA, CLT_AXIS_SPACE};
    (void)state;
    const clt_mesh m = mesh_of("time=2,dp=3,space=4", 24);
    for (int p = 0; p < 24; p++) {
        const int want[] = {p / 12, p / 4 % 3, p % 4};
        int number = 0;
        for (int a = 0; a < 3; a++) {
            assert_int_equal(clt_mesh_coordinate(&m, axis[a], p), want[a]);
            number = number * size[a] + want[a];
        }
        assert_int_equal(number, p);
        assert_int_equal(clt_mesh_coordinate(&m, CLT_AXIS_PIPELINE, p), 0);
        assert_int_equal(clt_mesh_neighbour(&m, CLT_AXIS_DATA, p, 2), want[0] * 12 + 8 + want[2]);
    }
}

static void groups_differ_along_one_axis(void **state)
{
    int colours[12];
    (void)state;
    const clt_mesh m = mesh_of("dp=2,tp=2,pp=3", 12);
    for (int a = 0; a < CLT_AXES; a++) {
        clt_mesh_colours(&m, (clt_axis)a, colours);
        for (int p = 0; p < 12; p++)
            for (int q = 0; q < 12; q++) {
                bool same = true;
                for (int other = 0; other < CLT_AXES; other++)
                    same = same && (other == a || clt_mesh_coordinate(&m, (clt_axis)other, p) ==
                                                      clt_mesh_coordinate(&m, (clt_axis)other, q));
                assert_int_equal(colours[p] == colours[q], same);
            }
    }
}

/* dp, space and time taken as one: its places count in the participants' order, whatever lies
 * between. */
static void samples_are_one_axis(void **state)
{
    static const char *const texts[] = {
        "dp=2,tp=2,space=3", "space=3,tp=2,dp=2", "tp=2,time=2,dp=3", "tp=12", "dp=12",
        "pp=3,space=2,dp=2"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        clt_mesh m;
        int next[12] = {0}, colours[12];
        assert_int_equal(clt_mesh_parse(texts[i], 12, &m), CLT_OK);
        const int places = clt_mesh_places(&m, CLT_AXIS_SAMPLES);
        assert_int_equal(places, m.size[0] * m.size[3] * m.size[4]);
        clt_mesh_colours(&m, CLT_AXIS_SAMPLES, colours);
        for (int p = 0; p < 12; p++) {
            assert_int_equal(clt_mesh_coordinate(&m, CLT_AXIS_SAMPLES, p), next[colours[p]]++);
            for (int place = 0; place < places; place++) {
                const int q = clt_mesh_neighbour(&m, CLT_AXIS_SAMPLES, p, place);
                assert_int_equal(clt_mesh_coordinate(&m, CLT_AXIS_SAMPLES, q), place);
                assert_int_equal(colours[q], colours[p]);
            }
        }
    }
}

static void mistakes_are_named(void **state)
{
    static const struct {
        const char *text;
        int devices;
        const char *says;
    } cases[] = {{"dp=2,tp=2", 2, "'dp=2,tp=2' is for 4 devices, and all ranks together have 2"},
                 {"dq=2", 2, "no axis 'dq'; axes are local, dp, tp, pp, space and time"},
                 {"d=2", 2, "no axis 'd'"},
                 {"dp=2,dp=1", 2, "dp is given twice"},
                 {"tp=0", 1, "'tp=0' must be tp=N"},
                 {"tp=-2", 1, "'tp=-2' must be tp=N"},
                 {"tp", 1, "'tp' must be tp=N"},
                 {"tp=", 1, "'tp=' must be tp=N"},
                 {"tp=2x", 2, "'tp=2x' must be tp=N or tp=N:sequence"},
                 {"dp=2:sequence", 2, "'dp=2:sequence' must be dp=N"},
                 {"dp=2,", 2, "ends with a comma"},
                 {",dp=2", 2, "no axis ''"},
                 {"dp=*,tp=2", 3,
                  "needs a multiple of 2 devices (--devices), and all ranks together have 3"},
                 {"dp=*,tp=4", 2, "needs a multiple of 4 devices"},
                 {"tp=*", 2, "'tp=*' must be tp=N"},
                 {"dp=*2", 2, "'dp=*2' must be dp=N or dp=*"},
                 {"dp=2000000000", 2, "must be dp=N"},
                 {"dp=1000000,tp=1000000,pp=1000000", 2, "too many devices"},
                 {"dp=99999999999999999999", 2, "must be dp=N"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clt_mesh m;
        assert_int_equal(clt_mesh_parse(cases[i].text, cases[i].devices, &m), CLT_INVALID_ARGUMENT);
        if (!strstr(clt_error_message(), cases[i].says))
            fail_msg("%s: '%s' lacks '%s'", cases[i].text, clt_error_message(), cases[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axes_are_read), cmocka_unit_test(coordinates_count_through_the_grid),
        cmocka_unit_test(groups_differ_along_one_axis), cmocka_unit_test(samples_are_one_axis),
        cmocka_unit_test(mistakes_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
