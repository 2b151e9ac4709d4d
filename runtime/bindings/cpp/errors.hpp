#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <cltrain/cltrain.h>
#include <cltrain/models.h>

/* 1: functions throw clt::error. 0, with -fno-exceptions or CLT_NO_EXCEPTIONS: only the functions
 * with a std::error_code exist, and builders return empty values. */
#if defined(CLT_NO_EXCEPTIONS) || !defined(__cpp_exceptions)
#define CLT_EXCEPTIONS 0
#else
#define CLT_EXCEPTIONS 1
#include <exception>
#include <stdexcept>
#endif

namespace clt
{

/* --- errors ---------------------------------------------------------------------------------- */

/* The category of error codes whose values are those of clt_status. The text of a code is short.
 * The whole message of the calling thread's last failure is clt::message(). */
inline const std::error_category &category() noexcept
{
    struct cltrain_category final : std::error_category {
        const char *name() const noexcept override
        {
            return "cltrain";
        }
        std::string message(int value) const override
        {
            return clt_status_text(static_cast<clt_status>(value));
        }
    };
    static const cltrain_category instance;
    return instance;
}

inline std::error_code make_error_code(clt_status status) noexcept
{
    return {static_cast<int>(status), category()};
}

/* The message of the calling thread's last failure, one line. */
inline std::string message()
{
    return clt_error_message();
}

#if CLT_EXCEPTIONS
/* A failure of the library. what() is its message: one line that names the file, option, node,
 * shape, device or rank. */
class error : public std::runtime_error
{
  public:
    error(clt_status status, const std::string &what) : std::runtime_error(what), status_(status)
    {
    }
    clt_status status() const noexcept
    {
        return status_;
    }
    std::error_code code() const noexcept
    {
        return make_error_code(status_);
    }

  private:
    clt_status status_;
};
#endif

} /* namespace clt */
