#include <cltrain/types.h>

int clt_dtype_size(clt_dtype dtype)
{
    switch (dtype) {
#define CLT_DTYPE_CASE(name, value, bytes)                                                         \
    case CLT_##name:                                                                               \
        return bytes;
        CLT_DTYPE_LIST(CLT_DTYPE_CASE)
#undef CLT_DTYPE_CASE
    }
    return 0;
}

const char *clt_dtype_name(clt_dtype dtype)
{
    static const char *const names[] = {"f32", "f16", "bf16", "i32", "u8", "f64", "i64"};
    return (int)dtype >= 0 && (size_t)dtype < sizeof names / sizeof *names ? names[dtype] : "?";
}
