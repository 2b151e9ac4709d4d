#include "comm/mpi/status.h"

#include <stdarg.h>
#include <stdio.h>

clt_status clt_mpi_fail(clt_status status, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return clt_error_set(status, text);
}

clt_status clt_mpi_check(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return CLT_OK;
    MPI_Error_string(code, text, &length);
    return clt_mpi_fail(CLT_MPI, "%s: %.*s", call, length, text);
}

clt_status clt_mpi_running(const char *function)
{
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized && !finalized)
        return CLT_OK;
    return clt_mpi_fail(CLT_STATE, "%s: MPI is %s", function,
                        finalized ? "finalised" : "not initialised; call MPI_Init before");
}

clt_status clt_mpi_duplicate(MPI_Comm from, MPI_Comm *to)
{
    if (from == MPI_COMM_NULL)
        return clt_mpi_fail(CLT_INVALID_ARGUMENT,
                            "the MPI communicator is MPI_COMM_NULL: it was freed, or this process "
                            "is not in it");
    CLT_TRY(clt_mpi_check(MPI_Comm_dup(from, to), "MPI_Comm_dup"));
    return clt_mpi_check(MPI_Comm_set_errhandler(*to, MPI_ERRORS_RETURN),
                         "MPI_Comm_set_errhandler");
}
