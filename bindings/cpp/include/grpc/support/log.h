// gpr_log and GPR_ASSERT, as programs use them.
#ifndef TRUNKLINE_GRPC_SUPPORT_LOG_H
#define TRUNKLINE_GRPC_SUPPORT_LOG_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum gpr_log_severity {
    GPR_LOG_SEVERITY_DEBUG,
    GPR_LOG_SEVERITY_INFO,
    GPR_LOG_SEVERITY_ERROR
} gpr_log_severity;

#define GPR_DEBUG __FILE__, __LINE__, GPR_LOG_SEVERITY_DEBUG
#define GPR_INFO __FILE__, __LINE__, GPR_LOG_SEVERITY_INFO
#define GPR_ERROR __FILE__, __LINE__, GPR_LOG_SEVERITY_ERROR

static inline const char *gpr_log_severity_string(gpr_log_severity severity) {
    return severity == GPR_LOG_SEVERITY_DEBUG ? "D" : severity == GPR_LOG_SEVERITY_INFO ? "I" : "E";
}

// What gRPC prints without GRPC_VERBOSITY is errors; so it is here, and the variable means the same.
static inline int gpr_should_log(gpr_log_severity severity) {
    const char *wanted = getenv("GRPC_VERBOSITY");
    if (wanted == NULL || strcmp(wanted, "ERROR") == 0) return severity == GPR_LOG_SEVERITY_ERROR;
    return strcmp(wanted, "DEBUG") == 0 ? 1 : strcmp(wanted, "INFO") == 0 && severity != GPR_LOG_SEVERITY_DEBUG;
}

#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
static inline void gpr_log(const char *file, int line, gpr_log_severity severity, const char *format, ...) {
    if (!gpr_should_log(severity)) return;
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s %s:%d] ", gpr_log_severity_string(severity), file, line);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

#define GPR_ASSERT(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            gpr_log(GPR_ERROR, "assertion failed: %s", #condition);                                                    \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)
#define GPR_DEBUG_ASSERT(condition) GPR_ASSERT(condition)
#define GPR_CODEGEN_ASSERT(condition) GPR_ASSERT(condition)

#endif
