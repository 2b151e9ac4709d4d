// The same from C++: the headers' declarations have C linkage.
#include <cltrain/status.h>
#include <cltrain/types.h>

int main()
{
    return clt_dtype_size(CLT_F64) == 8 && clt_status_name(CLT_OK)[0] == 'O' ? 0 : 1;
}
