/* Symbol visibility and C linkage for the public headers. */
#ifndef CLTRAIN_EXPORT_H
#define CLTRAIN_EXPORT_H

#if defined(__GNUC__)
#define CLT_API __attribute__((visibility("default")))
#define CLT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define CLT_DEPRECATED(text) __attribute__((deprecated(text)))
#else
#define CLT_API
#define CLT_PRINTF(fmt, args)
#define CLT_DEPRECATED(text)
#endif

#ifdef __cplusplus
#define CLT_BEGIN_DECLS extern "C" {
#define CLT_END_DECLS }
#else
#define CLT_BEGIN_DECLS
#define CLT_END_DECLS
#endif

#endif
