#include "base/blas_sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GEMMK, KREG, KWG, KWI, MDIMA, MDIMC, MWG, NDIMB, NDIMC, NWG, SA, SB, STRM, STRN, VWM, VWN };
enum { KWID, MDIMAD, MDIMCD, NDIMBD, NDIMCD, PADA, PADB, VWMD, VWND, WGD };

static const char *const packed_names[] = {"GEMMK", "KREG",  "KWG",   "KWI", "MDIMA", "MDIMC",
                                           "MWG",   "NDIMB", "NDIMC", "NWG", "SA",    "SB",
                                           "STRM",  "STRN",  "VWM",   "VWN"};
static const char *const direct_names[] = {"KWID", "MDIMAD", "MDIMCD", "NDIMBD", "NDIMCD",
                                           "PADA", "PADB",   "VWMD",   "VWND",   "WGD"};

/* Tiles for most GPUs come first. Then follow tiles for large local memories, for small ones,
 * without local memory, and the kernel that keeps two dimensions in registers. */
static const clt_blas_set packed_sets[] = {
    {{0, 1, 32, 2, 16, 16, 64, 8, 8, 64, 1, 1, 0, 0, 4, 4}},
    {{0, 1, 16, 2, 16, 16, 64, 16, 8, 128, 1, 1, 1, 0, 4, 8}},
    {{0, 1, 16, 2, 8, 16, 128, 8, 8, 128, 1, 1, 1, 1, 4, 8}},
    {{0, 1, 32, 2, 8, 8, 32, 8, 8, 32, 1, 1, 0, 0, 4, 4}},
    {{0, 1, 16, 2, 16, 32, 128, 32, 8, 64, 1, 1, 1, 1, 4, 2}},
    {{0, 1, 32, 2, 16, 32, 128, 16, 8, 64, 0, 0, 0, 0, 4, 1}},
    {{1, 4, 1, 1, 8, 8, 64, 8, 8, 64, 0, 0, 0, 0, 4, 4}},
    {{0, 1, 32, 2, 8, 8, 32, 16, 16, 32, 1, 1, 0, 0, 4, 2}},
};
static const clt_blas_set direct_sets[] = {
    {{2, 8, 8, 8, 8, 1, 1, 4, 2, 32}},    {{2, 16, 16, 8, 8, 1, 1, 2, 1, 32}},
    {{2, 8, 8, 16, 16, 1, 1, 4, 2, 32}},  {{16, 8, 8, 16, 16, 1, 1, 1, 1, 32}},
    {{8, 16, 32, 16, 8, 1, 0, 1, 1, 64}}, {{2, 16, 16, 8, 8, 1, 1, 1, 1, 16}},
    {{2, 8, 8, 8, 8, 1, 1, 1, 1, 8}},
};

const char *clt_blas_kernel_name(clt_blas_kernel kernel)
{
    return kernel == CLT_BLAS_PACKED ? "Xgemm" : "XgemmDirect";
}

int clt_blas_parameters(clt_blas_kernel kernel, const char *const **names)
{
    *names = kernel == CLT_BLAS_PACKED ? packed_names : direct_names;
    return (int)(kernel == CLT_BLAS_PACKED ? sizeof packed_names / sizeof *packed_names
                                           : sizeof direct_names / sizeof *direct_names);
}

/* Whether `value` is a power of two up to `most`. */
static bool power(int value, int most)
{
    return value >= 1 && value <= most && !(value & (value - 1));
}

static bool flag(int value)
{
    return value == 0 || value == 1;
}

static bool divides(int part, int whole)
{
    return part > 0 && whole % part == 0;
}

static bool packed_fits(const int *v, const clt_caps *caps)
{
    const int items = v[MDIMC] * v[NDIMC];
    const int64_t floats = v[KWG] * (v[SA] * v[MWG] + v[SB] * v[NWG]);
    if (items > caps->max_work_group || floats * (int64_t)sizeof(float) > caps->local_bytes)
        return false;
    if (v[KWG] * v[KREG] > CLT_BLAS_LARGEST_TILE || !divides(v[KWI], v[KWG]) ||
        !divides(v[MDIMC] * v[VWM], v[MWG]) || !divides(v[NDIMC] * v[VWN], v[NWG]) ||
        !divides(v[MDIMA] * v[VWM], v[MWG]) || !divides(v[NDIMB] * v[VWN], v[NWG]))
        return false;
    if (v[GEMMK])
        return v[KWG] == 1 && !v[SA] && !v[SB] && !v[STRM] && !v[STRN] && v[MDIMA] == v[MDIMC] &&
               v[NDIMB] == v[NDIMC] && divides(v[VWN], v[KREG]);
    return v[KREG] == 1 && divides(items / v[MDIMA], v[KWG]) && divides(items / v[NDIMB], v[KWG]);
}

