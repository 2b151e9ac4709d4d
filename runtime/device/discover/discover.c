#include "device/discover/discover.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/vec.h"
#include "device/discover/clblast.h"

#include <CL/cl_ext.h>

/* Queries for the slot that a device sits in. Not all versions of cl_ext.h have them. */
enum { NV_PCI_BUS_ID = 0x4008, NV_PCI_SLOT_ID = 0x4009, NV_PCI_DOMAIN_ID = 0x400A };
enum { AMD_TOPOLOGY = 0x4037, KHR_PCI_BUS_INFO = 0x410F, KHR_UUID = 0x106A };

pthread_mutex_t clt_discovery_lock = PTHREAD_MUTEX_INITIALIZER;

static void trim(char *text)
{
    size_t start = strspn(text, " \t\n"), length = strlen(text + start);
    memmove(text, text + start, length + 1);
    while (length && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
}

/* Reads a text. Long texts are cut. */
static void platform_text(cl_platform_id platform, cl_platform_info what, char *out, size_t bytes)
{
    char text[8192] = "";
    if (clGetPlatformInfo(platform, what, sizeof text - 1, text, NULL) != CL_SUCCESS)
        text[0] = '\0';
    trim(text);
    snprintf(out, bytes, "%.*s", (int)bytes - 1, text);
}

static void device_text(cl_device_id id, cl_device_info what, char *out, size_t bytes)
{
    char text[8192] = "";
    if (clGetDeviceInfo(id, what, sizeof text - 1, text, NULL) != CL_SUCCESS)
        text[0] = '\0';
    trim(text);
    snprintf(out, bytes, "%.*s", (int)bytes - 1, text);
}

#define DEVICE_VALUE(type, name)                                                                   \
    static type device_##name(cl_device_id id, cl_device_info what)                                \
    {                                                                                              \
        type value = 0;                                                                            \
        if (clGetDeviceInfo(id, what, sizeof value, &value, NULL) != CL_SUCCESS)                   \
            value = 0;                                                                             \
        return value;                                                                              \
    }

DEVICE_VALUE(cl_uint, uint)
DEVICE_VALUE(cl_ulong, ulong)
DEVICE_VALUE(size_t, size)
DEVICE_VALUE(cl_bool, flag)

static int64_t as_int64(cl_ulong value)
{
    return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

/* Whether a list separated by blanks has this whole word. */
static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length) {
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    }
    return false;
}

static void find_identity(cl_device_id id, clt_device_info *info, const char *extensions)
{
    cl_uint pci[4] = {0};
    char topology[24] = {0};
    unsigned char uuid[16] = {0};
    if (info->kind == CLT_KIND_CPU) {
        snprintf(info->identity, sizeof info->identity, "host");
    } else if (has_word(extensions, "cl_khr_pci_bus_info") &&
               clGetDeviceInfo(id, KHR_PCI_BUS_INFO, sizeof pci, pci, NULL) == CL_SUCCESS) {
        snprintf(info->identity, sizeof info->identity, "pci:%04x:%02x:%02x.%x", pci[0], pci[1],
                 pci[2], pci[3]);
    } else if (has_word(extensions, "cl_nv_device_attribute_query") &&
               clGetDeviceInfo(id, NV_PCI_BUS_ID, sizeof pci[1], &pci[1], NULL) == CL_SUCCESS) {
        /* NVIDIA's slot holds the device in its upper five bits and the function in the lower
         * three. */
        cl_uint slot = device_uint(id, NV_PCI_SLOT_ID);
        snprintf(info->identity, sizeof info->identity, "pci:%04x:%02x:%02x.%x",
                 device_uint(id, NV_PCI_DOMAIN_ID), pci[1], slot >> 3, slot & 7);
    } else if (has_word(extensions, "cl_amd_device_attribute_query") &&
               clGetDeviceInfo(id, AMD_TOPOLOGY, sizeof topology, topology, NULL) == CL_SUCCESS) {
        snprintf(info->identity, sizeof info->identity, "pci:0000:%02x:%02x.%x",
                 (unsigned char)topology[21], (unsigned char)topology[22],
                 (unsigned char)topology[23]);
    } else if (has_word(extensions, "cl_khr_device_uuid") &&
               clGetDeviceInfo(id, KHR_UUID, sizeof uuid, uuid, NULL) == CL_SUCCESS) {
        int at = snprintf(info->identity, sizeof info->identity, "uuid:");
        for (int i = 0; i < 16; i++, at += 2)
            snprintf(info->identity + at, sizeof info->identity - (size_t)at, "%02x", uuid[i]);
    }
}

