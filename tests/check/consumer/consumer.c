/* A program outside the tree, which uses only the installed library. */
#include <stdio.h>
#include <string.h>

#include <cltrain/status.h>
#include <cltrain/types.h>

int main(void)
{
    if (strcmp(clt_status_name(CLT_OK), "OK") != 0 || clt_dtype_size(CLT_F16) != 2)
        return 1;
    printf("%s: %s\n", clt_status_name(CLT_SHAPE), clt_status_text(CLT_SHAPE));
    return 0;
}