static bool direct_fits(const int *v, const clt_caps *caps)
{
    const int items = v[MDIMCD] * v[NDIMCD];
    const int64_t floats = v[WGD] * (2 * v[WGD] + v[PADA] + v[PADB]);
    return items <= caps->max_work_group && floats * (int64_t)sizeof(float) <= caps->local_bytes &&
           divides(v[KWID], v[WGD]) && divides(v[MDIMCD] * v[VWMD], v[WGD]) &&
           divides(v[NDIMCD] * v[VWND], v[WGD]) && divides(v[MDIMAD] * v[VWMD], v[WGD]) &&
           divides(v[NDIMBD] * v[VWND], v[WGD]) && divides(items / v[MDIMAD], v[WGD]) &&
           divides(items / v[NDIMBD], v[WGD]);
}

bool clt_blas_set_fits(clt_blas_kernel kernel, const clt_blas_set *set, const clt_caps *caps)
{
    static const bool packed_flags[CLT_BLAS_PARAMETERS] = {
        [GEMMK] = true, [SA] = true, [SB] = true, [STRM] = true, [STRN] = true};
    static const bool direct_flags[CLT_BLAS_PARAMETERS] = {[PADA] = true, [PADB] = true};
    const bool *flags = kernel == CLT_BLAS_PACKED ? packed_flags : direct_flags;
    const char *const *names;
    for (int i = 0; i < clt_blas_parameters(kernel, &names); i++) {
        const int most = names[i][0] == 'V' ? 8 : CLT_BLAS_LARGEST_TILE;
        if (flags[i] ? !flag(set->values[i]) : !power(set->values[i], most))
            return false;
    }
    return kernel == CLT_BLAS_PACKED ? packed_fits(set->values, caps)
                                     : direct_fits(set->values, caps);
}

bool clt_blas_set_choice(clt_blas_kernel kernel, int index, const clt_caps *caps, clt_blas_set *set)
{
    const clt_blas_set *all = kernel == CLT_BLAS_PACKED ? packed_sets : direct_sets;
    const size_t count = kernel == CLT_BLAS_PACKED ? sizeof packed_sets / sizeof *packed_sets
                                                   : sizeof direct_sets / sizeof *direct_sets;
    for (size_t i = 0; i < count; i++)
        if (clt_blas_set_fits(kernel, &all[i], caps) && index-- == 0) {
            *set = all[i];
            return true;
        }
    return false;
}

void clt_blas_set_write(clt_blas_kernel kernel, const clt_blas_set *set, char text[CLT_BLAS_TEXT])
{
    const char *const *names;
    const int count = clt_blas_parameters(kernel, &names);
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < count && used < CLT_BLAS_TEXT; i++)
        used += (size_t)snprintf(text + used, CLT_BLAS_TEXT - used, "%s%s=%d", i ? "," : "",
                                 names[i], set->values[i]);
}

bool clt_blas_set_read(clt_blas_kernel kernel, const char *text, clt_blas_set *set)
{
    const char *const *names;
    const int count = clt_blas_parameters(kernel, &names);
    *set = (clt_blas_set){{0}};
    for (int i = 0; i < count; i++) {
        const size_t length = strlen(names[i]);
        char *end;
        if (strncmp(text, names[i], length) != 0 || text[length] != '=')
            return false;
        const long value = strtol(text + length + 1, &end, 10);
        if (end == text + length + 1 || value < 0 || value > CLT_BLAS_LARGEST_TILE ||
            *end != (i + 1 < count ? ',' : '\0'))
            return false;
        set->values[i] = (int)value;
        text = end + 1;
    }
    return true;
}
