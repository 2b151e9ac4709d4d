#include "device/discover/discover.h"

#include <stdio.h>
#include <string.h>

typedef struct quirk_row {
    const char *platform; /* part of the platform's name */
    const char *driver;   /* the start of the driver's version; "": any */
    int kind;             /* -1: any */
    int bits;
    const char *text;
} quirk_row;

enum {
    POCL_CPU =
        CLT_QUIRK_LATE_COMPILE | CLT_QUIRK_HOST_WIDTH | CLT_QUIRK_BUILTINS | CLT_QUIRK_KEEP_PARTS
};
#define POCL "Portable Computing Language"
#define POCL_TEXT "compiles at a kernel's first use; keeps compiled kernels in a cache of its own"

/* Measured, or from the vendors' documentation. The first match counts. core/builtins.clh replaces
 * a header of PoCL 3 only: other versions may name the functions differently, and they link kernels
 * at first use, too late to fall back. */
static const quirk_row rows[] = {
    {POCL, "3.", CLT_KIND_CPU, POCL_CPU | CLT_QUIRK_OWN_DECLARATIONS, POCL_TEXT},
    {POCL, "", CLT_KIND_CPU, POCL_CPU, POCL_TEXT},
    {POCL, "", -1, CLT_QUIRK_LATE_COMPILE | CLT_QUIRK_HOST_WIDTH, POCL_TEXT},
    {"Oclgrind", "", -1, CLT_QUIRK_NO_BINARIES | CLT_QUIRK_SERIAL_BUILD,
     "a checker: slow, cannot be split"},
    {"Intel", "", CLT_KIND_CPU, CLT_QUIRK_HOST_WORKS | CLT_QUIRK_BUILTINS,
     "the waiting host thread computes too; does not keep to parts: use it whole"},
    {"NVIDIA", "", CLT_KIND_GPU, CLT_QUIRK_WAIT_SPINS,
     "waits may spin; pinned memory is per context"},
    {"AMD", "", CLT_KIND_GPU, 0, ""},
};

int clt_find_quirks(const clt_device_info *info, char *text, size_t bytes)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strstr(info->platform, rows[i].platform) &&
            !strncmp(info->driver, rows[i].driver, strlen(rows[i].driver)) &&
            (rows[i].kind < 0 || rows[i].kind == info->kind)) {
            snprintf(text, bytes, "%s", rows[i].text);
            return rows[i].bits;
        }
    }
    snprintf(text, bytes, "%s", "");
    return 0;
}
