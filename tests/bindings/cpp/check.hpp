/* Checks for tests of <cltrain/cltrain.hpp>. cmocka's jump over destructors, so these only count.
 */
#ifndef CLT_TESTS_BINDINGS_CHECK_HPP
#define CLT_TESTS_BINDINGS_CHECK_HPP

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

inline int failures = 0;

#define CHECK(condition)                                                                           \
    ((condition) ? (void)0                                                                         \
                 : (void)(failures++,                                                              \
                          std::printf("%s:%d: not true: %s\n", __FILE__, __LINE__, #condition)))

inline void check_near(double value, double expected, double tolerance, const char *file, int line)
{
    if (!(std::fabs(value - expected) <= tolerance)) {
        failures++;
        std::printf("%s:%d: %.9g instead of %.9g\n", file, line, value, expected);
    }
}
#define CHECK_NEAR(value, expected, tolerance)                                                     \
    check_near(value, expected, tolerance, __FILE__, __LINE__)

/* The statement throws clt::error with this status, and a message that contains `text`. */
#define CHECK_ERROR(statement, wanted, text)                                                       \
    do {                                                                                           \
        try {                                                                                      \
            (void)(statement);                                                                     \
            failures++;                                                                            \
            std::printf("%s:%d: no error: %s\n", __FILE__, __LINE__, #statement);                  \
        } catch (const clt::error &e) {                                                            \
            if (e.status() != (wanted) || std::string(e.what()).find(text) == std::string::npos) { \
                failures++;                                                                        \
                std::printf("%s:%d: status %d, \"%s\"\n", __FILE__, __LINE__, e.status(),          \
                            e.what());                                                             \
            }                                                                                      \
        }                                                                                          \
    } while (0)

inline const char *test_devices()
{
    const char *list = std::getenv("CLT_TEST_DEVICES");
    return list && *list ? list : "pocl/1";
}

inline int report(const char *name)
{
    std::printf("%s: %d failure(s)\n", name, failures);
    return failures ? 1 : 0;
}

#endif
