/*
 * The driver through which libhdf5 reads. libhdf5's own driver opens the path by itself and gathers
 * small reads in an accumulator. libhdf5 1.10 overruns the accumulator if a damaged file has
 * addresses near 2^64. This driver reads a checked descriptor, refuses addresses outside the file,
 * and has no accumulator. It also returns an error if a file is shortened while it is read.
 */
#ifdef CLT_HAVE_HDF5

#include "data/arrays/hdf5_file.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/user_file.h"
#if H5_VERSION_GE(1, 13, 2)
#include <H5FDdevelop.h>
#endif

/* Passed from clt_hdf5_open to the driver. */
typedef struct source {
    int fd;
    int64_t bytes;
} source;

typedef struct opened {
    H5FD_t base; /* libhdf5's part comes first */
    source from;
    haddr_t end; /* end of the addresses that libhdf5 uses */
} opened;

static _Thread_local int64_t expected_bytes;

void clt_hdf5_expect_bytes(int64_t bytes)
{
    expected_bytes = bytes;
}

static H5FD_t *driver_open(const char *name, unsigned flags, hid_t fapl, haddr_t most)
{
    (void)name, (void)most;
    const source *from = H5Pget_driver_info(fapl);
    opened *file =
        from && !(flags & (H5F_ACC_RDWR | H5F_ACC_TRUNC | H5F_ACC_CREAT)) ? CLT_NEW(opened) : NULL;
    if (file)
        file->from = *from;
    return (H5FD_t *)file;
}

static herr_t driver_close(H5FD_t *file)
{
    clt_free(file);
    return 0;
}

static herr_t driver_query(const H5FD_t *file, unsigned long *flags)
{
    (void)file;
    *flags = H5FD_FEAT_DATA_SIEVE;
    return 0;
}

static haddr_t driver_get_eoa(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return ((const opened *)file)->end;
}

static herr_t driver_set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t end)
{
    (void)type;
    ((opened *)file)->end = end;
    return 0;
}

static haddr_t driver_get_eof(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return (haddr_t)((const opened *)file)->from.bytes;
}

static herr_t driver_read(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t bytes,
                          void *to)
{
    (void)dxpl;
    const source *from = &((const opened *)file)->from;
    const haddr_t all = (haddr_t)from->bytes;
    if (at > all || bytes > all - at)
        return -1;
    if (type == H5FD_MEM_DRAW && expected_bytes && bytes != (size_t)expected_bytes)
        return -1;
    return clt_file_read_at(from->fd, "the file", (int64_t)at, to, (int64_t)bytes) == CLT_OK ? 0
                                                                                             : -1;
}

static herr_t driver_write(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t bytes,
                           const void *data)
{
    (void)file, (void)type, (void)dxpl, (void)at, (void)bytes, (void)data;
    return -1;
}

static const H5FD_class_t driver_class = {
#if H5_VERSION_GE(1, 13, 2)
    .version = H5FD_CLASS_VERSION,
    .value = (H5FD_class_value_t)517, /* from the range for drivers that are not registered */
#endif
    .name = "cltrain",
    .maxaddr = INT64_MAX,
    .fc_degree = H5F_CLOSE_WEAK,
    .fapl_size = sizeof(source),
    .open = driver_open,
    .close = driver_close,
    .query = driver_query,
    .get_eoa = driver_get_eoa,
    .set_eoa = driver_set_eoa,
    .get_eof = driver_get_eof,
    .read = driver_read,
    .write = driver_write,
    .fl_map = H5FD_FLMAP_SINGLE,
};

/* Reads a little-endian number. */
static uint64_t number(const unsigned char *p, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | p[i];
    return value;
}

/* Checks that the file is as long as its superblock says. The superblock begins at byte 0, 512,
 * 1024, 2048 and so on. */
static clt_status check_superblock(const clt_hdf5_file *f)
{
    enum { BYTES = 64, OFFSETS = 8 };
    unsigned char p[BYTES];
    for (int64_t at = 0; at <= f->bytes - BYTES; at = at ? 2 * at : 512) {
        CLT_TRY(clt_file_read_at(f->fd, f->path, at, p, BYTES));
        if (memcmp(p, "\211HDF\r\n\032\n", 8))
            continue;
        const int version = p[8], old = version < 2, size = p[old ? 13 : 9];
        if (version > 3)
            return clt_fail(CLT_UNSUPPORTED,
                            "%s: HDF5's superblock of version %d, but 3 is the newest", f->path,
                            version);
        const unsigned char *end = p + (version == 0 ? 24 : version == 1 ? 28 : 12) + 2 * OFFSETS;
        if (size == OFFSETS && (number(end, OFFSETS) > INT64_MAX ||
                                (int64_t)number(end, OFFSETS) > f->bytes - (old ? 0 : at)))
            return clt_fail(CLT_FORMAT,
                            "%s: truncated or damaged: its superblock says that it has %llu bytes, "
                            "but there are %lld",
                            f->path, (unsigned long long)number(end, OFFSETS), (long long)f->bytes);
        return CLT_OK;
    }
    return clt_fail(CLT_FORMAT, "%s: is no HDF5 file, or damaged: it has no superblock", f->path);
}

/* Refuses to open the file of an external link. libhdf5 calls this before it opens one. */
static herr_t refuse_link(const char *parent, const char *group, const char *child,
                          const char *object, unsigned *flags, hid_t fapl, void *user)
{
    (void)parent, (void)group, (void)child, (void)object, (void)flags, (void)fapl, (void)user;
    return -1;
}

static clt_status open_hdf5(clt_hdf5_file *f)
{
    CLT_TRY(clt_file_open(f->path, &f->fd, &f->bytes));
    CLT_TRY(check_superblock(f));
    const source from = {f->fd, f->bytes};
    const hid_t fapl = H5Pcreate(H5P_FILE_ACCESS);
    f->driver = H5FDregister(&driver_class);
    f->access = H5Pcreate(H5P_LINK_ACCESS);
    if (fapl < 0 || f->driver < 0 || f->access < 0 ||
        H5Pset_elink_cb(f->access, refuse_link, NULL) < 0 ||
        H5Pset_driver(fapl, f->driver, &from) < 0) {
        H5Pclose(fapl);
        return clt_fail(CLT_OUT_OF_MEMORY, "%s: libhdf5 cannot be prepared", f->path);
    }
    f->file = H5Fopen(f->path, H5F_ACC_RDONLY, fapl);
    H5Pclose(fapl);
    return f->file >= 0 ? CLT_OK : clt_fail(CLT_FORMAT, "%s: is no HDF5 file, or damaged", f->path);
}

clt_status clt_hdf5_open(const char *path, clt_hdf5_file *out)
{
    clt_hdf5_file f = {.path = path, .fd = -1, .driver = -1, .file = -1, .access = -1};
    const clt_status status = open_hdf5(&f);
    if (status == CLT_OK)
        *out = f;
    else
        clt_hdf5_close(&f);
    return status;
}

void clt_hdf5_close(clt_hdf5_file *f)
{
    if (f->file >= 0)
        H5Fclose(f->file);
    if (f->access >= 0)
        H5Pclose(f->access);
    if (f->driver >= 0)
        H5FDunregister(f->driver);
    if (f->fd >= 0)
        close(f->fd);
}

#endif