static int cpu_vector_width(cl_device_id id)
{
    cl_uint native = device_uint(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
    if (native == 0)
        native = device_uint(id, CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT);
    return native >= 16 ? 16 : native >= 8 ? 8 : 4;
}

static int cpu_vector_registers(int width)
{
#if defined(__x86_64__) || defined(__i386__)
    return width == 16 ? 32 : 16;
#elif defined(__aarch64__) || defined(__powerpc64__) || defined(__riscv)
    (void)width;
    return 32;
#else
    return width == 16 ? 32 : 16;
#endif
}

static void find_skip_reason(cl_device_id id, clt_device_info *info)
{
    int major = 0, minor = 0;
    if (!device_flag(id, CL_DEVICE_AVAILABLE))
        snprintf(info->skip, sizeof info->skip, "the driver says it is not available");
    else if (!device_flag(id, CL_DEVICE_COMPILER_AVAILABLE))
        snprintf(info->skip, sizeof info->skip, "the driver has no compiler");
    else if (!device_flag(id, CL_DEVICE_ENDIAN_LITTLE))
        snprintf(info->skip, sizeof info->skip, "it is not little endian");
    else if (sscanf(info->version, "OpenCL %d.%d", &major, &minor) != 2 || major < 1 ||
             (major == 1 && minor < 2))
        snprintf(info->skip, sizeof info->skip, "OpenCL 1.2 is required; it has: %.100s",
                 info->version);
    info->usable = info->skip[0] == '\0';
}

static bool can_partition(cl_device_id id)
{
    cl_device_partition_property kinds[16] = {0};
    size_t bytes = 0;
    if (clGetDeviceInfo(id, CL_DEVICE_PARTITION_PROPERTIES, sizeof kinds, kinds, &bytes) !=
        CL_SUCCESS)
        return false;
    for (size_t i = 0; i < bytes / sizeof kinds[0]; i++) {
        if (kinds[i] == CL_DEVICE_PARTITION_BY_COUNTS || kinds[i] == CL_DEVICE_PARTITION_EQUALLY)
            return true;
    }
    return false;
}

/* Writes the same facts in the form that operators and plans read. */
static void fill_caps(cl_device_id id, clt_device_row *row)
{
    const clt_device_info *info = &row->info;
    clt_caps *caps = &row->caps;
    snprintf(caps->name, sizeof caps->name, "%s", info->name);
    snprintf(caps->vendor, sizeof caps->vendor, "%s", info->vendor);
    snprintf(caps->platform, sizeof caps->platform, "%s", info->platform);
    snprintf(caps->driver, sizeof caps->driver, "%.40s %.80s", info->driver, info->version);
    caps->kind = (clt_device_kind)info->kind;
    caps->compute_units = info->compute_units;
    caps->vector_width = info->vector_width;
    if (info->kind == CLT_KIND_CPU)
        caps->vector_registers = cpu_vector_registers(info->vector_width);
    caps->memory_bytes = info->memory_bytes;
    caps->max_alloc_bytes = info->max_alloc_bytes;
    caps->local_bytes = info->local_bytes;
    caps->cache_bytes = as_int64(device_ulong(id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE));
    size_t group = device_size(id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    caps->max_work_group = group > INT32_MAX ? INT32_MAX : (int)group;
    caps->align_bytes = (int)device_uint(id, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
    caps->host_memory = info->host_memory != 0;
    caps->fp16 = info->fp16 != 0;
    caps->fp64 = info->fp64 != 0;
    caps->subgroups = info->subgroups != 0;
    caps->clblast = !clt_caps_is_cpu(caps) && clt_clblast_found();
}

void clt_describe_device(cl_platform_id platform, cl_device_id id, clt_device_row *row)
{
    clt_device_info *info = &row->info;
    char extensions[8192];
    *row = (clt_device_row){.platform = platform, .id = id};
    clt_device_info_init(info);
    platform_text(platform, CL_PLATFORM_NAME, info->platform, sizeof info->platform);
    platform_text(platform, CL_PLATFORM_VENDOR, info->platform_vendor,
                  sizeof info->platform_vendor);
    platform_text(platform, CL_PLATFORM_ICD_SUFFIX_KHR, info->suffix, sizeof info->suffix);
    for (char *c = info->suffix; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    device_text(id, CL_DEVICE_NAME, info->name, sizeof info->name);
    device_text(id, CL_DEVICE_VENDOR, info->vendor, sizeof info->vendor);
    device_text(id, CL_DRIVER_VERSION, info->driver, sizeof info->driver);
    device_text(id, CL_DEVICE_VERSION, info->version, sizeof info->version);
    device_text(id, CL_DEVICE_EXTENSIONS, extensions, sizeof extensions);

    cl_ulong type = device_ulong(id, CL_DEVICE_TYPE);
    info->kind = type & CL_DEVICE_TYPE_CPU   ? CLT_KIND_CPU
                 : type & CL_DEVICE_TYPE_GPU ? CLT_KIND_GPU
                                             : CLT_KIND_OTHER;
    info->memory_bytes = as_int64(device_ulong(id, CL_DEVICE_GLOBAL_MEM_SIZE));
    info->max_alloc_bytes = as_int64(device_ulong(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE));
    info->local_bytes = as_int64(device_ulong(id, CL_DEVICE_LOCAL_MEM_SIZE));
    info->compute_units = (int)device_uint(id, CL_DEVICE_MAX_COMPUTE_UNITS);
    info->vector_width = info->kind == CLT_KIND_CPU ? cpu_vector_width(id) : 1;
    info->fp16 = has_word(extensions, "cl_khr_fp16");
    info->fp64 = has_word(extensions, "cl_khr_fp64");
    info->subgroups =
        has_word(extensions, "cl_khr_subgroups") || has_word(extensions, "cl_intel_subgroups");
    info->host_memory = device_flag(id, CL_DEVICE_HOST_UNIFIED_MEMORY) != 0;
    info->splittable = can_partition(id);
    find_skip_reason(id, info);
    find_identity(id, info, extensions);
    row->quirks = clt_find_quirks(info, info->quirks, sizeof info->quirks);
    fill_caps(id, row);
}

/* Sets duplicate_of in rows of the same physical device as an earlier usable row. */
static void mark_duplicates(clt_device_row *rows, int count)
{
    for (int i = 0; i < count; i++) {
        clt_device_info *info = &rows[i].info;
        info->duplicate_of = -1;
        for (int j = 0; j < i && info->usable && info->identity[0]; j++) {
            const clt_device_info *earlier = &rows[j].info;
            /* Two rows of one platform are two devices, even if the driver reports the same slot
             * for both. */
            if (earlier->usable && earlier->duplicate_of < 0 &&
                rows[j].platform != rows[i].platform &&
                !strcmp(earlier->identity, info->identity)) {
                info->duplicate_of = j;
                break;
            }
        }
    }
}

static clt_status add_platform(clt_runtime *runtime, cl_platform_id platform)
{
    cl_uint found = 0;
    cl_int code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, NULL, &found);
    if (code != CL_SUCCESS || found == 0) {
        char name[128];
        platform_text(platform, CL_PLATFORM_NAME, name, sizeof name);
        clt_log(CLT_LOG_INFO, "platform %s has no device (%s)", name, clt_cl_code_name(code));
        return CLT_OK;
    }
    cl_device_id *ids = clt_calloc(found, sizeof *ids);
    CLT_TRY_MEMORY(ids);
    clt_status status = CLT_OK;
    code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, found, ids, NULL);
    for (cl_uint i = 0; i < found && code == CL_SUCCESS && status == CLT_OK; i++) {
        status = CLT_RESERVE(runtime->rows, runtime->count, runtime->room, 1);
        if (status != CLT_OK)
            break;
        clt_device_row *row = &runtime->rows[runtime->count];
        clt_describe_device(platform, ids[i], row);
        row->info.index = runtime->count++;
        row->info.platform_index = (int)i;
    }
    clt_free(ids);
    return status;
}

clt_status clt_discover(clt_runtime *runtime)
{
    cl_uint count = 0;
    cl_int code = clGetPlatformIDs(0, NULL, &count);
    if (code != CL_SUCCESS || count == 0) {
        snprintf(
            runtime->remark, sizeof runtime->remark,
            "no OpenCL driver (ICD) was found (%s); install one, for CPUs for example Debian's "
            "pocl-opencl-icd, for GPUs the vendor's",
            clt_cl_code_name(code));
        return CLT_OK;
    }
    cl_platform_id *platforms = clt_calloc(count, sizeof *platforms);
    CLT_TRY_MEMORY(platforms);
    clt_status status = CLT_OK;
    code = clGetPlatformIDs(count, platforms, NULL);
    for (cl_uint i = 0; i < count && code == CL_SUCCESS && status == CLT_OK; i++) {
        /* Two .icd files may name the same driver. */
        bool known = false;
        for (cl_uint j = 0; j < i && !known; j++)
            known = platforms[j] == platforms[i];
        if (!known)
            status = add_platform(runtime, platforms[i]);
    }
    clt_free(platforms);
    CLT_TRY(status);
    mark_duplicates(runtime->rows, runtime->count);
    int usable = 0;
    for (int i = 0; i < runtime->count; i++)
        usable += runtime->rows[i].info.usable;
    if (runtime->count == 0)
        snprintf(
            runtime->remark, sizeof runtime->remark,
            "%u OpenCL platform%s found, but none has a device; install a driver for this "
            "machine's processor, for example Debian's pocl-opencl-icd (which finds none where "
            "it cannot write its cache: see POCL_CACHE_DIR)",
            count, count == 1 ? " was" : "s were");
    else if (usable == 0)
        snprintf(runtime->remark, sizeof runtime->remark,
                 "none of the %d OpenCL devices found can be used; device 0 (%.60s): %.100s",
                 runtime->count, runtime->rows[0].info.name, runtime->rows[0].info.skip);
    return CLT_OK;
}
