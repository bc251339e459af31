/* A module that is wrong in one way, by the macros it is compiled with. Without any it lets every call pass. */
#include "trunkline_policy.h"

#ifndef VERSION
#define VERSION TRUNKLINE_POLICY_ABI_VERSION
#endif
#ifndef MAGIC
#define MAGIC TRUNKLINE_POLICY_MAGIC
#endif
#ifndef BYTES
#define BYTES sizeof(trunkline_policy_module)
#endif
#ifndef VERDICT
#define VERDICT TRUNKLINE_PASS
#endif
#ifndef CODE
#define CODE 7
#endif
#ifndef WORDS
#define WORDS 0
#endif
#ifndef RETURNS
#define RETURNS TRUNKLINE_DONE
#endif
#ifndef DECIDE
#define DECIDE decide
#endif
#ifndef NAME
#define NAME "hostile"
#endif

static int32_t create(const trunkline_config *config, trunkline_created *out, trunkline_words *words) {
    (void)config;
    (void)words;
#ifdef FIELDS
    out->fields_count = FIELDS;
#else
    (void)out;
#endif
    return TRUNKLINE_DONE;
}

static void destroy(void *instance) {
    (void)instance;
}

int32_t decide(void *instance, const trunkline_call *call, trunkline_answer *answer, trunkline_words *words) {
    (void)instance;
    (void)call;
    (void)words;
    answer->verdict = VERDICT;
    answer->code = CODE;
    answer->message.bytes = WORDS;
    return RETURNS;
}

#ifdef NO_ENTRY
#define TRUNKLINE_POLICY_MODULE ANOTHER_NAME
extern TRUNKLINE_EXPORT const trunkline_policy_module TRUNKLINE_POLICY_MODULE;
#endif

const trunkline_policy_module TRUNKLINE_POLICY_MODULE = {
    .head = {MAGIC, VERSION, BYTES},
    .name = TRUNKLINE_TEXT(NAME),
    .version = TRUNKLINE_TEXT("1"),
    .create = create,
    .destroy = destroy,
    .decide = DECIDE,
};
