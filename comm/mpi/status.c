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

/* --- communicators of the caller -------------------------------------------------------------- */

/* Lets failed calls on a communicator return. Sets *before to its error handler. */
static int let_return(MPI_Comm comm, MPI_Errhandler *before)
{
    int code = MPI_Comm_get_errhandler(comm, before);
    if (code != MPI_SUCCESS) {
        *before = MPI_ERRHANDLER_NULL;
        return code;
    }
    code = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (code != MPI_SUCCESS)
        MPI_Errhandler_free(before);
    return code;
}

static void put_back(MPI_Comm comm, MPI_Errhandler *before)
{
    if (*before == MPI_ERRHANDLER_NULL)
        return;
    MPI_Comm_set_errhandler(comm, *before);
    MPI_Errhandler_free(before); /* the communicator keeps it */
}

/* Asks MPI whether a handle stands for a communicator. Each call is local. */
static clt_status check_lent(MPI_Comm comm, const char *function)
{
    int inter = 0, size = 0, class = MPI_SUCCESS;
    int code = MPI_Comm_test_inter(comm, &inter);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(comm, &size);
    if (code != MPI_SUCCESS)
        MPI_Error_class(code, &class);
    if (class == MPI_ERR_COMM)
        return clt_mpi_fail(CLT_INVALID_ARGUMENT,
                            "%s: the handle is of no communicator; it was freed through another "
                            "copy of the handle, or never made: give a communicator in use",
                            function);
    CLT_TRY(clt_mpi_check(code, function));
    if (inter)
        return clt_mpi_fail(CLT_INVALID_ARGUMENT,
                            "%s: the communicator connects two groups of ranks: give the one that "
                            "MPI_Intercomm_merge makes of it",
                            function);
    return CLT_OK;
}

/* The caller's error handlers may end the program. An invalid handle has no error handler of its
 * own: before MPI 4 MPI_COMM_WORLD's is called, since then MPI_COMM_SELF's. */
clt_status clt_mpi_duplicate(MPI_Comm from, const char *function, MPI_Comm *to)
{
    MPI_Errhandler of_world = MPI_ERRHANDLER_NULL, of_self = MPI_ERRHANDLER_NULL,
                   of_comm = MPI_ERRHANDLER_NULL;
    if (from == MPI_COMM_NULL)
        return clt_mpi_fail(CLT_INVALID_ARGUMENT,
                            "%s: the MPI communicator is MPI_COMM_NULL: it was freed, or this "
                            "process is not in it",
                            function);
    clt_status status =
        clt_mpi_check(let_return(MPI_COMM_WORLD, &of_world), "MPI_Comm_set_errhandler");
    CLT_NEXT(status, clt_mpi_check(let_return(MPI_COMM_SELF, &of_self), "MPI_Comm_set_errhandler"));
    CLT_NEXT(status, check_lent(from, function));
    CLT_NEXT(status, clt_mpi_check(let_return(from, &of_comm), "MPI_Comm_set_errhandler"));
    CLT_NEXT(status, clt_mpi_check(MPI_Comm_dup(from, to), "MPI_Comm_dup"));
    CLT_NEXT(status, clt_mpi_check(MPI_Comm_set_errhandler(*to, MPI_ERRORS_RETURN),
                                   "MPI_Comm_set_errhandler"));
    put_back(from, &of_comm);
    put_back(MPI_COMM_SELF, &of_self);
    put_back(MPI_COMM_WORLD, &of_world);
    return status;
}
